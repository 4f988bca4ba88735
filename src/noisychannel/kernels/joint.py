"""The joint softmax in two kernels, and its gradient in one for each side, without a word to the host in between.

What is computed is what ``noisychannel.joint`` computes, whose docstring has the mathematics, in float32. Exponentials
live in registers only: the scores are read, and never written again in another form. With â, ĉ the row maxima,

    P_ij     = Σ_w exp(a_i[w] - â_i) · exp(c_j[w] - ĉ_j)
    log Z_ij = log P_ij + â_i + ĉ_j

and with G the gradient of log p(v_j | i, j)

    ∂/∂a_i[w] = Σ_j G_ij 1[v_j = w] - exp(a_i[w] - â_i) Σ_j (G_ij / P_ij) exp(c_j[w] - ĉ_j).

``_multiply`` cuts the vocabulary into pieces, so that many programs share one product, and takes each piece's maxima
as it meets them. ``_finish`` adds the pieces up. Whether P is so small that its summands have been lost is decided
there, entry by entry, and such an entry is summed again from its own V logits x by the program that found it. It is
kept as a negative number, which no P is: minus Σ_w exp(x[w] - peak), beside its peak = max_w x[w].

No sum depends on which program comes first: the same arguments give the same numbers, bit by bit.

Shapes: B batch, I input positions, J output positions, V symbols, S pieces of the vocabulary. For the gradient R are
the positions of the side it is for and C those of the other. In a kernel ``x_IV`` is a tile of BLOCK_I × BLOCK_V.
"""

# Triton carries no types, and need not be installed.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ENOUGH_PROGRAMS = 1024
"""As many keep a large GPU busy; where there are fewer tiles the vocabulary is cut into pieces."""
SHORTEST_PIECE = 256
MOST_PIECES = tl.constexpr(32)
PRODUCT = {"BLOCK_V": 32, "num_warps": 8, "num_stages": 2}
FINISH = {"BLOCK_V": 128, "num_warps": 4}
GRADIENT = {"BLOCK_V": 64, "num_warps": 8, "num_stages": 1}
"""How each kernel is compiled."""


def fits(input_scores: Tensor, output_scores: Tensor) -> bool:
    """Whether the kernels can take [B,I,V] and [B,J,V] tensors of this size and type."""
    sides = input_scores, output_scores
    # Places in one sentence are counted in 32 bits.
    return all(x.numel() > 0 and x[0].numel() < 2**31 and x.dtype in DTYPES for x in sides)


def word_log_probs(input_scores: Tensor, output_scores: Tensor, targets: Tensor) -> Tensor:
    """``noisychannel.joint.word_log_probs`` for scores that fit: [B,I,V], [B,J,V], [B,J] -> float32 [B,I,J].

    A target that is no symbol gives nan.
    """
    result: Tensor = _WordLogProbs.apply(input_scores, output_scores, targets)  # type: ignore[no-untyped-call]
    return result


def log_normaliser(input_scores: Tensor, output_scores: Tensor) -> Tensor:
    """``noisychannel.joint.log_normaliser`` for scores that fit: [B,I,V], [B,J,V] -> float32 [B,I,J]."""
    return _normalise(input_scores, output_scores, None).value


class _WordLogProbs(torch.autograd.Function):
    """Keeps, beside its arguments, two numbers an entry and one a row; nothing of the size of the vocabulary."""

    @staticmethod
    def forward(ctx: Any, input_scores: Tensor, output_scores: Tensor, targets: Tensor) -> Tensor:
        targets = targets.contiguous()
        done = _normalise(input_scores, output_scores, targets)
        ctx.save_for_backward(input_scores, output_scores, targets, *done[1:])
        return done.value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        input_scores, output_scores, targets, *entries, input_max, output_max = ctx.saved_tensors
        entries = grads[0].contiguous(), *entries
        of_inputs, of_outputs = (input_scores, input_max), (output_scores, output_max)
        J = output_scores.shape[1]
        needed = ctx.needs_input_grad
        return (
            _gradient(of_inputs, of_outputs, targets, entries, (J, 1), False) if needed[0] else None,
            _gradient(of_outputs, of_inputs, targets, entries, (1, J), True) if needed[1] else None,
            None,
        )


