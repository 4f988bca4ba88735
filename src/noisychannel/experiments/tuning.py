"""Tuning the weights of a row on dev items of several parts, whose models may have vocabularies of their own.

Weights are tuned once for each system, choice of data and of models, with the models of the first seed. All parts and
seeds then share them. The caller says who decodes: several processes, each a share of the items, if it has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.evaluation.metrics import Metric
from noisychannel.experiments.decoding import DecodingTask
from noisychannel.outputs import Output
from noisychannel.schemas import Record
from noisychannel.systems import System
from noisychannel.tuning import CandidatePool, TuningResult, TuningStep, tune

N_BEST = 10
"""Outputs of each dev item that join the pool."""


Found = list[list[list[Output]]]
"""For each part and item, the best outputs, with their ids."""


@dataclass(frozen=True)
class TuningTask:
    """Dev items whose weights are to be tuned."""

    system: System
    dev: DecodingTask
    """How the dev items of all parts are decoded; its weights are those to start from."""
    metric: Metric
    iterations: int

    def tune(self, smaller: Sequence[Weights], decode: Callable[[DecodingTask], Found]) -> TuningResult:
        """``smaller``: weights of systems that this one contains; it starts from them, too."""
        known = [self.system.weights(weights.by_name()) for weights in smaller]
        references = [item.references for items in self.dev.items for item in items]
        texts: list[dict[tuple[int, ...], str]] = [{} for _ in references]
        pool = CandidatePool(self.metric, references, [known.__getitem__ for known in texts])

        @cache
        def hypotheses(weights: Weights) -> list[list[Hypothesis]]:
            found = list(chain.from_iterable(decode(replace(self.dev, weights=weights))))
            for known, best in zip(texts, found, strict=True):
                known |= {output.hypothesis.tokens: output.text for output in best}
            return [[output.hypothesis for output in best] for best in found]

        return tune(self.system, hypotheses, pool, self.iterations, known=known)


def tuning_record(result: TuningResult) -> dict[str, Any]:
    """For JSON."""
    history = [{**asdict(step), "weights": step.weights.by_name()} for step in result.history]
    return {**asdict(result), "weights": result.weights.by_name(), "history": history}


@dataclass(frozen=True)
class StepRecord(Record):
    """A step of the history of a tuning in JSON."""

    weights: dict[str, float]
    pool_score: float | None
    decoded_score: float
    pool_size: int


@dataclass(frozen=True)
class TuningRecord(Record):
    """What ``tuning_record`` wrote."""

    system: str
    weights: dict[str, float]
    dev_score: float
    metric: str
    signature: str
    history: tuple[StepRecord, ...]
    expected_score: float | None = None
    p_start: float | None = None

    def result(self) -> TuningResult:
        history = [
            TuningStep(Weights.of(step.weights), step.pool_score, step.decoded_score, step.pool_size)
            for step in self.history
        ]
        return TuningResult(
            self.system,
            Weights.of(self.weights),
            self.dev_score,
            self.metric,
            self.signature,
            tuple(history),
            self.expected_score,
            self.p_start,
        )
