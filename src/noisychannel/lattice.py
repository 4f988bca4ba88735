"""The shift/emit lattice of SSNT, exactly, in O(I·J).

Position i of the input and position j of the output (0-based here) are a node. From it the model either *shifts* to
(i+1, j) or *emits* output j and moves to (i, j+1):

    arrive(i, j) = arrive(i-1, j)·shift(i-1, j) + leave(i, j-1)        leave(0, -1) = 1, leave(i>0, -1) = 0
    leave(i, j)  = arrive(i, j)·emit(i, j)·p(v_j | i, j)               p(v, z_J = I | u) = leave(I-1, J-1)

``leave(i, j)`` is the paper's α(i, j), the probability of v_1..v_j with z_j = i; the paper computes it in O(I²·J). The
loss, equation (2) of the paper, is -log leave(I-1, J-1) summed over the training pairs: ``-log_marginal``.

Both terms of ``arrive`` are on the previous anti-diagonal, so a diagonal is one vector operation. Nothing is
subtracted: there is no telescoped sum in which digits could cancel, and no lowest value. The same recursion over
another semiring answers another question (see ``semirings``). On a GPU the log-marginal has its own kernels (see
``kernels``).

The backward pass sends a *flow* of one unit from leave(I-1, J-1) to the start and divides it at each node by the
semiring's ``share``. For the log semiring the flow through ``leave(i, j)`` is the posterior p(z_j = i | u, v), which is
also the gradient. Every number in it is a product of numbers in [0, 1], so it cannot overflow. For the max semiring it
is the best alignment, for coin tosses a sample.

Shapes: B batch, I input positions, J output positions, D = I + J - 1 diagonals, K = min(I, J). A *skewed* tensor
[D, B, K] has node (i, j) at [i + j, b, i], or at [i + j, b, j] if the output is the shorter side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from noisychannel import kernels
from noisychannel.ids import inside
from noisychannel.precision import at_least_float32
from noisychannel.semirings import DirectedSemiring, Entropy, Log, Max, Sample, Semiring

FEW_NODES = 1 << 14
"""Of a batch of lattices whose best paths NumPy finds faster than PyTorch, on a CPU."""


class Flow(NamedTuple):
    """How much of the unit flow takes each arc, [B, I, J] each."""

    emit: Tensor
    shift: Tensor


def log_marginal(word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
    """log p(v, z_J = I | u), summed over alignments: [B,I,J], [B,I,J], [B], [B] -> [B]. Differentiable once.

    Its negative, summed over pairs, is the loss of equation (2).
    """
    _check(word_logp, emit_logit, input_lengths, output_lengths)
    if kernels.usable(word_logp, emit_logit):
        from noisychannel.kernels import lattice as fused

        if fused.fits(word_logp, emit_logit):
            return fused.log_marginal(word_logp, emit_logit, input_lengths, output_lengths)
    total: Tensor = _LogMarginal.apply(word_logp, emit_logit, input_lengths, output_lengths)  # type: ignore[no-untyped-call]
    return total


def viterbi(
    word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The best alignment: its score [B] (differentiable) and input positions [B,J], 0-based, -1 past the end."""
    _check(word_logp, emit_logit, input_lengths, output_lengths)
    emitting, shifting = _log_weights(word_logp, emit_logit, input_lengths, output_lengths)
    flow = _best_flow(_Frame.of(word_logp, input_lengths, output_lengths), emitting, shifting)
    chosen = torch.where(flow.emit > 0, emitting, 0.0) + torch.where(flow.shift > 0, shifting, 0.0)
    # In float64: the order of a sum over padding depends on the batch.
    return chosen.sum((1, 2), dtype=torch.float64).to(chosen.dtype), _positions(flow.emit)


