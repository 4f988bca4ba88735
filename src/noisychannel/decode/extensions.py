"""Step A4 of Algorithm 1: the distinct extensions among the proposals of all cells.

Shapes: B sentences, I cells of one output length, P prefixes of the table, Q distinct extensions, N of them that exist,
R prefixes that are extended, K proposals of a cell, V output symbols.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.packing import Packing
from noisychannel.decode.proposals import Proposals


class Extensions(NamedTuple):
    """Prefixes with one more symbol, each once, in the order of their slots and symbols."""

    slot: Tensor
    """The extended prefix: [B,Q]."""
    symbol: Tensor
    """[B,Q]."""
    packing: Packing
    symbol_N: Tensor
    """``symbol`` of those that exist."""
    prefix_R: Tensor
    """The prefixes that are extended, among all B·P slots."""
    family_N: Tensor
    """Which of them each extends."""
    place: Tensor
    """Which extension each proposal is, -1 for none: [B,I,K]."""

    @staticmethod
    def of(proposals: Proposals, prefixes: int, symbols: int) -> Extensions | None:
        """Of prefixes in P slots by V symbols; None if nothing is proposed."""
        score, prefix, symbol = proposals
        B, P, V = len(score), prefixes, symbols
        proposed_BIK = score > -torch.inf
        keys = prefix * V + symbol
        if B > 1:
            keys += P * V * torch.arange(B, device=score.device)[:, None, None]
        keys_N, which = keys[proposed_BIK].unique(return_inverse=True)
        if not keys_N.shape[0]:
            return None
        row_N, symbol_N = keys_N // V, keys_N % V
        prefix_R, family_N = row_N.unique_consecutive(return_inverse=True)
        place = torch.full_like(prefix, -1)
        if B == 1:
            place[proposed_BIK] = which
            packing = Packing.whole(keys_N.shape[0], keys_N.device)
            return Extensions(row_N[None], symbol_N[None], packing, symbol_N, prefix_R, family_N, place)
        owner_N = row_N // P
        count_B = owner_N.bincount(minlength=B)
        rank_N = torch.arange(len(keys_N), device=keys_N.device) - (count_B.cumsum(0) - count_B)[owner_N]
        slot_BQ, symbol_BQ = torch.zeros(2, B, int(count_B.max()), dtype=torch.long, device=keys_N.device)
        slot_BQ[owner_N, rank_N], symbol_BQ[owner_N, rank_N] = row_N % P, symbol_N
        place[proposed_BIK] = rank_N[which]
        packing = Packing.at(owner_N, rank_N, slot_BQ.shape)
        return Extensions(slot_BQ, symbol_BQ, packing, symbol_N, prefix_R, family_N, place)
