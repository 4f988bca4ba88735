"""The kernels of ``kernels.joint``, which explains and launches them.

Shapes: B batch, I input positions, J output positions, V symbols, S pieces of W symbols each. For the gradient R are
the positions of the side that it belongs to and C those of the other. ``x_RV`` is a tile of BLOCK_R × BLOCK_V.
"""

# Triton has no types, and may not be installed.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

MOST_PIECES = tl.constexpr(32)
"""Into which a vocabulary is split."""

# A new batch size must not compile a kernel again. The vocabulary size is not listed: it decides the width of reads.
_SIZES = ["I", "J", "R", "C", "S", "threshold", "entries", "stride_R", "stride_C"]


@triton.jit(do_not_specialize=_SIZES)
def exponentiate(
    scores_ptr: tl.tensor,
    exp_ptr: tl.tensor,
    max_ptr: tl.tensor,
    I: tl.tensor,
    V: tl.tensor,
    S: tl.tensor,
    BLOCK_W: tl.constexpr,
) -> None:
    """One piece of one row: its exponentials relative to its maximum, and the maximum: [B,S,I,W], [B,S,I]."""
    s = tl.program_id(0) % S
    bi = (tl.program_id(0) // S).to(tl.int64)
    row = (bi // I * S + s) * I + bi % I
    w = tl.arange(0, BLOCK_W)
    v = s * BLOCK_W + w
    scores_W = tl.load(scores_ptr + bi * V + v, v < V, -float("inf")).to(tl.float32)
    largest = tl.max(scores_W, 0)
    tl.store(max_ptr + row, largest)
    # Past the end of the vocabulary this writes zeros.
    tl.store(exp_ptr + row * BLOCK_W + w, tl.exp(scores_W - _zero_point(largest)))


@triton.jit(do_not_specialize=_SIZES)
def finish(
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
    I: tl.tensor,
    J: tl.tensor,
    V: tl.tensor,
    S: tl.tensor,
    threshold: tl.tensor,
    BLOCK_J: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """BLOCK_J entries of one input position: add up the pieces, and recompute the entries that underflowed."""
    tiles_J = tl.cdiv(J, BLOCK_J)
    bi = (tl.program_id(0) // tiles_J).to(tl.int64)
    b, i = bi // I, bi % I
    j = (tl.program_id(0) % tiles_J) * BLOCK_J + tl.arange(0, BLOCK_J)
    s = tl.arange(0, MOST_PIECES)
    inside = j < J
    inside_SJ = (s < S)[:, None] & inside[None, :]
    row_S = (b * S + s) * I + i
    a_max_S = tl.load(a_part_max_ptr + row_S, s < S, -float("inf"))
    c_max_SJ = tl.load(c_part_max_ptr + (b * S + s)[:, None] * J + j[None, :], inside_SJ, -float("inf"))
    part_SJ = tl.load(part_ptr + row_S[:, None] * J + j[None, :], inside_SJ, 0.0)
    a_max, c_max_J = tl.max(a_max_S, 0), tl.max(c_max_SJ, 0)
    scale_SJ = tl.exp(a_max_S - _zero_point(a_max))[:, None] * tl.exp(c_max_SJ - _zero_point(c_max_J)[None, :])
    # A side without any possible symbol has no distribution.
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
        # If no symbol is possible on both sides, the peak is -inf and the sum is nan, like the gradient.
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
def divide(
    grad_ptr: tl.tensor,
    product_ptr: tl.tensor,
    ratio_ptr: tl.tensor,
    lost_ptr: tl.tensor,
    entries: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """-G/P of one sentence, 0 for recomputed entries, and whether there are any: [B,I,J], [B,I,J] -> [B,I,J], [B]."""
    b = tl.program_id(0).to(tl.int64)
    lost = 0
    for first in range(0, entries, BLOCK):
        n = first + tl.arange(0, BLOCK)
        grad = tl.load(grad_ptr + b * entries + n, n < entries, 0.0)
        product = tl.load(product_ptr + b * entries + n, n < entries, 1.0)
        tl.store(ratio_ptr + b * entries + n, tl.where(product < 0, 0.0, -grad / product), n < entries)
        lost |= tl.max((product < 0).to(tl.int32), 0)
    tl.store(lost_ptr + b, lost)


@triton.jit(do_not_specialize=_SIZES)
def descend(
    own_ptr: tl.tensor,
    other_ptr: tl.tensor,
    own_max_ptr: tl.tensor,
    other_max_ptr: tl.tensor,
    targets_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    product_ptr: tl.tensor,
    peak_ptr: tl.tensor,
    ratio_ptr: tl.tensor,
    lost_ptr: tl.tensor,
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
    """One tile of the gradient of one side. Few tiles contain a target, and few sentences a recomputed entry."""
    tiles_R, tiles_V = tl.cdiv(R, BLOCK_R), tl.cdiv(V, BLOCK_V)
    bv = tl.program_id(0) // tiles_R
    b, first = (bv // tiles_V).to(tl.int64), (bv % tiles_V) * BLOCK_V
    r = (tl.program_id(0) % tiles_R) * BLOCK_R + tl.arange(0, BLOCK_R)
    v = first + tl.arange(0, BLOCK_V)
    grad_ptr += b * R * C
    product_ptr += b * R * C
    peak_ptr += b * R * C
    ratio_ptr += b * R * C

    result_RV = tl.full((BLOCK_R, BLOCK_V), 0.0, tl.float32)
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        inside_RC = (r < R)[:, None] & (c < C)[None, :]
        ratio_RC = tl.load(ratio_ptr + r[:, None] * stride_R + c[None, :] * stride_C, inside_RC, 0.0)
        other_CV = _scores(other_ptr, b, c, C, first, V, BLOCK_V)
        other_max_C = tl.load(other_max_ptr + b * C + c, c < C, 0.0)
        result_RV = tl.dot(ratio_RC, tl.exp(other_CV - other_max_C[:, None]), result_RV, input_precision="ieee")
    own_RV = _scores(own_ptr, b, r, R, first, V, BLOCK_V)
    own_max_R = tl.load(own_max_ptr + b * R + r, r < R, 0.0)
    result_RV *= tl.exp(own_RV - own_max_R[:, None])

    # Σ_c G 1[v = w].
    if OF_OUTPUTS:
        target_R = tl.load(targets_ptr + b * R + r, r < R, -1)
        if _any_between(target_R, first, first + BLOCK_V):
            grad_R = tl.full((BLOCK_R,), 0.0, tl.float32)
            for n in range(0, C):
                grad_R += tl.load(grad_ptr + r * stride_R + n * stride_C, r < R, 0.0)
            result_RV += tl.where(target_R[:, None] == v[None, :], grad_R[:, None], 0.0)
    else:
        for start in range(0, C, BLOCK_C):
            c = start + tl.arange(0, BLOCK_C)
            target_C = tl.load(targets_ptr + b * C + c, c < C, -1)
            if _any_between(target_C, first, first + BLOCK_V):
                for n in range(start, tl.minimum(start + BLOCK_C, C)):
                    grad_R = tl.load(grad_ptr + r * stride_R + n * stride_C, r < R, 0.0)
                    result_RV += tl.where(tl.load(targets_ptr + b * C + n) == v[None, :], grad_R[:, None], 0.0)
    # -G times the softmax of the logits of each recomputed entry.
    if tl.load(lost_ptr + b) > 0:
        for n in range(0, C):
            grad_R = tl.load(grad_ptr + r * stride_R + n * stride_C, r < R, 0.0)
            product_R = tl.load(product_ptr + r * stride_R + n * stride_C, r < R, 1.0)
            peak_R = tl.load(peak_ptr + r * stride_R + n * stride_C, product_R < 0, float("inf"))
            other_1V = _scores(other_ptr, b, n + tl.arange(0, 1), C, first, V, BLOCK_V)
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
    """A tile: BLOCK_V symbols starting at ``first``, for a vector of positions; -inf outside."""
    v = first + tl.arange(0, BLOCK_V)
    ptrs = ptr + b * I * V + (i[:, None] * V + v[None, :])
    return tl.load(ptrs, (i < I)[:, None] & (v < V)[None, :], -float("inf")).to(tl.float32)


@triton.jit
def _any_between(x: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    return tl.max(((x >= low) & (x < high)).to(tl.int32), 0) > 0


@triton.jit
def _zero_point(largest: tl.tensor) -> tl.tensor:
    """What is subtracted before the exponential: the maximum, or 0 if all scores are -inf."""
    return tl.where(largest == -float("inf"), 0.0, largest)
