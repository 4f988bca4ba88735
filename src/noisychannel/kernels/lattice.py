"""The log-marginal of the lattice in one kernel, and its gradient in another.

One program processes the lattice of one sentence, one anti-diagonal at a time, with the recursion and the flow of
``noisychannel.lattice``, whose docstring has the mathematics. It computes the same numbers in the same order, in
float32, so what is said there about cancellation, overflow and -inf is true here.

The nodes of a diagonal are a vector over the shorter side of the lattice, which is the input (``OVER_INPUTS``) or the
output. Of the two arcs that leave a node, one leads to the same index of the next diagonal's vector (it *stays*), the
other to the next index (it *moves*):

    ===========  =====  =====  ==================
    OVER_INPUTS  stays  moves  node at (k, l) is
    ===========  =====  =====  ==================
    True         emit   shift  (i, j) = (k, l)
    False        shift  emit   (j, i) = (k, l)
    ===========  =====  =====  ==================

Shapes: B batch, I input positions, J output positions, K = min(I, J) and L = max(I, J) the same two in the order of
the vectors, BLOCK_K the length of a vector, a power of two. In a kernel ``x_K`` is a vector of BLOCK_K.
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

LONGEST_VECTOR = 1024
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def fits(word_logp: Tensor, emit_logit: Tensor) -> bool:
    """Whether the kernels can take [B,I,J] tensors of this size and type."""
    B, I, J = word_logp.shape
    return B > 0 and 1 <= min(I, J) <= LONGEST_VECTOR and word_logp.dtype in DTYPES and emit_logit.dtype in DTYPES


def log_marginal(word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
    """``noisychannel.lattice.log_marginal`` for tensors that fit: [B,I,J], [B,I,J], [B], [B] -> float32 [B]."""
    total: Tensor = _LogMarginal.apply(word_logp, emit_logit, input_lengths, output_lengths)  # type: ignore[no-untyped-call]
    return total


class _LogMarginal(torch.autograd.Function):
    """Stores for the gradient which share of each node's weight came by a shift: float32 [B,I,J]."""

    @staticmethod
    def forward(
        ctx: Any, word_logp: Tensor, emit_logit: Tensor, input_lengths: Tensor, output_lengths: Tensor
    ) -> Tensor:
        B, I, J = word_logp.shape
        device = word_logp.device
        lengths = [x.to(device, non_blocking=True).contiguous() for x in (input_lengths, output_lengths)]
        total_B = torch.empty(B, dtype=torch.float32, device=device)
        share = torch.empty(B * I * J, dtype=torch.float32, device=device)
        ctx.layout = layout = _Layout(I, J)
        with torch.cuda.device_of(word_logp):
            _ascend[(B,)](
                word_logp,
                emit_logit,
                *layout.ordered(*lengths),
                share,
                total_B,
                *layout.ordered(I, J),
                *layout.strides(word_logp),
                *layout.strides(emit_logit),
                **layout.constants,
            )
        ctx.save_for_backward(share, emit_logit, *lengths)
        ctx.word_dtype = word_logp.dtype
        return total_B

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        share, emit_logit, *lengths = ctx.saved_tensors
        B, I, J = emit_logit.shape
        word_grad = torch.empty(B, I, J, dtype=ctx.word_dtype, device=emit_logit.device)
        emit_grad = torch.empty(B, I, J, dtype=emit_logit.dtype, device=emit_logit.device)
        with torch.cuda.device_of(emit_logit):
            _descend[(B,)](
                share,
                emit_logit,
                *ctx.layout.ordered(*lengths),
                grads[0],
                word_grad,
                emit_grad,
                *ctx.layout.ordered(I, J),
                *ctx.layout.strides(emit_logit),
                *ctx.layout.strides(word_grad),
                grads[0].stride(0),
                **ctx.layout.constants,
            )
        return word_grad, emit_grad, None, None


class _Layout:
    """Which side of the lattice the vectors run over, and how long they are."""

    def __init__(self, I: int, J: int) -> None:
        self.over_inputs = I <= J
        # At least a warp, so that batches of short sentences share one compiled kernel.
        block = max(32, triton.next_power_of_2(min(I, J)))
        # A single warp passes values to the next index by shuffles; several need a barrier.
        warps = 1 if block <= 64 else block // 64
        self.constants = {"OVER_INPUTS": self.over_inputs, "BLOCK_K": block, "num_warps": warps}

    def ordered(self, of_inputs: Any, of_outputs: Any) -> tuple[Any, Any]:
        """A value of the input and one of the output, in the order K, L."""
        return (of_inputs, of_outputs) if self.over_inputs else (of_outputs, of_inputs)

    def strides(self, x_BIJ: Tensor) -> tuple[int, int, int]:
        """Strides in the order B, K, L."""
        return (x_BIJ.stride(0), *self.ordered(x_BIJ.stride(1), x_BIJ.stride(2)))


# Batches differ in size. A size that happens to be 1 or a multiple of 16 must not compile a kernel again.
_SIZES = ["K", "L", "grad_stride", *(f"{x}_stride_{side}" for x in ("word", "logit", "out") for side in "BKL")]


