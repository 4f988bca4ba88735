"""The shift/emit lattice of SSNT, exactly, in O(I·J).

Position i of the input and j of the output (0-based here) make a node. From it the model either *shifts* to
(i+1, j) or *emits* output j and goes on to (i, j+1):

    arrive(i, j) = arrive(i-1, j)·shift(i-1, j) + leave(i, j-1)        leave(0, -1) = 1, leave(i>0, -1) = 0
    leave(i, j)  = arrive(i, j)·emit(i, j)·p(v_j | i, j)               p(v, z_J = I | u) = leave(I-1, J-1)

Both terms of ``arrive`` lie on the previous anti-diagonal, so a diagonal is one vector operation and nothing is
ever subtracted: there is no telescoped sum to cancel, and no floor. The same recursion over another semiring
answers another question (see ``semirings``).

The way back carries a *flow* of one unit from leave(I-1, J-1) to the start, dividing it at each node by the
semiring's ``share``. For the log semiring the flow through ``leave(i, j)`` is the posterior p(z_j = i | u, v) and
is at once the gradient; every number in it is a product of numbers in [0, 1], so it cannot overflow. For the
max semiring it is the best alignment, for coin tosses a sample.

Shapes: B batch, I input positions, J output positions, D = I + J - 1 diagonals. A *skewed* tensor [D, B, I] holds
node (i, j) at [i + j, b, i].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.semirings import DirectedSemiring, Entropy, Log, Max, Sample, Semiring
from noisychannel.symbols import inside


class Flow(NamedTuple):
    """How much of the unit flow takes each arc, [B, I, J] each."""

    emit: Tensor
    shift: Tensor


def log_marginal(word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
    """log p(v, z_J = I | u) summed over alignments: [B,I,J], [B,I,J], [B], [B] -> [B]. Differentiable."""
    return _total(Log(), word_logp, emit_logit, input_lengths, output_lengths)


def viterbi(
    word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The best alignment: its score [B] (differentiable) and input positions [B,J], 0-based, -1 past the end."""
    score = _total(Max(), word_logp, emit_logit, input_lengths, output_lengths)
    flow = _flow(Max(), word_logp, emit_logit, input_lengths, output_lengths)
    return score, _positions(flow.emit)


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
    tensors = (word_logp, emit_logit, input_lengths, output_lengths)
    if num_samples is None:
        return _positions(_flow(Sample(generator), *tensors).emit)
    repeated = (x.repeat(num_samples, *[1] * (x.dim() - 1)) for x in tensors)
    drawn = _positions(_flow(Sample(generator), *repeated).emit)
    return drawn.unflatten(0, (num_samples, -1))


