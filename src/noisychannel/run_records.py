"""What the files of a run keep: run.json, the config.json of a model, and the metadata of its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, make_dataclass
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, cast, get_type_hints

from noisychannel.data.sources import SourceFiles
from noisychannel.models.registry import MODEL_CLASSES, ROLES, ModelDescription, Role, Vocabulary
from noisychannel.schemas import ClosedRecord, Record, damaged, parse_record

FORMAT = 1
"""Of run.json and config.json. Raised whenever an older version could misread what a newer one wrote."""
LARGEST_LOSS = 700.0
"""In nats per symbol. The perplexity of a larger one is not a float."""


@dataclass(frozen=True, kw_only=True)
class DataRecord(Record):
    """What the models of a run were trained on; empty in a run with groups, which each have their own."""

    train: Mapping[str, int] = field(default_factory=dict)
    """How many lines were read, dropped and truncated, and how often each is repeated."""
    dev: Mapping[str, int] = field(default_factory=dict)
    unpaired: Mapping[str, int] = field(default_factory=dict)
    further: Mapping[str, int] = field(default_factory=dict)
    made_up: Mapping[str, int] = field(default_factory=dict)
    """How many pairs were made up, and how many were wanted."""
    copies: Mapping[str, int] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the encoded corpora."""
    sources: SourceFiles = field(default_factory=dict)
    """The files that were read; empty in runs of versions before 0.3."""


@dataclass(frozen=True, kw_only=True)
class RunHeader(Record):
    """run.json."""

    format: int
    noisychannel: str
    """The version that wrote it."""
    group: str = ""
    """The name of this group, if it is one."""
    groups: list[str]
    """Those inside, or one with an empty name."""
    data: DataRecord = field(default_factory=DataRecord)
    files: Mapping[str, str] = field(default_factory=dict)
    """Checksums of the files that a finished training leaves, by their paths inside the run."""

    def __post_init__(self) -> None:
        if not self.groups or len(set(self.groups)) < len(self.groups):
            raise ValueError("groups: must be one or several different names")


@dataclass(frozen=True, kw_only=True)
class ModelRecord(Record):
    """config.json: enough to build the model of a role again."""

    format: int
    noisychannel: str
    role: Role | None = None
    """Versions before 0.3 did not record it."""
    class_: str
    arguments: Mapping[str, Any]
    vocabularies: Mapping[Vocabulary, str]
    """The fingerprints of the vocabularies that it was trained with."""

    def __post_init__(self) -> None:
        if self.class_ not in MODEL_CLASSES:
            raise ValueError(f"class: must be one of {', '.join(MODEL_CLASSES)}, but is {self.class_!r}")

    def could_be(self, role: str) -> bool:
        """Whether this can be a model of that role. Two roles of one class and the same arguments look alike."""
        entry = ROLES[cast(Role, role)]
        chooses_direction = entry.reads is not None and "bidirectional" not in entry.refuses
        return (
            self.role in (None, role)
            and self.class_ == entry.class_name
            and all(self.arguments.get(name) == value for name, value in entry.fixed.items())
            and ("bidirectional" in self.arguments) == chooses_direction
        )

    def description(self, role: str, sizes: Mapping[Vocabulary, int], file: Path, again: str) -> ModelDescription:
        """The model, checked against its constructor and the vocabularies; ``file`` and ``again`` are for errors."""
        parse_record(json.dumps(dict(self.arguments)), _arguments_of(self.class_), file, again)
        entry = ROLES[cast(Role, role)]
        expected = {"vocab_size": sizes[entry.writes]}
        if entry.reads is not None:
            expected = {"input_vocab_size": sizes[entry.reads], "output_vocab_size": sizes[entry.writes]}
        for name, size in expected.items():
            if self.arguments[name] != size:
                raise damaged(file, f"{name}: is {self.arguments[name]}, but the vocabulary has {size}", again)
        copies = self.arguments.get("copies")
        if copies is not None and entry.reads is not None:
            read, written = sizes[entry.reads], sizes[entry.writes]
            if len(copies) != read or not all(-1 <= copy < written for copy in copies):
                raise damaged(file, "copies: does not fit the vocabularies", again)
        return ModelDescription(self.class_, self.arguments)


@dataclass(frozen=True)
class ModelMetadata(Record):
    """Of model.safetensors."""

    step: int
    dev_loss: float
    """-log p per symbol."""

    def __post_init__(self) -> None:
        if self.step < 0 or self.dev_loss > LARGEST_LOSS:
            raise ValueError(f"step {self.step} and dev_loss {self.dev_loss}")


@dataclass(frozen=True)
class WordListMetadata(Record):
    """Of word_list.safetensors."""

    symbols: int
    """The size of the output vocabulary."""


@dataclass(frozen=True)
class SeenMetadata(Record):
    """Of seen.safetensors."""

    symbols: int
    """The size of the larger vocabulary."""
    pairs: int
    """How many pairs were counted."""
    different: int
    """How many of them are different."""


@dataclass(frozen=True)
class NGramMetadata(Record):
    """Of the file of an n-gram model."""

    symbols: int
    """The size of the output vocabulary."""
    order: int
    features: bool
    """Whether the outputs began with features."""


class _Arguments(ClosedRecord):
    """Of the constructor of a model."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is int and value < 1:
                raise ValueError(f"{name}: must be at least 1, but is {value}")
            if name in ("dropout", "label_smoothing") and not 0 <= value < 1:
                raise ValueError(f"{name}: must be at least 0 and less than 1, but is {value}")
        sizes = vars(self)
        if "num_heads" in sizes and sizes["hidden_size"] % sizes["num_heads"]:
            raise ValueError("hidden_size: must be a multiple of num_heads")


@cache
def _arguments_of(class_name: str) -> type:
    """The record of the arguments that a model of this class takes."""
    build = MODEL_CLASSES[class_name].__init__
    kinds = get_type_hints(build)
    fields = [
        (name, kinds[name], field(default=MISSING if one.default is Parameter.empty else one.default))
        for name, one in signature(build).parameters.items()
        if name != "self"
    ]
    return make_dataclass(f"{class_name}Arguments", fields, bases=(_Arguments,), frozen=True, kw_only=True)
