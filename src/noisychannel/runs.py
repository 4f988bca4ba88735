"""A run directory: everything that is needed to use its models again, in files that are complete or absent.

``run_files`` lists the files, ``run_records`` what they keep. Each one is read once. What is loaded is compared with
the checksums in run.json, see ``recorded_run``.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from noisychannel import __version__
from noisychannel.arguments import section_of
from noisychannel.atomic import write_text
from noisychannel.data.codec import SIDES, Codec
from noisychannel.data.prepare import DataConfig
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models.finite import non_finite_parameter
from noisychannel.models.registry import ROLES, ModelDescription
from noisychannel.models.seen import Seen
from noisychannel.models.word_list import Trie, WordList
from noisychannel.packaged import find_run
from noisychannel.recorded_run import RecordedRun
from noisychannel.run_files import directory_name
from noisychannel.run_records import FORMAT, ModelMetadata, ModelRecord, SeenMetadata, WordListMetadata
from noisychannel.schemas import parse_metadata, read_record
from noisychannel.tensors import load_metadata, load_shapes, load_tensors, save_tensors

T = TypeVar("T")


class RunDirectory(RecordedRun):
    """The content of one run. Whoever changes its files by other means calls ``forget``."""

    def __init__(self, path: Path, group: str = "") -> None:
        super().__init__(path, group)
        self._groups: dict[str, RunDirectory] = {}

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """An existing run, of a version that this one can read; ``demo`` is the one of the package."""
        path = find_run(path)
        run = RunDirectory(path)
        if path.exists() and not path.is_dir():
            raise BadInputError(f"{path}: is a file, not a run directory")
        if not path.is_dir():
            raise BadInputError(f"{path}: no such run directory; create one with noisychannel fit or train")
        if path.name in ROLES and not run.header_file.exists() and RunDirectory(path.parent).header_file.exists():
            raise BadInputError(f"{path}: a model of a run, not a run directory; did you mean {path.parent}?")
        run.header()
        return run

    @staticmethod
    def open_finished(path: Path) -> RunDirectory:
        """The same, unless ``fit`` has not finished it: nothing but ``fit`` should use what is there so far."""
        run = RunDirectory(find_run(path))
        if run.fit_is_unfinished:
            again = f"noisychannel fit … {shlex.join(['--run-dir', str(path)])}"
            raise BadInputError(f"{path}: its fit is running, or was interrupted; wait, or continue it: {again}")
        return RunDirectory.open(path)

    def forget(self, name: str | None = None) -> None:
        super().forget(name)
        if name is None:
            self._groups.clear()

    # Groups and vocabularies.

    def group(self, name: str) -> RunDirectory:
        """The run of one group; this run if the name is empty."""
        if not name:
            return self
        return self._groups.setdefault(name, RunDirectory(self.path / directory_name(name), name))

    def groups(self) -> list[RunDirectory]:
        """The runs of all groups; only this one if there are no groups."""
        return [self.group(name) for name in self.header().groups]

    @property
    def data_config(self) -> DataConfig:
        """The data section of config.yaml."""
        return self.once("data", lambda: section_of(DataConfig, self.existing_config(), "data"))

    def existing_config(self) -> Path:
        """config.yaml. If it is missing, the error says where there is a copy."""
        if self.config_file.exists():
            return self.config_file
        groups = self.groups()
        others = [self.path.parent] if self.header().group else [group.path for group in groups if group is not self]
        copy = next((other / "config.yaml" for other in others if (other / "config.yaml").exists()), None)
        fix = (
            f"all groups have the same: {shlex.join(['cp', str(copy), str(self.config_file)])}"
            if copy is not None
            else "copy the configuration there that the run was trained with; no model needs to be trained again"
        )
        raise BadInputError(f"{self.config_file}: missing; {fix}")

    def write_config(self, text: str) -> None:
        write_text(self.config_file, text)
        self.forget("data")

    def codecs(self) -> tuple[Codec, Codec]:
        """The vocabulary of the input and that of the output."""
        return self.once("codecs", self._read_codecs)

    def write_codecs(self, input_codec: Codec, output_codec: Codec) -> None:
        input_codec.save(self.path, "input")
        output_codec.save(self.path, "output")
        self.forget("codecs")

    def _read_codecs(self) -> tuple[Codec, Codec]:
        groups = self.header().groups
        if groups != [""]:
            shown = ", ".join(self.group(name).path.name for name in groups)
            raise BadInputError(f"{self.path}: has one run per group; choose one of them: {shown}")
        again = self.starting_over()
        codecs = Codec.load(self.path, "input", again), Codec.load(self.path, "output", again)
        for file in self.vocabulary_files():
            self.verify(file, again)
        return codecs

    # Models.

    def has_model(self, role: str) -> bool:
        """Whether the run has a model of this role. One that was trained and is missing counts: loading it fails."""
        return self.model_file(role).exists() or self.is_recorded(self.model_file(role), role)

    def write_model_config(self, role: str, model: ModelDescription) -> None:
        """Write config.json, from which the model of a role is built again; the vocabularies must have been saved."""
        record = {
            "format": FORMAT,
            "noisychannel": __version__,
            "role": role,
            "class": model.class_name,
            "arguments": dict(model.arguments),
            "vocabularies": dict(zip(SIDES, (x.fingerprint for x in self.codecs()), strict=True)),
        }
        self.model_dir(role).mkdir(parents=True, exist_ok=True)
        write_text(self.model_config_file(role), json.dumps(record, indent=1) + "\n")
        self.forget(f"model {role}")

    def dev_perplexity(self, role: str) -> float:
        """Of the stored model, per symbol."""
        file = self.model_file(role)
        metadata = parse_metadata(load_metadata(file), ModelMetadata, file, self.training_again(role))
        return math.exp(metadata.dev_loss)

    def load_model(self, role: str, device: torch.device | str = "cpu") -> nn.Module:
        """The trained model of a role, ready for use. Its weights are finite numbers."""
        description, file = self._model_description(role), self.model_file(role)
        # Compared before anything of that size is allocated.
        model = _without_weights(description, load_shapes(file))
        tensors = load_tensors(file)[0] if model is not None else {}
        if model is None or any(tensors[name].dtype != weight.dtype for name, weight in model.state_dict().items()):
            raise NoisyChannelError(
                f"{file}: does not fit config.json beside it; restore both from a copy, or {self.training_again(role)}"
            )
        model.load_state_dict(tensors, assign=True)
        self.verify(file, self.training_again(role), role)
        if (parameter := non_finite_parameter(model)) is not None:
            raise BadInputError(
                f"{file}: NaN or infinite weights ({parameter}); the training of {role} diverged: "
                "train it again with a lower learning rate"
            )
        return model.to(device).eval()

    def _model_description(self, role: str) -> ModelDescription:
        return self.once(f"model {role}", lambda: self._read_model_description(role))

    def _read_model_description(self, role: str) -> ModelDescription:
        file, again = self.model_config_file(role), self.training_again(role)
        if not self.has_model(role):
            raise BadInputError(f"{self.path}: has no {role} model; {self.adding(role)}")
        if not self.model_file(role).exists():
            self.verify(self.model_file(role), again, role)
        record = self._read_model_record(role)
        for side, codec in zip(SIDES, self.codecs(), strict=True):
            if record.vocabularies.get(side) != codec.fingerprint:
                raise NoisyChannelError(
                    f"{self.path}/{side}.vocabulary.json: not the vocabulary that {self.model_dir(role)} "
                    "was trained with; restore the original, or train again"
                )
        sizes = dict(zip(SIDES, map(len, self.codecs()), strict=True))
        description = record.description(role, sizes, file, again)
        self.verify(file, again, role)
        return description

    def verify_model(self, role: str) -> None:
        """Refuse a trained model whose files are not those that its training left."""
        again = self.training_again(role)
        self.check_role(role)
        for file in self.recorded_files(role):
            self.verify(file, again, role)

    def check_role(self, role: str) -> None:
        """Refuse the directory of a role if it holds the model of another one."""
        self._read_model_record(role)

    def _read_model_record(self, role: str) -> ModelRecord:
        again = self.training_again(role)
        record = read_record(self.model_config_file(role), ModelRecord, again, [FORMAT])
        if not record.could_be(role):
            named = "" if record.role == role else record.role  # a model of another class under the right name
            held = named or " or ".join(other for other in ROLES if record.could_be(other)) or record.class_
            raise NoisyChannelError(
                f"{self.model_dir(role)}: holds the {held} model, not the {role} model; "
                f"restore the {role} model from a copy, or {again}"
            )
        return record

    # The word list of the language model.

    @property
    def has_word_list(self) -> bool:
        """Whether the run has a word list. One that was written and is missing counts: loading it fails."""
        return self.word_list_file.exists() or self.is_recorded(self.word_list_file, "lm")

    def write_word_list(self, words: Trie) -> None:
        save_tensors(self.word_list_file, {"keys": words.keys}, {"symbols": str(words.vocab_size)})

    def load_word_list(self, device: torch.device | str = "cpu") -> WordList:
        """The listed outputs as a term of the objective. It reads features if the language model does."""
        file, again = self.word_list_file, self.training_again("lm")
        if not self.has_word_list:
            raise BadInputError(f"{self.path}: has no word list; set lm.word_list: true and train the language model")
        if not file.exists():
            self.verify(file, again, "lm")
        reads_features = bool(self._model_description("lm").arguments.get("reads_features", False))
        tensors, metadata = load_tensors(file)
        stored = parse_metadata(metadata, WordListMetadata, file, again).symbols
        try:
            if stored != (symbols := len(self.codecs()[1])):
                raise ValueError(f"{stored} symbols instead of {symbols}")
            words = Trie.restored(stored, tensors["keys"])
        except (KeyError, ValueError) as error:
            raise NoisyChannelError(
                f"{file}: not the word list of this run ({error}); restore it from a copy, or {again}"
            ) from error
        self.verify(file, again, "lm")
        return WordList(words, reads_features).to(device)

    # Counts of the training pairs.

    @property
    def has_seen(self) -> bool:
        """Whether the run has counts of its training pairs. If they were written and are missing, loading fails."""
        return self.was_counted(self.seen_file)

    def write_seen(self, seen: Seen) -> None:
        pairs, different = seen.size
        metadata = {"symbols": str(seen.pairs.vocab_size), "pairs": str(pairs), "different": str(different)}
        save_tensors(self.seen_file, {"keys": seen.pairs.keys, "counts": seen.counts}, metadata)

    @property
    def repeated_pairs(self) -> float:
        """The share of the training pairs that are repetitions of others; 0 if they were not counted."""
        if not self.has_seen:
            return 0.0
        file, again = self.seen_file, self.counting_again()
        if not file.exists():
            self.verify(file, again)
        stored = parse_metadata(load_metadata(file, again), SeenMetadata, file, again)
        return 1 - stored.different / stored.pairs if stored.pairs else 0.0

    def load_seen(self, device: torch.device | str = "cpu") -> Seen:
        """The counts of the training pairs as a term of the objective."""
        file, again = self.seen_file, self.counting_again()
        if not self.has_seen:
            raise BadInputError(f"{self.path}: has no counts of its training pairs (seen); {self.adding_seen()}")
        if not file.exists():
            self.verify(file, again)
        tensors, metadata = load_tensors(file, again)
        stored = parse_metadata(metadata, SeenMetadata, file, again).symbols
        try:
            if stored != (symbols := max(map(len, self.codecs()))):
                raise ValueError(f"{stored} symbols instead of {symbols}")
            seen = Seen.restored(stored, tensors["keys"], tensors["counts"])
        except (KeyError, ValueError) as error:
            raise NoisyChannelError(
                f"{file}: not the counts of this run ({error}); restore it from a copy, or {again}"
            ) from error
        self.verify(file, again)
        return seen.to(device)


def _without_weights(description: ModelDescription, stored: Mapping[str, tuple[int, ...]]) -> nn.Module | None:
    """The model without memory for its weights; None if its tensors do not have these names and shapes."""
    largest = max((len(stored), *(size for shape in stored.values() for size in shape)))
    if any(isinstance(value, int) and value > largest for value in description.arguments.values()):
        return None
    with torch.device("meta"), _WithoutDrawing():
        model = description.build()
    return model if {name: tuple(x.shape) for name, x in model.state_dict().items()} == dict(stored) else None


class _WithoutDrawing(TorchFunctionMode):
    """No random first weights: drawing them without memory loads torch's compiler, which takes longer than decoding."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))
