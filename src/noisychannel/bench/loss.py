"""Time and peak memory of the loss, forward and backward, against what one would write otherwise.

    noisychannel bench --suites loss [--device cpu|cuda]

All variants start from the same encoder states h [B,I,H] and decoder states s [B,J,H] and go back to their gradients
and those of the projections. They run interleaved, round after round, and the median is shown.

    noisychannel   factorised joint softmax, emit gate, wavefront lattice with analytic gradient
    product        fast_rnnt's formula for the normaliser in our code, under autograd, then our gate and lattice
    fast_rnnt      rnnt_loss_simple of k2's fast_rnnt: factorised too, compiled lattice, blank instead of the gate
    rnnt_loss      torchaudio's transducer loss on a [B,I,J,V] joint, blank instead of the gate
    materialised   the [B,I,J,V] log-softmax, emit gate, and the lattice as a Python loop under autograd
    softmax I+J    plain cross-entropy over I+J positions: the same projections, no joint, no lattice (the floor)
    softmax J      plain cross-entropy over J positions: what a sequence-to-sequence model pays

and on a GPU

    in tf32        noisychannel with the factors of the projections rounded to ten bits (training.precision: tf32)
    in a graph     noisychannel captured in a CUDA graph and replayed: the GPU's time without the host's

fast_rnnt and torchaudio are measured if they are installed. Their blank is one more symbol of the softmax, so they have
no gate and save its tensor [B,I,J,H]; the product and the materialised joint have the gate.

Peak memory: on a GPU the allocator's, above what was there before; on a CPU the growth of the resident set in a process
that runs this one variant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.bench.timing import median_seconds, where_and_when
from noisychannel.joint import word_log_probs
from noisychannel.lattice import log_marginal
from noisychannel.precision import float32_products
from noisychannel.processes import BOUND
from noisychannel.training.graphs import capture


class Shape(NamedTuple):
    B: int
    I: int
    J: int
    H: int
    V: int


SHAPES = (
    Shape(32, 50, 25, 256, 20_000),
    Shape(32, 50, 25, 256, 50_000),
    Shape(64, 50, 50, 512, 30_000),
    Shape(32, 16, 16, 128, 60),
)


class Problem(NamedTuple):
    """Leaves of the computation, and what is fixed."""

    h_BIH: Tensor
    s_BJH: Tensor
    input_word_HV: Tensor
    output_word_HV: Tensor
    input_gate_HH: Tensor
    output_gate_HH: Tensor
    emit_H: Tensor
    targets_BJ: Tensor
    input_lengths: Tensor
    output_lengths: Tensor

    @staticmethod
    def draw(shape: Shape, device: str) -> Problem:
        B, I, J, H, V = shape
        torch.manual_seed(0)

        def leaf(*size: int) -> Tensor:
            return (torch.randn(*size, device=device) * size[-2 if len(size) > 1 else -1] ** -0.5).requires_grad_()

        h, s = (torch.tanh(torch.randn(B, n, H, device=device)).requires_grad_() for n in (I, J))
        weights = (leaf(H, V), leaf(H, V), leaf(H, H), leaf(H, H), leaf(H))
        targets = torch.randint(4, V, (B, J), device=device)
        lengths = (torch.full((B,), n, device=device) for n in (I, J))
        return Problem(h, s, *weights, targets, *lengths)

    def leaves(self) -> tuple[Tensor, ...]:
        return self[:7]


def emit_logits(p: Problem) -> Tensor:
    gate = torch.tanh((p.h_BIH @ p.input_gate_HH)[:, :, None] + (p.s_BJH @ p.output_gate_HH)[:, None])
    return gate @ p.emit_H


def noisychannel_loss(p: Problem) -> Tensor:
    word = word_log_probs(p.h_BIH @ p.input_word_HV, p.s_BJH @ p.output_word_HV, p.targets_BJ)
    return -log_marginal(word, emit_logits(p), p.input_lengths, p.output_lengths).sum()


def product_loss(p: Problem) -> Tensor:
    a_BIV, c_BJV = p.h_BIH @ p.input_word_HV, p.s_BJH @ p.output_word_HV
    a_max, c_max = (x.amax(-1, keepdim=True) for x in (a_BIV, c_BJV))
    product_BIJ = (a_BIV - a_max).exp() @ (c_BJV - c_max).exp().mT
    normaliser_BIJ = (product_BIJ + torch.finfo(product_BIJ.dtype).tiny).log() + a_max + c_max.mT
    target_a = a_BIV.gather(2, p.targets_BJ[:, None].expand_as(normaliser_BIJ))
    target_c = c_BJV.gather(2, p.targets_BJ[..., None]).mT
    word = target_a + target_c - normaliser_BIJ
    return -log_marginal(word, emit_logits(p), p.input_lengths, p.output_lengths).sum()


def fast_rnnt_loss(p: Problem) -> Tensor:
    from fast_rnnt import rnnt_loss_simple  # type: ignore[import-not-found]

    a_BIV, c_BJV = p.h_BIH @ p.input_word_HV, p.s_BJH @ p.output_word_HV
    loss: Tensor = rnnt_loss_simple(c_BJV, a_BIV, p.targets_BJ[:, :-1], termination_symbol=0, reduction="sum")
    return loss


def materialised_loss(p: Problem) -> Tensor:
    logits = (p.h_BIH @ p.input_word_HV)[:, :, None] + (p.s_BJH @ p.output_word_HV)[:, None]
    index = p.targets_BJ[:, None, :, None].expand(-1, logits.shape[1], -1, 1)
    word = logits.log_softmax(-1).gather(-1, index).squeeze(-1)
    gate = emit_logits(p)
    emitting, shifting = word + F.logsigmoid(gate), F.logsigmoid(-gate)
    _, I, J = word.shape
    leave: list[Tensor] = []
    for j in range(J):
        row: list[Tensor] = []
        arrive: Tensor | None = None
        for i in range(I):
            by_shift = None if arrive is None else arrive + shifting[:, i - 1, j]
            by_emit = leave[-1][:, i] if j > 0 else (torch.zeros_like(word[:, 0, 0]) if i == 0 else None)
            ways = [way for way in (by_shift, by_emit) if way is not None]
            arrive = torch.logaddexp(*ways) if len(ways) == 2 else ways[0]
            row.append(arrive + emitting[:, i, j])
        leave.append(torch.stack(row, 1))
    return -leave[-1][:, -1].sum()


def rnnt_loss(p: Problem) -> Tensor:
    from torchaudio.functional import rnnt_loss as torchaudio_rnnt_loss

    logits = (p.h_BIH @ p.input_word_HV)[:, :, None] + (p.s_BJH @ p.output_word_HV)[:, None]
    targets = p.targets_BJ[:, :-1].int().contiguous()
    lengths = p.input_lengths.int(), (p.output_lengths - 1).int()
    loss: Tensor = torchaudio_rnnt_loss(logits, targets, *lengths, blank=0, reduction="sum")
    return loss


def softmax_both_loss(p: Problem) -> Tensor:
    a, c = p.h_BIH @ p.input_word_HV, p.s_BJH @ p.output_word_HV
    targets_BI = p.targets_BJ.repeat(1, -(-a.shape[1] // c.shape[1]))[:, : a.shape[1]]
    logits, targets = torch.cat([a, c], 1), torch.cat([targets_BI, p.targets_BJ], 1)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def softmax_outputs_loss(p: Problem) -> Tensor:
    return F.cross_entropy((p.s_BJH @ p.output_word_HV).flatten(0, 1), p.targets_BJ.flatten(), reduction="sum")


VARIANTS: dict[str, Callable[[Problem], Tensor]] = {
    "noisychannel": noisychannel_loss,
    "product": product_loss,
    "fast_rnnt": fast_rnnt_loss,
    "rnnt_loss": rnnt_loss,
    "materialised": materialised_loss,
    "softmax I+J": softmax_both_loss,
    "softmax J": softmax_outputs_loss,
}

LIBRARIES = {"fast_rnnt": "fast_rnnt", "rnnt_loss": "torchaudio"}
"""What a variant needs beside this package. These variants have a blank and no gate."""


def run_once(loss: Callable[[Problem], Tensor], p: Problem) -> tuple[Tensor, ...]:
    """The loss, and the gradients of the leaves that it has."""
    value = loss(p)
    return value.detach(), *(g for g in torch.autograd.grad(value, p.leaves(), allow_unused=True) if g is not None)


def available() -> dict[str, str]:
    """The variants that can be imported here, and the name of each in the table."""
    labels: dict[str, str] = {}
    for name in VARIANTS:
        labels[name] = name
        if library := LIBRARIES.get(name):
            try:
                import_module(library)
                labels[name] = f"{name} {version(library)} (blank, no gate)"
            except (ImportError, OSError):
                del labels[name]
    return labels | {"product": "product (fast_rnnt's formula, our code)"}


def why_not(name: str, shape: Shape, device: str) -> str | None:
    """Why a variant cannot run here."""
    if name == "fast_rnnt" and device == "cuda" and not import_module("fast_rnnt").with_cuda():
        return "built without CUDA"
    if name == "rnnt_loss" and shape.B * shape.I * shape.J * shape.V > 2**31:
        return "over 2³¹ logits, which torchaudio's 32-bit indices do not reach"
    if name in ("materialised", "rnnt_loss"):
        needed = 3.2 * 4 * shape.B * shape.I * shape.J * shape.V
        room = (
            torch.cuda.mem_get_info()[0]
            if device == "cuda"
            else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        )
        if needed > 0.8 * room:
            return f"needs about {needed / 2**30:.0f} GiB"
    return None


def measure_times(shape: Shape, device: str, names: list[str], rounds: int) -> dict[str, float]:
    """Median milliseconds of each variant, run in turn."""
    problem = Problem.draw(shape, device)
    variants: dict[str, Callable[[], object]] = {name: partial(run_once, VARIANTS[name], problem) for name in names}
    if device == "cuda":
        variants |= {
            "in tf32": partial(in_tf32, problem),
            "in a graph": capture(partial(run_once, noisychannel_loss, problem)).replay,
        }
    return {name: 1e3 * seconds for name, seconds in median_seconds(variants, rounds).items()}


def in_tf32(p: Problem) -> tuple[Tensor, ...]:
    with float32_products("tf32", p.h_BIH.device):
        return run_once(noisychannel_loss, p)


def error_of_tf32(shape: Shape) -> str:
    """How far the loss and its gradients move."""
    problem = Problem.draw(shape, "cuda")
    exact, rounded = run_once(noisychannel_loss, problem), in_tf32(problem)
    value = float((rounded[0] - exact[0]).abs() / exact[0].abs())
    gradient = max(float((r - e).norm() / e.norm()) for r, e in zip(rounded[1:], exact[1:], strict=True))
    return f"{', '.join(map(str, shape))}: the loss by {value:.1e}, a gradient by at most {gradient:.1e} of its norm"


def peak_memory(name: str, shape: Shape, device: str) -> float:
    """GiB above the problem itself."""
    if device == "cuda":
        problem = Problem.draw(shape, device)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run_once(VARIANTS[name], problem)
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**30
    with BOUND.Pool(1) as pool:
        return pool.apply(_resident_growth, (name, shape))


def _resident_growth(name: str, shape: Shape) -> float:
    run_once(VARIANTS[name], Problem.draw(Shape(1, 2, 2, 4, 8), "cpu"))
    problem = Problem.draw(shape, "cpu")
    before = _status("VmRSS")
    run_once(VARIANTS[name], problem)
    return max(0, _status("VmHWM") - before) / 2**30


def _status(key: str) -> int:
    """Bytes, from the kernel; getrusage would count the peak of the parent process too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def report(device: str, rounds: int = 7) -> Iterator[str]:
    """The table, as lines of Markdown."""
    yield f"loss: {where_and_when(device)}, fp32, forward + backward, median of {rounds} interleaved rounds"
    yield ""
    yield "| batch, I, J, hidden, V | variant | ms | × noisychannel | peak GiB |"
    yield "| --- | --- | ---: | ---: | ---: |"
    labels = available()
    for shape in SHAPES:
        refused = {name: why_not(name, shape, device) for name in labels}
        names = [name for name, reason in refused.items() if reason is None]
        times = measure_times(shape, device, names, rounds)
        for name, reason in refused.items():
            if reason:
                yield f"| {', '.join(map(str, shape))} | {labels[name]} | – | – | {reason} |"
                continue
            memory = peak_memory(name, shape, device)
            ratio = times[name] / times["noisychannel"]
            yield f"| {', '.join(map(str, shape))} | {labels[name]} | {times[name]:.2f} | {ratio:.2f} | {memory:.3f} |"
        for name in [name for name in times if name not in VARIANTS]:
            ratio = times[name] / times["noisychannel"]
            yield f"| {', '.join(map(str, shape))} | {name} | {times[name]:.2f} | {ratio:.2f} | – |"
    missing = sorted(LIBRARIES[name] for name in VARIANTS if name not in labels)
    if missing:
        yield f"\nNot measured, because not installed: {', '.join(missing)}."
    if device == "cuda":
        yield "\nTF32 moves"
        yield ""
        for shape in SHAPES:
            yield f"* {error_of_tf32(shape)}"
