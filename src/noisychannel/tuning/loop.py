"""The tuning loop: decode, merge the outputs into the pool, optimise on the pool, decode again.

A pool has only outputs that some decoding found. Weights that look good on it may find worse outputs in their own
search. So the score of a real decoding counts, and its outputs join the pool for the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.systems import System
from noisychannel.tuning.lines import better
from noisychannel.tuning.pool import CandidatePool
from noisychannel.tuning.search import optimise

Decode = Callable[[Weights], Sequence[Sequence[Hypothesis]]]
"""The n-best lists of all development sentences under some weights, best first, none empty."""


@dataclass(frozen=True)
class TuningStep:
    """One decoding of the development set."""

    weights: Weights
    pool_score: float | None
    """The score on the pool before the decoding; None for weights that were not optimised on the pool."""
    decoded_score: float
    """The metric of the best hypotheses of the decoding."""
    pool_size: int
    """Candidates of all sentences after this decoding."""


@dataclass(frozen=True)
class TuningResult:
    """The weights with the best score of a real decoding of the development set, and how they were found."""

    system: str
    weights: Weights
    dev_score: float
    metric: str
    signature: str
    """The metric's: what makes the score reproducible."""
    history: tuple[TuningStep, ...]
    """In the order of decoding."""


def tune(
    system: System,
    decode: Decode,
    pool: CandidatePool,
    iterations: int = 5,
    seed: int = 1,
    start: Weights | None = None,
    known: Sequence[Weights] = (),
) -> TuningResult:
    """Tune the free weights of a system on the development sentences and the metric of a pool.

    First, decode with ``start`` (default: ``system.start``), with ``known`` weights (such as those of a smaller system
    that this one contains) and, if the direct model has weight 1, with that model alone. The tuned score is therefore
    never below theirs on the development set. Then, up to ``iterations`` times: optimise on the pool, decode with the
    weights found (or with weights nearer to the best so far if an earlier step did not improve), and merge. Stop if the
    weights or the decoded score no longer change, or if a decoding finds nothing new. Of equally good decodings the
    earliest wins.
    """
    start = system.start if start is None else start
    for weights in (start, *known):
        system.check(weights)
    history: list[TuningStep] = []

    def measure(weights: Weights, pool_score: float | None = None) -> int:
        """Decode, and return how many of the outputs are new to the pool."""
        n_best_lists = decode(weights)
        if len(n_best_lists) != pool.sentences or not all(n_best_lists):
            raise ValueError(f"decoding must give every one of the {pool.sentences} development sentences an output")
        added = sum(pool.add(sentence, n_best) for sentence, n_best in enumerate(n_best_lists))
        history.append(TuningStep(weights, pool_score, pool.one_best_score(n_best_lists), len(pool)))
        return added

    alone = [system.weights({})] if system.fixed.direct else []
    for weights in dict.fromkeys([start, *known, *alone]):
        measure(weights)
    # A model of weight zero is not run: outputs of such a start lack terms.
    if not pool.covers(system) and start != system.start:
        measure(system.start)

    current, share = start, 1.0
    for iteration in range(iterations if system.free else 0):
        best = _best(pool, history)
        found = optimise(pool.under(system), system, [current, best.weights], seed)
        # The pool may prefer outputs that a search cannot find, because their beginnings score badly. If a step did
        # not improve, the next one goes half as far.
        weights = system.from_vector((1 - share) * system.vector(best.weights) + share * system.vector(found.weights))
        if any(_same(system, weights, step.weights) for step in history):
            break
        added = measure(weights, found.score if share == 1.0 else None)
        last, before = history[-1].decoded_score, history[-2].decoded_score
        settled = iteration > 0 and not better(pool.metric, last, before) and not better(pool.metric, before, last)
        if settled or not added:
            break
        if not better(pool.metric, last, best.decoded_score):
            share /= 2
        current = weights

    best = _best(pool, history)
    return TuningResult(
        system.name, best.weights, best.decoded_score, pool.metric.name, pool.metric.signature, tuple(history)
    )


def _best(pool: CandidatePool, history: Sequence[TuningStep]) -> TuningStep:
    """The first of the steps with the best decoded score."""
    best = history[0]
    for step in history[1:]:
        if better(pool.metric, step.decoded_score, best.decoded_score):
            best = step
    return best


def _same(system: System, one: Weights, other: Weights) -> bool:
    return bool(np.allclose(system.vector(one), system.vector(other), rtol=1e-6, atol=1e-9))
