"""Dropout by keys as one kernel: one pass over memory instead of the dozen that ``models.masks`` needs.

Shapes: R rows, each with its own key; H elements per row.
"""

# Triton has no types, and may not be installed.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK: dict[str, Any] = {"BLOCK": 256, "num_warps": 2}


def drop(x_RH: Tensor, key_R: Tensor, lowest: int, factor: float) -> Tensor:
    """``factor`` times each element whose key, a signed 64-bit number, is at least ``lowest``; zero for the others."""
    return _Drop.apply(x_RH, key_R, lowest, factor)  # type: ignore[no-untyped-call]


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_RH: Tensor, key_R: Tensor, lowest: int, factor: float) -> Tensor:
        ctx.save_for_backward(key_R)
        ctx.settings = lowest, factor
        return _launch(x_RH, key_R, lowest, factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (key_R,) = ctx.saved_tensors
        return _launch(grads[0], key_R, *ctx.settings), None, None, None


def _launch(x_RH: Tensor, key_R: Tensor, lowest: int, factor: float) -> Tensor:
    x_RH = x_RH.contiguous()
    R, H = x_RH.shape
    dropped = torch.empty_like(x_RH)
    with torch.cuda.device_of(x_RH):
        _drop[R, triton.cdiv(H, BLOCK["BLOCK"])](x_RH, dropped, key_R, lowest, factor, H, **BLOCK)
    return dropped


@triton.jit
def _drop(
    x: tl.tensor,
    dropped: tl.tensor,
    keys: tl.tensor,
    lowest: tl.tensor,
    factor: tl.tensor,
    H: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """BLOCK elements of one row."""
    row = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    # The finaliser of splitmix64, as in models.masks.
    key = tl.load(keys + row).to(tl.uint64, bitcast=True) + h.to(tl.uint64) * 0x9E3779B97F4A7C15
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9
    key = (key ^ (key >> 27)) * 0x94D049BB133111EB
    key = key ^ (key >> 31)
    kept = key.to(tl.int64, bitcast=True) >= lowest
    value = tl.load(x + row * H + h, inside)
    tl.store(dropped + row * H + h, tl.where(kept, value * factor, 0.0).to(value.dtype), inside)