@triton.jit(do_not_specialize=_SIZES)
def _ascend(
    word_ptr: tl.tensor,
    logit_ptr: tl.tensor,
    length_K_ptr: tl.tensor,
    length_L_ptr: tl.tensor,
    share_ptr: tl.tensor,
    total_ptr: tl.tensor,
    K: tl.tensor,
    L: tl.tensor,
    word_stride_B: tl.tensor,
    word_stride_K: tl.tensor,
    word_stride_L: tl.tensor,
    logit_stride_B: tl.tensor,
    logit_stride_K: tl.tensor,
    logit_stride_L: tl.tensor,
    OVER_INPUTS: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """From the start to the last node of the sentence: stores log leave(I-1, J-1) and the share of every node."""
    b = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    own_K, own_L, valid = _own_lengths(length_K_ptr + b, length_L_ptr + b, K, L)
    word_ptrs = _first_diagonal(word_ptr + b * word_stride_B, k, word_stride_K, word_stride_L)
    logit_ptrs = _first_diagonal(logit_ptr + b * logit_stride_B, k, logit_stride_K, logit_stride_L)
    share_ptr += b * K * L

    by_shift_K = tl.full((BLOCK_K,), -float("inf"), tl.float32)
    by_emit_K = tl.where(k == 0, 0.0, -float("inf"))
    leave_K = by_shift_K
    # The values of the next diagonal are loaded one step ahead, so that no step waits for memory.
    inside = _on_diagonal(0, k, own_K, own_L)
    next_word_K = tl.load(word_ptrs, inside, 0.0)
    next_logit_K = tl.load(logit_ptrs, inside, 0.0)
    for d in range(0, own_K + own_L - 1):
        word_K, logit_K = next_word_K.to(tl.float32), next_logit_K.to(tl.float32)
        inside = _on_diagonal(d, k, own_K, own_L)
        inside_next = _on_diagonal(d + 1, k, own_K, own_L)
        word_ptrs += word_stride_L
        logit_ptrs += logit_stride_L
        next_word_K = tl.load(word_ptrs, inside_next, 0.0)
        next_logit_K = tl.load(logit_ptrs, inside_next, 0.0)

        # log emit = min(x, 0) - log(1 + e^-|x|), and log shift is the same of -x.
        softness_K = _log1p(tl.exp(-tl.abs(logit_K)))
        emitting_K = word_K + (tl.minimum(logit_K, 0.0) - softness_K)
        shifting_K = tl.minimum(-logit_K, 0.0) - softness_K

        # log(e^a + e^b) = max(a, b) + log(1 + e^-|a-b|), and a's share of it is 1 / (1 + e^(b-a)). If both are -inf,
        # their difference is nan; such a node is not reached and contributes nothing.
        ahead_K = by_shift_K - by_emit_K
        ratio_K = tl.exp(-tl.where(by_shift_K == by_emit_K, 0.0, tl.abs(ahead_K)))
        arrive_K = tl.maximum(by_shift_K, by_emit_K) + _log1p(ratio_K)
        share_K = tl.where(ahead_K == ahead_K, tl.where(ahead_K >= 0, 1.0, ratio_K) / (1.0 + ratio_K), 0.0)
        tl.store(share_ptr + _cyclic(d, k, K, L), share_K, inside)

        leave_K = arrive_K + emitting_K
        shifted_K = arrive_K + shifting_K
        if OVER_INPUTS:
            by_shift_K, by_emit_K = _from_place_before(shifted_K, -float("inf"), BLOCK_K), leave_K
        else:
            by_shift_K, by_emit_K = shifted_K, _from_place_before(leave_K, -float("inf"), BLOCK_K)
    tl.store(total_ptr + b + 0 * k, tl.where(valid, leave_K, float("nan")), k == own_K - 1)


@triton.jit(do_not_specialize=_SIZES)
def _descend(
    share_ptr: tl.tensor,
    logit_ptr: tl.tensor,
    length_K_ptr: tl.tensor,
    length_L_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    word_grad_ptr: tl.tensor,
    emit_grad_ptr: tl.tensor,
    K: tl.tensor,
    L: tl.tensor,
    logit_stride_B: tl.tensor,
    logit_stride_K: tl.tensor,
    logit_stride_L: tl.tensor,
    out_stride_B: tl.tensor,
    out_stride_K: tl.tensor,
    out_stride_L: tl.tensor,
    grad_stride: tl.tensor,
    OVER_INPUTS: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Sends one unit from the last node of the sentence back to the start; stores both gradients, zeros included."""
    b = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    own_K, own_L, _ = _own_lengths(length_K_ptr + b, length_L_ptr + b, K, L)
    D = K + L - 1
    logit_ptrs = _first_diagonal(logit_ptr + b * logit_stride_B, k, logit_stride_K, logit_stride_L)
    out_offsets = _first_diagonal(b * out_stride_B, k, out_stride_K, out_stride_L) + D.to(tl.int64) * out_stride_L
    logit_ptrs += (D.to(tl.int64) - 1) * logit_stride_L
    share_ptr += b * K * L
    grad = tl.load(grad_ptr + b * grad_stride)

    emit_K = tl.full((BLOCK_K,), 0.0, tl.float32)
    shift_K = emit_K
    inside = _on_diagonal(D - 1, k, own_K, own_L)
    next_share_K = tl.load(share_ptr + _cyclic(D - 1, k, K, L), inside, 0.0)
    next_logit_K = tl.load(logit_ptrs, inside, 0.0)
    for step in range(0, D):
        d = D - 1 - step
        share_K, logit_K = next_share_K, next_logit_K.to(tl.float32)
        # Before the start no index is inside, so nothing is read.
        inside = _on_diagonal(d - 1, k, own_K, own_L)
        logit_ptrs -= logit_stride_L
        next_share_K = tl.load(share_ptr + _cyclic(d - 1, k, K, L), inside, 0.0)
        next_logit_K = tl.load(logit_ptrs, inside, 0.0)

        emit_K += tl.where((k == own_K - 1) & (d == own_K + own_L - 2), 1.0, 0.0)
        through_K = emit_K + shift_K
        # d log emit / d logit = shift and d log shift / d logit = -emit.
        ratio_K = tl.exp(-tl.abs(logit_K))
        larger_K, smaller_K = 1.0 / (1.0 + ratio_K), ratio_K / (1.0 + ratio_K)
        emit_rate_K = tl.where(logit_K >= 0, larger_K, smaller_K)
        shift_rate_K = tl.where(logit_K >= 0, smaller_K, larger_K)
        emit_grad_K = grad * (emit_K * shift_rate_K - shift_K * emit_rate_K)
        out_offsets -= out_stride_L
        in_lattice = _on_diagonal(d, k, K, L)
        tl.store(word_grad_ptr + out_offsets, (grad * emit_K).to(word_grad_ptr.dtype.element_ty), in_lattice)
        tl.store(emit_grad_ptr + out_offsets, emit_grad_K.to(emit_grad_ptr.dtype.element_ty), in_lattice)

        by_shift_K = through_K * share_K
        by_emit_K = through_K - by_shift_K
        if OVER_INPUTS:
            shift_K, emit_K = _from_place_after(by_shift_K, 0.0, BLOCK_K), by_emit_K
        else:
            shift_K, emit_K = by_shift_K, _from_place_after(by_emit_K, 0.0, BLOCK_K)


@triton.jit
def _own_lengths(length_K_ptr: tl.tensor, length_L_ptr: tl.tensor, K: tl.tensor, L: tl.tensor) -> Any:
    """The two lengths of the sentence, and whether they are valid: lengths on a GPU have not been checked."""
    own_K, own_L = tl.load(length_K_ptr).to(tl.int32), tl.load(length_L_ptr).to(tl.int32)
    valid = (own_K >= 1) & (own_K <= K) & (own_L >= 1) & (own_L <= L)
    return tl.where(valid, own_K, 1), tl.where(valid, own_L, 1), valid


@triton.jit
def _on_diagonal(d: tl.tensor, k: tl.tensor, K: tl.tensor, L: tl.tensor) -> tl.tensor:
    """Whether k and l = d - k are a node of a K × L lattice."""
    return (k < K) & (k <= d) & (d - k < L)


@triton.jit
def _first_diagonal(start: tl.tensor, k: tl.tensor, stride_K: tl.tensor, stride_L: tl.tensor) -> tl.tensor:
    """The addresses of (k, l) with k + l = 0, most of them outside; each next diagonal adds one ``stride_L``."""
    return start + k.to(tl.int64) * (stride_K - stride_L)


@triton.jit
def _cyclic(d: tl.tensor, k: tl.tensor, K: tl.tensor, L: tl.tensor) -> tl.tensor:
    """Diagonal d < 2 L is stored in row d mod L of [L,K]. As 0 <= d - k < L, no two nodes share an index."""
    return tl.where(d < L, d, d - L) * K + k


@triton.jit
def _from_place_before(x_K: tl.tensor, first: tl.constexpr, BLOCK_K: tl.constexpr) -> tl.tensor:
    k = tl.arange(0, BLOCK_K)
    return tl.where(k > 0, tl.gather(x_K, tl.maximum(k - 1, 0), 0), first)


@triton.jit
def _from_place_after(x_K: tl.tensor, last: tl.constexpr, BLOCK_K: tl.constexpr) -> tl.tensor:
    k = tl.arange(0, BLOCK_K)
    return tl.where(k < BLOCK_K - 1, tl.gather(x_K, tl.minimum(k + 1, BLOCK_K - 1), 0), last)


@triton.jit
def _log1p(x: tl.tensor) -> tl.tensor:
    """log(1 + x) for x in [0, 1], with the rounding error of 1 + x corrected to first order."""
    rounded = 1.0 + x
    return tl.log(rounded) + (x - (rounded - 1.0)) / rounded
