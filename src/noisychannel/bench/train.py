"""A training step of an SSNT against one of the attention baseline of the same size, both unidirectional.

    noisychannel bench --suites train [--device cpu|cuda]

A step is forward, backward, clipping and Adam on a batch of random symbols, all of full length. Beside the ratio of the
times stands that of the arithmetic: multiply–adds of the projections to the vocabulary, the LSTMs, and what makes the
two sides meet (gate and normaliser, or attention), forward; backward is twice as much of each.

On a GPU the whole step is also captured in a CUDA graph, of either model: as ``training.cuda_graphs`` trains them, and
the GPU's time without the host's.

"epoch of 100k" is the time of 100,000 sentences at the better rate, and words/s are output words at the better rate of
each. Two shapes are those of headlines (direct and channel of the paper's summarisation), in its batch size and a
larger one. The language model of the same task, 2×1024, has a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from noisychannel.bench.loss import Shape
from noisychannel.bench.timing import median_seconds, where_and_when
from noisychannel.ids import EOS
from noisychannel.models import SSNT, LanguageModel, Seq2Seq
from noisychannel.models.masks import Masks
from noisychannel.models.stacked import stack
from noisychannel.precision import Products, float32_products
from noisychannel.training.graphs import capture

STEPS = 10
"""In one timed run."""
SENTENCES = 100_000


SHAPES = (
    Shape(32, 50, 25, 256, 20_000),
    Shape(32, 16, 16, 128, 60),
    Shape(32, 26, 12, 256, 30_000),
    Shape(256, 26, 12, 256, 30_000),
)
LM_LAYERS = 2
LM_SHAPES = (Shape(32, 0, 12, 1024, 30_000), Shape(256, 0, 12, 1024, 30_000))
"""I is not used."""


def report(device: str, rounds: int = 5) -> Iterator[str]:
    """The table, as lines of Markdown."""
    yield f"train: {where_and_when(device)}, fp32, dropout 0.5, median of {rounds} interleaved rounds of {STEPS} steps"
    yield ""
    ways = ["launched", "in a graph"] if device == "cuda" else ["launched"]
    columns = [f"{name} {way}, ms" for way in ways for name in ("SSNT", "attention", "ratio")]
    header = ["batch, I, J, hidden, V", *(c.replace("ms", "") if "ratio" in c else c for c in columns)]
    header += ["ratio of arithmetic", "SSNT, epoch of 100k, s", "SSNT, words/s", "attention, words/s"]
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
        fastest = {name: min(times[name, way] for way in ways) / 1e3 for name in models}
        epoch = fastest["ssnt"] * SENTENCES / shape.B
        words = " | ".join(f"{shape.B * shape.J / seconds:,.0f}" for seconds in fastest.values())
        yield f"| {', '.join(map(str, shape))} | {' | '.join(cells)} | {arithmetic:.2f} | {epoch:.0f} | {words} |"
    yield from _language_models(device, rounds)


def _language_models(device: str, rounds: int) -> Iterator[str]:
    """The same for a language model, in float32 and, on a GPU, in TF32; it is launched one by one."""
    kinds: tuple[Products, ...] = ("ieee", "tf32") if device == "cuda" else ("ieee",)
    yield f"\nLanguage model, {LM_LAYERS} layers.\n"
    yield "| batch, J, hidden, V | products | step, ms | words/s |\n| --- | --- | ---: | ---: |"
    for shape in LM_SHAPES:
        model = LanguageModel(shape.V, shape.H, LM_LAYERS, dropout=0.5).to(device)
        step = _step(lambda inputs, lengths, *outputs, model=model: model(*outputs), shape, device, model)
        variants = {kind: partial(_repeat, _with_products(step, kind, device)) for kind in kinds}
        for kind, seconds in median_seconds(variants, rounds).items():
            rate = shape.B * shape.J * STEPS / seconds
            sizes = f"{shape.B}, {shape.J}, {shape.H}, {shape.V}"
            yield f"| {sizes} | {kind} | {1e3 * seconds / STEPS:.2f} | {rate:,.0f} |"


def _with_products(step: Callable[[], None], products: Products, device: str) -> Callable[[], None]:
    def run() -> None:
        with float32_products(products, torch.device(device)):
            step()

    return run


def _repeat(step: Callable[[], None]) -> None:
    for _ in range(STEPS):
        step()


def _step(
    score: Callable[..., Tensor], shape: Shape, device: str, owner: nn.Module | None = None
) -> Callable[[], None]:
    """A training step of a model, always on the same batch; ``owner`` of the weights, if that is not ``score``."""
    model = score if isinstance(score, nn.Module) else owner
    assert model is not None
    torch.manual_seed(0)
    inputs, outputs = (torch.randint(4, shape.V, (shape.B, max(1, n)), device=device) for n in (shape.I, shape.J))
    inputs[:, -1] = outputs[:, -1] = EOS
    lengths = [torch.full((shape.B,), n, device=device) for n in (shape.I, shape.J)]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=device == "cuda")

    def step() -> None:
        (-score(inputs, lengths[0], outputs, lengths[1]).sum() / (shape.B * shape.J)).backward()
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
