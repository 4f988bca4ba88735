"""The tuning loop: decode, merge the outputs into the pool, optimise on the pool, decode again.

A pool has only outputs that some decoding found. Weights that look good on it may find worse outputs in their own
search. So real decodings are compared, and their outputs join the pool for the next round.

A decoding is worth its score, less its luck, less the price of its weights (``expected.py``). Luck is the difference
between the metric and the expected metric of these weights on the pool. Without search errors that leaves what
``optimise`` maximises; outputs that the pool promises and the search did not find count against the weights. A decoding
whose score is below that of the start weights is not chosen at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.evaluation.metrics import FloatArray
from noisychannel.evaluation.significance import paired_bootstrap
from noisychannel.systems import System
from noisychannel.tuning.expected import ExpectedScore
from noisychannel.tuning.lines import better
from noisychannel.tuning.pool import CandidatePool
from noisychannel.tuning.search import optimise

WORTH_DECODING = 0.05
"""If the pool promises less than this share of one dev item, no further decoding is worth its time."""

Decode = Callable[[Weights], Sequence[Sequence[Hypothesis]]]
"""The n-best lists of all development sentences under some weights, best first, none empty."""


CANNOT_TELL = 0.05
"""With a larger p-value, the dev items do not tell tuned weights from start weights."""


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
    """The weights of the best decoding of the development set, and how they were found."""

    system: str
    weights: Weights
    dev_score: float
    """The metric of that decoding."""
    metric: str
    signature: str
    """The metric's: what makes the score reproducible."""
    history: tuple[TuningStep, ...]
    """In the order of decoding."""
    expected_score: float | None = None
    """The expected metric of the weights on all candidates; None if nothing was tuned."""
    p_start: float | None = None
    """The p-value of the difference between this decoding and that with the start weights; None if they are these."""

    @property
    def remark(self) -> str:
        """What to know about the weights; empty if the dev items tell that they are better than the start weights."""
        if self.p_start is None:
            return "start weights kept" if self.expected_score is not None else ""
        if self.p_start > CANNOT_TELL:
            return f"dev cannot tell them from the start weights, p={self.p_start:.2f}"
        return ""


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
    that this one contains), with the neighbours of the system and, if the direct model has weight 1, with that model
    alone. Then, up to ``iterations`` times: optimise on the pool, decode with the weights found (or with weights nearer
    to the best so far if an earlier step did not improve), and merge. Stop if the pool promises nothing better or the
    best decoding finds nothing new. The weights stay near ``start`` unless the sentences say otherwise. The best
    decoding by the rule at the top of this file wins, of equally good ones the earliest.
    """
    start = system.start if start is None else start
    for weights in (start, *known):
        system.check(weights)
    history: list[TuningStep] = []
    statistics: list[FloatArray] = []

    def measure(weights: Weights, pool_score: float | None = None) -> int:
        """Decode, and return how many of the outputs are new to the pool."""
        n_best_lists = decode(weights)
        if len(n_best_lists) != pool.sentences or not all(n_best_lists):
            raise ValueError(f"decoding must give every one of the {pool.sentences} development sentences an output")
        added = sum(pool.add(sentence, n_best) for sentence, n_best in enumerate(n_best_lists))
        statistics.append(pool.one_best_statistics(n_best_lists))
        score = float(pool.metric.score(statistics[-1].sum(axis=0), pool.sentences))
        history.append(TuningStep(weights, pool_score, score, len(pool)))
        return added

    alone = [system.weights({})] if system.fixed.direct else []
    # A model of weight zero is not run: outputs of such a start lack terms, and system.start runs all.
    tried = [start, *known, *alone, *([system.start, *system.neighbours] if iterations else [])]
    for weights in dict.fromkeys(tried):
        measure(weights)

    decoded = tuple(history)
    system, history = _without_idle(system, start, history, pool)
    share = 1.0
    for _ in range(iterations if system.free else 0):
        candidates = pool.under(system)
        expected = ExpectedScore(candidates, system, start)
        values = _values(system, expected, pool, history)
        best = history[int(np.argmax(values))].weights
        found = optimise(candidates, system, [start, best], seed)
        # The pool may prefer outputs that a search cannot find, because their beginnings score badly. If a step did
        # not improve, the next one goes half as far.
        weights = system.from_vector((1 - share) * system.vector(best) + share * system.vector(found.weights))
        promised = float(expected.value(system.vector(weights)[None])[0])
        if promised - max(values) < WORTH_DECODING * expected.item or _known(system, weights, history):
            break
        added = measure(weights, found.score if share == 1.0 else None)
        values = _values(system, ExpectedScore(pool.under(system), system, start), pool, history)
        if int(np.argmax(values)) != len(history) - 1:
            share /= 2
        elif not added:
            break

    if not system.free:
        return _result(system, pool, history, 0)
    expected = ExpectedScore(pool.under(system), system, start)
    values = _values(system, expected, pool, history)
    reaching = [
        n for n, step in enumerate(history) if not better(pool.metric, history[0].decoded_score, step.decoded_score)
    ]
    chosen = max(reaching, key=lambda n: values[n])
    score = float(expected.expected(system.vector(history[chosen].weights)[None])[0])
    p_start = paired_bootstrap(pool.metric, statistics[chosen], statistics[0], seed=seed) if chosen else None
    result = _result(system, pool, history, chosen, score, p_start)
    return replace(result, history=(*decoded, *history[len(decoded) :]))


def _without_idle(
    system: System, start: Weights, history: list[TuningStep], pool: CandidatePool
) -> tuple[System, list[TuningStep]]:
    """Further terms that are 0 for every output so far cannot be tuned: their weights stay at the start weights.

    The decodings so far count as decodings with these weights, which change nothing.
    """
    if not system.extra:
        return system, history
    candidates_FT = pool.under(system).terms_FT
    idle = {
        name: start.extra[name]
        for n, name in enumerate(system.terms)
        if name in system.extra and not candidates_FT[:, n].any()
    }
    if not idle:
        return system, history

    def with_start(weights: Weights) -> Weights:
        return Weights.of({**weights.by_name(), **idle})

    return system.fixing(idle), [replace(step, weights=with_start(step.weights)) for step in history]


def _result(
    system: System,
    pool: CandidatePool,
    history: Sequence[TuningStep],
    chosen: int,
    expected: float | None = None,
    p_start: float | None = None,
) -> TuningResult:
    step, metric = history[chosen], pool.metric
    return TuningResult(
        system.name,
        step.weights,
        step.decoded_score,
        metric.name,
        metric.signature,
        tuple(history),
        expected,
        p_start,
    )


def _values(system: System, expected: ExpectedScore, pool: CandidatePool, history: Sequence[TuningStep]) -> list[float]:
    """What each decoding is worth: its score as a gain, less its luck and the price of its weights."""
    sign = 1.0 if pool.metric.higher_is_better else -1.0
    values = []
    for step in history:
        weights_T = system.vector(step.weights)
        values.append(sign * step.decoded_score - expected.luck(weights_T) - float(expected.price(weights_T[None])[0]))
    return values


def _known(system: System, weights: Weights, history: Sequence[TuningStep]) -> bool:
    """Whether these weights have been decoded with, but for rounding."""
    vector_T = system.vector(weights)
    return any(np.allclose(vector_T, system.vector(step.weights), rtol=1e-6, atol=1e-9) for step in history)
