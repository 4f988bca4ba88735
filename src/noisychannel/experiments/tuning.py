"""Tuning the weights of a row on dev items of several parts, whose models may have vocabularies of their own.

Weights are tuned once for each system, choice of data and of models, with the models of the first seed. All parts and
seeds then share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.metrics import Metric
from noisychannel.experiments.decoding import decode_items, features_of, load
from noisychannel.experiments.experiment import ModelSet
from noisychannel.experiments.items import Item
from noisychannel.outputs import Output
from noisychannel.schemas import Record
from noisychannel.systems import System
from noisychannel.tuning import CandidatePool, TuningResult, TuningStep, tune

N_BEST = 10
"""Outputs of each dev item that join the pool."""


@dataclass(frozen=True)
class TuningTask:
    """Dev items whose weights are to be tuned. A process can be told to do it."""

    system: System
    models: tuple[ModelSet, ...]
    """One set for each part."""
    items: tuple[tuple[Item, ...], ...]
    metric: Metric
    settings: SearchSettings
    iterations: int
    batch_size: int
    device: str

    def tune(self, smaller: Sequence[Weights]) -> TuningResult:
        """``smaller``: weights of systems that this one contains; it starts from them, too."""
        try:
            return self._tune([self.system.weights(weights.by_name()) for weights in smaller])
        finally:
            torch.cuda.empty_cache()  # other processes use the same GPU

    def _tune(self, known: Sequence[Weights]) -> TuningResult:
        loaded = [load(models, self.system.start, self.settings, self.device) for models in self.models]
        references = [item.references for items in self.items for item in items]
        texts: list[dict[tuple[int, ...], str]] = [{} for _ in references]
        pool = CandidatePool(self.metric, references, [known.__getitem__ for known in texts])

        @cache
        def decode(weights: Weights) -> list[list[Hypothesis]]:
            decoded: list[list[Output]] = []
            for model, models, items in zip(loaded, self.models, self.items, strict=True):
                inputs, features = [item.input for item in items], features_of(models, items)
                decoded += decode_items(model.reweighted(weights), inputs, features, N_BEST, self.batch_size)
            for known, best in zip(texts, decoded, strict=True):
                known |= {output.hypothesis.tokens: output.text for output in best}
            return [[output.hypothesis for output in best] for best in decoded]

        return tune(self.system, decode, pool, self.iterations, known=known)


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
