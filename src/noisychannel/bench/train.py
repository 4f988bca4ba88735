"""A training step of an SSNT against one of the attention baseline of the same size, both unidirectional.

    noisychannel bench --suites train [--device cpu|cuda]

A step is forward, backward, clipping and Adam on a batch of random symbols, all of full length. Beside the ratio of the
times stands that of the arithmetic: multiply–adds of the projections to the vocabulary, the LSTMs, and what makes the
two sides meet (gate and normaliser, or attention), forward; backward is twice as much of each.

On a GPU the whole step is also captured in a CUDA graph, of either model: as ``training.cuda_graphs`` trains them, and
the GPU's time without the host's.

"epoch of 100k" is the time of 100,000 sentences at the better rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from noisychannel.bench.loss import Shape
from noisychannel.bench.timing import median_seconds, where_and_when
from noisychannel.ids import EOS
from noisychannel.models import SSNT, Seq2Seq
from noisychannel.models.masks import Masks
from noisychannel.models.stacked import stack
from noisychannel.training.graphs import capture

STEPS = 10
"""In one timed run."""
SENTENCES = 100_000


SHAPES = (Shape(32, 50, 25, 256, 20_000), Shape(32, 16, 16, 128, 60))


def report(device: str, rounds: int = 5) -> Iterator[str]:
    """The table, as lines of Markdown."""
    yield f"train: {where_and_when(device)}, fp32, dropout 0.5, median of {rounds} interleaved rounds of {STEPS} steps"
    yield ""
    ways = ["launched", "in a graph"] if device == "cuda" else ["launched"]
    columns = [f"{name} {way}, ms" for way in ways for name in ("SSNT", "attention", "ratio")]
    header = ["batch, I, J, hidden, V", *(c.replace("ms", "") if "ratio" in c else c for c in columns)]
    header += ["ratio of arithmetic", "SSNT, epoch of 100k, s"]
    yield f"| {' | '.join(x.strip(', ') for x in header)} |"
    yield "| --- |" + " ---: |" * (len(header) - 1)
    for shape in SHAPES:
        models: dict[str, nn.Module] = {
            "ssnt": SSNT(shape.V, shape.V, shape.H, dropout=0.5),
            "attention": Seq2Seq(shape.V, shape.V, shape.H, bidirectional=False, dropout=0.5),
        }
        steps = {name: _step(model.to(device), shape, device) for name, model in models.items()}
        variants = {(name, "launched"): step for name, step in steps.items()}
        if device == "cuda":
            stacked = {name: _step(stack([model], Masks(1, device)), shape, device) for name, model in models.items()}
            variants |= {(name, "in a graph"): capture(step).replay for name, step in stacked.items()}
        repeated = {name: partial(_repeat, step) for name, step in variants.items()}
        times = {name: 1e3 * seconds / STEPS for name, seconds in median_seconds(repeated, rounds).items()}
        cells = []
        for way in ways:
            ssnt, attention = times["ssnt", way], times["attention", way]
            cells += [f"{ssnt:.2f}", f"{attention:.2f}", f"{ssnt / attention:.2f}"]
        arithmetic = ssnt_arithmetic(shape) / attention_arithmetic(shape)
        epoch = min(times["ssnt", way] for way in ways) / 1e3 * SENTENCES / shape.B
        yield f"| {', '.join(map(str, shape))} | {' | '.join(cells)} | {arithmetic:.2f} | {epoch:.0f} |"


def _repeat(step: Callable[[], None]) -> None:
    for _ in range(STEPS):
        step()


def _step(model: nn.Module, shape: Shape, device: str) -> Callable[[], None]:
    """A training step of a model, always on the same batch."""
    torch.manual_seed(0)
    inputs, outputs = (torch.randint(4, shape.V, (shape.B, n), device=device) for n in (shape.I, shape.J))
    inputs[:, -1] = outputs[:, -1] = EOS
    lengths = [torch.full((shape.B,), n, device=device) for n in (shape.I, shape.J)]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=device == "cuda")

    def step() -> None:
        (-model(inputs, lengths[0], outputs, lengths[1]).sum() / (shape.B * shape.J)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)

    return step


def ssnt_arithmetic(shape: Shape) -> float:
    """Multiply–adds of one sentence, forward."""
    _, I, J, H, V = shape
    words, gates, lstms = (I + J) * H * V, (I + J) * H * H, (I + J) * 8 * H * H
    return words + gates + lstms + I * J * (V + H)


def attention_arithmetic(shape: Shape) -> float:
    """Multiply–adds of one sentence of the baseline, forward: the decoder reads the context beside the symbol."""
    _, I, J, H, V = shape
    words, lstms = J * 2 * H * V, I * 8 * H * H + J * 12 * H * H
    return words + lstms + (I + J) * H * H + 2 * I * J * H
