"""Scores of rows from their outputs alone: means and deviations over seeds, intervals and p-values, for any metric.

A metric sees outputs only through sums of statistics (``evaluation.metrics``), so everything here is computed from one
array of statistics for each row, metric and seed. This is the only place where an experiment computes scores.

Intervals and p-values are by a bootstrap over units (all forms of a lemma, say), over the items of all parts together.
They are of the score of all seeds' outputs taken together: of the mean of the seeds' statistics.

An item that occurs several times (``Item.count``) counts as often: its statistics are those of all occurrences. If the
design scores seen items apart, each score has ``seen`` and ``unseen`` beside it: of the items whose inputs are in the
training sample of the row and seed, and of the others.

Shapes: N items of all parts, S statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from noisychannel.errors import NoisyChannelError
from noisychannel.evaluation.metrics import FloatArray, Metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap, sum_interval
from noisychannel.experiments.design import Design
from noisychannel.experiments.items import Item, sample_name

SAMPLES = 10_000
"""Of the bootstrap, unless the design says otherwise."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]
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
        self._count_N = np.array([item.count for item in self.items], dtype=np.float64)
        self._known: dict[tuple[str, int, str], FloatArray] = {}

    def statistics(self, metric: str, texts: Sequence[str]) -> FloatArray:
        """[N,S]. Many rows have the same output of an item: its statistics are computed once."""
        rows = []
        for n, (text, item) in enumerate(zip(texts, self.items, strict=True)):
            key = metric, n, text
            if key not in self._known:
                self._known[key] = self.metrics[metric].statistics(text, item.references)
            rows.append(self._known[key])
        return np.stack(rows) * self._count_N[:, None]

    def scores(self, outputs: Outputs, pairs: int | None = None) -> dict[str, dict[str, Any]]:
        """By metric: the score of a row, its deviation over seeds, and the scores of each seed and each part.

        ``pairs``: how many training pairs the row has; None: all.
        """
        return {metric: self._scores(metric, outputs, pairs) for metric in self.metrics}

    def _scores(self, metric: str, outputs: Outputs, pairs: int | None) -> dict[str, Any]:
        statistics = {seed: self.statistics(metric, texts) for seed, texts in outputs.items()}
        of_parts = {
            part: {seed: self._score(metric, values_NS, self._part_N == part) for seed, values_NS in statistics.items()}
            for part in self.parts
        }
        every_N = np.full(len(self.items), True)
        match self.design.average:
            case "parts":
                seeds = {seed: float(np.mean([of_part[seed] for of_part in of_parts.values()])) for seed in outputs}
            case "items":
                seeds = {seed: self._score(metric, values_NS, every_N) for seed, values_NS in statistics.items()}
            case "separate":
                seeds = of_parts[self.parts[0]]
        parts: dict[str, Any] = {part: _mean(of_seeds) for part, of_seeds in of_parts.items()}
        if self.design.average == "separate":
            parts = {
                part: {**_summary(of_seeds), **self._apart(metric, statistics, pairs, self._part_N == part)}
                for part, of_seeds in of_parts.items()
            }
            every_N = self._part_N == self.parts[0]
        return {**_summary(seeds), **self._apart(metric, statistics, pairs, every_N), "parts": parts}

    def _apart(
        self, metric: str, statistics: Mapping[int, FloatArray], pairs: int | None, among_N: BoolArray
    ) -> dict[str, Any]:
        """The scores of seen and of unseen items, and how many there are; a seed without any has no score."""
        if not self.design.seen_apart:
            return {}
        seen = {seed: self._is_seen(pairs, seed) for seed in statistics}
        scores: dict[str, Any] = {}
        for name, masks in (("seen", seen), ("unseen", {seed: ~seen_N for seed, seen_N in seen.items()})):
            chosen = {seed: among_N & mask_N for seed, mask_N in masks.items() if (among_N & mask_N).any()}
            found = {seed: self._score(metric, statistics[seed], mask_N) for seed, mask_N in chosen.items()}
            items = {str(seed): int(self._count_N[mask_N].sum()) for seed, mask_N in chosen.items()}
            scores[name] = {**_summary(found), "items": items} if found else None
        return scores

    def _is_seen(self, pairs: int | None, seed: int) -> BoolArray:
        sample = sample_name(pairs, seed)
        return np.array([sample in item.seen_in for item in self.items])

    def _score(self, metric: str, statistics_NS: FloatArray, among_N: BoolArray) -> float:
        sizes_N = self._count_N[among_N]
        return float(self.metrics[metric].score(statistics_NS[among_N].sum(axis=0), sizes_N.sum()))

    def interval(self, metric: str, outputs: Outputs, part: str | None = None) -> list[float]:
        """The 95 % bootstrap interval of the score, over the items of a part or of all."""
        values_NS = self._mean_statistics(metric, outputs, part)
        units, sizes_N = self._units(part)
        samples = self.design.resamples or SAMPLES
        return list(confidence_interval(self.metrics[metric], values_NS, samples, groups=units, sizes_N=sizes_N))

    def p_value(self, metric: str, outputs: Outputs, baseline: Outputs, part: str | None = None) -> float:
        """Of the difference between two rows, by a paired bootstrap."""
        own_NS, other_NS = (self._mean_statistics(metric, of_row, part) for of_row in (outputs, baseline))
        units, sizes_N = self._units(part)
        samples = self.design.resamples or SAMPLES
        return paired_bootstrap(self.metrics[metric], own_NS, other_NS, samples, groups=units, sizes_N=sizes_N)

    def sum_of(
        self, metric: str, plus: Sequence[Outputs], minus: Sequence[Outputs], part: str | None = None
    ) -> tuple[float, tuple[float, float]]:
        """The sum of some rows' scores less that of others, over a part or all items, and its 95 % interval."""
        signs = [1.0] * len(plus) + [-1.0] * len(minus)
        values_KNS = np.stack([self._mean_statistics(metric, outputs, part) for outputs in (*plus, *minus)])
        units, sizes_N = self._units(part)
        scores_K = self.metrics[metric].score(values_KNS.sum(axis=1), sizes_N.sum())
        samples = self.design.resamples or SAMPLES
        interval = sum_interval(self.metrics[metric], values_KNS, signs, samples, groups=units, sizes_N=sizes_N)
        return float(np.dot(signs, scores_K)), interval

    def views(self) -> list[str | None]:
        """What is reported by itself: everything together (None), or each part."""
        return list(self.parts) if self.design.average == "separate" else [None]

    def item_scores(self, metric: str, texts: Sequence[str]) -> list[float]:
        """The score of each item as a corpus of its own."""
        scored = zip(self.statistics(metric, texts), self._count_N, strict=True)
        return [float(self.metrics[metric].score(statistics_S, count)) for statistics_S, count in scored]

    def part_of(self, item: int) -> str:
        return str(self._part_N[item])

    def _mean_statistics(self, metric: str, outputs: Outputs, part: str | None) -> FloatArray:
        values_NS: FloatArray = np.mean([self.statistics(metric, texts) for texts in outputs.values()], axis=0)
        return values_NS if part is None else values_NS[self._part_N == part]

    def _units(self, part: str | None) -> tuple[list[str], FloatArray]:
        """The unit of each item of a part, and how often each item occurs."""
        among_N = np.full(len(self.items), True) if part is None else self._part_N == part
        units = [item.resampling_unit for item, is_among in zip(self.items, among_N, strict=True) if is_among]
        return units, self._count_N[among_N]


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
