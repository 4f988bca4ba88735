"""The joint normaliser straight from states: the scores of a large vocabulary are never written.

Scores that a search builds are products of a state h_q with a row W[w] for each symbol, and what it needs of them is

    log Z(q,i) = log Σ_w exp(W[w]·h_q + κ_q 1[w = t_q]) · exp(c_i[w])

where κ is the score for copying symbol t. One program takes a block of states, and walks over the vocabulary as
attention kernels walk over keys: it computes a tile of scores, exponentiates it relative to the largest so far, and
multiplies it by the exponentials of the other side. So memory holds [Q,I] numbers in place of [Q,V]. The vocabulary can
be divided into parts, which programs share; the parts are added up in the end.

States and rows are rounded to float16, which has the ten bits of TF32 and is twice as fast; exponentials, which need
the range of float32, to TF32. Sums are float32. A sum whose terms may all have underflowed is nan: the caller computes
it in another way.

Shapes: B sentences, Q states of each, I positions of the other side, H state size, V symbols, S parts of the
vocabulary.
"""

# Triton has no types, and may not be installed.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noisychannel.kernels.joint import underflow_threshold

TILE: dict[str, Any] = {"BLOCK_V": 128, "BLOCK_H": 64, "num_warps": 8, "num_stages": 2}
"""How the kernel is compiled."""
BLOCKS_Q = 64, 128
BLOCKS_I = 16, 32, 64
"""States and positions that one program takes; a kernel is compiled for each."""
PROGRAMS = 1024
"""At least so many keep a large GPU busy, if there are as many tiles."""
MOST_PARTS = 16


def log_normaliser(
    states_BQH: Tensor,
    words_VH: Tensor,
    other_exp_BIV: Tensor,
    other_max_BI: Tensor,
    copied: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """log Z: float32 [B,Q,I]; nan where the terms may have underflowed.

    ``other``: exp(c - max) and max. ``copied``: the symbol t of each state, -1 for none, and κ, [B,Q] each.
    """
    (B, Q, H), (V, I) = states_BQH.shape, (len(words_VH), other_exp_BIV.shape[1])
    block_Q, block_I = _block(BLOCKS_Q, Q), _block(BLOCKS_I, I)
    tiles, tiles_V = B * triton.cdiv(Q, block_Q) * triton.cdiv(I, block_I), triton.cdiv(V, TILE["BLOCK_V"])
    S = min(MOST_PARTS, tiles_V, triton.cdiv(PROGRAMS, max(1, tiles)))
    sum_SBQI = torch.empty(S, B, Q, I, dtype=torch.float32, device=states_BQH.device)
    max_SBQ = torch.empty(S, B, Q, dtype=torch.float32, device=states_BQH.device)
    tensors = states_BQH.half(), words_VH.half(), other_exp_BIV
    symbol, amount = (None, None) if copied is None else (copied[0].contiguous(), copied[1].float().contiguous())
    if tiles:
        with torch.cuda.device_of(states_BQH):
            _walk[(tiles, S)](
                *(x.contiguous() for x in tensors),
                symbol,
                amount,
                sum_SBQI,
                max_SBQ,
                B,
                Q,
                I,
                H,
                V,
                triton.cdiv(tiles_V, S),
                BLOCK_Q=block_Q,
                BLOCK_I=block_I,
                **TILE,
            )
    largest_BQ = max_SBQ.amax(0)
    total_BQI = sum_SBQI[0] if S == 1 else (sum_SBQI * (max_SBQ - largest_BQ).exp_()[..., None]).sum(0)
    total_BQI = total_BQI.masked_fill(total_BQI < underflow_threshold(V), torch.nan)
    return total_BQI.log_() + largest_BQ[..., None] + other_max_BI[:, None]


def _block(sizes: tuple[int, ...], positions: int) -> int:
    """The smallest size that takes all positions; the largest if none does."""
    return next((size for size in sizes if size >= positions), sizes[-1])


@triton.jit(do_not_specialize=["B", "Q", "I", "tiles_of_part"])
def _walk(
    states_ptr: tl.tensor,
    words_ptr: tl.tensor,
    other_ptr: tl.tensor,
    symbol_ptr: tl.tensor,
    amount_ptr: tl.tensor,
    sum_ptr: tl.tensor,
    max_ptr: tl.tensor,
    B: tl.tensor,
    Q: tl.tensor,
    I: tl.tensor,
    H: tl.tensor,
    V: tl.tensor,
    tiles_of_part: tl.tensor,
    BLOCK_Q: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    """BLOCK_Q states of one sentence and BLOCK_I positions, over one part of the vocabulary."""
    tiles_I, tiles_Q = tl.cdiv(I, BLOCK_I), tl.cdiv(Q, BLOCK_Q)
    tile, s = tl.program_id(0), tl.program_id(1)
    b = (tile // (tiles_I * tiles_Q)).to(tl.int64)
    q = (tile // tiles_I) % tiles_Q * BLOCK_Q + tl.arange(0, BLOCK_Q)
    i = tile % tiles_I * BLOCK_I + tl.arange(0, BLOCK_I)
    states_ptr += b * Q * H
    other_ptr += b * I * V
    if symbol_ptr is not None:
        symbol_Q = tl.load(symbol_ptr + b * Q + q, q < Q, -1)
        amount_Q = tl.load(amount_ptr + b * Q + q, q < Q, 0.0)
    largest_Q = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
    total_QI = tl.full((BLOCK_Q, BLOCK_I), 0.0, tl.float32)
    first = s * tiles_of_part * BLOCK_V
    for start in range(first, tl.minimum(first + tiles_of_part * BLOCK_V, V), BLOCK_V):
        v = start + tl.arange(0, BLOCK_V)
        score_QV = tl.full((BLOCK_Q, BLOCK_V), 0.0, tl.float32)
        for h0 in range(0, H, BLOCK_H):
            h = h0 + tl.arange(0, BLOCK_H)
            state_QH = tl.load(states_ptr + q[:, None] * H + h[None, :], (q < Q)[:, None] & (h < H)[None, :], 0.0)
            word_HV = tl.load(words_ptr + v[None, :] * H + h[:, None], (v < V)[None, :] & (h < H)[:, None], 0.0)
            score_QV = tl.dot(state_QH, word_HV, score_QV)
        if symbol_ptr is not None:
            score_QV += tl.where(symbol_Q[:, None] == v[None, :], amount_Q[:, None], 0.0)
        score_QV = tl.where((v < V)[None, :], score_QV, -float("inf"))
        higher_Q = tl.maximum(largest_Q, tl.max(score_QV, 1))
        exp_QV = tl.exp(score_QV - higher_Q[:, None])
        other_VI = tl.load(other_ptr + i[None, :] * V + v[:, None], (v < V)[:, None] & (i < I)[None, :], 0.0)
        total_QI *= tl.exp(largest_Q - higher_Q)[:, None]
        total_QI = tl.dot(exp_QV, other_VI, total_QI, input_precision="tf32")
        largest_Q = higher_Q
    row = (s * B + b) * Q + q
    inside_QI = (q < Q)[:, None] & (i < I)[None, :]
    tl.store(sum_ptr + row[:, None] * I + i[None, :], total_QI, inside_QI)
    tl.store(max_ptr + row, largest_Q, q < Q)
