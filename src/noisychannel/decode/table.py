"""What the chart search is made of: sentences, the table of live prefixes, its candidates, and the answers.

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, N prefixes or
candidates that there are, R prefixes that are extended, K = K1, V output symbols, X input symbols, G gate size, A
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.columns import ChannelColumn
from noisychannel.decode.objective import Weights
from noisychannel.decode.proposals import Listed
from noisychannel.joint import Scaled
from noisychannel.models.protocols import ChannelModel, DirectModel, Side, SourceModel
from noisychannel.semirings import Log, Max, Semiring


class Packing(NamedTuple):
    """Which slots of [B,P] are filled, and by which of the N rows."""

    sentence: Tensor
    """[N]."""
    slot: Tensor
    """[N]."""
    row: Tensor
    """The row of each slot, 0 where it is not filled: [B,P]."""
    filled: Tensor
    """[B,P]."""

    @staticmethod
    def of(filled_BP: Tensor) -> Packing:
        sentence, slot = filled_BP.nonzero().unbind(1)
        return Packing.at(sentence, slot, filled_BP.shape)

    @staticmethod
    def at(sentence_N: Tensor, slot_N: Tensor, shape: Sequence[int]) -> Packing:
        """The N slots that are filled, in their order."""
        row = torch.zeros(*shape, dtype=torch.long, device=slot_N.device)
        row[sentence_N, slot_N] = torch.arange(len(slot_N), device=row.device)
        filled = torch.zeros_like(row, dtype=torch.bool)
        filled[sentence_N, slot_N] = True
        return Packing(sentence_N, slot_N, row, filled)

    def gather(self, x_BP: Tensor) -> Tensor:
        """[B,P,...] -> [N,...]: what is in the slots that are filled."""
        return x_BP[self.sentence, self.slot]

    def spread(self, x: Tensor) -> Tensor:
        """[N,...] -> [B,P,...], zero where nothing is."""
        slots = x.new_zeros(*self.filled.shape, *x.shape[1:])
        slots[self.sentence, self.slot] = x
        return slots


@dataclass(frozen=True)
class Models:
    """What scores; a model whose weight is zero is None."""

    direct: DirectModel[Any]
    channel: ChannelModel[Any] | None
    lm: SourceModel[Any] | None


@dataclass(frozen=True)
class Settings:
    """How to search."""

    weights: Weights
    k1: int
    k2: int
    marginal: bool
    """Sum over the direct model's alignments instead of taking the best."""
    channel_max: bool
    """Take the channel's best alignment instead of the sum (the paper's equation)."""
    barred: frozenset[int]
    """Symbols that may not be proposed."""
    lm_proposals: int
    """Further proposals for each cell, by the language model."""

    def proposable(self, scores: Tensor) -> Tensor:
        """The direct model's scores [...,V] with -inf for the symbols that may not be proposed."""
        V = scores.shape[-1]
        if not all(0 <= symbol < V for symbol in self.barred):
            raise ValueError(f"barred: {sorted(self.barred)} are not all symbols of the vocabulary (0..{V - 1})")
        scores = scores.clone()
        scores[..., list(self.barred)] = -torch.inf
        return scores

    @property
    def over_direct(self) -> Semiring:
        return Log() if self.marginal else Max()

    @property
    def over_channel(self) -> Semiring:
        return Max() if self.channel_max else Log()


class Known(NamedTuple):
    """What one model makes of the input, prepared to meet many outputs."""

    words: Scaled
    """[B,I,V] for the direct model, [B,I,X] for the channel."""
    gate: Tensor
    """[B,I,G]."""

    @staticmethod
    def of(side: Side) -> Known:
        return Known(Scaled.of(side.scores), side.gate)

    def select(self, rows: Tensor) -> Known:
        return Known(Scaled(*(x[rows] for x in self.words)), self.gate[rows])


class Sentences(NamedTuple):
    """A batch of inputs as the models see them, read once."""

    inputs: Tensor
    """[B,I]."""
    lengths: Tensor
    """[B]."""
    inside: Tensor
    """False in the padding, [B,I]."""
    max_length: Tensor
    """Longest output, EOS included, [B]."""
    direct: Known
    """What the direct model has read."""
    proposable: Listed
    """The direct model's scores of the symbols that may be proposed, -inf of the others: [B,I,V]."""
    channel: Known | None
    """What the channel is to write."""
    context: Tensor
    """What stands before every output (features), and the channel reads first, as may the language model: [B,T]."""

    def at_last(self, x_BQI: Tensor) -> Tensor:
        """The value in each sentence's last column: [B,Q]."""
        last = (self.lengths - 1)[:, None, None].expand(-1, x_BQI.shape[1], 1)
        return x_BQI.gather(2, last).squeeze(2)

    def select(self, rows: Tensor) -> Sentences:
        return Sentences(
            self.inputs[rows],
            self.lengths[rows],
            self.inside[rows],
            self.max_length[rows],
            self.direct.select(rows),
            self.proposable.select(rows),
            None if self.channel is None else self.channel.select(rows),
            self.context[rows],
        )


