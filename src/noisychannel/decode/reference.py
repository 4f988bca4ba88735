"""Algorithm 1 of the paper, literally and slowly, one sentence at a time: the fast decoder is tested against it.

A chart of cells (i, j): cell (i, j) holds hypotheses y_1..y_j whose last symbol the direct model emitted after reading
x_1..x_i. Every score is computed from scratch from the whole prefix; nothing is shared with the fast decoder's search.
A1 to A6 are the steps of the algorithm.

``recombine=False`` is the paper's algorithm: the hypotheses of a cell are paths, so one output may take several places
of a beam. ``recombine=True`` joins equal outputs that arrive in a cell, and scores each prefix by the direct model's
whole column; this is what the fast decoder does.

Positions are 0-based here: cell i has read x[0..i].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Unpack

import torch
from torch import Tensor

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import TERMS, Weights
from noisychannel.decode.scorers import scorer_of
from noisychannel.decode.settings import SearchKeywords, SearchSettings
from noisychannel.decode.sources import started
from noisychannel.decode.terms import reads_contexts, scores_prefixes
from noisychannel.ids import BOS, EOS, PAD, UNK

Prefix = tuple[int, ...]
LONGEST = 30
"""Symbols of the longest output, if no settings are given."""


@dataclass(frozen=True)
class Entry:
    """A hypothesis in a cell."""

    prefix: Prefix
    direct: float
    objective: float


class ReferenceDecoder:
    """``NoisyChannelDecoder`` as far as the paper goes; ``recombine`` chooses between its two readings."""

    def __init__(
        self,
        direct: Any,
        channel: Any = None,
        lm: Any = None,
        weights: Weights = Weights(),  # noqa: B008 (frozen)
        *,
        extra: Mapping[str, Any] = {},
        settings: SearchSettings = SearchSettings(max_length=LONGEST),  # noqa: B008 (frozen)
        recombine: bool = True,
        **keywords: Unpack[SearchKeywords],
    ) -> None:
        self.direct, self.channel, self.weights = direct, channel, weights
        self.settings = settings = replace(settings, **keywords)
        if settings.per_symbol or settings.channel_words is not None:
            raise ValueError("per_symbol and channel_words must be off: Algorithm 1 has the objective of the paper")
        if settings.lm_proposals:
            raise ValueError("Algorithm 1 has no proposals by the language model: lm_proposals must be 0")
        used = {name: extra[name] for name, weight in weights.extra.items() if weight}
        self.sources = ({"lm": lm} if weights.lm else {}) | {n: t for n, t in used.items() if scores_prefixes(t)}
        self.final = {name: scorer_of(term) for name, term in used.items() if name not in self.sources}
        self.join = max if settings.search == "viterbi" else _log_add
        self.channel_join = max if settings.channel_alignment == "viterbi" else _log_add
        self.recombine = recombine

    @torch.no_grad()
    def decode(
        self, x: Sequence[int], watch: Callable[[int, list[list[Entry]]], None] | None = None
    ) -> list[Hypothesis]:
        """Every complete hypothesis that the search met, best first; ``watch`` gets each length and its cells."""
        scores = _Scores(self, tuple(x))
        I = len(x)
        chart: list[list[Entry]] = [[Entry((), 0.0, 0.0)], *([] for _ in range(I - 1))]
        answers: list[Hypothesis] = []
        for length in range(1, self.settings.longest_output(I) + 1):
            cells: list[list[Entry]] = []
            for i in range(I):
                entries = []
                for prefix, symbol, direct in self._proposals(chart, scores, i):
                    extended = (*prefix, symbol)  # A4
                    if symbol == EOS:
                        answers.append(scores.complete(extended, direct))
                    else:
                        entries.append(Entry(extended, direct, scores.partial(extended, i, direct)))
                # A2, A5: keep K2 by the objective.
                entries.sort(key=lambda entry: -entry.objective)
                cells.append(entries[: self.settings.k2])
            chart = cells
            if watch is not None:
                watch(length, chart)
            if not any(chart):
                break
        # A6: the best of column I over all lengths.
        return sorted(answers, key=lambda answer: -answer.score)

    def _proposals(self, chart: list[list[Entry]], scores: _Scores, i: int) -> list[tuple[Prefix, int, float]]:
        """A1, A3: the K1 best extensions into cell i, by O(parent) + log q(extension), with their direct scores.

        With ``look_ahead``, which is not in the paper, O of the parent has the channel's score of x[0..i-1].
        """
        ranked: dict[Any, tuple[float, float]] = {}
        for k in range(i + 1):
            for n, entry in enumerate(chart[k]):
                column, objective = scores.direct_step(entry.prefix), entry.objective
                if self.settings.look_ahead and entry.prefix:
                    objective = scores.partial(entry.prefix, i - 1, entry.direct)
                move = sum(column.log_shift[k:i]) + column.log_emit[i]
                for symbol in scores.symbols(i):
                    gain = move + column.word[i][symbol]
                    key = (entry.prefix, symbol) if self.recombine else (entry.prefix, symbol, k, n)
                    rank, direct = objective + gain, entry.direct + gain
                    if key in ranked:
                        rank = self.join(rank, ranked[key][0])
                    if self.recombine:
                        direct = scores.direct_column((*entry.prefix, symbol))[i]
                    ranked[key] = rank, direct
        best = sorted(ranked.items(), key=lambda item: -item[1][0])[: self.settings.k1]
        return [(key[0], key[1], direct) for key, (_, direct) in best]


@dataclass(frozen=True)
class _DirectStep:
    """The direct model after a prefix: at each input position, shift, emit, and every word."""

    log_shift: list[float]
    log_emit: list[float]
    word: list[list[float]]


class _Scores:
    """Scores of prefixes of one sentence, each from scratch. They are cached, because they are asked for often."""

    def __init__(self, decoder: ReferenceDecoder, x: Prefix) -> None:
        self.decoder, self.x = decoder, x
        self.inputs, self.lengths = torch.tensor([x]), torch.tensor([len(x)])
        self.direct_step = cache(self._direct_step)
        self.direct_column = cache(self._direct_column)
        self.channel_leave = cache(self._channel_leave)
        self.source_term = cache(self._source_term)
        self.vocab = len(self._direct_step(()).word[0])

    def symbols(self, i: int) -> list[int]:
        barred = {PAD, BOS} | (set() if self.decoder.settings.allow_unk else {UNK})
        barred |= set() if i == len(self.x) - 1 else {EOS}
        return [w for w in range(self.vocab) if w not in barred]

    def _direct_step(self, prefix: Prefix) -> _DirectStep:
        model = self.decoder.direct
        side = model.read_inputs(self.inputs, self.lengths)
        written = model.read_outputs(torch.tensor([[*prefix, EOS]]))
        last = type(written)(*(part[:, -1:] for part in written))
        emit = model.emit_logits(side, last)[0, :, 0]
        word_IV = (side.scores[0] + last.scores[0]).log_softmax(-1)
        return _DirectStep(*(x.tolist() for x in (_log_sigmoid(-emit), _log_sigmoid(emit), word_IV)))

    def _direct_column(self, prefix: Prefix) -> list[float]:
        """log q(prefix, z_j = i) for every i, by the definition of the alignment."""
        if not prefix:
            return [0.0] + [-math.inf] * (len(self.x) - 1)
        before, step = self.direct_column(prefix[:-1]), self.direct_step(prefix[:-1])
        column = []
        for i in range(len(self.x)):
            ways = [before[k] + sum(step.log_shift[k:i]) for k in range(i + 1)]
            total = ways[0]
            for way in ways[1:]:
                total = self.decoder.join(total, way)
            column.append(total + step.log_emit[i] + step.word[i][prefix[-1]])
        return column

    def _channel_leave(self, prefix: Prefix) -> list[list[float]]:
        """log leave(j, i) of the channel for every position j of the prefix and i of x."""
        model, x = self.decoder.channel, self.x
        side = model.read_inputs(torch.tensor([prefix]), torch.tensor([len(prefix)]))
        written = model.read_outputs(self.inputs)
        emit_JI = model.emit_logits(side, written)[0]
        word_JIV = (side.scores[0][:, None] + written.scores[0][None]).log_softmax(-1)
        word_JI = word_JIV.gather(2, torch.tensor(x)[None, :, None].expand(len(prefix), -1, 1)).squeeze(2)
        log_emit, log_shift = _log_sigmoid(emit_JI).tolist(), _log_sigmoid(-emit_JI).tolist()
        leave: list[list[float]] = []
        arrive: list[list[float]] = []
        for j in range(len(prefix)):
            arrive.append([])
            leave.append([])
            for i in range(len(x)):
                left = leave[j][i - 1] if i > 0 else (0.0 if j == 0 else -math.inf)
                above = arrive[j - 1][i] + log_shift[j - 1][i] if j > 0 else -math.inf
                arrive[j].append(self.decoder.channel_join(left, above))
                leave[j].append(arrive[j][i] + log_emit[j][i] + float(word_JI[j, i]))
        return leave

    def _source_term(self, name: str, prefix: Prefix) -> float:
        model = self.decoder.sources[name]
        state = started(model, self.inputs, self.lengths)
        total, previous = 0.0, BOS
        for symbol in prefix:
            log_probs, state = model.step(torch.tensor([previous]), state)
            if log_probs is None:
                total += float(model.score(state, torch.tensor([symbol])))
            else:
                total += float(log_probs[0, symbol])
            previous = symbol
        return total

    def source_terms(self, prefix: Prefix) -> dict[str, float]:
        return {name: self.source_term(name, prefix) for name in self.decoder.sources}

    def partial(self, prefix: Prefix, i: int, direct: float) -> float:
        """O of a partial hypothesis in cell i; in the last column x's EOS need not be explained yet."""
        terms = self.source_terms(prefix)
        if self.decoder.weights.channel:
            terms["channel"], at = 0.0, min(i, len(self.x) - 2)
            if at >= 0:
                terms["channel"] = -math.inf
                for row in self.channel_leave(prefix):
                    terms["channel"] = self.decoder.channel_join(terms["channel"], row[at])
        return self._objective(direct, terms, len(prefix))

    def complete(self, prefix: Prefix, direct: float) -> Hypothesis:
        """A complete hypothesis with every term, also those that score whole outputs only."""
        decoder, terms = self.decoder, {"direct": direct}
        if decoder.weights.channel:
            terms["channel"] = self.channel_leave(prefix)[-1][-1]
        terms |= self.source_terms(prefix)
        for name, scorer in decoder.final.items():
            pair = [self.x], [prefix[:-1]]
            (terms[name],) = scorer(*pair, None) if reads_contexts(scorer) else scorer(*pair)  # type: ignore[call-arg]
        terms = {name: terms[name] for name in (*TERMS, *decoder.weights.extra) if name in terms}
        return Hypothesis.of(
            prefix[:-1], self._objective(direct, terms, len(prefix)), terms, len(prefix), complete=True
        )

    def _objective(self, direct: float, terms: Mapping[str, float], length: int) -> float:
        """Equation (3), and further terms."""
        weights = self.decoder.weights
        total = (
            weights.direct * direct + weights.channel * terms.get("channel", 0.0) + weights.lm * terms.get("lm", 0.0)
        )
        total += weights.length * length
        for name, weight in weights.extra.items():
            total += weight * terms.get(name, 0.0)
        return total


def _log_sigmoid(x: Tensor) -> Tensor:
    return torch.nn.functional.logsigmoid(x.double())


def _log_add(a: float, b: float) -> float:
    if max(a, b) == -math.inf:
        return -math.inf
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))
