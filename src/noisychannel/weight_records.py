"""What weights.json keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from noisychannel.confidence import Confidence
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.schemas import ClosedRecord, Record

FORMAT = 2
"""Of weights.json. Version 0.1 wrote none; there a language model's word list was part of the language model."""

TermKind = Literal["word_list", "lm", "density_ratio", "seen", "ngram_pairs", "ngram_outputs"]
"""The list of outputs a language model was trained on; a second language model; a language model that is subtracted;
counts of the training pairs; n-gram models of the outputs of the pairs, and of all outputs."""


@dataclass(frozen=True)
class TermRecord(ClosedRecord):
    """A further term in weights.json."""

    kind: TermKind
    run: str
    """Its path, seen from the run directory."""

    def __post_init__(self) -> None:
        if not self.run or "\0" in self.run:
            raise ValueError(f"run: {self.run!r} is not a path")


@dataclass(frozen=True, kw_only=True)
class SystemRecord(ClosedRecord):
    """A system in weights.json."""

    weights: Mapping[str, float]
    search: SearchSettings
    terms: Mapping[str, TermRecord] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    """Checksums of the models that it was tuned with, by role, and of further terms, by name."""
    metric: str | None = None
    signature: str | None = None
    dev_score: float | None = None
    dev_sentences: int | None = None
    """Those that it was tuned on."""
    dev_sentences_of: int | None = None
    """All dev sentences, if it was tuned on a sample of them."""
    expected_score: float | None = None
    """The expected metric of the weights on the candidates of dev."""
    p_start: float | None = None
    """The p-value of the difference on dev between these weights and the start weights."""
    history: Sequence[Mapping[str, float | Mapping[str, float] | None]] = ()
    confidence: Confidence | None = None
    """None if the system was tuned by version 0.4 or earlier, or on very few inputs."""

    def __post_init__(self) -> None:
        Weights.of(self.weights)  # checks them

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "search": self.search.record()}


@dataclass(frozen=True, kw_only=True)
class WeightsRecord(Record):
    """weights.json."""

    format: int | None = None
    noisychannel: str = ""
    default: str | None = None
    """The system that decode uses."""
    systems: Mapping[str, SystemRecord]
