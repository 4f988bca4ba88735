"""The files of a run directory, and which of them exist.

    run.json                      format and version, the groups, how many lines of data were read, dropped, truncated,
                                  and checksums of the vocabularies and the trained models
    config.yaml                   the configuration
    input.vocabulary.json, output.vocabulary.json (and .sentencepiece)
    direct/ channel/ lm/ …        one directory per role, with config.json and model.safetensors;
                                  training.safetensors while the training is unfinished,
                                  stopped.safetensors if a limit ended it, so that it can be continued
    lm/word_list.safetensors      the outputs that the language model was trained on, if lm.word_list is set
    seen.safetensors              counts of the training pairs, if a model of outputs given inputs is trained
    ngram_pairs.safetensors, ngram_outputs.safetensors
                                  n-gram models of the outputs of the pairs and of all outputs, if ngrams asks for them
    metrics.jsonl                 one record per line: training losses, dev perplexities
    weights.json                  the tuned weights, if the run has been tuned
    fit.json, data/               if ``fit`` made the run: what it chose and measured, and its pairs

A run with groups has run.json and config.yaml only, and one such directory per group.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from noisychannel.models.registry import ROLES

FIT = "fit.json"
"""What ``fit`` chose and measured, if it made the run."""
SEEN = "seen.safetensors"
"""The term made from counts of the training pairs."""
NGRAMS = {name: f"ngram_{name}.safetensors" for name in ("pairs", "outputs")}
"""The n-gram models: of the outputs of the training pairs, of all outputs."""
OWN_FILES = ("run.json", "config.yaml", "metrics.jsonl", "weights.json", "tensorboard", FIT, SEEN, *NGRAMS.values())
WORK = ".fit"
"""Where ``fit`` works, inside the run that it makes."""
PLAN = "plan.json"
"""What ``fit`` planned, in its work directory: there from the beginning of its work."""
HIDDEN_FILES = (".data", ".lock", ".old", WORK)
"""During training only."""
VOCABULARIES = tuple(f"{side}.{kind}" for side in ("input", "output") for kind in ("vocabulary.json", "sentencepiece"))
LONGEST_NAME = 200
"""Bytes of a directory's name."""


class RunFiles:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def data_dir(self) -> Path:
        """The encoded corpora, during training."""
        return self.path / ".data"

    @property
    def header_file(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def weights_file(self) -> Path:
        """Exists if the run has been tuned."""
        return self.path / "weights.json"

    def model_dir(self, role: str) -> Path:
        return self.path / role

    def model_file(self, role: str) -> Path:
        return self.model_dir(role) / "model.safetensors"

    def model_config_file(self, role: str) -> Path:
        return self.model_dir(role) / "config.json"

    def state_file(self, role: str) -> Path:
        """Exists while the training of a model is unfinished."""
        return self.model_dir(role) / "training.safetensors"

    def stopped_file(self, role: str) -> Path:
        """Exists if a limit ended the training of a model; training can be continued from it."""
        return self.model_dir(role) / "stopped.safetensors"

    @property
    def word_list_file(self) -> Path:
        """Exists if the language model was trained with lm.word_list."""
        return self.model_dir("lm") / "word_list.safetensors"

    @property
    def seen_file(self) -> Path:
        """Exists if the run has, or is going to have, a model of outputs given inputs."""
        return self.path / SEEN

    def ngram_file(self, name: str) -> Path:
        """``name``: pairs or outputs. Exists if the configuration asks for it."""
        return self.path / NGRAMS[name]

    def counted_files(self) -> list[Path]:
        """What is counted when data is prepared, as far as it exists."""
        files = [self.seen_file, *map(self.ngram_file, NGRAMS)]
        return [file for file in files if file.exists()]

    def vocabulary_files(self) -> list[Path]:
        """Those that exist."""
        return [self.path / name for name in VOCABULARIES if (self.path / name).exists()]

    @property
    def fit_is_unfinished(self) -> bool:
        """Whether ``fit`` has begun this run, and not finished it: its models can be those of the pairs, not tuned."""
        return (self.path / WORK / PLAN).exists() and not (self.path / FIT).exists()

    def finished(self, role: str) -> bool:
        return self.model_file(role).exists() and not self.state_file(role).exists()

    def unfinished(self, roles: Iterable[str]) -> list[str]:
        """One warning for each of these models whose training was interrupted."""
        warnings = []
        for role in roles:
            if self.state_file(role).exists():
                has_model = self.model_file(role).exists()
                best = "this is its best model so far" if has_model else "it has no model yet"
                warnings.append(
                    f"{self.path}: the training of {role} is unfinished, {best}; finish it with {self.training()}"
                )
        return warnings

    def adding(self, role: str) -> str:
        """The command that adds a model."""
        return f"train it: {self.training()} --models {role}"

    def training_again(self, role: str) -> str:
        """The command that trains one model anew."""
        return f"train it again: {shlex.join(['rm', '-rf', str(self.model_dir(role))])} && {self.training()}"

    def counting_again(self, file: Path | None = None) -> str:
        """The command that counts anew what is in a file; the training pairs if not given."""
        return f"count again: {shlex.join(['rm', '-f', str(file or self.seen_file)])} && {self.training()}"

    def adding_seen(self) -> str:
        """The command that counts the training pairs of a run of an earlier version."""
        return f"count them, which trains nothing: {self.training()}"

    def adding_ngram(self, name: str) -> str:
        """The command that adds an n-gram model to a run."""
        return f"add it, which trains nothing: {self.training()} --ngrams.{name} 3"

    def starting_over(self) -> str:
        """The command that trains everything anew."""
        return f"start over: {self.training()} --overwrite"

    def training(self) -> str:
        """The command that trains what is missing."""
        # A run that was moved or copied has another path than its configuration says.
        whole = self.path.parent if (self.path.parent / "run.json").exists() else self.path
        config = self.config_file if self.config_file.exists() else whole / "config.yaml"
        return shlex.join(["noisychannel", "train", str(config), "--run-dir", str(whole)])


def run_that_owns(file: Path) -> Path | None:
    """The run directory of which this is, or would be, one of its own files; None if there is none."""
    resolved = file.resolve()
    for directory in resolved.parents:
        own = (*ROLES, *OWN_FILES, *HIDDEN_FILES, *VOCABULARIES)
        if resolved.relative_to(directory).parts[0] in own and (directory / "run.json").exists():
            return directory
    return None


def directory_name(group: str) -> str:
    """The name of a group as that of a directory: readable, not hidden, not one of the run's own, not too long."""
    name = re.sub(r"[/\\%\x00-\x1f\x7f]", lambda match: f"%{ord(match[0]):02X}", group)
    if name.startswith(".") or name in (*ROLES, *OWN_FILES):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name.encode()) > LONGEST_NAME:
        digest = hashlib.sha256(group.encode()).hexdigest()[:16]
        name = name.encode()[: LONGEST_NAME - 20].decode(errors="ignore") + f"…{digest}"
    return name
