"""The best weights on a fixed set of candidates: coordinate ascent from several starts.

``lines.py`` says how a line search chooses among equal metric values. Of several starts that end equally well, the one
that ends nearest to the previous weights wins.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from noisychannel.decode.objective import Weights
from noisychannel.systems import System
from noisychannel.tuning.lines import Optimum, better, line_search
from noisychannel.tuning.pool import CandidateArrays

TRIALS = 96
"""Weights that are tried in total."""
AT_ONCE = 8
"""Weights that are evaluated together, before the search learns from them."""
KEPT = 3
"""The best trials that are returned."""


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
    """The best weights on the candidates, by coordinate ascent from several starts.

    The starts are the previous weights (the first of them is the one to stay near), the corners of the system and, if
    more than one weight is free, the best of a seeded random search. With one free weight the line search is exact.
    """
    starts = [*previous, *system.corners]
    if len(system.free) > 1:
        starts += random_search(candidates, system, seed)
    best: Optimum | None = None
    for start in dict.fromkeys(starts):
        found = coordinate_ascent(candidates, system, start)
        if best is None or better(candidates.metric, found.score, best.score):
            best = found
        elif not better(candidates.metric, best.score, found.score):
            best = min(best, found, key=lambda found: _distance(system, found.weights, previous[0]))
    assert best is not None
    return best


def _distance(system: System, one: Weights, other: Weights) -> float:
    return float(np.linalg.norm(system.vector(one) - system.vector(other)))


def random_search(candidates: CandidateArrays, system: System, seed: int) -> list[Weights]:
    """The best few weights that a tree-structured Parzen estimator finds in the ranges of the free weights."""
    import optuna  # not above: it takes half a second, and only this search needs it

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            # Some versions call the multivariate sampler experimental.
            warnings.simplefilter("ignore")
            sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=TRIALS // 4)
            directions = optuna.study.StudyDirection
            direction = directions.MAXIMIZE if candidates.metric.higher_is_better else directions.MINIMIZE
            study = optuna.create_study(direction=direction, sampler=sampler)
            ranges: dict[str, optuna.distributions.BaseDistribution] = {
                free.name: optuna.distributions.FloatDistribution(free.low, free.high) for free in system.free
            }
            tried: list[tuple[float, Weights]] = []
            for _ in range(0, TRIALS, AT_ONCE):
                trials = [study.ask(ranges) for _ in range(AT_ONCE)]
                weights = [system.weights(trial.params) for trial in trials]
                scores = candidates.scores(np.stack([system.vector(each) for each in weights])).tolist()
                for trial, score in zip(trials, scores, strict=True):
                    study.tell(trial, score)
                tried += zip(scores, weights, strict=True)
    finally:
        optuna.logging.set_verbosity(verbosity)
    tried.sort(key=lambda pair: pair[0], reverse=candidates.metric.higher_is_better)
    return [weights for _, weights in tried[:KEPT]]
