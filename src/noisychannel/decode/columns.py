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

from noisychannel import kernels
from noisychannel.semirings import Max, Semiring


def cumulative(x: Tensor, plus: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """x_1 ⊕ … ⊕ x_i for every i of the last dimension, in log2(I) sweeps over the whole tensor.

    PyTorch's own scans process each short row separately, which is dozens of times slower on a GPU.
    """
    reach = 1
    while reach < x.shape[-1]:
        x = torch.cat([x[..., :reach], plus(x[..., reach:], x[..., :-reach])], dim=-1)
        reach *= 2
    return x


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
        return Transitions(cumulative(log_shift, torch.add) - log_shift, F.logsigmoid(logit))

    def reach(self, score: Tensor, semiring: Semiring) -> Tensor:
        """From scores at positions k to those of emitting at i ≥ k:  S(i) + log e(i) + ⊕_{k≤i} (score(k) - S(k))."""
        return self.shifted + self.emit + cumulative(score - self.shifted, semiring.plus)


def reach_both(
    emit_logit: Tensor, objective: Tensor, direct: Tensor, lengths: Tensor, semiring: Semiring
) -> tuple[Tensor, Tensor]:
    """``Transitions.reach`` of two scores, -inf past the end of each input: [B,P,I], with ``lengths`` [B]."""
    if kernels.usable(emit_logit, objective):
        from noisychannel.kernels import search as fused

        return fused.reach(emit_logit, objective, direct, lengths, isinstance(semiring, Max))
    transitions = Transitions.of(emit_logit)
    outside_B1I = (torch.arange(objective.shape[2], device=lengths.device) >= lengths[:, None])[:, None]
    first, second = (
        transitions.reach(score, semiring).masked_fill(outside_B1I, -torch.inf) for score in (objective, direct)
    )
    return first, second


def total(x: Tensor, semiring: Semiring) -> Tensor:
    """x_1 ⊕ … ⊕ x_I."""
    return x.amax(-1) if isinstance(semiring, Max) else x.logsumexp(-1)


class ChannelColumn(NamedTuple):
    """The channel after a prefix of length j, over positions i of x."""

    onward: Tensor
    """log arrive(j, i)·shift(j, i): x_1..x_{i-1} were written, and the channel reads on: [..., I]."""
    written: Tensor
    """log p(x_1..x_i, z_i ≤ j): the running sum of leave(·, i): [..., I]."""
    start: Tensor
    """log leave(j+1, 0): 0 before anything was read, -inf after: [..., 1]."""

    @staticmethod
    def empty(like: Tensor) -> ChannelColumn:
        """For the empty prefix: nothing has been read, so nothing can have been written."""
        nothing = torch.full_like(like, -torch.inf, dtype=torch.float64)
        return ChannelColumn(nothing, nothing, torch.zeros_like(nothing[..., :1]))


def advance_channel(
    column: ChannelColumn, emit_logit: Tensor, word_logp: Tensor, semiring: Semiring
) -> tuple[ChannelColumn, Tensor]:
    """The column of the prefix with one more symbol, and log leave(j, i), both over i.

    With g(i) = e(j, i)·p(x_i | j, i):    leave(j, i) = (onward(i) + leave(j, i-1))·g(i),    leave(j, 0) = start.
    ``emit_logit`` and ``word_logp`` belong to the new symbol's position.
    """
    if kernels.usable(column.onward, emit_logit):
        from noisychannel.kernels import search as fused

        onward, written, leave = fused.advance_channel(*column, emit_logit, word_logp, isinstance(semiring, Max))
        return ChannelColumn(onward, written, torch.full_like(column.start, -torch.inf)), leave
    logit = emit_logit.double()
    log_g = F.logsigmoid(logit) + word_logp.double()
    total_g = cumulative(log_g, torch.add)
    inflow = torch.cat([column.start, column.onward - (total_g - log_g)], dim=-1)
    leave = total_g + cumulative(inflow, semiring.plus)[..., 1:]
    from_left = torch.cat([column.start, leave[..., :-1]], dim=-1)
    arrive = semiring.plus(column.onward, from_left)
    written = semiring.plus(column.written, leave)
    nothing_left = torch.full_like(column.start, -torch.inf)
    return ChannelColumn(arrive + F.logsigmoid(-logit), written, nothing_left), leave
