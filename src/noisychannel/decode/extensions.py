"""Step A4 of Algorithm 1: the distinct extensions among the proposals of all cells.

Shapes: B sentences, I cells of one output length, P prefixes of the table, Q distinct extensions, N of them that exist,
R prefixes that are extended, K proposals of a cell, V output symbols.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
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
        if len(score) == 1 and score.device.type == "cpu":
            return Extensions._of_one(proposals, symbols)
        B, P, V = len(score), prefixes, symbols
        proposed_BIK = score > -torch.inf
        keys = prefix * V + symbol
        keys += P * V * torch.arange(B, device=score.device)[:, None, None]
        keys_N, which = keys[proposed_BIK].unique(return_inverse=True)
        if not keys_N.shape[0]:
            return None
        row_N, symbol_N = keys_N // V, keys_N % V
        prefix_R, family_N = row_N.unique_consecutive(return_inverse=True)
        place = torch.full_like(prefix, -1)
        owner_N = row_N // P
        count_B = owner_N.bincount(minlength=B)
        rank_N = torch.arange(len(keys_N), device=keys_N.device) - (count_B.cumsum(0) - count_B)[owner_N]
        slot_BQ, symbol_BQ = torch.zeros(2, B, int(count_B.max()), dtype=torch.long, device=keys_N.device)
        slot_BQ[owner_N, rank_N], symbol_BQ[owner_N, rank_N] = row_N % P, symbol_N
        place[proposed_BIK] = rank_N[which]
        packing = Packing.at(owner_N, rank_N, slot_BQ.shape)
        return Extensions(slot_BQ, symbol_BQ, packing, symbol_N, prefix_R, family_N, place)

    @staticmethod
    def _of_one(proposals: Proposals, symbols: int) -> Extensions | None:
        """``of`` for one sentence on a CPU: slots and rows are the same, and NumPy is faster."""
        score, prefix, symbol = (x.numpy() for x in proposals)
        place = np.full(score.shape, -1)
        proposed = score > -np.inf
        keys_N, place[proposed] = np.unique(prefix[proposed] * symbols + symbol[proposed], return_inverse=True)
        if not len(keys_N):
            return None
        row_N, symbol_N = np.divmod(keys_N, symbols)
        first_N = np.ones(len(row_N), np.bool_)
        np.not_equal(row_N[1:], row_N[:-1], out=first_N[1:])
        found = row_N, symbol_N, row_N[first_N], first_N.cumsum() - 1, place
        slot_N, symbol_N1, prefix_R, family_N, place_1IK = map(torch.from_numpy, found)
        packing = Packing.whole(len(keys_N), slot_N.device)
        return Extensions(slot_N[None], symbol_N1[None], packing, symbol_N1, prefix_R, family_N, place_1IK)
