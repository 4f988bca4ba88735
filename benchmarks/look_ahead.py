"""What the setting ``look_ahead`` changes: the search of a trained run with and without it, on the same inputs.

    python benchmarks/look_ahead.py RUN PAIRS.tsv [--limit 100] [--metric rouge1] [--weights '0 1 0.17 0.02' …]

Both searches have the same models, weights, K1 and K2, and so the same objective: the one that finds outputs with a
higher objective is the better search, whatever the metric says. ``better`` and ``worse`` count inputs for which the
output with ``look_ahead`` has a higher or lower objective. Pairs are input and reference, separated by a tab; a sample
is drawn with seed 0. Weights are those of the direct model, the channel, the language model, and the length.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path
from typing import NamedTuple

import numpy as np

from noisychannel import NoisyChannel, Weights
from noisychannel.bench.timing import where_and_when
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.metrics import make_metric
from noisychannel.provenance import commit

WEIGHTS = ("0 1 0.17 0.02", "0 1 1 1", "1 0.8 0.35 0.2", "1 0 0 0.9")
"""The last has no channel: direct + bias, the baseline."""
SAME = 1e-4
"""Nats by which the objectives of one output may differ."""


class Found(NamedTuple):
    """The best output of an input."""

    objective: float
    text: str


def search(model: NoisyChannel, weights: Weights, settings: SearchSettings, inputs: list[str]) -> list[Found]:
    lists = model.reweighted(weights, settings).batch(inputs, align=False, confident=False)
    return [Found(best[0].hypothesis.score, best[0].text) for best in lists]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--metric", default="rouge1")
    parser.add_argument("--weights", nargs="+", default=WEIGHTS)
    parser.add_argument("--k1", type=int, default=20)
    parser.add_argument("--k2", type=int, default=10)
    parser.add_argument("--max-length", type=int, default=None)
    options = parser.parse_args()

    pairs = [line.split("\t")[:2] for line in options.pairs.read_text(encoding="utf-8").splitlines()]
    random.Random(0).shuffle(pairs)
    pairs = pairs[: options.limit]
    inputs, references = [x for x, _ in pairs], [[y] for _, y in pairs]
    model = NoisyChannel.load(options.run, roles=["direct", "channel", "lm"], weights=Weights())
    metric = make_metric(options.metric, None, model.output_codec.config)

    def score(found: list[Found]) -> float:
        totals = np.sum([metric.statistics(x.text, y) for x, y in zip(found, references, strict=True)], axis=0)
        return float(metric.score(totals, len(found)))

    where = where_and_when(model.decoder.device.type)
    print(f"look_ahead: {where}, commit {commit()}, {len(pairs)} of {options.pairs.name}")
    print(f"\nK1 {options.k1}, K2 {options.k2}; without and with look_ahead\n")
    print(f"| direct, channel, LM, length | mean objective | better, worse | {options.metric} | words |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for text in options.weights:
        direct, channel, lm, length = map(float, text.split())
        weights = Weights(direct, channel, lm, length)
        settings = SearchSettings(k1=options.k1, k2=options.k2, max_length=options.max_length)
        both = [search(model, weights, settings.changed(look_ahead=ahead), inputs) for ahead in (False, True)]
        gains = [ahead.objective - literal.objective for literal, ahead in zip(*both, strict=True)]
        means = [statistics.mean(x.objective for x in found) for found in both]
        words = [statistics.mean(len(x.text.split()) for x in found) for found in both]
        better, worse = sum(gain > SAME for gain in gains), sum(gain < -SAME for gain in gains)
        scores = [score(found) for found in both]
        print(
            f"| {', '.join(text.split())} | {means[0]:.2f}, {means[1]:.2f} | {better}, {worse} | "
            f"{scores[0]:.2f}, {scores[1]:.2f} | {words[0]:.1f}, {words[1]:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
