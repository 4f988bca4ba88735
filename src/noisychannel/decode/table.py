"""What the chart search is made of: sentences, the table of live prefixes, its candidates, and the answers.

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, N prefixes or
candidates that there are, K = K1, V output symbols, X input symbols, G gate size, A answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.columns import Accumulate, ChannelColumn, cumulative_max, cumulative_sum
from noisychannel.decode.objective import Weights
from noisychannel.models.protocols import ChannelModel, DirectModel, SourceModel
from noisychannel.models.ssnt import Side


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
        row = torch.zeros_like(filled_BP, dtype=torch.long)
        row[sentence, slot] = torch.arange(len(sentence), device=row.device)
        return Packing(sentence, slot, row, filled_BP)

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
    allowed: Tensor
    """Symbols that may be proposed, [V]."""
    lm_proposals: int
    """Further proposals for each cell, by the language model."""

    @property
    def over_direct(self) -> Accumulate:
        return cumulative_sum if self.marginal else cumulative_max

    @property
    def over_channel(self) -> Accumulate:
        return cumulative_max if self.channel_max else cumulative_sum


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
    direct: Side
    """What the direct model has read: [B,I,V], [B,I,G]."""
    channel: Side | None
    """What the channel is to write: [B,I,X], [B,I,G]."""
    context: Tensor
    """What stands before every output, and the channel reads first (features): [B,T]."""

    def at_last(self, x_BQI: Tensor) -> Tensor:
        """The value in each sentence's last column: [B,Q]."""
        last = (self.lengths - 1)[:, None, None].expand(-1, x_BQI.shape[1], 1)
        return x_BQI.gather(2, last).squeeze(2)


class Table(NamedTuple):
    """The live prefixes of one length."""

    objective: Tensor
    """O in the cells where a prefix survived, else -inf: [B,P,I]."""
    direct: Tensor
    """log q(prefix, z = i | x), whole: [B,P,I]."""
    lm: Tensor | None
    """log p(prefix): [B,P]."""
    column: ChannelColumn | None
    """[B,P,I]."""
    packing: Packing
    output_scores: Tensor
    """The direct model after the prefix: [B,P,V]."""
    output_gate: Tensor
    """[N,G]."""
    lm_next: Tensor | None
    """The language model's log p(next symbol): [B,P,V]."""
    direct_state: Any
    lm_state: Any
    channel_state: Any
    """States of the N prefixes."""
    parent: Tensor
    """Slot of the prefix without its last symbol, in the table before: [B,P]."""
    symbol: Tensor
    """The last symbol: [B,P]."""


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
        empty = torch.full((batch, size), -torch.inf, dtype=torch.float64, device=device)
        pointer = torch.zeros(batch, size, dtype=torch.long, device=device)
        return Answers(empty, empty, empty, empty, pointer, pointer)

    def merge(self, other: Answers) -> Answers:
        """The best of both."""
        both = Answers(*(torch.cat(pair, dim=1) for pair in zip(self, other, strict=True)))
        best = both.score.topk(self.score.shape[1], dim=1).indices
        return Answers(*(x.gather(1, best) for x in both))
