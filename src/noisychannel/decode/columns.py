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

WIDEST = 600.0
"""Nats between the elements of a row whose exponentials can be added: beyond about 700 the smaller ones are zero."""
LOWEST = -1e300
"""In the place of the largest element of a row of -inf."""


def cumulative(x: Tensor, plus: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """x_1 ⊕ … ⊕ x_i for every i of the last dimension, in log2(I) sweeps over the whole tensor.

    PyTorch's own scans process each short row separately, which is dozens of times slower on a GPU.
    """
    reach = 1
    while reach < x.shape[-1]:
        x = torch.cat([x[..., :reach], plus(x[..., reach:], x[..., :-reach])], dim=-1)
        reach *= 2
    return x


def scan(x: Tensor, semiring: Semiring) -> Tensor:
    """``cumulative`` by the semiring. On a CPU rows are scanned one by one, in a few operations."""
    if x.device.type != "cpu":
        return cumulative(x, semiring.plus)
    return x.cummax(-1).values if isinstance(semiring, Max) else _log_scan(x)


def scan_sum(x: Tensor) -> Tensor:
    """x_1 + … + x_i for every i of the last dimension."""
    return x.cumsum(-1) if x.device.type == "cpu" else cumulative(x, torch.add)


def _log_scan(x: Tensor) -> Tensor:
    """log(e^{x_1} + … + e^{x_i}): exponentials behind the largest of the row are added up.

    All of them are positive, so every sum is as exact as its largest summand. A row whose elements are too far apart is
    scanned by sweeps; whether it is depends on the row alone, and so its result does.
    """
    top = x.amax(-1, keepdim=True).clamp_(min=LOWEST)
    behind = x - top
    scanned = behind.exp().cumsum(-1).log_().add_(top)
    narrow = behind.nan_to_num_(neginf=0.0).amin(-1) >= -WIDEST
    if not bool(narrow.all()):
        scanned[~narrow] = cumulative(x[~narrow], torch.logaddexp)
    return scanned


class Transitions(NamedTuple):
    """How the direct model moves over the input before it emits the next symbol of a prefix."""

    shifted: Tensor
    """S(i) = Σ_{i'<i} log shift(i')."""
    emit: Tensor
    """log e(i)."""

    @staticmethod
    def of(emit_logit: Tensor) -> Transitions:
        logit = emit_logit.double()
        log_emit = F.logsigmoid(logit)
        log_shift = log_emit - logit  # = log σ(-logit), without another logarithm
        return Transitions(scan_sum(log_shift) - log_shift, log_emit)

    def reach(self, score: Tensor, semiring: Semiring) -> Tensor:
        """From scores at positions k to those of emitting at i ≥ k:  S(i) + log e(i) + ⊕_{k≤i} (score(k) - S(k))."""
        return self.shifted + self.emit + scan(score - self.shifted, semiring)


def reach_both(
    emit_logit: Tensor, objective: Tensor, direct: Tensor, lengths: Tensor, semiring: Semiring, padded: bool = True
) -> tuple[Tensor, Tensor]:
    """``Transitions.reach`` of two scores, -inf past the end of each input: [B,P,I], with ``lengths`` [B].

    ``padded``: whether some inputs are shorter than I.
    """
    if kernels.usable(emit_logit, objective):
        from noisychannel.kernels import search as fused

        return fused.reach(emit_logit, objective, direct, lengths, isinstance(semiring, Max))
    both = torch.stack([objective, direct])
    outside_B1I = outside(lengths, objective.shape[2]) if padded else None
    if outside_B1I is not None:
        both.masked_fill_(outside_B1I, -torch.inf)
    reached = Transitions.of(emit_logit).reach(both, semiring)
    if outside_B1I is not None:
        reached.masked_fill_(outside_B1I, -torch.inf)
    first, second = reached.unbind()
    return first, second


def outside(lengths_B: Tensor, I: int) -> Tensor:
    """The positions past the end of each input: [B,1,I]."""
    return (torch.arange(I, device=lengths_B.device) >= lengths_B[:, None])[:, None]


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
    column: ChannelColumn, emit_logit: Tensor, word_logp: Tensor, semiring: Semiring, lengths: Tensor | None = None
) -> tuple[ChannelColumn, Tensor]:
    """The column of the prefix with one more symbol, and log leave(j, i), both over i.

    With g(i) = e(j, i)·p(x_i | j, i):    leave(j, i) = (onward(i) + leave(j, i-1))·g(i),    leave(j, 0) = start.
    ``emit_logit`` and ``word_logp`` belong to the new symbol's position. ``lengths``: of the
    inputs, if columns are [B,Q,I] and some inputs are shorter. Positions past their end must not change how others are
    rounded.
    """
    if kernels.usable(column.onward, emit_logit):
        from noisychannel.kernels import search as fused

        onward, written, leave = fused.advance_channel(*column, emit_logit, word_logp, isinstance(semiring, Max))
        return ChannelColumn(onward, written, torch.full_like(column.start, -torch.inf)), leave
    logit = emit_logit.double()
    log_emit = F.logsigmoid(logit)
    log_g = log_emit + word_logp
    total_g = scan_sum(log_g)
    inflow = column.onward - (total_g - log_g)
    if lengths is not None:
        inflow.masked_fill_(outside(lengths, inflow.shape[-1]), -torch.inf)
    leave = total_g + scan(torch.cat([column.start, inflow], dim=-1), semiring)[..., 1:]
    from_left = torch.cat([column.start, leave[..., :-1]], dim=-1)
    arrive = semiring.plus(column.onward, from_left)
    written = semiring.plus(column.written, leave)
    nothing_left = torch.full_like(column.start, -torch.inf)
    return ChannelColumn(arrive + (log_emit - logit), written, nothing_left), leave
