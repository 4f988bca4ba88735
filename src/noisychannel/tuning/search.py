"""The best weights on a fixed set of candidates: those whose expected metric, less the price of their distance from
good weights, is highest (``expected.py``).

The function is smooth but can have several maxima. A population of weights is drawn around the good weights, and again
around the best of them, until it has contracted (the cross-entropy method). A second population begins where exact line
searches on the metric itself end (``lines.py``): far away, if many items say so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisychannel.decode.objective import Weights
from noisychannel.evaluation.metrics import FloatArray
from noisychannel.systems import System
from noisychannel.tuning.expected import ExpectedScore
from noisychannel.tuning.lines import Optimum, better, line_search
from noisychannel.tuning.pool import CandidateArrays

POPULATION = 64
"""Weights that are drawn together."""
ELITE = 12
"""The best of them, around which the next are drawn."""
ROUNDS = 18
"""After so many draws the population has contracted to a point, for all that dev items can tell."""
INERTIA = 0.3
"""The share of the previous spread in the next one."""
WIDENING = 1.3
"""The spread of the elite counts for more, so that the population does not contract before it has arrived."""


def coordinate_ascent(candidates: CandidateArrays, system: System, start: Weights) -> Optimum:
    """Line searches over the free weights in turn until none improves; never worse than the start."""
    found = Optimum(start, float(candidates.scores(system.vector(start)[None])[0]))
    improved = True
    while improved:
        improved = False
        for free in system.free:
            step = line_search(candidates, system, found.weights, free)
            if better(candidates.metric, step.score, found.score):
                found, improved = step, True
    return found


def optimise(candidates: CandidateArrays, system: System, previous: Sequence[Weights], seed: int) -> Optimum:
    """The weights with the best expected metric, less the price of leaving the first of the previous weights.

    The other previous weights are places to search from, as are the corners of the system. If all weights are equally
    good, the first of the previous ones stay. The score is the metric of the candidates that the weights choose.
    """
    expected = ExpectedScore(candidates, system, previous[0])
    if not system.free or not expected.item:
        return Optimum(previous[0], float(candidates.scores(system.vector(previous[0])[None])[0]))
    places = list(dict.fromkeys([*previous, *system.corners]))
    ends = [coordinate_ascent(candidates, system, place).weights for place in places]
    best_T = highest(expected, np.stack([system.vector(weights) for weights in (*places, *ends)]), seed)
    return Optimum(system.from_vector(best_T), float(candidates.scores(best_T[None])[0]))


def highest(expected: ExpectedScore, starts_WT: FloatArray, seed: int) -> FloatArray:
    """The weights [T] of the highest value found by a population around the first start, and one around the best."""
    best = int(expected.value(starts_WT).argmax())  # of equal ones the first
    best_T = starts_WT[best]
    for start_T, spread in ((starts_WT[0], 1.0), *([(best_T, 0.5)] if best else [])):
        found_T = _contract(expected, start_T, spread, seed)
        if expected.value(found_T[None])[0] > expected.value(best_T[None])[0]:
            best_T = found_T
    return best_T


def _contract(expected: ExpectedScore, start_T: FloatArray, spread: float, seed: int) -> FloatArray:
    """The best weights that a population finds that begins around some weights, with a spread in steps."""
    random = np.random.default_rng(seed)
    best_T, best = start_T, float(expected.value(start_T[None])[0])
    mean_K = expected.steps(start_T[None])[0]
    K = len(mean_K)
    covariance_KK = spread**2 * np.eye(K)
    for _ in range(ROUNDS):
        # A Cholesky factor, unlike the eigenvectors numpy draws with, is the same on every machine but for rounding.
        factor_KK = np.linalg.cholesky(covariance_KK + 1e-9 * np.eye(K))
        drawn_WK = mean_K + random.standard_normal((POPULATION, K)) @ factor_KK.T
        drawn_WK[0] = mean_K
        weights_WT = expected.weights(drawn_WK)
        value_W = expected.value(weights_WT)
        elite_W = np.argsort(-value_W, kind="stable")[:ELITE]
        if value_W[elite_W[0]] > best:
            best_T, best = weights_WT[elite_W[0]], float(value_W[elite_W[0]])
        elite_WK = expected.steps(weights_WT[elite_W])
        mean_K = elite_WK.mean(axis=0)
        deviation_WK = elite_WK - mean_K
        elite_KK = WIDENING * deviation_WK.T @ deviation_WK / (ELITE - 1)
        covariance_KK = INERTIA * covariance_KK + (1 - INERTIA) * elite_KK
    return best_T
