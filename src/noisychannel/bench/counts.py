"""Arithmetic and memory traffic of a search, counted from its own sizes, part by part.

    python benchmarks/decode.py --parts counts --settings words --batches 2 --device cpu

The sizes of each step (prefixes of the table, those that are scored, candidates) are those of a real search, so they
hold for any machine; arithmetic and bytes follow from them. "before" is what the same search would need if every prefix
of the table were projected to the vocabulary. Multiply–adds count as two operations. Bytes are those of float32
tensors over the vocabulary (or over [I,G], for gates), written once and read once by each operation that needs them, on
a GPU with kernels. Everything is for one sentence and one output symbol, on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noisychannel import NoisyChannelDecoder
from noisychannel.decode import chart, search
from noisychannel.decode.chart import ChartStep

FLOAT = 4
RADIX_PASSES = 5
"""Over its input, of a ``topk`` on a GPU."""


def report(name: str, decoder: NoisyChannelDecoder, inputs: list[list[int]], hidden: int) -> Iterator[str]:
    """The table, as lines of Markdown."""
    sizes = _Sizes()
    with sizes.watching():
        decoder.decode(inputs, align=False)
    N, M, Q, R = (sizes.mean(key) for key in ("prefixes", "scored", "candidates", "extended"))
    V, I, H = sizes.symbols, len(inputs[0]), hidden
    row = V * FLOAT
    parts = {
        "direct, scores before": (2 * N * H * V, N * row),
        "direct, normalisers before": (2 * N * I * V, 3 * N * row),
        "direct, ranks before": (0.0, RADIX_PASSES * N * row),
        "direct, scores": (2 * M * H * V, M * row),
        "direct, normalisers": (2 * M * I * V, 3 * M * row),
        "direct, ranks": (0.0, RADIX_PASSES * M * row),
        "channel, scores": (2 * Q * H * V, Q * row),
        "channel, normalisers": (2 * Q * I * V, 3 * Q * row),
        "language model": (2 * R * H * V, 3 * R * row),
        "emission gates, portable": (4 * (N + Q) * I * H, 8 * (N + Q) * I * H * FLOAT),
        "emission gates, kernel": (4 * (N + Q) * I * H, (N + Q) * I * H * FLOAT),
        "LSTMs": (16 * (N + Q + R) * H * H, 0.0),
    }
    yield (
        f"\n{name}, {len(inputs)} sentences: of each and for each output symbol {N:.0f} prefixes, {M:.0f} of them "
        f"scored, {R:.1f} extended, {Q:.0f} candidates\n"
    )
    yield "| part | GFLOP | MB |\n| --- | ---: | ---: |"
    for part, (operations, traffic) in parts.items():
        yield f"| {part} | {operations / 1e9:.3f} | {traffic / 1e6:.1f} |"


class _Sizes:
    """Sizes of the steps of a search, summed over sentences."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = dict.fromkeys(("prefixes", "scored", "candidates", "extended", "sentences"), 0)
        self.symbols = 0
        self.scored = 0

    def mean(self, key: str) -> float:
        return self.sums[key] / self.sums["sentences"]

    def watching(self) -> _Watching:
        return _Watching(self)

    def words(self, *arguments: Any) -> Any:
        words = _next_words(*arguments)
        table = arguments[3]
        self.scored = len(table.packing.slot if words.chosen is None else words.chosen.row)
        return words

    def step(self, models: Any, plan: Any, sentences: Any, table: Any, answers: Any, length: int) -> ChartStep:
        taken: ChartStep = _step(models, plan, sentences, table, answers, length)
        self.symbols = sentences.symbols
        if taken.candidates is not None:
            counted = {
                "prefixes": len(table.packing.slot),
                "scored": self.scored,
                "candidates": len(taken.candidates.family),
                "extended": len(taken.candidates.rows),
                "sentences": int(table.packing.filled.any(1).sum()),
            }
            self.sums = {key: value + counted[key] for key, value in self.sums.items()}
        return taken


_step, _next_words = vars(chart)["step"], vars(chart)["next_words"]


class _Watching:
    def __init__(self, sizes: _Sizes) -> None:
        self.sizes = sizes

    def __enter__(self) -> None:
        vars(search)["step"], vars(chart)["next_words"] = self.sizes.step, self.sizes.words

    def __exit__(self, *_: object) -> None:
        vars(search)["step"], vars(chart)["next_words"] = _step, _next_words
