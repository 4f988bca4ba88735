"""Algorithm 1 of the paper, literally and slowly, one sentence at a time: what the fast decoder is tested against.

A chart of cells (i, j): cell (i, j) holds hypotheses y_1..y_j whose last symbol the direct model emitted after reading
x_1..x_i. Every score is computed from scratch from the whole prefix; nothing is shared with the fast decoder's search.

``recombine=False`` is the paper's algorithm: the hypotheses of a cell are paths, so that one output may occupy several
places of a beam. ``recombine=True`` joins equal outputs that arrive in a cell, and scores each prefix by the direct
model's whole column; this is what the fast decoder does.

Positions are 0-based here: cell i has read x[0..i].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.ids import BOS, EOS, PAD, UNK

Prefix = tuple[int, ...]


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
        k1: int = 20,
        k2: int = 10,
        max_length: int = 30,
        search: Literal["viterbi", "marginal"] = "viterbi",
        recombine: bool = True,
    ) -> None:
        self.direct, self.channel, self.lm, self.weights = direct, channel, lm, weights
        self.k1, self.k2, self.max_length = k1, k2, max_length
        self.join = max if search == "viterbi" else _log_add
        self.recombine = recombine

    @torch.no_grad()
    def decode(self, x: Sequence[int]) -> list[Hypothesis]:
        """Every complete hypothesis the search met, best first."""
        scores = _Scores(self, tuple(x))
        I = len(x)
        chart: list[list[Entry]] = [[Entry((), 0.0, 0.0)], *([] for _ in range(I - 1))]
        answers: list[Hypothesis] = []
        for _ in range(self.max_length):
            cells: list[list[Entry]] = []
            for i in range(I):
                entries = []
                for prefix, symbol, direct in self._proposals(chart, scores, i):
                    extended = (*prefix, symbol)
                    if symbol == EOS:
                        answers.append(scores.complete(extended, direct))
                    else:
                        entries.append(Entry(extended, direct, scores.partial(extended, i, direct)))
                entries.sort(key=lambda entry: -entry.objective)
                cells.append(entries[: self.k2])
            chart = cells
            if not any(chart):
                break
        return sorted(answers, key=lambda answer: -answer.score)

    def _proposals(self, chart: list[list[Entry]], scores: _Scores, i: int) -> list[tuple[Prefix, int, float]]:
        """The K1 best extensions into cell i, by O(parent) + log q(extension), with their direct scores."""
        ranked: dict[Any, tuple[float, float]] = {}
        for k in range(i + 1):
            for n, entry in enumerate(chart[k]):
                column = scores.direct_step(entry.prefix)
                move = sum(column.log_shift[k:i]) + column.log_emit[i]
                for symbol in scores.symbols(i):
                    gain = move + column.word[i][symbol]
                    key = (entry.prefix, symbol) if self.recombine else (entry.prefix, symbol, k, n)
                    rank, direct = entry.objective + gain, entry.direct + gain
                    if key in ranked:
                        rank = self.join(rank, ranked[key][0])
                    if self.recombine:
                        direct = scores.direct_column((*entry.prefix, symbol))[i]
                    ranked[key] = rank, direct
        best = sorted(ranked.items(), key=lambda item: -item[1][0])[: self.k1]
        return [(key[0], key[1], direct) for key, (_, direct) in best]


@dataclass(frozen=True)
class _Step:
    """What the direct model says after a prefix: at each input position, shift, emit, and every word."""

    log_shift: list[float]
    log_emit: list[float]
    word: list[list[float]]


class _Scores:
    """Scores of prefixes of one sentence, each from scratch; remembered, because they are asked for often."""

    def __init__(self, decoder: ReferenceDecoder, x: Prefix) -> None:
        self.decoder, self.x = decoder, x
        self.inputs, self.lengths = torch.tensor([x]), torch.tensor([len(x)])
        self.direct_step = cache(self._direct_step)
        self.direct_column = cache(self._direct_column)
        self.channel_leave = cache(self._channel_leave)
        self.lm_score = cache(self._lm_score)
        self.vocab = len(self._direct_step(()).word[0])

    def symbols(self, i: int) -> list[int]:
        barred = {PAD, BOS, UNK} | (set() if i == len(self.x) - 1 else {EOS})
        return [w for w in range(self.vocab) if w not in barred]

    def _direct_step(self, prefix: Prefix) -> _Step:
        model = self.decoder.direct
        side = model.read_inputs(self.inputs, self.lengths)
        written = model.read_outputs(torch.tensor([[*prefix, EOS]]))
        last = type(written)(*(part[:, -1:] for part in written))
        emit = model.emit_logits(side, last)[0, :, 0]
        word_IV = (side.scores[0] + last.scores[0]).log_softmax(-1)
        return _Step(*(x.tolist() for x in (_log_sigmoid(-emit), _log_sigmoid(emit), word_IV)))

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
                arrive[j].append(_log_add(left, above))
                leave[j].append(arrive[j][i] + log_emit[j][i] + float(word_JI[j, i]))
        return leave

    def _lm_score(self, prefix: Prefix) -> float:
        state = self.decoder.lm.start(1)
        total, previous = 0.0, BOS
        for symbol in prefix:
            log_probs, state = self.decoder.lm.step(torch.tensor([previous]), state)
            total += float(log_probs[0, symbol])
            previous = symbol
        return total

    def partial(self, prefix: Prefix, i: int, direct: float) -> float:
        """O of a partial hypothesis in cell i; in the last column x's EOS need not be explained yet."""
        channel = 0.0
        if self.decoder.weights.channel:
            at = min(i, len(self.x) - 2)
            if at >= 0:
                channel = -math.inf
                for row in self.channel_leave(prefix):
                    channel = _log_add(channel, row[at])
        return self._objective(prefix, direct, channel)

    def complete(self, prefix: Prefix, direct: float) -> Hypothesis:
        weights = self.decoder.weights
        channel = self.channel_leave(prefix)[-1][-1] if weights.channel else None
        lm = self.lm_score(prefix) if weights.lm else None
        score = self._objective(prefix, direct, channel or 0.0)
        return Hypothesis(prefix[:-1], score, direct, channel, lm, len(prefix), None, None, True)

    def _objective(self, prefix: Prefix, direct: float, channel: float) -> float:
        weights = self.decoder.weights
        lm = self.lm_score(prefix) if weights.lm else 0.0
        return weights.direct * direct + weights.channel * channel + weights.lm * lm + weights.length * len(prefix)


def _log_sigmoid(x: Tensor) -> Tensor:
    return torch.nn.functional.logsigmoid(x.double())


def _log_add(a: float, b: float) -> float:
    if max(a, b) == -math.inf:
        return -math.inf
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))