class Table(NamedTuple):
    """The live prefixes of one length, in the order of the first cell in which each survived, and of the rank in it.

    Algorithm 1 meets them in this order: of extensions that score the same, those of the first prefix come first.
    """

    objective: Tensor
    """O in the cells where a prefix survived, else -inf: [B,P,I]."""
    direct: Tensor
    """log q(prefix, z = i | x), whole: [B,P,I]."""
    lm: Tensor | None
    """log p(prefix), or of what stands before it too, where the language model has read that: [B,P]."""
    column: ChannelColumn | None
    """[B,P,I]."""
    packing: Packing
    output_scores: Tensor
    """The direct model after the prefix: [B,P,V]."""
    output_gate: Tensor
    """[N,G]."""
    direct_state: Any
    channel_state: Any
    """States of the N prefixes."""
    lm_state: Any
    """States of prefixes one symbol shorter: the language model is run on those that propose, once they do."""
    lm_parent: Tensor
    """The row of each prefix there, [N]."""
    parent: Tensor
    """Slot of the prefix without its last symbol, in the table before: [B,P]."""
    symbol: Tensor
    """The last symbol; of the empty prefix, the last that the language model is to read before it: [B,P]."""

    def select(self, rows: Tensor) -> Table:
        """The table of the given sentences."""
        kept = torch.zeros_like(self.parent[:, 0], dtype=torch.bool).index_fill_(0, rows, True)[self.packing.sentence]
        among = kept.nonzero().squeeze(1)
        return Table(
            objective=self.objective[rows],
            direct=self.direct[rows],
            lm=None if self.lm is None else self.lm[rows],
            column=None if self.column is None else ChannelColumn(*(x[rows] for x in self.column)),
            packing=Packing.of(self.packing.filled[rows]),
            output_scores=self.output_scores[rows],
            output_gate=self.output_gate[among],
            direct_state=self.direct_state.select(among),
            channel_state=None if self.channel_state is None else self.channel_state.select(among),
            lm_state=self.lm_state,
            lm_parent=self.lm_parent[among],
            parent=self.parent[rows],
            symbol=self.symbol[rows],
        )


class Candidates(NamedTuple):
    """Distinct extensions, [B,Q], and their scores."""

    slot: Tensor
    """The extended prefix."""
    symbol: Tensor
    direct: Tensor
    """[B,Q,I]."""
    lm: Tensor | None
    """[B,Q]."""
    column: ChannelColumn | None
    """[B,Q,I]."""
    channel: Tensor | None
    """log p(x | y) of a candidate taken as complete: [B,Q]."""
    channel_state: Any
    """States of the N candidates."""
    lm_state: Any
    """States of the R prefixes that are extended."""
    rows: Tensor
    """Those prefixes, among the N of the table: [R]."""
    family: Tensor
    """Which of them each of the N candidates extends: [N]."""
    packing: Packing
    place: Tensor
    """Which candidate each proposal is, -1 for none: [B,I,K]."""


class Answers(NamedTuple):
    """The best complete hypotheses so far, best first, [B,A] each; score -inf where there is none."""

    score: Tensor
    direct: Tensor
    channel: Tensor
    lm: Tensor
    length: Tensor
    slot: Tensor
    """The prefix before EOS, in the table of length - 1."""

    @staticmethod
    def none(batch: int, size: int, device: torch.device) -> Answers:
        scores = (torch.full((batch, size), -torch.inf, dtype=torch.float64, device=device) for _ in range(4))
        pointers = (torch.zeros(batch, size, dtype=torch.long, device=device) for _ in range(2))
        return Answers(*scores, *pointers)

    def merge(self, other: Answers) -> Answers:
        """The best of both; of equal ones, these come first."""
        both = Answers(*(torch.cat(pair, dim=1) for pair in zip(self, other, strict=True)))
        best = both.score.argsort(dim=1, descending=True, stable=True)[:, : self.score.shape[1]]
        return Answers(*(x.gather(1, best) for x in both))

    def select(self, rows: Tensor) -> Answers:
        return Answers(*(x[rows] for x in self))

    def where_any(self, other: Answers) -> Answers:
        """These answers in the sentences that have one, and the others elsewhere."""
        any_B1 = (self.score > -torch.inf).any(1, keepdim=True)
        return Answers(*(torch.where(any_B1, mine, theirs) for mine, theirs in zip(self, other, strict=True)))

    def put(self, rows: Tensor, other: Answers) -> None:
        """Overwrite those of the sentences ``rows``."""
        for x, y in zip(self, other, strict=True):
            x[rows] = y
