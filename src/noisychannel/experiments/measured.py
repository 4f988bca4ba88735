"""A row of the inflection table, and what was measured of it, which is kept in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from noisychannel.atomic import write_text
from noisychannel.decode.objective import Weights
from noisychannel.evaluation.metrics import FloatArray
from noisychannel.experiments.inflection import Setting
from noisychannel.tuning import TuningResult, TuningStep

Split = Literal["dev", "test"]


@dataclass(frozen=True)
class Row:
    """One system of the table."""

    name: str
    system: str
    """One of ``SYSTEMS``, or a baseline: seq2seq, attention, or rules."""
    direct: str = "bi"
    """Which runs have the direct model, or the baseline: ``bi-1`` is that of the first seed."""
    channel: str = "bi"
    lm: str = "lm"
    """Which runs have the language models: ``lm-strict`` is that of the strict setting."""
    word_list: bool = False
    """Whether the language model knows its list by heart."""
    pairs: int | None = None
    """How many training pairs of each type the rules have; all if None."""
    seeds: int | None = None
    """How many; all if None."""
    search: Literal["viterbi", "marginal"] = "viterbi"
    """Weights are tuned with the first, and used with either."""
    rerank: Literal["", "ensemble", "density ratio", "word list", "pool"] = ""
    """What chooses among the best outputs of the search; see ``reranking``."""

    @property
    def models(self) -> tuple[str, str, str]:
        return self.direct, self.channel, self.lm


@dataclass(frozen=True)
class Measured:
    """What one row got right in one setting."""

    row: Row
    setting: Setting
    tuned: TuningResult | None
    """None where there was nothing to tune."""
    notes: Mapping[str, float]
    """What else was chosen on dev."""
    outputs: Mapping[int, list[list[str]]]
    """By seed: the outputs of each type."""
    gold: Sequence[Sequence[str]]
    """What should have come out."""

    @cached_property
    def right(self) -> dict[int, list[FloatArray]]:
        """By seed: for each type, whether each item was right."""
        return {
            seed: [
                np.array([text == form for text, form in zip(texts, forms, strict=True)], np.float64)
                for texts, forms in zip(of_types, self.gold, strict=True)
            ]
            for seed, of_types in self.outputs.items()
        }

    @property
    def weights(self) -> Weights:
        return Weights(1.0) if self.tuned is None else self.tuned.weights

    @property
    def accuracies(self) -> dict[int, float]:
        """By seed: the mean over types, in per cent."""
        return {seed: 100 * float(np.mean([np.mean(x) for x in right])) for seed, right in self.right.items()}

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.accuracies.values())))

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds."""
        values = list(self.accuracies.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def of_type(self, n: int) -> float:
        """The accuracy in one type, mean over seeds."""
        return 100 * float(np.mean([np.mean(right[n]) for right in self.right.values()]))

    def write(self, file: Path) -> None:
        """All but the row and its setting, and what should have come out."""
        record = {
            "row": f"{self.setting}: {self.row.name}",
            "tuned": None if self.tuned is None else asdict(self.tuned),
            "notes": dict(self.notes),
            "outputs": dict(self.outputs),
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(record, ensure_ascii=False) + "\n")

    @staticmethod
    def read(file: Path, row: Row, setting: Setting, gold: Sequence[Sequence[str]]) -> Measured:
        record = json.loads(file.read_text(encoding="utf-8"))
        tuned: TuningResult | None = None
        if record["tuned"] is not None:
            steps = (
                TuningStep(**{**step, "weights": Weights(**step["weights"])}) for step in record["tuned"]["history"]
            )
            known = {**record["tuned"], "weights": Weights(**record["tuned"]["weights"]), "history": tuple(steps)}
            tuned = TuningResult(**known)
        outputs = {int(seed): of_types for seed, of_types in record["outputs"].items()}
        return Measured(row, setting, tuned, record["notes"], outputs, gold)
