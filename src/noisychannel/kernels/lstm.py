"""The elementwise part of an LSTM step and of its gradient, one kernel each.

Shapes: N stacked models, B batch, H hidden size. The gates are in PyTorch's order: input, forget, cell, output.
"""

# Triton has no types, and may not be installed.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK: dict[str, Any] = {"BLOCK": 128, "num_warps": 1}


def step(gates_NB4H: Tensor, before_NBH: Tensor, hidden_NBH: Tensor, after_NBH: Tensor) -> None:
    """Compute ``hidden`` and the cell ``after`` from gate sums and the cell ``before``; the sums become the gates."""
    _, B, H = before_NBH.shape
    tensors = gates_NB4H, before_NBH, hidden_NBH, after_NBH
    with torch.cuda.device_of(gates_NB4H):
        _step[_grid(before_NBH)](*tensors, B, H, *(x.stride(0) for x in tensors), **BLOCK)


def back(
    gates_NB4H: Tensor,
    before_NBH: Tensor,
    after_NBH: Tensor,
    by_hidden_NBH: Tensor,
    by_cell_NBH: Tensor,
    by_gates_NB4H: Tensor,
) -> None:
    """Compute the gradient of the gate sums from those of both states; ``by_cell`` becomes that of ``before``."""
    _, B, H = before_NBH.shape
    tensors = gates_NB4H, before_NBH, after_NBH, by_hidden_NBH, by_cell_NBH, by_gates_NB4H
    with torch.cuda.device_of(gates_NB4H):
        _back[_grid(before_NBH)](*tensors, B, H, *(x.stride(0) for x in tensors), **BLOCK)


def _grid(states_NBH: Tensor) -> tuple[int, int]:
    N, B, H = states_NBH.shape
    return N * B, triton.cdiv(H, BLOCK["BLOCK"])


@triton.jit
def _tanh(x: tl.tensor) -> tl.tensor:
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize=["B"])
def _step(
    gates: tl.tensor,
    before: tl.tensor,
    hidden: tl.tensor,
    after: tl.tensor,
    B: tl.tensor,
    H: tl.tensor,
    gates_stride: tl.tensor,
    before_stride: tl.tensor,
    hidden_stride: tl.tensor,
    after_stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """BLOCK units of one row."""
    n, b = (tl.program_id(0) // B).to(tl.int64), tl.program_id(0) % B
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    gates += n * gates_stride + b * 4 * H + h
    input_gate = tl.sigmoid(tl.load(gates, inside))
    forget_gate = tl.sigmoid(tl.load(gates + H, inside))
    cell_gate = _tanh(tl.load(gates + 2 * H, inside))
    output_gate = tl.sigmoid(tl.load(gates + 3 * H, inside))
    cell = forget_gate * tl.load(before + n * before_stride + b * H + h, inside) + input_gate * cell_gate
    tl.store(gates, input_gate, inside)
    tl.store(gates + H, forget_gate, inside)
    tl.store(gates + 2 * H, cell_gate, inside)
    tl.store(gates + 3 * H, output_gate, inside)
    tl.store(after + n * after_stride + b * H + h, cell, inside)
    tl.store(hidden + n * hidden_stride + b * H + h, output_gate * _tanh(cell), inside)


@triton.jit(do_not_specialize=["B"])
def _back(
    gates: tl.tensor,
    before: tl.tensor,
    after: tl.tensor,
    by_hidden: tl.tensor,
    by_cell: tl.tensor,
    by_gates: tl.tensor,
    B: tl.tensor,
    H: tl.tensor,
    gates_stride: tl.tensor,
    before_stride: tl.tensor,
    after_stride: tl.tensor,
    by_hidden_stride: tl.tensor,
    by_cell_stride: tl.tensor,
    by_gates_stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """BLOCK units of one row; ``by_x`` is the gradient of x."""
    n, b = (tl.program_id(0) // B).to(tl.int64), tl.program_id(0) % B
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    gates += n * gates_stride + b * 4 * H + h
    by_gates += n * by_gates_stride + b * 4 * H + h
    by_cell += n * by_cell_stride + b * H + h
    input_gate, forget_gate = tl.load(gates, inside), tl.load(gates + H, inside)
    cell_gate, output_gate = tl.load(gates + 2 * H, inside), tl.load(gates + 3 * H, inside)
    tanh_cell = _tanh(tl.load(after + n * after_stride + b * H + h, inside))
    cell = tl.load(before + n * before_stride + b * H + h, inside)
    hidden = tl.load(by_hidden + n * by_hidden_stride + b * H + h, inside)
    flowing = tl.load(by_cell, inside) + hidden * output_gate * (1 - tanh_cell * tanh_cell)
    tl.store(by_gates, flowing * cell_gate * input_gate * (1 - input_gate), inside)
    tl.store(by_gates + H, flowing * cell * forget_gate * (1 - forget_gate), inside)
    tl.store(by_gates + 2 * H, flowing * input_gate * (1 - cell_gate * cell_gate), inside)
    tl.store(by_gates + 3 * H, hidden * tanh_cell * output_gate * (1 - output_gate), inside)
    tl.store(by_cell, flowing * forget_gate, inside)
