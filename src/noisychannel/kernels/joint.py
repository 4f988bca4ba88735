"""The joint softmax and its gradient in a few kernels, without waiting for the host in between.

The result is that of ``noisychannel.joint``, whose docstring has the mathematics, in float32:

    log Z_ij = log P_ij + â_i + ĉ_j,    P_ij = Σ_w exp(a_i[w] - â_i) · exp(c_j[w] - ĉ_j)

    ∂/∂a_i[w] = Σ_j G_ij 1[v_j = w] - exp(a_i[w] - â_i) Σ_j (G_ij / P_ij) exp(c_j[w] - ĉ_j)

Forward: the vocabulary is split into pieces. ``exponentiate`` reads each row once and writes the exponentials relative
to the maximum of each piece. A batched product gives the part of P that each piece contributes, and ``finish`` adds
them up. There each entry is checked: if P is so small that its summands have underflowed, the same program sums the
entry again from its own V logits x. Such an entry is stored as a negative number, which P never is: minus
Σ_w exp(x[w] - peak), together with peak = max_w x[w].

Backward: ``divide`` computes -G/P, and ``descend`` multiplies it by the exponentials, which it computes tile by tile.
It reads the scores of both sides and writes only the gradient.

No two programs add to the same number, so the same arguments give bit-identical results.

Shapes: B batch, I input positions, J output positions, V symbols, S pieces of W symbols each. In the gradient, R is the
positions of the side that it belongs to and C those of the other side.
"""

# Triton has no types, and may not be installed.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from noisychannel.kernels.joint_kernels import MOST_PIECES, descend, divide, exponentiate, finish
from noisychannel.precision import SearchProducts, normaliser_products

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LONGEST_PIECE = 1 << 15
FINISH = {"BLOCK_V": 64, "num_warps": 4}
RATIO = {"BLOCK": 1024, "num_warps": 4}
GRADIENT = {"BLOCK_V": 32, "num_warps": 4, "num_stages": 1}
"""How these kernels are compiled. The last one is the fastest choice on an H200."""


def fits(input_scores: Tensor, output_scores: Tensor) -> bool:
    """Whether the kernels can take [B,I,V] and [B,J,V] tensors of this size and type."""
    (B, I, V), J = input_scores.shape, output_scores.shape[1]
    # Offsets within one sentence are 32-bit numbers.
    sizes = min(B, I, J) > 0 and 0 < V <= MOST_PIECES.value * LONGEST_PIECE and max(I, J) * V < 2**31
    return sizes and input_scores.dtype in DTYPES and output_scores.dtype in DTYPES


def word_log_probs(input_scores: Tensor, output_scores: Tensor, targets: Tensor) -> Tensor:
    """``noisychannel.joint.word_log_probs`` for scores that fit: [B,I,V], [B,J,V], [B,J] -> float32 [B,I,J].

    A target outside the vocabulary gives nan.
    """
    result: Tensor = _WordLogProbs.apply(input_scores, output_scores, targets)  # type: ignore[no-untyped-call]
    return result


def log_normaliser(input_scores: Tensor, output_scores: Tensor, products: SearchProducts = "ieee") -> Tensor:
    """``noisychannel.joint.log_normaliser`` for scores that fit: [B,I,V], [B,J,V] -> float32 [B,I,J]."""
    return _normalise(input_scores, output_scores, None, products).value


class _WordLogProbs(torch.autograd.Function):
    """Stores, besides its arguments, two numbers per entry and one per row; nothing as large as the vocabulary."""

    @staticmethod
    def forward(ctx: Any, input_scores: Tensor, output_scores: Tensor, targets: Tensor) -> Tensor:
        targets = targets.contiguous()
        done = _normalise(input_scores, output_scores, targets)
        ctx.save_for_backward(input_scores, output_scores, targets, *done[1:])
        return done.value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        input_scores, output_scores, targets, product, peak, input_max, output_max = ctx.saved_tensors
        grad = grads[0].contiguous()
        B, I, J = grad.shape
        ratio, lost = torch.empty_like(grad), torch.empty(B, dtype=torch.int32, device=grad.device)
        with torch.cuda.device_of(grad):
            divide[(B,)](grad, product, ratio, lost, I * J, **RATIO)
        entries = grad, product, peak, ratio, lost
        of_inputs, of_outputs = (input_scores, input_max), (output_scores, output_max)
        needed = ctx.needs_input_grad
        return (
            _gradient(of_inputs, of_outputs, targets, entries, (J, 1), False) if needed[0] else None,
            _gradient(of_outputs, of_inputs, targets, entries, (1, J), True) if needed[1] else None,
            None,
        )


