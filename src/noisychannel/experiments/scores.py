"""Scores of rows from their outputs alone: means and deviations over seeds, intervals and p-values, for any metric.

A metric sees outputs only through sums of statistics (``evaluation.metrics``), so everything here is computed from one
array of statistics for each row, metric and seed. This is the only place where an experiment computes scores.

Intervals and p-values are by a bootstrap over units (all forms of a lemma, say), over the items of all parts together.
They are of the score of all seeds' outputs taken together: of the mean of the seeds' statistics.

Shapes: N items of all parts, S statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisychannel.errors import NoisyChannelError
from noisychannel.evaluation.metrics import FloatArray, Metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap
from noisychannel.experiments.design import Design
from noisychannel.experiments.items import Item

SAMPLES = 10_000
"""Of the bootstrap."""

Outputs = Mapping[int, Sequence[str]]
"""By seed: the best output of each item, part after part."""


class RowScorer:
    """Scores rows on the items of an experiment."""

    def __init__(self, design: Design, parts: Sequence[tuple[str, Sequence[Item]]]) -> None:
        """``parts``: the names of the parts, in their order, with their items."""
        self.design = design
        self.metrics: dict[str, Metric] = design.make_metrics()
        self.parts = [name for name, items in parts if items]
        self.items = [item for _, items in parts for item in items]
        self._part_N = np.array([name for name, items in parts for _ in items])
        self._known: dict[tuple[str, int, str], FloatArray] = {}

    def statistics(self, metric: str, texts: Sequence[str]) -> FloatArray:
        """[N,S]. Many rows have the same output of an item: its statistics are computed once."""
        rows = []
        for n, (text, item) in enumerate(zip(texts, self.items, strict=True)):
            key = metric, n, text
            if key not in self._known:
                self._known[key] = self.metrics[metric].statistics(text, item.references)
            rows.append(self._known[key])
        return np.stack(rows)

    def scores(self, outputs: Outputs) -> dict[str, dict[str, Any]]:
        """By metric: the score of a row, its deviation over seeds, and the scores of each seed and each part."""
        return {metric: self._scores(metric, outputs) for metric in self.metrics}

    def _scores(self, metric: str, outputs: Outputs) -> dict[str, Any]:
        statistics = {seed: self.statistics(metric, texts) for seed, texts in outputs.items()}
        of_parts = {
            part: {seed: self._score(metric, values_NS[self._part_N == part]) for seed, values_NS in statistics.items()}
            for part in self.parts
        }
        match self.design.average:
            case "parts":
                seeds = {seed: float(np.mean([of_part[seed] for of_part in of_parts.values()])) for seed in outputs}
            case "items":
                seeds = {seed: self._score(metric, values_NS) for seed, values_NS in statistics.items()}
            case "separate":
                seeds = of_parts[self.parts[0]]
        parts: dict[str, Any] = {part: _mean(of_seeds) for part, of_seeds in of_parts.items()}
        if self.design.average == "separate":
            parts = {part: _summary(of_seeds) for part, of_seeds in of_parts.items()}
        return {**_summary(seeds), "parts": parts}

    def _score(self, metric: str, statistics_NS: FloatArray) -> float:
        return float(self.metrics[metric].score(statistics_NS.sum(axis=0), len(statistics_NS)))

    def interval(self, metric: str, outputs: Outputs, part: str | None = None) -> list[float]:
        """The 95 % bootstrap interval of the score, over the items of a part or of all."""
        values_NS = self._mean_statistics(metric, outputs, part)
        return list(confidence_interval(self.metrics[metric], values_NS, SAMPLES, groups=self._units(part)))

    def p_value(self, metric: str, outputs: Outputs, baseline: Outputs, part: str | None = None) -> float:
        """Of the difference between two rows, by a paired bootstrap."""
        own_NS, other_NS = (self._mean_statistics(metric, of_row, part) for of_row in (outputs, baseline))
        return paired_bootstrap(self.metrics[metric], own_NS, other_NS, SAMPLES, groups=self._units(part))

    def views(self) -> list[str | None]:
        """What is reported by itself: everything together (None), or each part."""
        return list(self.parts) if self.design.average == "separate" else [None]

    def item_scores(self, metric: str, texts: Sequence[str]) -> list[float]:
        """The score of each item as a corpus of one."""
        return [self._score(metric, statistics_S[None]) for statistics_S in self.statistics(metric, texts)]

    def part_of(self, item: int) -> str:
        return str(self._part_N[item])

    def _mean_statistics(self, metric: str, outputs: Outputs, part: str | None) -> FloatArray:
        values_NS: FloatArray = np.mean([self.statistics(metric, texts) for texts in outputs.values()], axis=0)
        return values_NS if part is None else values_NS[self._part_N == part]

    def _units(self, part: str | None) -> list[str]:
        return [
            item.resampling_unit
            for item, of_part in zip(self.items, self._part_N, strict=True)
            if part in (None, of_part)
        ]


def check_same_scores(label: str, recorded: Mapping[str, Any], computed: Mapping[str, Any]) -> None:
    """Refuse scores that do not follow from the outputs beside them."""
    for metric in recorded.keys() & computed.keys():
        for key in ("score", "deviation"):
            one, other = recorded[metric][key], computed[metric][key]
            if (one is None) != (other is None) or (one is not None and abs(one - other) > 1e-9 * max(1.0, abs(one))):
                raise NoisyChannelError(
                    f"{label}: the {key} of {metric} is recorded as {one}, but its outputs give {other}; "
                    "restore the files of the block from a copy, or measure it again"
                )


def _summary(seeds: Mapping[int, float]) -> dict[str, Any]:
    values = list(seeds.values())
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"score": _mean(seeds), "deviation": deviation, "seeds": {str(seed): x for seed, x in seeds.items()}}


def _mean(seeds: Mapping[int, float]) -> float:
    return float(np.mean(list(seeds.values())))