class _Normalised(NamedTuple):
    value: Tensor
    """log p(v_j | i, j), or log Z where there are no targets: [B,I,J]."""
    product: Tensor | None
    """P, or where it was lost minus the sum relative to the peak: [B,I,J]."""
    peak: Tensor | None
    """The largest logit of an entry that was lost, and anything else elsewhere: [B,I,J]."""
    input_max: Tensor | None
    """â, [B,I]."""
    output_max: Tensor | None
    """ĉ, [B,J]."""


def _normalise(input_scores: Tensor, output_scores: Tensor, targets: Tensor | None) -> _Normalised:
    (B, I, V), J = input_scores.shape, output_scores.shape[1]
    a, c = input_scores.contiguous(), output_scores.contiguous()
    new = partial(torch.empty, dtype=torch.float32, device=input_scores.device)
    block_I, block_J = _block(I), _block(J)
    tiles = B * triton.cdiv(I, block_I) * triton.cdiv(J, block_J)
    pieces = min(MOST_PIECES.value, triton.cdiv(ENOUGH_PROGRAMS, tiles), triton.cdiv(V, SHORTEST_PIECE))
    piece = PRODUCT["BLOCK_V"] * triton.cdiv(V, PRODUCT["BLOCK_V"] * pieces)
    pieces = triton.cdiv(V, piece)
    parts = new(pieces, B, I, J), new(pieces, B, I), new(pieces, B, J)
    kept = (None,) * 4 if targets is None else (new(B, I, J), new(B, I, J), new(B, I), new(B, J))
    done = _Normalised(new(B, I, J), *kept)
    sizes = B, I, J, V
    finfo = torch.finfo(torch.float32)
    with torch.cuda.device_of(input_scores):
        _multiply[(tiles * pieces,)](a, c, *parts, *sizes, piece, BLOCK_I=block_I, BLOCK_J=block_J, **PRODUCT)
        _finish[(B * I * triton.cdiv(J, block_J),)](
            a, c, *parts, targets, *done, *sizes, pieces, V * finfo.tiny / finfo.eps, BLOCK_J=block_J, **FINISH
        )
    return done


def _gradient(
    own: tuple[Tensor, Tensor],
    other: tuple[Tensor, Tensor],
    targets: Tensor,
    entries: tuple[Tensor, ...],
    strides: tuple[int, int],
    of_outputs: bool,
) -> Tensor:
    """The gradient of one side's scores; each side is given as its scores and maxima, [B,R,V], [B,R]."""
    (B, R, V), C = own[0].shape, other[0].shape[1]
    result = torch.empty(B, R, V, dtype=own[0].dtype, device=own[0].device)
    rows, columns = own[0].contiguous(), other[0].contiguous()
    block_R, block_C = _block(R), _block(C)
    arguments = rows, columns, own[1], other[1], targets, *entries, result, R, C, V, *strides
    tiles = B * triton.cdiv(R, block_R) * triton.cdiv(V, GRADIENT["BLOCK_V"])
    with torch.cuda.device_of(rows):
        _descend[(tiles,)](*arguments, OF_OUTPUTS=of_outputs, BLOCK_R=block_R, BLOCK_C=block_C, **GRADIENT)
    return result


def _block(positions: int) -> int:
    """Three sizes for every length: a kernel is compiled for each, and a tile has sides of at least 16."""
    return min(64, max(16, triton.next_power_of_2(positions)))


# A batch's size is no reason to compile a kernel again. The vocabulary's stays: it decides how wide a read may be.
_SIZES = ["B", "I", "J", "R", "C", "S", "piece", "threshold", "stride_R", "stride_C"]