class _Normalised(NamedTuple):
    value: Tensor
    """log p(v_j | i, j), or log Z if there are no targets: [B,I,J]."""
    product: Tensor | None
    """P; for a recomputed entry, minus the sum relative to the peak: [B,I,J]."""
    peak: Tensor | None
    """The largest logit of a recomputed entry; undefined for the others: [B,I,J]."""
    input_max: Tensor | None
    """â, [B,I]."""
    output_max: Tensor | None
    """ĉ, [B,J]."""


def _normalise(
    input_scores: Tensor, output_scores: Tensor, targets: Tensor | None, products: SearchProducts = "ieee"
) -> _Normalised:
    (B, I, V), J = input_scores.shape, output_scores.shape[1]
    input_scores, output_scores = input_scores.contiguous(), output_scores.contiguous()
    new = partial(torch.empty, dtype=torch.float32, device=input_scores.device)
    kept = (None,) * 4 if targets is None else (new(B, I, J), new(B, I, J), new(B, I), new(B, J))
    done = _Normalised(new(B, I, J), *kept)
    factors = torch.bfloat16 if products == "bf16" else torch.float32
    with torch.cuda.device_of(input_scores), normaliser_products(products, input_scores.device):
        input_exp, input_max_BSI = _pieces(input_scores, factors)
        output_exp, output_max_BSJ = _pieces(output_scores, factors)
        # One product per piece: a product of few rows and very many columns would leave most of the GPU idle.
        part_BSIJ = _products(input_exp.flatten(0, 1), output_exp.flatten(0, 1).mT)
        parts = part_BSIJ, input_max_BSI, output_max_BSJ
        sizes = I, J, V, input_exp.shape[1], underflow_threshold(V)
        block_J = min(32, _block(J))
        finish[(B * I * triton.cdiv(J, block_J),)](
            input_scores, output_scores, *parts, targets, *done, *sizes, BLOCK_J=block_J, **FINISH
        )
    return done


def _products(a: Tensor, b: Tensor) -> Tensor:
    """The batched product in float32, also of factors in bfloat16."""
    if a.dtype == torch.float32:
        return torch.bmm(a, b)
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.bmm(a.float(), b.float())


def _pieces(scores_BIV: Tensor, factors: torch.dtype) -> tuple[Tensor, Tensor]:
    """exp(scores - maximum) and the maximum of each piece: [B,I,V] -> [B,S,I,W], [B,S,I]."""
    B, I, V = scores_BIV.shape
    W = max(16, min(1024, triton.next_power_of_2(V)), triton.next_power_of_2(triton.cdiv(V, MOST_PIECES.value)))
    S = triton.cdiv(V, W)
    exp_BSIW = torch.empty(B, S, I, W, dtype=factors, device=scores_BIV.device)
    max_BSI = torch.empty(B, S, I, dtype=torch.float32, device=scores_BIV.device)
    exponentiate[(B * I * S,)](scores_BIV, exp_BSIW, max_BSI, I, V, S, BLOCK_W=W, num_warps=min(16, -(-W // 256)))
    return exp_BSIW, max_BSI


def underflow_threshold(vocab_size: int) -> float:
    """A product of exponentials that is smaller may have lost its largest terms."""
    finfo = torch.finfo(torch.float32)
    return vocab_size * finfo.tiny / finfo.eps


def _gradient(
    own: tuple[Tensor, Tensor],
    other: tuple[Tensor, Tensor],
    targets: Tensor,
    entries: tuple[Tensor, ...],
    strides: tuple[int, int],
    of_outputs: bool,
) -> Tensor:
    """The gradient of the scores of one side. Each side is given as its scores and maxima, [B,R,V], [B,R]."""
    (B, R, V), C = own[0].shape, other[0].shape[1]
    result = torch.empty(B, R, V, dtype=own[0].dtype, device=own[0].device)
    rows, columns = own[0].contiguous(), other[0].contiguous()
    block_R, block_C = _block(R), _block(C)
    arguments = rows, columns, own[1], other[1], targets, *entries, result, R, C, V, *strides
    tiles = B * triton.cdiv(R, block_R) * triton.cdiv(V, GRADIENT["BLOCK_V"])
    with torch.cuda.device_of(rows):
        descend[(tiles,)](*arguments, OF_OUTPUTS=of_outputs, BLOCK_R=block_R, BLOCK_C=block_C, **GRADIENT)
    return result


def _block(positions: int) -> int:
    """One of three sizes: a kernel is compiled for each, and a tile has sides of at least 16."""
    return min(64, max(16, triton.next_power_of_2(positions)))
