"""A run directory: everything needed to use its models again, in files that are whole or absent. No pickle.

    run.json                      format and version, the groups, what became of the data's lines
    config.yaml                   the configuration
    input.vocabulary.json, output.vocabulary.json (and .sentencepiece)
    direct/ channel/ lm/ …        each with config.json and model.safetensors; training.safetensors while unfinished,
                                  stopped.safetensors if a limit ended the training, so that it can go further
    lm/word_list.safetensors      the outputs it was trained on, where it is to know them by heart
    metrics.jsonl                 one record a line: training losses and dev perplexities, the share of a word list

A run with groups has run.json and config.yaml only, and one such directory for each group.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from noisychannel import __version__
from noisychannel.atomic import write_bytes, write_text
from noisychannel.data.codec import Codec
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models import SSNT, LanguageModel, Seq2Seq
from noisychannel.models.finite import non_finite_parameter
from noisychannel.models.word_list import Trie, WithWordList
from noisychannel.training.config import ROLES

OWN_FILES = ("run.json", "config.yaml", "metrics.jsonl", "weights.json", "tensorboard")
LONGEST_NAME = 200
"""Bytes of a directory's name."""

FORMAT = 1
"""Raised whenever an older version could misread what a newer one wrote."""

MODEL_CLASSES: dict[str, type[nn.Module]] = {"SSNT": SSNT, "LanguageModel": LanguageModel, "Seq2Seq": Seq2Seq}


class RunDirectory:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """An existing run, of a version this one can read."""
        run = RunDirectory(path)
        if not path.is_dir():
            raise BadInputError(f"{path}: no such run directory; make one with noisychannel train")
        run.header()
        return run

    @property
    def data_dir(self) -> Path:
        """Where encoded corpora stay while a training goes on."""
        return self.path / ".data"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def weights_file(self) -> Path:
        """Present if the run has been tuned."""
        return self.path / "weights.json"

    def model_dir(self, role: str) -> Path:
        return self.path / role

    def model_file(self, role: str) -> Path:
        return self.model_dir(role) / "model.safetensors"

    def state_file(self, role: str) -> Path:
        """Present while the training of a model is unfinished."""
        return self.model_dir(role) / "training.safetensors"

    def stopped_file(self, role: str) -> Path:
        """Present if a limit ended the training of a model: from here it can be trained further."""
        return self.model_dir(role) / "stopped.safetensors"

    @property
    def word_list_file(self) -> Path:
        """Present where the language model was trained with one."""
        return self.model_dir("lm") / "word_list.safetensors"

    def has_model(self, role: str) -> bool:
        return self.model_file(role).exists()

    def finished(self, role: str) -> bool:
        return self.has_model(role) and not self.state_file(role).exists()

    def group(self, name: str) -> RunDirectory:
        """The run of one group; the whole run where there are no groups."""
        return RunDirectory(self.path / _directory_name(name) if name else self.path)

    def groups(self) -> list[RunDirectory]:
        """The runs of all groups; this one alone where there are none."""
        return [self.group(name) for name in self.header()["groups"]]

    def write_header(self, groups: list[str], data: Mapping[str, Any], group: str = "") -> None:
        """``groups``: those inside, or one without a name; ``group``: the one that this is, where it is one."""
        header = {"format": FORMAT, "noisychannel": __version__, "group": group, "groups": groups, "data": data}
        write_text(self.path / "run.json", json.dumps(header, ensure_ascii=False, indent=1) + "\n")

    def header(self) -> dict[str, Any]:
        file = self.path / "run.json"
        if not file.exists():
            raise BadInputError(f"{self.path}: not a run directory (no run.json); make one with noisychannel train")
        header = _read_json(file)
        _check_format(header, file)
        if not isinstance(header.get("groups"), list):
            raise NoisyChannelError(f"{file}: damaged (no groups); restore it from a copy, or start anew (--overwrite)")
        return header

    def codecs(self) -> tuple[Codec, Codec]:
        """The input's and the output's vocabulary."""
        groups = self.header()["groups"]
        if groups != [""]:
            shown = ", ".join(self.group(name).path.name for name in groups)
            raise BadInputError(f"{self.path}: holds one run for each group; name one of them: {shown}")
        return Codec.load(self.path, "input"), Codec.load(self.path, "output")

    def write_model_config(self, role: str, model_class: str, arguments: Mapping[str, Any]) -> None:
        """What is needed to build a role's model again; vocabularies must have been saved."""
        input_codec, output_codec = Codec.load(self.path, "input"), Codec.load(self.path, "output")
        record = {
            "format": FORMAT,
            "noisychannel": __version__,
            "class": model_class,
            "arguments": dict(arguments),
            "vocabularies": {"input": input_codec.fingerprint, "output": output_codec.fingerprint},
        }
        self.model_dir(role).mkdir(parents=True, exist_ok=True)
        write_text(self.model_dir(role) / "config.json", json.dumps(record, indent=1) + "\n")

    def dev_perplexity(self, role: str) -> float:
        """Per symbol, of the model that is kept; of a language model, without its word list."""
        _, metadata = load_tensors(self.model_file(role))
        return math.exp(float(metadata["dev_loss"]))

    def write_word_list(self, words: Trie, share: float) -> None:
        tensors = {"keys": words.keys, "counts": words.counts}
        save_tensors(self.word_list_file, tensors, {"share": repr(share), "symbols": str(words.vocab_size)})

    def load_model(self, role: str, device: torch.device | str = "cpu", word_list: bool = True) -> nn.Module:
        """A role's trained model, ready for use; the language model with its list of words, where it has one."""
        file = self.model_dir(role) / "config.json"
        if not file.exists() or not self.has_model(role):
            raise BadInputError(
                f"{self.path}: holds no {role} model; train it with noisychannel train … --models {role}"
            )
        record = _read_json(file)
        _check_format(record, file)
        try:
            vocabularies = record["vocabularies"]
            model = MODEL_CLASSES[record["class"]](**record["arguments"])
        except (KeyError, TypeError) as error:
            raise NoisyChannelError(f"{file}: damaged ({error}); restore it from a copy, or train again") from error
        for side, codec in zip(("input", "output"), self.codecs(), strict=True):
            if vocabularies.get(side) != codec.fingerprint:
                raise NoisyChannelError(
                    f"{self.path}/{side}.vocabulary.json: is not the vocabulary that {self.model_dir(role)} "
                    "was trained with; restore the original, or train again"
                )
        tensors, _ = load_tensors(self.model_file(role))
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise NoisyChannelError(
                f"{self.model_file(role)}: does not fit {file}; restore both from one copy, or train again"
            ) from error
        if (parameter := non_finite_parameter(model)) is not None:
            raise BadInputError(
                f"{self.model_file(role)}: NaN or infinite weights ({parameter}); the training of {role} diverged: "
                "train it again with a lower learning rate"
            )
        if word_list and isinstance(model, LanguageModel) and self.word_list_file.exists():
            model = self._with_word_list(model)
        return model.to(device).eval()

    def _with_word_list(self, network: LanguageModel) -> WithWordList:
        tensors, metadata = load_tensors(self.word_list_file)
        try:
            words = Trie(int(metadata["symbols"]), tensors["keys"], tensors["counts"])
            if words.vocab_size != network.word.out_features:
                raise ValueError(f"{words.vocab_size} symbols instead of {network.word.out_features}")
            return WithWordList(network, words, float(metadata["share"]))
        except (KeyError, ValueError) as error:
            raise NoisyChannelError(
                f"{self.word_list_file}: not the list of this model ({error}); restore it from a copy, or train again"
            ) from error


