"""A run directory: everything that is needed to use its models again, in files that are complete or absent.

``run_files`` lists the files. Each one is read once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from noisychannel import __version__
from noisychannel.arguments import section_of
from noisychannel.atomic import write_text
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataConfig
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models.finite import non_finite_parameter
from noisychannel.models.registry import ModelDescription
from noisychannel.models.word_list import Trie, WordList
from noisychannel.run_files import RunFiles, directory_name
from noisychannel.tensors import load_metadata, load_tensors, save_tensors

T = TypeVar("T")

FORMAT = 1
"""Raised whenever an older version could misread what a newer one wrote."""


class RunDirectory(RunFiles):
    """The content of one run. Whoever changes its files by other means calls ``forget``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._groups: dict[str, RunDirectory] = {}
        self._known: dict[str, Any] = {}

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """An existing run, of a version that this one can read."""
        run = RunDirectory(path)
        if not path.is_dir():
            raise BadInputError(f"{path}: no such run directory; create one with noisychannel train")
        run.header()
        return run

    def forget(self) -> None:
        """Read the files again when they are needed next."""
        self._known.clear()
        self._groups.clear()

    def _once(self, name: str, read: Callable[[], T]) -> T:
        if name not in self._known:
            self._known[name] = read()
        known: T = self._known[name]
        return known

    # Groups and vocabularies.

    def group(self, name: str) -> RunDirectory:
        """The run of one group; this run if the name is empty."""
        if not name:
            return self
        return self._groups.setdefault(name, RunDirectory(self.path / directory_name(name)))

    def groups(self) -> list[RunDirectory]:
        """The runs of all groups; only this one if there are no groups."""
        return [self.group(name) for name in self.header()["groups"]]

    def header(self) -> dict[str, Any]:
        """The content of run.json."""
        return self._once("header", self._read_header)

    def write_header(self, groups: list[str], data: Mapping[str, Any], group: str = "") -> None:
        """``groups``: those inside, or one with an empty name; ``group``: the name of this one, if it is one."""
        header = {"format": FORMAT, "noisychannel": __version__, "group": group, "groups": groups, "data": data}
        write_text(self.header_file, json.dumps(header, ensure_ascii=False, indent=1) + "\n")
        self._known.pop("header", None)

    def _read_header(self) -> dict[str, Any]:
        file = self.header_file
        if not file.exists():
            raise BadInputError(f"{self.path}: not a run directory (no run.json); create one with noisychannel train")
        header = _read_json(file)
        _check_format(header, file)
        if not isinstance(header.get("groups"), list):
            raise NoisyChannelError(f"{file}: damaged (no groups); restore it from a copy, or start over (--overwrite)")
        return header

    @property
    def data_config(self) -> DataConfig:
        """The data section of config.yaml."""
        return self._once("data", lambda: section_of(DataConfig, self.config_file, "data"))

    def write_config(self, text: str) -> None:
        write_text(self.config_file, text)
        self._known.pop("data", None)

    def codecs(self) -> tuple[Codec, Codec]:
        """The vocabulary of the input and that of the output."""
        return self._once("codecs", self._read_codecs)

    def write_codecs(self, input_codec: Codec, output_codec: Codec) -> None:
        input_codec.save(self.path, "input")
        output_codec.save(self.path, "output")
        self._known.pop("codecs", None)

    def _read_codecs(self) -> tuple[Codec, Codec]:
        groups = self.header()["groups"]
        if groups != [""]:
            shown = ", ".join(self.group(name).path.name for name in groups)
            raise BadInputError(f"{self.path}: has one run per group; choose one of them: {shown}")
        return Codec.load(self.path, "input"), Codec.load(self.path, "output")

    # Models.

    def write_model_config(self, role: str, model: ModelDescription) -> None:
        """Write config.json, from which the model of a role is built again; the vocabularies must have been saved."""
        record = {
            "format": FORMAT,
            "noisychannel": __version__,
            "class": model.class_name,
            "arguments": dict(model.arguments),
            "vocabularies": dict(zip(("input", "output"), (x.fingerprint for x in self.codecs()), strict=True)),
        }
        self.model_dir(role).mkdir(parents=True, exist_ok=True)
        write_text(self.model_dir(role) / "config.json", json.dumps(record, indent=1) + "\n")
        self._known.pop(f"model {role}", None)

    def dev_perplexity(self, role: str) -> float:
        """Of the stored model, per symbol."""
        return math.exp(float(load_metadata(self.model_file(role))["dev_loss"]))

    def load_model(self, role: str, device: torch.device | str = "cpu") -> nn.Module:
        """The trained model of a role, ready for use. Its weights are finite numbers."""
        description = self._model_description(role)
        tensors, _ = load_tensors(self.model_file(role))
        try:
            model = description.build()
        except (KeyError, TypeError) as error:
            raise _damaged(self.model_dir(role) / "config.json", error) from error
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise NoisyChannelError(
                f"{self.model_file(role)}: does not fit config.json beside it; restore both from a copy, or train again"
            ) from error
        if (parameter := non_finite_parameter(model)) is not None:
            raise BadInputError(
                f"{self.model_file(role)}: NaN or infinite weights ({parameter}); the training of {role} diverged: "
                "train it again with a lower learning rate"
            )
        return model.to(device).eval()

    def _model_description(self, role: str) -> ModelDescription:
        return self._once(f"model {role}", lambda: self._read_model_description(role))

    def _read_model_description(self, role: str) -> ModelDescription:
        file = self.model_dir(role) / "config.json"
        if not file.exists() or not self.has_model(role):
            raise BadInputError(f"{self.path}: has no {role} model; train it with noisychannel train … --models {role}")
        record = _read_json(file)
        _check_format(record, file)
        try:
            vocabularies, description = record["vocabularies"], ModelDescription(record["class"], record["arguments"])
        except KeyError as error:
            raise _damaged(file, error) from error
        for side, codec in zip(("input", "output"), self.codecs(), strict=True):
            if vocabularies.get(side) != codec.fingerprint:
                raise NoisyChannelError(
                    f"{self.path}/{side}.vocabulary.json: not the vocabulary that {self.model_dir(role)} "
                    "was trained with; restore the original, or train again"
                )
        return description

    # The word list of the language model.

    def write_word_list(self, words: Trie) -> None:
        save_tensors(self.word_list_file, {"keys": words.keys}, {"symbols": str(words.vocab_size)})

    def load_word_list(self, device: torch.device | str = "cpu") -> WordList:
        """The listed outputs as a term of the objective. It reads features if the language model does."""
        if not self.word_list_file.exists():
            raise BadInputError(f"{self.path}: has no word list; set lm.word_list: true and train the language model")
        reads_features = bool(self._model_description("lm").arguments.get("reads_features", False))
        tensors, metadata = load_tensors(self.word_list_file)
        symbols = len(self.codecs()[1])
        try:
            words = Trie(int(metadata["symbols"]), tensors["keys"])
            if words.vocab_size != symbols:
                raise ValueError(f"{words.vocab_size} symbols instead of {symbols}")
        except (KeyError, ValueError) as error:
            raise NoisyChannelError(
                f"{self.word_list_file}: not the word list of this run ({error}); restore it, or train again"
            ) from error
        return WordList(words, reads_features).to(device)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError) as error:
        raise _damaged(file, error) from error
    return content


def _damaged(file: Path, error: Exception) -> NoisyChannelError:
    return NoisyChannelError(f"{file}: damaged ({error}); restore it from a copy, or train again")


def _check_format(record: Mapping[str, Any], file: Path) -> None:
    if record.get("format") != FORMAT:
        writer = record.get("noisychannel", "of an unknown version")
        raise BadInputError(
            f"{file}: format {record.get('format')}, written by noisychannel {writer}; version {__version__} reads "
            f"format {FORMAT}: use the other version, or train again"
        )
