"""The joint softmax of SSNT without the I·J·V tensor.

The word model has no non-linearity over [h_i; s_j], so its logits are a sum a_i[w] + c_j[w] and its normaliser is a
matrix product:

    log Z(i,j) = log Σ_w exp(a_i[w] + c_j[w]) = â_i + ĉ_j + log Σ_w exp(a_i[w] - â_i) · exp(c_j[w] - ĉ_j)

with â, ĉ the row maxima. Its gradient is two more products: with G the gradient of log p(v_j | i, j),

    ∂/∂a_i[w] = Σ_j G_ij 1[v_j = w] - exp(a_i[w] - â_i) Σ_j (G_ij / P_ij) exp(c_j[w] - ĉ_j),    P = the product above.

If the two maxima belong to very different symbols, P comes near the smallest float and its summands underflow. The
error is at most V times the smallest normal float, so an entry with P below V · tiny / eps is recomputed from its own V
logits, in value and in gradient. The result is exact for every finite input.

The product of shifted exponentials is that of k2's fast_rnnt, for transducers with an additive joiner
(``rnnt_loss_simple``: https://github.com/danpovey/fast_rnnt; Kuang et al., 2022, https://arxiv.org/abs/2206.13236).
The differences: there the blank is one of the V symbols, here a gate outside the softmax decides between emit and
shift; there the smallest normal float is added to P before the logarithm, so an entry that underflows gets a wrong
value, here it is recomputed; there autograd computes the gradient and stores both exponentials, here the formula above
needs neither.

Shapes: B batch, I input positions, J output positions, V symbols, N entries that are recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from noisychannel import kernels
from noisychannel.precision import SearchProducts, at_least_float32, exact_products, normaliser_products

RECOMPUTED_AT_ONCE = 1 << 22
"""Floats in one block of recomputed entries: bounds the memory if all entries are recomputed."""

FEWEST_ROWS = 16
"""Rows of each side, at least, in a product whose rounding does not depend on the batch."""
SYMBOLS_AT_ONCE = 512
"""Symbols that such a product sums over at a time."""


def word_log_probs(input_scores: Tensor, output_scores: Tensor, targets: Tensor) -> Tensor:
    """log p(v_j | i, j) = log softmax(a_i + c_j)[v_j]: [B,I,V], [B,J,V], [B,J] -> [B,I,J]."""
    _check(input_scores, output_scores)
    if targets.shape != output_scores.shape[:2]:
        raise ValueError(f"targets must be [B,J] = {list(output_scores.shape[:2])}, but are {list(targets.shape)}")
    if kernels.usable(input_scores, output_scores, targets):
        from noisychannel.kernels import joint as fused

        if fused.fits(input_scores, output_scores) and targets.dtype == torch.int64:
            return fused.word_log_probs(input_scores, output_scores, targets)
    if torch.is_grad_enabled():
        result: Tensor = _WordLogProbs.apply(input_scores, output_scores, targets)  # type: ignore[no-untyped-call]
        return result
    normaliser = _normalise(Scaled.of(input_scores), Scaled.of(output_scores), steady=True)
    return _of_targets(input_scores, output_scores, targets, normaliser.log)


@torch.no_grad()
def log_normaliser(
    input_scores: Tensor | Scaled, output_scores: Tensor | Scaled, products: SearchProducts = "ieee"
) -> Tensor:
    """log Σ_w exp(a_i[w] + c_j[w]), for a search that needs every word: [B,I,V], [B,J,V] -> [B,I,J].

    Pass a side that is used many times as ``Scaled.of(scores)``, computed once. ``products``: how exact the product of
    the exponentials is; sums are float32 or better.
    """
    scores = [x.scores if isinstance(x, Scaled) else x for x in (input_scores, output_scores)]
    _check(*scores)
    if kernels.usable(*scores):
        from noisychannel.kernels import joint as fused

        if fused.fits(*scores):
            return fused.log_normaliser(scores[0], scores[1], products)
    a, c = (x if isinstance(x, Scaled) else Scaled.of(x) for x in (input_scores, output_scores))
    if a.exp.device.type == "cpu" and products != "bf16":  # a CPU has no TF32
        return _log_normaliser_on_cpu(a, c)
    return _normalise(a, c, steady=True, products=products).log


def _log_normaliser_on_cpu(a: Scaled, c: Scaled) -> Tensor:
    """``_normalise`` for a search: few operations if no entry must be recomputed."""
    with normaliser_products("ieee", a.exp.device):
        product_BIJ = _steady_product(a.exp, c.exp)
    product = product_BIJ.numpy()
    if (product < _threshold(product_BIJ.dtype, a.exp.shape[2])).any():
        return _normalise(a, c, steady=True).log
    log_BIJ = np.log(product)
    log_BIJ += a.max.numpy()
    log_BIJ += c.max.mT.numpy()
    return torch.from_numpy(log_BIJ)


class Scaled(NamedTuple):
    """Scores of one side, prepared for the product: exp(scores - max)."""

    scores: Tensor
    """[B,I,V], in float32 at least."""
    exp: Tensor
    """[B,I,V]."""
    max: Tensor
    """[B,I,1]."""

    @staticmethod
    def of(scores: Tensor) -> Scaled:
        scores = at_least_float32(scores)
        largest = scores.amax(-1, keepdim=True)
        return Scaled(scores, (scores - largest).exp_(), largest)


class _WordLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_scores: Tensor, output_scores: Tensor, targets: Tensor) -> Tensor:
        normaliser = _normalise(Scaled.of(input_scores), Scaled.of(output_scores))
        ctx.save_for_backward(input_scores, output_scores, targets, normaliser.product, normaliser.lost_N3)
        return _of_targets(input_scores, output_scores, targets, normaliser.log)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        input_scores, output_scores, targets, product_BIJ, lost_N3 = ctx.saved_tensors
        grad_BIJ = grads[0]
        # Cheaper to compute again than to store.
        a, c = Scaled.of(input_scores), Scaled.of(output_scores)
        ratio_BIJ = -grad_BIJ / product_BIJ
        ratio_BIJ[tuple(lost_N3.unbind(1))] = 0.0
        with exact_products(input_scores.device):
            grad_input = (ratio_BIJ @ c.exp).mul_(a.exp)
            grad_output = (ratio_BIJ.mT @ a.exp).mul_(c.exp)
        grad_input.scatter_add_(2, targets[:, None, :].expand_as(grad_BIJ), grad_BIJ)
        grad_output.scatter_add_(2, targets[:, :, None], grad_BIJ.sum(1)[:, :, None])
        for (b, i, j), logits_NV in _long_way(lost_N3, a, c):
            grad_NV = logits_NV.softmax(1) * -grad_BIJ[b, i, j, None]
            grad_input.index_put_((b, i), grad_NV, accumulate=True)
            grad_output.index_put_((b, j), grad_NV, accumulate=True)
        return grad_input.to(input_scores.dtype), grad_output.to(output_scores.dtype), None


class _Normaliser(NamedTuple):
    log: Tensor
    """log Z, [B,I,J]."""
    product: Tensor
    """P, [B,I,J]; undefined for the recomputed entries."""
    lost_N3: Tensor
    """The entries (b, i, j) that were recomputed."""


def _of_targets(input_scores: Tensor, output_scores: Tensor, targets: Tensor, log_Z: Tensor) -> Tensor:
    """a_i[v_j] + c_j[v_j] - log Z(i,j): [B,I,J]."""
    target_input = input_scores.gather(2, targets[:, None, :].expand(-1, input_scores.shape[1], -1))
    target_output = output_scores.gather(2, targets[:, :, None]).mT
    return target_input.to(log_Z.dtype) + target_output - log_Z


def _normalise(a: Scaled, c: Scaled, steady: bool = False, products: SearchProducts = "ieee") -> _Normaliser:
    """``steady``: with a rounding of each entry that does not depend on I and J."""
    a_exp, c_exp = a.exp, c.exp
    if products == "bf16":
        a_exp, c_exp = (x.bfloat16().to(x.dtype) for x in (a_exp, c_exp))
    with normaliser_products(products, a_exp.device):
        product_BIJ = _steady_product(a_exp, c_exp) if steady else a_exp @ c_exp.mT
    lost_BIJ = product_BIJ < _threshold(product_BIJ.dtype, a.exp.shape[2])
    lost_N3 = lost_BIJ.nonzero()
    if not lost_N3.shape[0]:
        return _Normaliser(product_BIJ.log() + a.max + c.max.mT, product_BIJ, lost_N3)
    log_BIJ = product_BIJ.masked_fill(lost_BIJ, 1.0).log_() + a.max + c.max.mT
    for (b, i, j), logits_NV in _long_way(lost_N3, a, c):
        log_BIJ[b, i, j] = logits_NV.logsumexp(1)
    return _Normaliser(log_BIJ, product_BIJ, lost_N3)


def _steady_product(a_BIV: Tensor, c_BJV: Tensor) -> Tensor:
    """Σ_w a_i[w]·c_j[w]: [B,I,J]. On a CPU the rounding of an entry does not depend on I and J.

    In a search both depend on the batch. The library sums in another order if there are fewer than 16 rows, or if V is
    large; so small sides are padded, and V is divided.
    """
    if a_BIV.device.type != "cpu":
        return a_BIV @ c_BJV.mT
    I, J = a_BIV.shape[1], c_BJV.shape[1]
    a_BIV, c_BJV = _with_rows(a_BIV), _with_rows(c_BJV)
    if a_BIV.shape[2] <= SYMBOLS_AT_ONCE:
        return torch.bmm(a_BIV, c_BJV.mT)[:, :I, :J]
    product_BIJ = a_BIV[..., :SYMBOLS_AT_ONCE] @ c_BJV[..., :SYMBOLS_AT_ONCE].mT
    for start in range(SYMBOLS_AT_ONCE, a_BIV.shape[2], SYMBOLS_AT_ONCE):
        some = slice(start, start + SYMBOLS_AT_ONCE)
        product_BIJ.baddbmm_(a_BIV[..., some], c_BJV[..., some].mT)
    return product_BIJ[:, :I, :J]


def _with_rows(x_BIV: Tensor) -> Tensor:
    """With zeros after each sequence that has fewer than ``FEWEST_ROWS`` rows."""
    B, I, V = x_BIV.shape
    return x_BIV if I >= FEWEST_ROWS else torch.cat([x_BIV, x_BIV.new_zeros(B, FEWEST_ROWS - I, V)], dim=1)


def _threshold(dtype: torch.dtype, vocab_size: int) -> float:
    finfo = torch.finfo(dtype)
    return vocab_size * finfo.tiny / finfo.eps


def _long_way(entries_N3: Tensor, a: Scaled, c: Scaled) -> Iterator[tuple[tuple[Tensor, Tensor, Tensor], Tensor]]:
    """The V logits of each listed entry (b, i, j), one block of entries at a time."""
    for block in entries_N3.split(max(1, RECOMPUTED_AT_ONCE // a.scores.shape[2])):
        b, i, j = block.unbind(1)
        yield (b, i, j), a.scores[b, i] + c.scores[b, j]


def _check(input_scores: Tensor, output_scores: Tensor) -> None:
    fits = input_scores.dim() == output_scores.dim() == 3 and all(
        input_scores.shape[n] == output_scores.shape[n] for n in (0, 2)
    )
    if not fits:
        raise ValueError(
            "the scores must be [B,I,V] and [B,J,V], with the same B and V, but are "
            f"{list(input_scores.shape)} and {list(output_scores.shape)}"
        )
