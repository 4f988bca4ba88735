"""Whether confidences can be trusted: calibration error, Brier score, and how accurate the most confident outputs are.

Outputs of equal confidence have no order: each counts as right by the share of right ones among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisychannel.evaluation.metrics import FloatArray

BINS = 10
ITEMS_OF_A_BIN = 10
"""With fewer items there are fewer bins, down to one."""
SIMULATIONS = 50
COVERAGES = tuple(range(10, 101, 10))
"""In per cent."""


@dataclass(frozen=True)
class CoveragePoint:
    """The most confident outputs."""

    coverage: int
    """How many of all outputs, in per cent."""
    items: int
    accuracy: float
    """In per cent."""
    confidence: float
    """The lowest confidence among them."""


@dataclass(frozen=True)
class Reliability:
    """Confidences of outputs, compared with what is right."""

    items: int
    ece: float
    ece_by_chance: float
    """What perfect confidences would show on so many items."""
    brier: float
    area: float
    """Under the curve of accuracy over coverage: the mean accuracy, in per cent, of the k most confident outputs over
    all k. A confidence that tells nothing has the accuracy itself."""
    curve: tuple[CoveragePoint, ...]


def reliability(confidences: Sequence[float], right: Sequence[bool]) -> Reliability:
    """All figures."""
    confidence_N, right_N = np.array(confidences, np.float64), np.array(right, np.float64)
    order_N = np.argsort(-confidence_N, kind="stable")
    running_N = 100 * np.cumsum(_shared(confidence_N, right_N)[order_N]) / np.arange(1, len(right_N) + 1)
    curve = []
    for coverage in COVERAGES:
        items = max(1, round(len(right_N) * coverage / 100))
        lowest = float(confidence_N[order_N[items - 1]])
        curve.append(CoveragePoint(coverage, items, float(running_N[items - 1]), lowest))
    return Reliability(
        len(right_N),
        calibration_error(confidence_N, right_N),
        error_by_chance(confidence_N),
        brier(confidence_N, right_N),
        float(running_N.mean()),
        tuple(curve),
    )


def calibration_error(confidence_N: FloatArray, right_N: FloatArray) -> float:
    """Expected calibration error: items are sorted by confidence and divided into ten equally large bins. The mean over
    items of the distance between the mean confidence and the share of right outputs of their bin."""
    order_N = np.argsort(confidence_N, kind="stable")
    distance_N = (confidence_N - _shared(confidence_N, right_N))[order_N]
    bins = np.array_split(distance_N, max(1, min(BINS, len(order_N) // ITEMS_OF_A_BIN)))
    return float(sum(abs(one.sum()) for one in bins) / len(order_N))


def error_by_chance(confidence_N: FloatArray) -> float:
    """The mean calibration error if every confidence were exactly the probability of being right.

    It is not zero: the share of right outputs of a bin varies by chance, the more the smaller the bin.
    """
    random = np.random.default_rng(1)
    drawn = [(random.random(len(confidence_N)) < confidence_N).astype(np.float64) for _ in range(SIMULATIONS)]
    return float(np.mean([calibration_error(confidence_N, right_N) for right_N in drawn]))


def brier(confidence_N: FloatArray, right_N: FloatArray) -> float:
    """The mean squared distance between confidence and 1 (right) or 0 (wrong)."""
    return float(((confidence_N - right_N) ** 2).mean())


def _shared(confidence_N: FloatArray, right_N: FloatArray) -> FloatArray:
    """For each item the share of right outputs among those of its confidence."""
    _, group_N, sizes = np.unique(confidence_N, return_inverse=True, return_counts=True)
    return np.asarray((np.bincount(group_N, right_N) / sizes)[group_N], np.float64)
