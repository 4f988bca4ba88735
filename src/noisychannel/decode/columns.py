"""Columns of the two lattices while the output is being built: one vector over input positions for each prefix.

The direct model reads x and has emitted the prefix; ``Transitions`` takes its column from one prefix to the next. The
channel reads the prefix and writes x; ``advance_channel`` is the same recursion with the roles of the two sequences
swapped. Both recursions are linear along the column, so they telescope into one cumulative sum (or maximum), which is
taken in float64: the telescoped terms may cancel over hundreds of nats.

Shapes: leading dimensions are free, I is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

Accumulate = Callable[[Tensor], Tensor]
"""Cumulative sum of logarithms along the last dimension, in some semiring."""


def cumulative_sum(x: Tensor) -> Tensor:
    return torch.logcumsumexp(x, dim=-1)


def cumulative_max(x: Tensor) -> Tensor:
    return torch.cummax(x, dim=-1).values


class Transitions(NamedTuple):
    """How the direct model moves over the input before it emits the next symbol of a prefix."""

    shifted: Tensor
    """S(i) = Σ_{i'<i} log shift(i')."""
    emit: Tensor
    """log e(i)."""

    @staticmethod
    def of(emit_logit: Tensor) -> Transitions:
        logit = emit_logit.double()
        log_shift = F.logsigmoid(-logit)
        return Transitions(log_shift.cumsum(-1) - log_shift, F.logsigmoid(logit))

    def reach(self, score: Tensor, accumulate: Accumulate) -> Tensor:
        """From scores at positions k to those of emitting at i ≥ k:  S(i) + log e(i) + ⊕_{k≤i} (score(k) - S(k))."""
        return self.shifted + self.emit + accumulate(score - self.shifted)


class ChannelColumn(NamedTuple):
    """What the channel remembers of a prefix of length j, over positions i of x."""

    onward: Tensor
    """log arrive(j, i)·shift(j, i): x_1..x_{i-1} were written, and the channel reads on."""
    written: Tensor
    """log p(x_1..x_i, z_i ≤ j): the running sum of leave(·, i)."""

    @staticmethod
    def empty(like: Tensor) -> ChannelColumn:
        """Of the empty prefix: nothing has been read, so nothing can have been written."""
        nothing = torch.full_like(like, -torch.inf, dtype=torch.float64)
        return ChannelColumn(nothing, nothing)


def advance_channel(
    column: ChannelColumn, emit_logit: Tensor, word_logp: Tensor, first: bool, accumulate: Accumulate
) -> tuple[ChannelColumn, Tensor]:
    """The column of the prefix with one more symbol, and log leave(j, i), both over i.

    With g(i) = e(j, i)·p(x_i | j, i):   leave(j, i) = (onward(i) + leave(j, i-1))·g(i),   leave(j, 0) = 1 if ``first``.
    ``emit_logit`` and ``word_logp`` are those of the new symbol's position.
    """
    logit = emit_logit.double()
    log_shift = F.logsigmoid(-logit)
    log_g = F.logsigmoid(logit) + word_logp.double()
    total_g = log_g.cumsum(-1)
    leave = total_g if first else total_g + accumulate(column.onward - (total_g - log_g))
    before = torch.full_like(leave[..., :1], 0.0 if first else -torch.inf)
    came_from_left = torch.cat([before, leave[..., :-1]], dim=-1)
    both = torch.stack([column.onward, came_from_left], dim=-1)
    arrive = accumulate(both)[..., 1]
    written = accumulate(torch.stack([column.written, leave], dim=-1))[..., 1]
    return ChannelColumn(arrive + log_shift, written), leave
