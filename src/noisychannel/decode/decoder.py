"""``NoisyChannelDecoder``: the loop around the chart's steps, from ids to hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from noisychannel.decode.chart import (
    Answers,
    Models,
    Sentences,
    Settings,
    Table,
    first_table,
    partial_channel,
    read_sentences,
    step,
)
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.models.protocols import ChannelModel, DirectModel, SourceModel
from noisychannel.symbols import BOS, EOS, PAD, UNK


class NoisyChannelDecoder:
    """Searches for the outputs that maximise the weighted sum of the direct, channel and language model.

    Args:
        direct: Proposes, and is a term of the objective.
        channel: Scores the input given the (partial) output; needed where its weight is not zero. Unidirectional.
        lm: Scores the output; needed where its weight is not zero.
        weights: Of the objective.
        k1: Proposals of the direct model for each cell.
        k2: Survivors of each cell.
        max_length: Longest output, EOS included; twice the input's length plus ten where not given.
        search: "viterbi" scores an output by the direct model's best alignment (the paper), "marginal" by the sum.
        channel_alignment: "marginal" sums over the channel's, "viterbi" takes the best (the paper's equation).
        barred: Symbols never to be proposed, beside PAD, BOS and UNK (such as features).
        allow_unk: Propose UNK too.
    """

    def __init__(
        self,
        direct: DirectModel[Any],
        channel: ChannelModel[Any] | None = None,
        lm: SourceModel[Any] | None = None,
        weights: Weights = Weights(),  # noqa: B008 (frozen)
        k1: int = 20,
        k2: int = 10,
        max_length: int | None = None,
        search: Literal["viterbi", "marginal"] = "viterbi",
        channel_alignment: Literal["marginal", "viterbi"] = "marginal",
        barred: Sequence[int] = (),
        allow_unk: bool = False,
    ) -> None:
        if not 1 <= k2 <= k1:
            raise ValueError(f"k1 and k2 must satisfy 1 <= k2 <= k1, but are {k1} and {k2}")
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length must be at least 1 (EOS counts), but is {max_length}")
        for name, choice in (("search", search), ("channel_alignment", channel_alignment)):
            if choice not in ("viterbi", "marginal"):
                raise ValueError(f"{name} must be 'viterbi' or 'marginal', but is {choice!r}")
        if channel is not None and channel.bidirectional:
            raise ValueError(
                "the channel reads the output while it is being built, so it cannot be bidirectional; "
                "train one with bidirectional=False"
            )
        for name, model in (("channel", channel), ("lm", lm)):
            if getattr(weights, name) and model is None:
                raise ValueError(f"the weight {name} is {getattr(weights, name)}, but no {name} model is given")
        self.models = Models(direct, channel if weights.channel else None, lm if weights.lm else None)
        self.weights, self.k1, self.k2, self.max_length = weights, k1, k2, max_length
        self.search, self.channel_alignment = search, channel_alignment
        self.barred = {PAD, BOS, *barred} | (set() if allow_unk else {UNK})

    @torch.no_grad()
    def decode(self, inputs: Sequence[Sequence[int]], n_best: int = 1) -> list[list[Hypothesis]]:
        """The best outputs of each input (ids ending in EOS), decoded as one batch.

        Where no output reached EOS there is one hypothesis, the best partial one, with ``complete=False``.
        """
        if n_best < 1:
            raise ValueError(f"n_best must be at least 1, but is {n_best}")
        for n, ids in enumerate(inputs):
            if not ids or ids[-1] != EOS or EOS in ids[:-1]:
                raise ValueError(f"inputs[{n}] must end in EOS (id {EOS}) and hold no other: {list(ids)}")
        if not inputs:
            return []
        sentences = self._read(inputs)
        settings = self._settings(sentences, n_best)
        table: Table | None = first_table(self.models, sentences)
        answers = Answers.none(len(inputs), n_best, sentences.inputs.device)
        history: list[Table] = []
        for length in range(1, int(sentences.max_length.max()) + 1):
            if table is None:
                break
            history.append(table)
            table, answers = step(self.models, settings, sentences, table, answers, length)
        found = self._hypotheses(history, answers)
        return [
            self._align(ids, best) if best else [self._partial(history, sentences, n)]
            for n, (ids, best) in enumerate(zip(inputs, found, strict=True))
        ]

    def _read(self, inputs: Sequence[Sequence[int]]) -> Sentences:
        device = self._device()
        lengths = torch.tensor([len(ids) for ids in inputs], device=device)
        padded = torch.full((len(inputs), int(lengths.max())), PAD, device=device)
        for row, ids in zip(padded, inputs, strict=True):
            row[: len(ids)] = torch.tensor(ids, device=device)
        longest = 2 * lengths + 10 if self.max_length is None else torch.full_like(lengths, self.max_length)
        return read_sentences(self.models, padded, lengths, longest)

    def _settings(self, sentences: Sentences, n_best: int) -> Settings:
        allowed = torch.ones(sentences.direct.scores.shape[2], dtype=torch.bool, device=sentences.inputs.device)
        allowed[list(self.barred)] = False
        return Settings(
            self.weights,
            self.k1,
            self.k2,
            n_best,
            self.search == "marginal",
            self.channel_alignment == "viterbi",
            allowed,
        )

    def _hypotheses(self, history: list[Table], answers: Answers) -> list[list[Hypothesis]]:
        """The answers of each sentence, best first, not yet aligned."""
        columns = (x.tolist() for x in answers)
        found: list[list[Hypothesis]] = []
        for n, rows in enumerate(zip(*columns, strict=True)):
            best = []
            for score, direct, channel, lm, length, slot in zip(*rows, strict=True):
                if score > -torch.inf:
                    tokens = _tokens(history, n, length - 1, slot)
                    terms = channel if self.models.channel else None, lm if self.models.lm else None
                    best.append(Hypothesis(tokens, score, direct, *terms, length, None, None, complete=True))
            found.append(best)
        return found

    def _partial(self, history: list[Table], sentences: Sentences, n: int) -> Hypothesis:
        """The best of the longest partial outputs of a sentence without a complete one."""
        length = max(k for k, table in enumerate(history) if bool((table.objective[n] > -torch.inf).any()))
        table = history[length]
        slot, cell = divmod(int(table.objective[n].argmax()), table.objective.shape[2])
        channel = None
        if table.column is not None:
            channel = float(partial_channel(table.column.written, sentences.lengths)[n, slot, cell])
        lm = None if table.lm is None else float(table.lm[n, slot])
        score, direct = float(table.objective[n, slot, cell]), float(table.direct[n, slot, cell])
        return Hypothesis(
            _tokens(history, n, length, slot), score, direct, channel, lm, length, None, None, complete=False
        )

    def _align(self, ids: Sequence[int], found: list[Hypothesis]) -> list[Hypothesis]:
        """Add the best alignments, which the search itself does not need."""
        device = self._device()
        x, x_lengths = torch.tensor([list(ids)] * len(found), device=device), torch.full((len(found),), len(ids))
        y_lengths = torch.tensor([hypothesis.length for hypothesis in found])
        y = torch.full((len(found), int(y_lengths.max())), PAD, device=device)
        for row, hypothesis in zip(y, found, strict=True):
            row[: hypothesis.length] = torch.tensor([*hypothesis.tokens, EOS], device=device)
        alignments = _positions(self.models.direct.viterbi(x, x_lengths, y, y_lengths)[1])
        channel_alignments: list[tuple[int, ...]] | list[None] = [None] * len(found)
        if self.models.channel is not None:
            channel_alignments = _positions(self.models.channel.viterbi(y, y_lengths, x, x_lengths)[1])
        return [
            replace(hypothesis, alignment=alignment, channel_alignment=channel_alignment)
            for hypothesis, alignment, channel_alignment in zip(found, alignments, channel_alignments, strict=True)
        ]

    def _device(self) -> torch.device:
        return next(self.models.direct.parameters()).device


def _tokens(history: list[Table], n: int, length: int, slot: int) -> tuple[int, ...]:
    """The prefix in a slot of the table of its length, traced back to the empty one."""
    tokens: list[int] = []
    for table in reversed(history[1 : length + 1]):
        tokens.append(int(table.symbol[n, slot]))
        slot = int(table.parent[n, slot])
    return tuple(reversed(tokens))


def _positions(alignment_BJ: Tensor) -> list[tuple[int, ...]]:
    return [tuple(i for i in row if i >= 0) for row in alignment_BJ.tolist()]
