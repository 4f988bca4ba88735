"""What a search does between its matrix products, in one kernel each: gates, columns, and the extensions of cells.

A step of the search launches hundreds of small operations, and the host needs longer to launch them than a GPU to run
them. The recursions over the input are a dozen operations for each of their log2(I) sweeps in the portable code
(``decode.columns``, whose docstring has the mathematics); here each is a loop over i. Columns are float64, as there.

Shapes: B sentences, I input positions, N prefixes, R rows (prefixes, with empty slots), G gate size, C cells, P
prefixes of each cell, V symbols, L places of a list.
"""

# Triton has no types, and may not be installed.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

GATES: dict[str, Any] = {"BLOCK_I": 16, "BLOCK_G": 64, "num_warps": 4}
ROWS: dict[str, Any] = {"BLOCK": 32, "num_warps": 1}
WORDS: dict[str, Any] = {"BLOCK": 1024, "num_warps": 4}
"""How these kernels are compiled."""


def emit_logits(known_BIG: Tensor, sentence_N: Tensor, built_NG: Tensor, weight_G: Tensor, bias_1: Tensor) -> Tensor:
    """m · tanh(known[sentence[n], i] + built[n]) + b: float32 [N,I]."""
    (_, I, G), N = known_BIG.shape, len(built_NG)
    result_NI = torch.empty(N, I, dtype=torch.float32, device=known_BIG.device)
    tensors = (x.contiguous() for x in (known_BIG, sentence_N, built_NG, weight_G, bias_1))
    if N:
        with torch.cuda.device_of(known_BIG):
            _emit[(N, triton.cdiv(I, GATES["BLOCK_I"]))](*tensors, result_NI, I, G, **GATES)
    return result_NI


def reach(
    emit_logit_BPI: Tensor, objective_BPI: Tensor, direct_BPI: Tensor, lengths_B: Tensor, best: bool
) -> tuple[Tensor, Tensor]:
    """``Transitions.reach`` of two columns, -inf past the end of the input; ``best`` alignment or the sum of all."""
    B, P, I = objective_BPI.shape
    columns = [x.contiguous() for x in (emit_logit_BPI, objective_BPI, direct_BPI)]
    results = [torch.empty_like(x) for x in columns[1:]]
    if B * P * I:
        with torch.cuda.device_of(objective_BPI):
            _reach[(triton.cdiv(B * P, ROWS["BLOCK"]),)](
                *columns, lengths_B.contiguous(), *results, B * P, P, I, BEST=best, **ROWS
            )
    return results[0], results[1]