@triton.jit(do_not_specialize=_SIZES)
def _multiply(
    a_ptr: tl.tensor,
    c_ptr: tl.tensor,
    product_ptr: tl.tensor,
    a_max_ptr: tl.tensor,
    c_max_ptr: tl.tensor,
    B: tl.tensor,
    I: tl.tensor,
    J: tl.tensor,
    V: tl.tensor,
    piece: tl.tensor,
    BLOCK_I: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """One tile of P over one piece of the vocabulary, relative to the piece's own maxima: [S,B,I,J], [S,B,I], [S,B,J].

    The maxima grow on the way and P is scaled down with them, so what is lost stays below that in the end.
    """
    tiles_I, tiles_J = tl.cdiv(I, BLOCK_I), tl.cdiv(J, BLOCK_J)
    tile = tl.program_id(0) % (tiles_I * tiles_J)
    sb = (tl.program_id(0) // (tiles_I * tiles_J)).to(tl.int64)
    s, b = sb // B, sb % B
    i = (tile // tiles_J) * BLOCK_I + tl.arange(0, BLOCK_I)
    j = (tile % tiles_J) * BLOCK_J + tl.arange(0, BLOCK_J)
    a_max_I = tl.full((BLOCK_I,), -float("inf"), tl.float32)
    c_max_J = tl.full((BLOCK_J,), -float("inf"), tl.float32)
    product_IJ = tl.full((BLOCK_I, BLOCK_J), 0.0, tl.float32)
    start = (s * piece).to(tl.int32)
    for first in range(start, tl.minimum(start + piece, V), BLOCK_V):
        a_IV = _scores(a_ptr, b, i, I, first, V, BLOCK_V)
        c_JV = _scores(c_ptr, b, j, J, first, V, BLOCK_V)
        new_a_max_I = tl.maximum(a_max_I, tl.max(a_IV, 1))
        new_c_max_J = tl.maximum(c_max_J, tl.max(c_JV, 1))
        a_zero_I, c_zero_J = _zero_point(new_a_max_I), _zero_point(new_c_max_J)
        product_IJ *= tl.exp(a_max_I - a_zero_I)[:, None] * tl.exp(c_max_J - c_zero_J)[None, :]
        product_IJ = tl.dot(
            tl.exp(a_IV - a_zero_I[:, None]),
            tl.trans(tl.exp(c_JV - c_zero_J[:, None])),
            product_IJ,
            input_precision="ieee",
        )
        a_max_I, c_max_J = new_a_max_I, new_c_max_J
    tl.store(a_max_ptr + sb * I + i, a_max_I, i < I)
    tl.store(c_max_ptr + sb * J + j, c_max_J, j < J)
    product_ptrs = product_ptr + sb * I * J + (i[:, None] * J + j[None, :])
    tl.store(product_ptrs, product_IJ, (i < I)[:, None] & (j < J)[None, :])


@triton.jit(do_not_specialize=_SIZES)
def _finish(
    a_ptr: tl.tensor,
    c_ptr: tl.tensor,
    part_ptr: tl.tensor,
    a_part_max_ptr: tl.tensor,
    c_part_max_ptr: tl.tensor,
    targets_ptr: tl.tensor,
    value_ptr: tl.tensor,
    product_ptr: tl.tensor,
    peak_ptr: tl.tensor,
    a_max_ptr: tl.tensor,
    c_max_ptr: tl.tensor,
    B: tl.tensor,
    I: tl.tensor,
    J: tl.tensor,
    V: tl.tensor,
    S: tl.tensor,
    threshold: tl.tensor,
    BLOCK_J: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """BLOCK_J entries of one input position: from the pieces to the result, the long way where they were lost."""
    tiles_J = tl.cdiv(J, BLOCK_J)
    bi = (tl.program_id(0) // tiles_J).to(tl.int64)
    b, i = bi // I, bi % I
    j = (tl.program_id(0) % tiles_J) * BLOCK_J + tl.arange(0, BLOCK_J)
    s = tl.arange(0, MOST_PIECES)
    inside = j < J
    inside_SJ = (s < S)[:, None] & inside[None, :]
    a_max_S = tl.load(a_part_max_ptr + s * (B * I) + bi, s < S, -float("inf"))
    c_max_SJ = tl.load(c_part_max_ptr + (s * B + b)[:, None] * J + j[None, :], inside_SJ, -float("inf"))
    part_SJ = tl.load(part_ptr + ((s * B + b) * I + i)[:, None] * J + j[None, :], inside_SJ, 0.0)
    a_max, c_max_J = tl.max(a_max_S, 0), tl.max(c_max_SJ, 0)
    scale_SJ = tl.exp(a_max_S - _zero_point(a_max))[:, None] * tl.exp(c_max_SJ - _zero_point(c_max_J)[None, :])
    # Without a single possible symbol a side has no distribution.
    empty_J = tl.minimum(a_max, c_max_J) == -float("inf")
    product_J = tl.where(empty_J, float("nan"), tl.sum(part_SJ * scale_SJ, 0))

    lost_J = (product_J < threshold) & inside
    log_J = tl.log(tl.where(lost_J, 1.0, product_J)) + a_max + c_max_J
    if tl.max(lost_J.to(tl.int32), 0) > 0:
        peak_J = tl.full((BLOCK_J,), -float("inf"), tl.float32)
        for first in range(0, V, BLOCK_V):
            a_1V = _scores(a_ptr, b, i + tl.arange(0, 1), I, first, V, BLOCK_V)
            c_JV = _scores(c_ptr, b, j, J, first, V, BLOCK_V)
            peak_J = tl.maximum(peak_J, tl.max(a_1V + c_JV, 1))
        sum_J = tl.full((BLOCK_J,), 0.0, tl.float32)
        for first in range(0, V, BLOCK_V):
            a_1V = _scores(a_ptr, b, i + tl.arange(0, 1), I, first, V, BLOCK_V)
            c_JV = _scores(c_ptr, b, j, J, first, V, BLOCK_V)
            sum_J += tl.sum(tl.exp(a_1V + c_JV - peak_J[:, None]), 1)
        # Where no symbol is possible on both sides the peak is -inf and the sum, like the gradient, is nan.
        log_J = tl.where(lost_J, tl.where(peak_J == -float("inf"), peak_J, peak_J + tl.log(sum_J)), log_J)
        product_J = tl.where(lost_J, -sum_J, product_J)
        if targets_ptr is not None:
            tl.store(peak_ptr + bi * J + j, peak_J, lost_J)
    if targets_ptr is None:
        tl.store(value_ptr + bi * J + j, log_J, inside)
    else:
        target_J = tl.load(targets_ptr + b * J + j, inside, 0)
        valid = (target_J >= 0) & (target_J < V) & inside
        a_J = tl.load(a_ptr + bi * V + target_J, valid, float("nan")).to(tl.float32)
        c_J = tl.load(c_ptr + (b * J + j) * V + target_J, valid, float("nan")).to(tl.float32)
        tl.store(value_ptr + bi * J + j, a_J + c_J - log_J, inside)
        tl.store(product_ptr + bi * J + j, product_J, inside)
        tl.store(a_max_ptr + bi + 0 * j, a_max, j == 0)
        if i == 0:
            tl.store(c_max_ptr + b * J + j, c_max_J, inside)


@triton.jit(do_not_specialize=_SIZES)
def _descend(
    own_ptr: tl.tensor,
    other_ptr: tl.tensor,
    own_max_ptr: tl.tensor,
    other_max_ptr: tl.tensor,
    targets_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    product_ptr: tl.tensor,
    peak_ptr: tl.tensor,
    result_ptr: tl.tensor,
    R: tl.tensor,
    C: tl.tensor,
    V: tl.tensor,
    stride_R: tl.tensor,
    stride_C: tl.tensor,
    OF_OUTPUTS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """One tile of one side's gradient."""
    tiles_R = tl.cdiv(R, BLOCK_R)
    bv = tl.program_id(0) // tiles_R
    b, first = (bv // tl.cdiv(V, BLOCK_V)).to(tl.int64), (bv % tl.cdiv(V, BLOCK_V)) * BLOCK_V
    r = (tl.program_id(0) % tiles_R) * BLOCK_R + tl.arange(0, BLOCK_R)
    v = first + tl.arange(0, BLOCK_V)
    grad_ptr += b * R * C
    product_ptr += b * R * C
    peak_ptr += b * R * C
    result_RV = tl.full((BLOCK_R, BLOCK_V), 0.0, tl.float32)
    grad_R = tl.full((BLOCK_R,), 0.0, tl.float32)
    targets_here = 0
    lost_here = 0
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        inside = (r < R)[:, None] & (c < C)[None, :]
        grad_RC = tl.load(grad_ptr + r[:, None] * stride_R + c[None, :] * stride_C, inside, 0.0)
        product_RC = tl.load(product_ptr + r[:, None] * stride_R + c[None, :] * stride_C, inside, 1.0)
        other_CV = _scores(other_ptr, b, c, C, first, V, BLOCK_V)
        other_max_C = tl.load(other_max_ptr + b * C + c, c < C, 0.0)
        ratio_RC = tl.where(product_RC < 0, 0.0, -grad_RC / product_RC)
        result_RV = tl.dot(ratio_RC, tl.exp(other_CV - other_max_C[:, None]), result_RV, input_precision="ieee")
        lost_here |= tl.max(tl.max((product_RC < 0).to(tl.int32), 1), 0)
        if OF_OUTPUTS:
            grad_R += tl.sum(grad_RC, 1)
        else:
            target_C = tl.load(targets_ptr + b * C + c, c < C, -1)
            targets_here |= tl.max(((target_C >= first) & (target_C < first + BLOCK_V)).to(tl.int32), 0)
    own_RV = _scores(own_ptr, b, r, R, first, V, BLOCK_V)
    own_max_R = tl.load(own_max_ptr + b * R + r, r < R, 0.0)
    result_RV *= tl.exp(own_RV - own_max_R[:, None])

    if OF_OUTPUTS:
        target_R = tl.load(targets_ptr + b * R + r, r < R, -1)
        result_RV += tl.where(target_R[:, None] == v[None, :], grad_R[:, None], 0.0)
    elif targets_here > 0:
        for c in range(0, C):
            grad_R = tl.load(grad_ptr + r * stride_R + c * stride_C, r < R, 0.0)
            result_RV += tl.where(tl.load(targets_ptr + b * C + c) == v[None, :], grad_R[:, None], 0.0)
    if lost_here > 0:
        for c in range(0, C):
            # -G times the softmax of the entry's own logits.
            grad_R = tl.load(grad_ptr + r * stride_R + c * stride_C, r < R, 0.0)
            product_R = tl.load(product_ptr + r * stride_R + c * stride_C, r < R, 1.0)
            peak_R = tl.load(peak_ptr + r * stride_R + c * stride_C, product_R < 0, float("inf"))
            other_1V = _scores(other_ptr, b, c + tl.arange(0, 1), C, first, V, BLOCK_V)
            softmax_RV = tl.exp(own_RV + other_1V - peak_R[:, None])
            result_RV += tl.where(product_R < 0, grad_R / product_R, 0.0)[:, None] * softmax_RV
    result_ptrs = result_ptr + b * R * V + (r[:, None] * V + v[None, :])
    tl.store(result_ptrs, result_RV.to(result_ptr.dtype.element_ty), (r < R)[:, None] & (v < V)[None, :])


@triton.jit
def _scores(
    ptr: tl.tensor,
    b: tl.tensor,
    i: tl.tensor,
    I: tl.tensor,
    first: tl.tensor,
    V: tl.tensor,
    BLOCK_V: tl.constexpr,
) -> tl.tensor:
    """A tile: the BLOCK_V symbols from ``first`` on, for a vector of positions; -inf outside."""
    v = first + tl.arange(0, BLOCK_V)
    ptrs = ptr + b * I * V + (i[:, None] * V + v[None, :])
    return tl.load(ptrs, (i < I)[:, None] & (v < V)[None, :], -float("inf")).to(tl.float32)


@triton.jit
def _zero_point(largest: tl.tensor) -> tl.tensor:
    """What is taken off before an exponential: the maximum, and of scores that are all -inf nothing."""
    return tl.where(largest == -float("inf"), 0.0, largest)
