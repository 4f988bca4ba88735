"""Confidence intervals and paired tests of corpus scores, by the bootstrap over sentences.

A resample is a multinomial count for each sentence, so all resampled totals are one matrix product. Rows that are not
independent (all forms of one lemma) are drawn together, as a group.

Shapes: N sentences, U units drawn (sentences or groups), R resamples, K systems, S statistics.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import Accuracy, FloatArray, Metric

COUNTS_AT_ONCE = 1 << 22
"""Multinomial counts drawn at a time; the resamples do not depend on it."""
COUNTS_KEPT = 1 << 23
"""If there are no more counts than this, they are kept: many systems are compared on the same sentences."""


def confidence_interval(
    metric: Metric,
    statistics_NS: FloatArray,
    samples: int = 1000,
    seed: int = 1,
    level: float = 0.95,
    groups: Sequence[Hashable] | None = None,
    sizes_N: FloatArray | None = None,
) -> tuple[float, float]:
    """The percentile bootstrap interval of a corpus score: its lower and upper end.

    If every sentence is right, or none, all resamples are alike and say nothing. An accuracy then has the exact
    interval of a proportion (Clopper and Pearson): of 30 right answers to 30 questions, 88.4 to 100 %.

    ``sizes_N``: how many sentences each row is the sum of; one if None.
    """
    if not 0 < level < 1:
        raise BadInputError(f"level: {level} is not between 0 and 1; 0.95 is usual")
    statistics_1US, sizes_U = _units(statistics_NS[None], groups, sizes_N)
    low, high = _percentiles(_resampled_scores(metric, statistics_1US, sizes_U, samples, seed)[0], level)
    if metric.name == Accuracy.name and low == high:
        beyond = 100 * ((1 - level) / 2) ** (1 / len(sizes_U))
        return (beyond, high) if high == 100 else (low, 100 - beyond) if low == 0 else (low, high)
    return low, high


def paired_bootstrap(
    metric: Metric,
    statistics_NS: FloatArray,
    baseline_NS: FloatArray,
    samples: int = 1000,
    seed: int = 1,
    groups: Sequence[Hashable] | None = None,
    sizes_N: FloatArray | None = None,
) -> float:
    """The two-sided p-value of the difference between two systems on the same sentences.

    After sacrebleu: the resampled differences d_r, centred on zero, stand for what chance does, and one is added to
    both counts: p = (1 + #{r: |d_r - d| >= |d|}) / (1 + R), with d the difference observed. sacrebleu takes |d_r|
    before it centres and so counts one tail of a clear difference, centres by the mean of d_r, and holds a tie
    against chance; here both tails count, and a tie is chance, so that identical systems have p = 1.
    """
    if statistics_NS.shape != baseline_NS.shape:
        raise BadInputError(
            f"the systems differ in their sentences or metric: statistics {statistics_NS.shape} and {baseline_NS.shape}"
        )
    statistics_KUS, sizes_U = _units(np.stack([statistics_NS, baseline_NS]), groups, sizes_N)
    scores_KR = _resampled_scores(metric, statistics_KUS, sizes_U, samples, seed)
    if len(sizes_U) == 1:
        return 1.0  # Every resample of one unit is that unit: nothing is known about chance.
    system, baseline = metric.score(statistics_KUS.sum(axis=1), sizes_U.sum())
    difference, difference_R = system - baseline, scores_KR[0] - scores_KR[1]
    # Differences of accuracies are multiples of 100/N: ties are common, and must survive rounding.
    by_chance_R = np.abs(difference_R - difference) >= abs(difference) * (1 - 1e-9)
    return float((1 + by_chance_R.sum()) / (1 + samples))


def difference_interval(
    metric: Metric,
    statistics_NS: FloatArray,
    baseline_NS: FloatArray,
    samples: int = 1000,
    seed: int = 1,
    level: float = 0.95,
    groups: Sequence[Hashable] | None = None,
) -> tuple[float, float]:
    """The percentile bootstrap interval of the difference between two systems on the same sentences."""
    units = _units(np.stack([statistics_NS, baseline_NS]), groups, None)
    system_R, baseline_R = _resampled_scores(metric, *units, samples, seed)
    return _percentiles(system_R - baseline_R, level)


def sum_interval(
    metric: Metric,
    statistics_KNS: FloatArray,
    signs_K: Sequence[float],
    samples: int = 1000,
    seed: int = 1,
    level: float = 0.95,
    groups: Sequence[Hashable] | None = None,
    sizes_N: FloatArray | None = None,
) -> tuple[float, float]:
    """The percentile bootstrap interval of a signed sum of the scores of systems on the same sentences.

    Signs of 1, -1 give the interval of a difference; 1, -1, -1, 1 that of a difference of differences.
    """
    scores_KR = _resampled_scores(metric, *_units(statistics_KNS, groups, sizes_N), samples, seed)
    return _percentiles(np.asarray(signs_K, np.float64) @ scores_KR, level)


def curve_intervals(
    metric: Metric,
    statistics_KNS: FloatArray,
    centre: int,
    samples: int = 1000,
    seed: int = 1,
    level: float = 0.95,
    groups: Sequence[Hashable] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Percentile bootstrap intervals of many systems on the same sentences [K, 2], and those of their differences from
    one of them, the ``centre`` [K, 2]."""
    scores_KR = _resampled_scores(metric, *_units(statistics_KNS, groups, None), samples, seed)
    ends = [(1 - level) / 2, (1 + level) / 2]
    return np.quantile(scores_KR, ends, axis=1).T, np.quantile(scores_KR - scores_KR[centre], ends, axis=1).T


def _percentiles(values_R: FloatArray, level: float) -> tuple[float, float]:
    lower, upper = np.quantile(values_R, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)


def _units(
    statistics_KNS: FloatArray, groups: Sequence[Hashable] | None, sizes_N: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """The units to draw: their summed statistics [K, U, S] and their sizes in sentences [U]."""
    K, N, S = statistics_KNS.shape
    if N == 0:
        raise BadInputError("no sentences to resample")
    if groups is None:
        return statistics_KNS, np.ones(N) if sizes_N is None else sizes_N
    if len(groups) != N:
        raise BadInputError(f"{len(groups)} groups for {N} sentences; give one a sentence")
    numbers: dict[Hashable, int] = {}
    unit_N = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    sums_KUS = np.zeros((K, len(numbers), S))
    for sums_US, statistics_NS in zip(sums_KUS, statistics_KNS, strict=True):
        np.add.at(sums_US, unit_N, statistics_NS)
    return sums_KUS, np.bincount(unit_N, sizes_N).astype(np.float64)


def _resampled_scores(
    metric: Metric, statistics_KUS: FloatArray, sizes_U: FloatArray, samples: int, seed: int
) -> FloatArray:
    """The scores [K, R] of resamples of as many units as there are; the same units are drawn for every system."""
    if samples < 1:
        raise BadInputError(f"samples: {samples} is too few; 1000 is usual")
    U = len(sizes_U)
    asked = U, samples, seed, max(1, COUNTS_AT_ONCE // U)
    draws = _kept_draws(*asked) if samples * U <= COUNTS_KEPT else _draws(*asked)
    scores = [metric.score(counts_RU @ statistics_KUS, counts_RU @ sizes_U) for counts_RU in draws]
    return np.concatenate(scores, axis=-1)


def _draws(U: int, samples: int, seed: int, at_once: int) -> Iterator[FloatArray]:
    """How often each unit is drawn [R, U], for so many resamples at a time."""
    random = np.random.default_rng(seed)
    for start in range(0, samples, at_once):
        R = min(at_once, samples - start)
        yield random.multinomial(U, np.full(U, 1 / U), size=R).astype(np.float64)


@lru_cache(maxsize=4)
def _kept_draws(U: int, samples: int, seed: int, at_once: int) -> tuple[FloatArray, ...]:
    return tuple(_draws(U, samples, seed, at_once))
