"""Matrix products whose rounding does not depend on how many rows they have.

A search multiplies the states of all its prefixes at once, so the number of rows depends on the batch. On a CPU the
library behind PyTorch (MKL) sums a row in another order if the product has fewer than 16 rows, and, for a single column
of results, if the number of rows is not a multiple of 8. The scores of a sentence would then change in their last
digits with the batch it is in. Here such products get further rows of zeros, which are dropped again. During training,
and on a GPU, products are as they are.

Shapes: R rows, leading dimensions are free.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FEWEST_ROWS = 16
"""Products of fewer rows than this have other rounding."""
ROW_BLOCK = 8
"""The same for rows beyond a multiple of this, if there is one column of results."""

FEW_ROWS = 512
"""So many are copied faster than a few of them are multiplied apart."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b over the last dimension."""
    if weight.shape[0] == 1:
        return one_column(x, weight, bias)[..., None]
    if x.shape[0] >= FEWEST_ROWS or not _padding(x):  # the first dimension is often the only one
        return F.linear(x, weight, bias)
    rows = x.shape[:-1].numel()
    if rows >= FEWEST_ROWS:
        return F.linear(x, weight, bias)
    x_RK = with_rows(x.reshape(rows, x.shape[-1]), FEWEST_ROWS)
    return F.linear(x_RK, weight, bias)[:rows].view(*x.shape[:-1], weight.shape[0])


def one_column(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x w' + b for a single row of weights: [..., K] -> [...]."""
    x_RK = x.reshape(-1, x.shape[-1])
    whole = x_RK.shape[0] // ROW_BLOCK * ROW_BLOCK
    if not _padding(x) or whole == x_RK.shape[0]:
        return F.linear(x, weight, bias).squeeze(-1)
    if x_RK.shape[0] <= FEW_ROWS:
        return F.linear(with_rows(x_RK, whole + ROW_BLOCK), weight, bias)[: x_RK.shape[0]].view(x.shape[:-1])
    rest = F.linear(with_rows(x_RK[whole:], ROW_BLOCK), weight, bias)[: x_RK.shape[0] - whole]
    return torch.cat([F.linear(x_RK[:whole], weight, bias), rest]).view(x.shape[:-1])


def with_rows(x: Tensor, rows: int) -> Tensor:
    """``x`` with zeros after its first dimension, so that it has at least ``rows`` of them."""
    if x.shape[0] >= rows:
        return x
    return torch.cat([x, x.new_zeros(rows - x.shape[0], *x.shape[1:])])


def run_lstm(
    lstm: nn.Module, x_BTE: Tensor, state: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The states of an LSTM (batch first) at every position, and after the last one.

    A stack of LSTMs (``stacked``) divides its rows among its models, so it gets no others.
    """
    B = x_BTE.shape[0]
    if not _padding(x_BTE) or B >= FEWEST_ROWS or type(lstm) is not nn.LSTM:
        found: tuple[Tensor, tuple[Tensor, Tensor]] = lstm(x_BTE, state)
        return found
    if state is not None:
        hidden, cell = (F.pad(part_LBH, (0, 0, 0, FEWEST_ROWS - B)) for part_LBH in state)
        state = hidden, cell
    states, (hidden, cell) = lstm(with_rows(x_BTE, FEWEST_ROWS), state)
    return states[:B], (hidden[:, :B], cell[:, :B])


class Linear(nn.Linear):
    """``nn.Linear`` by ``linear``."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def _padding(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.is_grad_enabled()