@torch.no_grad()
def entropy(word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
    """Entropy of p(z | u, v) in nats: [B]. Not differentiable."""
    arcs = _arcs(word_logp, emit_logit, input_lengths, output_lengths)
    leave_D2BI = _ascend(Entropy(), *arcs).leave
    return _at_end(leave_D2BI[:, 1], input_lengths, output_lengths)


class _Total(torch.autograd.Function):
    """The total weight of all paths; its gradient is the flow, so autograd never walks through the loop."""

    @staticmethod
    def forward(
        ctx: Any,
        semiring: DirectedSemiring,
        word_logp: Tensor,
        emit_logit: Tensor,
        input_lengths: Tensor,
        output_lengths: Tensor,
    ) -> Tensor:
        ascent = _ascend(semiring, *_arcs(word_logp, emit_logit, input_lengths, output_lengths))
        if any(ctx.needs_input_grad):
            share = semiring.share(ascent.by_shift, ascent.by_emit)
            ctx.save_for_backward(share, emit_logit, input_lengths, output_lengths)
            ctx.word_dtype = word_logp.dtype
        return _at_end(ascent.leave, input_lengths, output_lengths)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        share, emit_logit, input_lengths, output_lengths = ctx.saved_tensors
        flow = _descend(share, input_lengths, output_lengths)
        grad_B11 = grads[0][:, None, None]
        grad_word = grad_B11 * flow.emit
        # d log emit / d logit = 1 - emit and d log shift / d logit = -emit; a padded logit may be anything.
        emit = torch.sigmoid(emit_logit.to(share.dtype))
        grad_emit = grad_B11 * (flow.emit * (1 - emit) - flow.shift * emit)
        grad_emit = grad_emit.masked_fill(flow.emit + flow.shift == 0, 0.0)
        return None, grad_word.to(ctx.word_dtype), grad_emit.to(emit_logit.dtype), None, None


def _total(
    semiring: DirectedSemiring, word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
) -> Tensor:
    total: Tensor = _Total.apply(semiring, word_logp, emit_logit, input_lengths, output_lengths)  # type: ignore[no-untyped-call]
    return total


@torch.no_grad()
def _flow(
    semiring: DirectedSemiring, word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
) -> Flow:
    ascent = _ascend(semiring, *_arcs(word_logp, emit_logit, input_lengths, output_lengths))
    return _descend(semiring.share(ascent.by_shift, ascent.by_emit), input_lengths, output_lengths)


def _arcs(
    word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Skewed log weights of the emitting and of the shifting arcs, [D,B,I] each, in float32 or better."""
    _check(word_logp, emit_logit, input_lengths, output_lengths)
    dtype = torch.promote_types(torch.promote_types(word_logp.dtype, emit_logit.dtype), torch.float32)
    padded = ~(
        inside(input_lengths, word_logp.shape[1], word_logp.device)[:, :, None]
        & inside(output_lengths, word_logp.shape[2], word_logp.device)[:, None, :]
    )
    word = word_logp.to(dtype).masked_fill(padded, 0.0)
    logit = emit_logit.to(dtype).masked_fill(padded, 0.0)
    return _skew(word + F.logsigmoid(logit), fill=-torch.inf), _skew(F.logsigmoid(-logit), fill=-torch.inf)


class _Ascent(NamedTuple):
    """Skewed elements [D,...,B,I]: what reached each node by a shift, what by an emission, and what leaves it."""

    by_shift: Tensor
    by_emit: Tensor
    leave: Tensor


def _ascend(semiring: Semiring, emitting_DBI: Tensor, shifting_DBI: Tensor) -> _Ascent:
    """The recursion of the module's docstring, one anti-diagonal at a time."""
    nothing = semiring.lift(torch.full_like(emitting_DBI[0, :, :1], -torch.inf))
    start = torch.full_like(emitting_DBI[0], -torch.inf)
    start[:, 0] = 0.0
    by_shift = [semiring.lift(torch.full_like(start, -torch.inf))]
    by_emit = [semiring.lift(start)]
    leave = []
    for emitting, shifting in zip(emitting_DBI, shifting_DBI, strict=True):
        arrive = semiring.plus(by_shift[-1], by_emit[-1])
        leave.append(semiring.times(arrive, semiring.lift(emitting)))
        shifted = semiring.times(arrive, semiring.lift(shifting))
        by_shift.append(torch.cat([nothing, shifted[..., :-1]], dim=-1))
        by_emit.append(leave[-1])
    return _Ascent(torch.stack(by_shift[:-1]), torch.stack(by_emit[:-1]), torch.stack(leave))


def _descend(share_DBI: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Flow:
    """Send one unit from each sentence's last node back to the start; ``share`` of it goes by each shift."""
    D, B, _ = share_DBI.shape
    last_B, row_B = _last_diagonal(input_lengths, output_lengths, share_DBI.device)
    emit_DBI, shift_DBI = torch.zeros_like(share_DBI), torch.zeros_like(share_DBI)
    emit_DBI[last_B, torch.arange(B, device=share_DBI.device), row_B] = 1.0
    for d in range(D - 1, 0, -1):
        through = emit_DBI[d] + shift_DBI[d]
        by_shift = through * share_DBI[d]
        emit_DBI[d - 1] += through - by_shift
        shift_DBI[d - 1, :, :-1] = by_shift[:, 1:]
    return Flow(_unskew(emit_DBI), _unskew(shift_DBI))


def _at_end(leave_DBI: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
    """leave(I-1, J-1) of every sentence: [B]."""
    last_B, row_B = _last_diagonal(input_lengths, output_lengths, leave_DBI.device)
    return leave_DBI[last_B, torch.arange(len(row_B), device=leave_DBI.device), row_B]


def _last_diagonal(input_lengths: Tensor, output_lengths: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    input_lengths, output_lengths = input_lengths.to(device), output_lengths.to(device)
    return input_lengths + output_lengths - 2, input_lengths - 1


def _skew(x_BIJ: Tensor, fill: float) -> Tensor:
    """[B,I,J] -> [D,B,I] with node (i, j) at [i+j, b, i]; row i moves right by i when rows are cut one shorter."""
    B, I, J = x_BIJ.shape
    wide = F.pad(x_BIJ, (0, I), value=fill).flatten(1)
    return wide[:, : I * (I + J - 1)].view(B, I, I + J - 1).permute(2, 0, 1).contiguous()


def _unskew(x_DBI: Tensor) -> Tensor:
    """The inverse of ``_skew``."""
    D, B, I = x_DBI.shape
    narrow = F.pad(x_DBI.permute(1, 2, 0).reshape(B, I * D), (0, I))
    return narrow.view(B, I, D + 1)[:, :, : D + 1 - I]


def _positions(emit_flow_BIJ: Tensor) -> Tensor:
    """A flow of zeros and ones as input positions [B,J], -1 where no flow is (past the end)."""
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
        # Looking into lengths that live on a GPU would stall it; there a wrong one raises in the indexing.
        if lengths.device.type == "cpu" and B > 0 and not 1 <= int(lengths.min()) <= int(lengths.max()) <= most:
            raise ValueError(f"{name}_lengths must lie in 1..{most}, but are {lengths.tolist()}")