def advance_channel(
    onward: Tensor, written: Tensor, start: Tensor, emit_logit: Tensor, word_logp: Tensor, best: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """``decode.columns.advance_channel``: the new ``onward`` and ``written``, and ``leave``, [...,I] each."""
    I = onward.shape[-1]
    columns = [x.expand_as(onward).contiguous() for x in (onward, written, emit_logit, word_logp)]
    start = start.expand(*onward.shape[:-1], 1).contiguous()
    results = [torch.empty_like(columns[0]) for _ in range(3)]
    if rows := onward.numel() // max(1, I):
        with torch.cuda.device_of(onward):
            _advance[(triton.cdiv(rows, ROWS["BLOCK"]),)](*columns, start, *results, rows, I, BEST=best, **ROWS)
    return results[0], results[1], results[2]


def collect(
    inputs_CV: Tensor,
    outputs_NV: Tensor,
    prefix_CP: Tensor,
    ahead_CP: Tensor,
    number_C: Tensor,
    cell_C: Tensor,
    least_C: Tensor,
    places: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The extensions inputs[cell[c], w] + outputs[prefix[c, p], w] + ahead[c, p] above least[c], in any order.

    Of each cell the first ``number`` prefixes are extended. Returns scores and places, p·V + w, [C,L] each, with -inf
    where there are fewer, and how many there are, [C]: those for which a list has no room are counted only.
    """
    (C, P), V = prefix_CP.shape, inputs_CV.shape[1]
    score_CL = torch.full((C, places), -torch.inf, dtype=ahead_CP.dtype, device=ahead_CP.device)
    place_CL = torch.zeros(C, places, dtype=torch.int64, device=ahead_CP.device)
    found_C = torch.zeros(C, dtype=torch.int32, device=ahead_CP.device)
    tensors = (inputs_CV, outputs_NV, prefix_CP, ahead_CP, number_C, cell_C, least_C)
    if C:
        with torch.cuda.device_of(ahead_CP):
            _collect[(C, triton.cdiv(V, WORDS["BLOCK"]))](
                *(x.contiguous() for x in tensors), score_CL, place_CL, found_C, P, V, places, **WORDS
            )
    return score_CL, place_CL, found_C


@triton.jit(do_not_specialize=["P", "V", "L"])
def _collect(
    inputs_ptr: tl.tensor,
    outputs_ptr: tl.tensor,
    prefix_ptr: tl.tensor,
    ahead_ptr: tl.tensor,
    number_ptr: tl.tensor,
    cell_ptr: tl.tensor,
    least_ptr: tl.tensor,
    score_ptr: tl.tensor,
    place_ptr: tl.tensor,
    found_ptr: tl.tensor,
    P: tl.tensor,
    V: tl.tensor,
    L: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """BLOCK symbols after every prefix of one cell."""
    c = tl.program_id(0).to(tl.int64)
    w = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = w < V
    number = tl.load(number_ptr + c)
    least = tl.load(least_ptr + c)
    by_cell = tl.load(inputs_ptr + tl.load(cell_ptr + c) * V + w, inside, -float("inf")).to(tl.float32)
    own_place = w.to(tl.int64)
    for p in range(0, number):
        prefix = tl.load(prefix_ptr + c * P + p)
        word = by_cell + tl.load(outputs_ptr + prefix * V + w, inside, 0.0).to(tl.float32)
        score = word.to(tl.float64) + tl.load(ahead_ptr + c * P + p)
        above = score > least
        new = tl.sum(above.to(tl.int32), 0)
        if new > 0:
            place = tl.atomic_add(found_ptr + c, new) + tl.cumsum(above.to(tl.int32), 0) - 1
            kept = above & (place < L)
            tl.store(score_ptr + c * L + place, score, kept)
            tl.store(place_ptr + c * L + place, own_place, kept)
        own_place += V


@triton.jit(do_not_specialize=["I"])
def _emit(
    known_ptr: tl.tensor,
    sentence_ptr: tl.tensor,
    built_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    result_ptr: tl.tensor,
    I: tl.tensor,
    G: tl.tensor,
    BLOCK_I: tl.constexpr,
    BLOCK_G: tl.constexpr,
) -> None:
    """BLOCK_I positions of one prefix."""
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)
    known_ptr += tl.load(sentence_ptr + n).to(tl.int64) * I * G
    total_I = tl.full((BLOCK_I,), 0.0, tl.float32)
    for first in range(0, G, BLOCK_G):
        g = first + tl.arange(0, BLOCK_G)
        built_G = tl.load(built_ptr + n * G + g, g < G, 0.0).to(tl.float32)
        weight_G = tl.load(weight_ptr + g, g < G, 0.0).to(tl.float32)
        inside = (i < I)[:, None] & (g < G)[None, :]
        known_IG = tl.load(known_ptr + i[:, None] * G + g[None, :], inside, 0.0).to(tl.float32)
        tanh_IG = 2 * tl.sigmoid(2 * (known_IG + built_G[None, :])) - 1
        total_I += tl.sum(tanh_IG * weight_G[None, :], 1)
    tl.store(result_ptr + n * I + i, total_I + tl.load(bias_ptr).to(tl.float32), i < I)


@triton.jit(do_not_specialize=["R", "P", "I"])
def _reach(
    logit_ptr: tl.tensor,
    objective_ptr: tl.tensor,
    direct_ptr: tl.tensor,
    length_ptr: tl.tensor,
    reach_ptr: tl.tensor,
    reach_direct_ptr: tl.tensor,
    R: tl.tensor,
    P: tl.tensor,
    I: tl.tensor,
    BEST: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """arrive(i) = arrive(i-1)·shift(i-1) ⊕ score(i), and arrive(i)·e(i) is stored, for both scores of BLOCK rows."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = r < R
    length = tl.load(length_ptr + r // P, inside, 0)
    place = r.to(tl.int64) * I
    arrive = tl.full((BLOCK,), -float("inf"), tl.float64)
    arrive_direct = arrive
    shift = tl.full((BLOCK,), 0.0, tl.float64)
    for i in range(0, I):
        logit = tl.load(logit_ptr + place + i, inside, 0.0).to(tl.float64)
        emit = _log_sigmoid(logit)
        arrive = _plus(arrive + shift, tl.load(objective_ptr + place + i, inside, 0.0), BEST)
        arrive_direct = _plus(arrive_direct + shift, tl.load(direct_ptr + place + i, inside, 0.0), BEST)
        within = i < length
        tl.store(reach_ptr + place + i, tl.where(within, arrive + emit, -float("inf")), inside)
        tl.store(reach_direct_ptr + place + i, tl.where(within, arrive_direct + emit, -float("inf")), inside)
        shift = _log_sigmoid(-logit)


@triton.jit(do_not_specialize=["R", "I"])
def _advance(
    onward_ptr: tl.tensor,
    written_ptr: tl.tensor,
    logit_ptr: tl.tensor,
    word_ptr: tl.tensor,
    start_ptr: tl.tensor,
    new_onward_ptr: tl.tensor,
    new_written_ptr: tl.tensor,
    leave_ptr: tl.tensor,
    R: tl.tensor,
    I: tl.tensor,
    BEST: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """leave(i) = (onward(i) ⊕ leave(i-1))·g(i) for BLOCK rows, with leave(0) = start."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = r < R
    place = r.to(tl.int64) * I
    leave = tl.load(start_ptr + r, inside, 0.0)
    for i in range(0, I):
        logit = tl.load(logit_ptr + place + i, inside, 0.0).to(tl.float64)
        word = tl.load(word_ptr + place + i, inside, 0.0).to(tl.float64)
        arrive = _plus(tl.load(onward_ptr + place + i, inside, 0.0), leave, BEST)
        leave = arrive + _log_sigmoid(logit) + word
        written = _plus(tl.load(written_ptr + place + i, inside, 0.0), leave, BEST)
        tl.store(new_onward_ptr + place + i, arrive + _log_sigmoid(-logit), inside)
        tl.store(new_written_ptr + place + i, written, inside)
        tl.store(leave_ptr + place + i, leave, inside)


@triton.jit
def _plus(x: tl.tensor, y: tl.tensor, BEST: tl.constexpr) -> tl.tensor:
    """max, or log(e^x + e^y); -inf is zero."""
    larger = tl.maximum(x, y)
    if BEST:
        return larger
    ratio = tl.exp(tl.minimum(x, y) - larger)
    return tl.where(larger == -float("inf"), larger, larger + _log1p(ratio))


@triton.jit
def _log_sigmoid(x: tl.tensor) -> tl.tensor:
    return tl.minimum(x, 0.0) - _log1p(tl.exp(-tl.abs(x)))


@triton.jit
def _log1p(x: tl.tensor) -> tl.tensor:
    """log(1 + x) for x in [0, 1], with the rounding error of 1 + x corrected to first order."""
    rounded = 1.0 + x
    return tl.log(rounded) + (x - (rounded - 1.0)) / rounded