def posteriors(word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
    """p(z_j = i | u, v): [B,I,J], each column j < output length sums to one, zero in the padding."""
    return _flow(Log(), word_logp, emit_logit, input_lengths, output_lengths).emit


def sample(
    word_logp: Tensor,
    emit_logit: Tensor,
    input_lengths: Tensor,
    output_lengths: Tensor,
    num_samples: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Exact samples of the alignment given u and v: [B,J], or [num_samples,B,J]; positions as in ``viterbi``."""
    if num_samples is not None and num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, but is {num_samples}")
    semiring = Sample(num_samples or 1, generator)
    drawn = _positions(_flow(semiring, word_logp, emit_logit, input_lengths, output_lengths).emit)
    return drawn if num_samples is None else drawn.view(num_samples, len(output_lengths), drawn.shape[1])


@torch.no_grad()
def entropy(word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
    """Entropy of p(z | u, v) in nats: [B]. Not differentiable."""
    _check(word_logp, emit_logit, input_lengths, output_lengths)
    frame = _Frame.of(word_logp, input_lengths, output_lengths)
    weights = _log_weights(word_logp, emit_logit, input_lengths, output_lengths)
    leave_D2BK = _ascend(Entropy(), frame, *weights).leave
    return frame.at_end(leave_D2BK[:, 1])


class _LogMarginal(torch.autograd.Function):
    """The total weight of all paths. Its gradient is the flow, so autograd does not record the loop."""

    @staticmethod
    def forward(
        ctx: Any, word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
    ) -> Tensor:
        frame = _Frame.of(word_logp, input_lengths, output_lengths)
        ascent = _ascend(Log(), frame, *_log_weights(word_logp, emit_logit, input_lengths, output_lengths))
        if any(ctx.needs_input_grad):
            ctx.frame, ctx.word_dtype = frame, word_logp.dtype
            ctx.save_for_backward(Log().share(ascent.by_shift, ascent.by_emit), emit_logit)
        return frame.at_end(ascent.leave)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        share_DBK, emit_logit = ctx.saved_tensors
        flow = _descend(ctx.frame, share_DBK)
        grad_B11 = grads[0][:, None, None]
        # d log emit / d logit = shift and d log shift / d logit = -emit. A padded logit can have any value.
        logit = at_least_float32(emit_logit)
        grad_emit = grad_B11 * (flow.emit * torch.sigmoid(-logit) - flow.shift * torch.sigmoid(logit))
        grad_emit = grad_emit.masked_fill(flow.emit + flow.shift == 0, 0.0)
        return (grad_B11 * flow.emit).to(ctx.word_dtype), grad_emit.to(emit_logit.dtype), None, None


@torch.no_grad()
def _flow(
    semiring: DirectedSemiring, word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
) -> Flow:
    _check(word_logp, emit_logit, input_lengths, output_lengths)
    frame = _Frame.of(word_logp, input_lengths, output_lengths)
    ascent = _ascend(semiring, frame, *_log_weights(word_logp, emit_logit, input_lengths, output_lengths))
    return _descend(frame, semiring.share(ascent.by_shift, ascent.by_emit))


@torch.no_grad()
def _best_flow(frame: _Frame, emitting_BIJ: Tensor, shifting_BIJ: Tensor) -> Flow:
    """One unit along the best path of each sentence."""
    if emitting_BIJ.device.type == "cpu" and emitting_BIJ.numel() <= FEW_NODES:
        return _best_flow_on_cpu(frame, emitting_BIJ, shifting_BIJ)
    ascent = _ascend(Max(), frame, emitting_BIJ, shifting_BIJ)
    return _descend(frame, Max().share(ascent.by_shift, ascent.by_emit))


def _best_flow_on_cpu(frame: _Frame, emitting_BIJ: Tensor, shifting_BIJ: Tensor) -> Flow:
    """``_best_flow`` by the same sums. NumPy needs a fraction of PyTorch's time for operations on a few numbers."""
    emitting_DBK, shifting_DBK = frame.skew(emitting_BIJ).numpy(), frame.skew(shifting_BIJ).numpy()
    by_shift, by_emit = np.full_like(emitting_DBK, -np.inf), np.full_like(emitting_DBK, -np.inf)
    by_emit[0, :, 0] = 0.0
    # The move along the last dimension goes to the next place; the other stays.
    ahead, stay = (slice(None, -1), slice(1, None)), (slice(None), slice(None))
    (shift_from, shift_to), (emit_from, emit_to) = (ahead, stay) if frame.over_inputs else (stay, ahead)
    with np.errstate(invalid="ignore"):  # a model with NaN has no best path
        for d in range(1, len(emitting_DBK)):
            arrive = np.maximum(by_shift[d - 1], by_emit[d - 1])
            np.add(arrive[:, shift_from], shifting_DBK[d - 1][:, shift_from], out=by_shift[d][:, shift_to])
            np.add(arrive[:, emit_from], emitting_DBK[d - 1][:, emit_from], out=by_emit[d][:, emit_to])
        shifted = ((by_shift >= by_emit) & (by_shift > -np.inf)).tolist()
    emit, shift = np.zeros_like(by_emit), np.zeros_like(by_shift)
    for b, (last, place) in enumerate(zip(frame.last.tolist(), frame.place.tolist(), strict=True)):
        emit[last, b, place] = 1.0
        for d in range(last, 0, -1):
            by_a_shift = shifted[d][b][place]
            place -= by_a_shift == frame.over_inputs
            if place < 0:
                break
            (shift if by_a_shift else emit)[d - 1, b, place] = 1.0
    return Flow(frame.unskew(torch.from_numpy(emit)), frame.unskew(torch.from_numpy(shift)))


def _log_weights(
    word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Log weights of the emitting and of the shifting arcs, [B,I,J] each, in float32 or better, 0 in the padding."""
    _, I, J = word_logp.shape
    device = word_logp.device
    padded = ~(inside(input_lengths, I, device)[:, :, None] & inside(output_lengths, J, device)[:, None, :])
    word = at_least_float32(word_logp).masked_fill(padded, 0.0)
    logit = at_least_float32(emit_logit).masked_fill(padded, 0.0)
    return word + F.logsigmoid(logit), F.logsigmoid(-logit)


class _Frame(NamedTuple):
    """Where the nodes of a batch of lattices are in skewed tensors."""

    over_inputs: bool
    """Whether the last dimension is the input position; otherwise it is the output position. The shorter of the two."""
    last: Tensor
    """The diagonal of each sentence's last node, [B]."""
    place: Tensor
    """Its index on that diagonal, [B]."""

    @staticmethod
    def of(x_BIJ: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> _Frame:
        over_inputs = x_BIJ.shape[1] <= x_BIJ.shape[2]
        input_lengths, output_lengths = input_lengths.to(x_BIJ.device), output_lengths.to(x_BIJ.device)
        place = (input_lengths if over_inputs else output_lengths) - 1
        return _Frame(over_inputs, input_lengths + output_lengths - 2, place)

    def skew(self, x_BIJ: Tensor) -> Tensor:
        """[B,I,J] -> [D,B,K]: row k moves right by k because rows get one shorter; -inf if there is no node."""
        x = x_BIJ if self.over_inputs else x_BIJ.mT
        B, K, L = x.shape
        wide = F.pad(x, (0, K), value=-torch.inf).flatten(1)
        return wide[:, : K * (K + L - 1)].view(B, K, K + L - 1).permute(2, 0, 1).contiguous()

    def unskew(self, x_DBK: Tensor) -> Tensor:
        """The inverse of ``skew``."""
        D, B, K = x_DBK.shape
        narrow = F.pad(x_DBK.permute(1, 2, 0).reshape(B, K * D), (0, K))
        x = narrow.view(B, K, D + 1)[:, :, : D + 1 - K]
        return x if self.over_inputs else x.mT

    def at_end(self, x_DBK: Tensor) -> Tensor:
        """The value at every sentence's last node: [B]."""
        return x_DBK[self.last, torch.arange(len(self.last), device=x_DBK.device), self.place]


class _Ascent(NamedTuple):
    """Skewed elements [D,...,B,K]: what reaches each node by a shift, what by an emission, and what leaves it."""

    by_shift: Tensor
    by_emit: Tensor
    leave: Tensor


def _ascend(semiring: Semiring, frame: _Frame, emitting_BIJ: Tensor, shifting_BIJ: Tensor) -> _Ascent:
    """The recursion of the module's docstring, one anti-diagonal at a time."""
    emitting_DBK, shifting_DBK = frame.skew(emitting_BIJ), frame.skew(shifting_BIJ)
    start = torch.full_like(emitting_DBK[0], -torch.inf)
    nothing, nothing_before = semiring.lift(start), semiring.lift(start[:, :1])
    start = start.clone()
    start[:, 0] = 0.0
    by_shift, by_emit, leave = [nothing], [semiring.lift(start)], []
    for emitting, shifting in zip(emitting_DBK, shifting_DBK, strict=True):
        arrive = semiring.plus(by_shift[-1], by_emit[-1])
        left = semiring.times(arrive, semiring.lift(emitting))
        shifted = semiring.times(arrive, semiring.lift(shifting))
        leave.append(left)
        # The move along the last dimension shifts the tensor by one; the other does not.
        if frame.over_inputs:
            shifted = torch.cat([nothing_before, shifted[..., :-1]], dim=-1)
        else:
            left = torch.cat([nothing_before, left[..., :-1]], dim=-1)
        by_shift.append(shifted)
        by_emit.append(left)
    return _Ascent(torch.stack(by_shift[:-1]), torch.stack(by_emit[:-1]), torch.stack(leave))


def _descend(frame: _Frame, share_DBK: Tensor) -> Flow:
    """Send one unit from each sentence's last node back to the start; ``share`` of it takes each shift.

    If ``share`` has several samples of the batch, one after the other, each sample has its own unit.
    """
    D, rows, _ = share_DBK.shape
    samples = rows // len(frame.last) if len(frame.last) else 1
    emit_DBK, shift_DBK = torch.zeros_like(share_DBK), torch.zeros_like(share_DBK)
    every_row = torch.arange(rows, device=share_DBK.device)
    emit_DBK[frame.last.repeat(samples), every_row, frame.place.repeat(samples)] = 1.0
    for d in range(D - 1, 0, -1):
        through = emit_DBK[d] + shift_DBK[d]
        by_shift = through * share_DBK[d]
        by_emit = through - by_shift
        if frame.over_inputs:
            shift_DBK[d - 1, :, :-1] = by_shift[:, 1:]
            emit_DBK[d - 1] += by_emit
        else:
            shift_DBK[d - 1] = by_shift
            emit_DBK[d - 1, :, :-1] += by_emit[:, 1:]
    return Flow(frame.unskew(emit_DBK), frame.unskew(shift_DBK))


def _positions(emit_flow_BIJ: Tensor) -> Tensor:
    """A flow of zeros and ones as input positions [B,J]; -1 past the end, where there is no flow."""
    return torch.where(emit_flow_BIJ.sum(1) > 0, emit_flow_BIJ.argmax(1), -1)


def _check(word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> None:
    if word_logp.dim() != 3 or word_logp.shape != emit_logit.shape:
        raise ValueError(
            "word_logp and emit_logit must both be [B,I,J], but are "
            f"{list(word_logp.shape)} and {list(emit_logit.shape)}"
        )
    B, I, J = word_logp.shape
    for name, lengths, most in (("input", input_lengths, I), ("output", output_lengths, J)):
        if lengths.shape != (B,):
            raise ValueError(f"{name}_lengths must be [B] = [{B}], but is {list(lengths.shape)}")
        # Reading lengths from a GPU would stall it, so there the caller is responsible for them.
        if lengths.device.type == "cpu" and B > 0 and not 1 <= int(lengths.min()) <= int(lengths.max()) <= most:
            raise ValueError(f"{name}_lengths must lie in 1..{most}, but are {lengths.tolist()}")
