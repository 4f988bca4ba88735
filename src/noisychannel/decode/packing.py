"""Packing: networks run on the N prefixes that exist; sums and ranks use slots [B,P], some of them empty.

Shapes: B sentences, P slots of each, N filled slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Packing(NamedTuple):
    """Which slots of [B,P] are filled, and by which of the N rows."""

    sentence: Tensor
    """[N]."""
    slot: Tensor
    """[N]."""
    row: Tensor
    """The row of each slot, 0 if it is empty: [B,P]."""
    filled: Tensor
    """[B,P]."""

    @staticmethod
    def of(filled_BP: Tensor) -> Packing:
        """One row for each filled slot, in order."""
        sentence, slot = filled_BP.nonzero().unbind(1)
        return Packing.at(sentence, slot, filled_BP.shape)

    @staticmethod
    def at(sentence_N: Tensor, slot_N: Tensor, shape: Sequence[int]) -> Packing:
        """N rows in the given slots."""
        if shape[0] == 1 and slot_N.shape[0] == shape[1]:
            return Packing.whole(slot_N.shape[0], slot_N.device)
        row = torch.zeros(*shape, dtype=torch.long, device=slot_N.device)
        row[sentence_N, slot_N] = torch.arange(slot_N.shape[0], device=row.device)
        filled = torch.zeros_like(row, dtype=torch.bool)
        filled[sentence_N, slot_N] = True
        return Packing(sentence_N, slot_N, row, filled)

    @staticmethod
    def whole(rows: int, device: torch.device) -> Packing:
        """One sentence without empty slots."""
        slot_N = torch.arange(rows, device=device)
        return Packing(torch.zeros_like(slot_N), slot_N, slot_N[None], torch.ones_like(slot_N, dtype=torch.bool)[None])

    @property
    def is_whole(self) -> bool:
        """Whether slots and rows are the same."""
        B, P = self.filled.shape
        return B == 1 and self.slot.shape[0] == P

    def gather(self, x_BP: Tensor) -> Tensor:
        """[B,P,...] -> [N,...]: the content of the filled slots."""
        if self.is_whole:
            return x_BP[0]
        return x_BP[self.sentence, self.slot]

    def spread(self, x: Tensor) -> Tensor:
        """[N,...] -> [B,P,...], zero in empty slots."""
        if self.is_whole:
            return x[None]
        slots = x.new_zeros(*self.filled.shape, *x.shape[1:])
        slots[self.sentence, self.slot] = x
        return slots


def slot_columns(x_BIP: Tensor, slots_BQ: Tensor) -> Tensor:
    """The columns of the given slots: [B,I,P] -> [B,I,Q]."""
    if x_BIP.shape[0] == 1:
        return x_BIP.index_select(2, slots_BQ[0])
    return x_BIP.gather(2, slots_BQ[:, None].expand(-1, x_BIP.shape[1], -1))


def slot_rows(x_BPI: Tensor, slots_BQ: Tensor) -> Tensor:
    """The rows of the given slots: [B,P,I] -> [B,Q,I]."""
    if x_BPI.shape[0] == 1:
        return x_BPI.index_select(1, slots_BQ[0])
    return x_BPI.gather(1, slots_BQ[:, :, None].expand(-1, -1, x_BPI.shape[2]))