def _directory_name(group: str) -> str:
    """A group's name as that of a directory: readable, not hidden, none of the run's own names, not too long."""
    name = re.sub(r"[/\\%\x00-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", group)
    if name.startswith(".") or name in (*ROLES, *OWN_FILES):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name.encode()) > LONGEST_NAME:
        digest = hashlib.sha256(group.encode()).hexdigest()[:16]
        name = name.encode()[: LONGEST_NAME - 20].decode(errors="ignore") + f"…{digest}"
    return name


def save_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, whole or not at all."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(file, save(contiguous, dict(metadata)))


def load_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of a safetensors file; one that was cut off is refused."""
    try:
        with safe_open(str(file), framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise NoisyChannelError(
            f"{file}: damaged or truncated ({reason}); restore it from a copy, or remove {file.parent} and train again"
        ) from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NoisyChannelError(f"{file}: damaged ({error}); restore it from a copy, or train again") from error
    if not isinstance(content, dict):
        raise NoisyChannelError(f"{file}: damaged (no JSON object); restore it from a copy, or train again")
    return content


def _check_format(record: Mapping[str, Any], file: Path) -> None:
    if record.get("format") != FORMAT:
        writer = record.get("noisychannel", "of an unknown version")
        raise BadInputError(
            f"{file}: format {record.get('format')}, written by noisychannel {writer}; this is {__version__}, "
            f"which reads format {FORMAT}: use that version, or train again"
        )
