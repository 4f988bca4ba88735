"""The table of live prefixes of one output length, and the candidates that extend them.

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, N prefixes or
candidates that exist, R prefixes that are extended, K = K1, V output symbols, X input symbols, G gate size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.columns import ChannelColumn
from noisychannel.decode.packing import Packing


class PrefixTable(NamedTuple):
    """The live prefixes of one length, in the order of the first cell in which each survived, and of the rank in it.

    Algorithm 1 meets them in this order: of extensions that score the same, those of the first prefix come first.
    """

    objective: Tensor
    """O in the cells in which a prefix survived, else -inf. This is Q of Algorithm 1: [B,P,I]."""
    direct: Tensor
    """log q(prefix, z = i | x), whole: [B,P,I]."""
    terms: Mapping[str, Tensor]
    """Each source term of the prefix, with the context before it if the model reads features: [B,P]."""
    column: ChannelColumn | None
    """[B,P,I]."""
    packing: Packing
    output_scores: Tensor | None
    """The direct model's scores after the prefix: [B,P,V]; None if they are computed late, from ``output_states``."""
    output_states: Tensor | None
    """[N,H]."""
    output_gate: Tensor
    """[N,G]."""
    direct_state: Any
    channel_state: Any
    """States of the N prefixes."""
    source_states: Mapping[str, Any]
    """States of prefixes one symbol shorter: a source model is run on a prefix when that is extended."""
    source_parent: Tensor
    """The row of each prefix there, [N]."""
    unread: Mapping[str, Tensor]
    """The symbol that each source model reads next: the last of the prefix, or of the context: [N]."""
    parent: Tensor
    """Slot of the prefix without its last symbol, in the table before: [B,P]."""
    symbol: Tensor
    """The last symbol: [B,P]."""

    def select(self, rows: Tensor) -> PrefixTable:
        """The table of the given sentences."""
        kept = torch.zeros_like(self.parent[:, 0], dtype=torch.bool).index_fill_(0, rows, True)[self.packing.sentence]
        among = kept.nonzero().squeeze(1)
        return PrefixTable(
            objective=self.objective[rows],
            direct=self.direct[rows],
            terms={name: term[rows] for name, term in self.terms.items()},
            column=None if self.column is None else ChannelColumn(*(x[rows] for x in self.column)),
            packing=Packing.of(self.packing.filled[rows]),
            output_scores=None if self.output_scores is None else self.output_scores[rows],
            output_states=None if self.output_states is None else self.output_states[among],
            output_gate=self.output_gate[among],
            direct_state=self.direct_state.select(among),
            channel_state=None if self.channel_state is None else self.channel_state.select(among),
            source_states=self.source_states,
            source_parent=self.source_parent[among],
            unread={name: symbol[among] for name, symbol in self.unread.items()},
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
    terms: Mapping[str, Tensor]
    """Each source term: [B,Q]."""
    column: ChannelColumn | None
    """[B,Q,I]."""
    channel: Tensor | None
    """log p(x | y) of a candidate taken as complete: [B,Q]."""
    channel_state: Any
    """States of the N candidates."""
    source_states: Mapping[str, Any]
    """States of the R prefixes that are extended."""
    rows: Tensor
    """Those prefixes, among the N of the table: [R]."""
    family: Tensor
    """Which of them each of the N candidates extends: [N]."""
    packing: Packing
    place: Tensor
    """Which candidate each proposal is, -1 for none: [B,I,K]."""

    def with_channel(self, channel: Tensor | None) -> dict[str, Tensor]:
        """The source terms and this term of the channel."""
        return dict(self.terms) if channel is None else {"channel": channel, **self.terms}
