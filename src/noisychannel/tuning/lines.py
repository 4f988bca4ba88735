"""The best value of one weight on a fixed set of candidates, exactly (minimum error rate training; Och 2003).

If all weights but one are fixed, O of a candidate is a line in that weight: intercept + slope·w. The best candidate of
a sentence changes only at the turns of the upper envelope of its lines. Between the turns of all sentences the metric
is constant, so computing it once per interval finds the optimum exactly, for any metric.

**Equal metric values** are common on small development sets. A weight that is already as good as any other stays.
Otherwise neighbouring intervals with the best value form a plateau. The widest plateau is chosen (of equally wide ones,
the nearest to the previous weight), and in it the middle. An interval without an end counts as two margins wide.

Shapes: N sentences, F candidates, C turns of the envelopes, M intervals between them, S statistics, T terms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noisychannel.decode.objective import Weights
from noisychannel.evaluation.metrics import FloatArray, Metric
from noisychannel.systems import FreeWeight, System
from noisychannel.tuning.pool import CandidateArrays, IntArray

BoolArray = npt.NDArray[np.bool_]

EQUAL = 1e-9
"""Metric values that differ by less, relative to the larger of 1 and the value, are equal."""
NARROW = 1e-9
"""A narrower interval, relative to 1 + |w|, is skipped."""
FAR = 1e6
"""No weight goes further from zero: there one term alone decides."""
MARGIN = 0.1
"""How far beyond the outermost turn a weight goes, relative to 1 + |w|."""


class Optimum(NamedTuple):
    """Weights and the metric they reach on the candidates."""

    weights: Weights
    score: float


class Turns(NamedTuple):
    """Where sentences change their best candidate as one weight grows from minus infinity, in order of the weight."""

    first_N: IntArray
    """The best candidates before any turn."""
    position_C: FloatArray
    old_C: IntArray
    new_C: IntArray


def better(metric: Metric, score: float, than: float) -> bool:
    """Whether a metric value is better than another by more than rounding."""
    gain = score - than if metric.higher_is_better else than - score
    return gain > EQUAL * max(1.0, abs(than))


def upper_envelopes(candidates: CandidateArrays, intercept_F: FloatArray, slope_F: FloatArray) -> Turns:
    """The upper envelopes of all sentences at once, each walked from its flattest line to its steepest.

    From the line that leads now, the next turn is the nearest crossing with a steeper one.
    """
    starts_N, sentence_F, F = candidates.starts_N, candidates.sentence_F, len(slope_F)

    def first_where(keep: BoolArray, places: IntArray, starts: IntArray) -> IntArray:
        return np.minimum.reduceat(np.where(keep, places, F), starts)

    flattest = slope_F == np.minimum.reduceat(slope_F, starts_N)[sentence_F]
    height_F = np.where(flattest, intercept_F, -np.inf)
    highest = height_F == np.maximum.reduceat(height_F, starts_N)[sentence_F]
    first_N = first_where(flattest & highest, np.arange(F), starts_N)

    leader_N, reached_N = first_N.copy(), np.full(len(starts_N), -np.inf)
    positions, old, new = [], [], []
    alive = np.arange(F)
    while True:
        alive = alive[slope_F[alive] > slope_F[leader_N[sentence_F[alive]]]]
        if not len(alive):
            break
        sentences, starts, sizes = np.unique(sentence_F[alive], return_index=True, return_counts=True)
        leader = np.repeat(leader_N[sentences], sizes)
        with np.errstate(over="ignore"):
            crossing = (intercept_F[leader] - intercept_F[alive]) / (slope_F[alive] - slope_F[leader])
        nearest = np.minimum.reduceat(crossing, starts)
        # If several lines cross the leader in one point, any of them works: the steeper ones follow at the same point.
        next_leader = first_where(crossing == np.repeat(nearest, sizes), alive, starts)
        # Rounding must not turn a later crossing into an earlier one.
        reached_N[sentences] = np.maximum(reached_N[sentences], nearest)
        positions.append(reached_N[sentences])
        old.append(leader_N[sentences])
        new.append(next_leader)
        leader_N[sentences] = next_leader
    if not positions:
        return Turns(first_N, np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    position_C = np.concatenate(positions)
    order_C = np.argsort(position_C, kind="stable")
    return Turns(first_N, position_C[order_C], np.concatenate(old)[order_C], np.concatenate(new)[order_C])


def line_search(candidates: CandidateArrays, system: System, weights: Weights, free: FreeWeight) -> Optimum:
    """The best value of one weight while the others stay: optimal on the candidates over [floor, ceiling]."""
    metric, term = candidates.metric, system.terms.index(free.name)
    weights_T = system.vector(weights)
    before = float(weights_T[term])
    score_before = float(candidates.scores(weights_T[None])[0])

    others_T = weights_T.copy()
    others_T[term] = 0.0
    turns = upper_envelopes(candidates, candidates.objective(others_T), candidates.terms_FT[:, term])
    lowest, highest = max(free.floor, -FAR), min(free.ceiling, FAR)
    position_C = np.clip(turns.position_C, lowest, highest)
    if not len(position_C):
        return Optimum(weights, score_before)

    # Incremental statistics: each turn exchanges one candidate of one sentence for another.
    first_S = candidates.statistics_FS[turns.first_N].sum(0)
    change_CS = candidates.statistics_FS[turns.new_C] - candidates.statistics_FS[turns.old_C]
    totals_MS = np.concatenate([first_S[None], first_S + np.cumsum(change_CS, axis=0)])
    first_left = free.floor if free.floor > -FAR else max(-FAR, _beyond(position_C[0], -1))
    left_M = np.concatenate([[first_left], position_C])
    last_right = free.ceiling if free.ceiling < FAR else min(FAR, _beyond(position_C[-1], 1))
    right_M = np.append(position_C, last_right)
    wide_M = right_M - left_M > NARROW * (1 + np.abs(left_M))
    left_M, right_M, totals_MS = left_M[wide_M], right_M[wide_M], totals_MS[wide_M]
    if not len(left_M):
        return Optimum(weights, score_before)

    score_M = metric.score(totals_MS, len(candidates.starts_N))
    best = score_M.max() if metric.higher_is_better else score_M.min()
    if not better(metric, float(best), score_before):
        return Optimum(weights, score_before)
    equal_M = np.abs(score_M - best) <= EQUAL * max(1.0, abs(best))
    value = _middle_of_widest_plateau(left_M, right_M, equal_M, before)
    weights_T[term] = value
    found = Optimum(system.from_vector(weights_T), float(candidates.scores(weights_T[None])[0]))
    # Rounding can make the objective at this point differ from what the crossings say.
    return found if better(metric, found.score, score_before) else Optimum(weights, score_before)


def _beyond(position: float, side: int) -> float:
    """The far end of an outermost interval, such that its middle lies one margin beyond the outermost turn."""
    return float(position + side * 2 * MARGIN * (1 + abs(position)))


def _middle_of_widest_plateau(left_M: FloatArray, right_M: FloatArray, equal_M: BoolArray, before: float) -> float:
    """The point to choose among the intervals that are marked; the rule is at the top of this file."""
    edges = np.diff(np.concatenate([[0], equal_M.astype(np.int64), [0]]))
    plateaus = zip(np.flatnonzero(edges == 1).tolist(), (np.flatnonzero(edges == -1) - 1).tolist(), strict=True)

    def rank(plateau: tuple[int, int]) -> tuple[float, float]:
        left, right = left_M[plateau[0]], right_M[plateau[1]]
        return left - right, abs((left + right) / 2 - before)

    first, last = min(plateaus, key=rank)
    centre = (left_M[first] + right_M[last]) / 2
    # The centre can be a turn, where candidates tie: stay inside one interval.
    inside = range(first, last + 1)
    m = min(inside, key=lambda m: max(left_M[m] - centre, centre - right_M[m], 0.0))
    quarter = (right_M[m] - left_M[m]) / 4
    return float(np.clip(centre, left_M[m] + quarter, right_M[m] - quarter))
