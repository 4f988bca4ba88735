"""The state of an unfinished training. A training that was killed resumes from it with exactly the same result.

Random numbers are not part of it: every update seeds them from (seed, role, step, rank), and the order of every epoch
comes from (seed, epoch). So the state is a few numbers, the weights, and the moments of Adam.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noisychannel.errors import NoisyChannelError
from noisychannel.schemas import InfiniteRecord, damaged, parse_record
from noisychannel.tensors import load_metadata, load_tensors, save_tensors, tensors_checksum
from noisychannel.training.config import Limits


@dataclass
class TrainingState(InfiniteRecord):
    """The numbers that change from update to update."""

    learning_rate: float
    data: str
    """The fingerprint of the training corpus."""
    threads: int = 0
    """CPU threads of each operation, which decide the rounding; 0 if a version before 0.3 has not recorded them."""
    role: str = ""
    """Whose state it is; empty if a version before 0.3 has not recorded it."""
    epoch: int = 0
    position: int = 0
    """Updates done in this epoch."""
    step: int = 0
    """Updates done in total."""
    best_loss: float = math.inf
    best_step: int = 0
    since_best: int = 0
    """Evaluations since the best one."""
    evaluated_step: int = 0
    """The step of the last evaluation on dev."""
    interval_loss: float = 0.0
    """Summed -log p since the last training record."""
    interval_symbols: int = 0
    dev_pairs: int = 0
    """Those that evaluations use; 0 if all, as in versions before 0.6."""

    def __post_init__(self) -> None:
        counts = (
            "epoch",
            "position",
            "step",
            "best_step",
            "since_best",
            "evaluated_step",
            "interval_symbols",
            "dev_pairs",
        )
        for name in counts:
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: must not be negative, but is {getattr(self, name)}")
        if not 0 <= self.learning_rate < math.inf or math.isnan(self.best_loss):
            raise ValueError(f"learning_rate {self.learning_rate} and best_loss {self.best_loss}")

    def at_limit(self, limits: Limits) -> bool:
        """Whether a training with these limits ends here."""
        return self.step >= limits.updates or self.epoch >= limits.epochs

    def save(self, file: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for n, moments in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{n}.{name}": tensor for name, tensor in moments.items()}
        on_cpu = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        numbers = json.dumps(asdict(self))
        save_tensors(file, on_cpu, {"state": numbers, "checksum": _checksum(on_cpu, numbers)})

    @staticmethod
    def verified(file: Path, role: str, data: str) -> tuple[TrainingState, dict[str, Tensor]]:
        """The numbers and the tensors. An error if they are damaged, of another role, or of other data."""
        tensors, metadata = load_tensors(file)
        state, again = _state(file, metadata), _training_again(file)
        recorded = metadata.get("checksum")  # versions before 0.3 have none
        if recorded is not None and recorded != _checksum(tensors, metadata["state"]):
            raise damaged(file, "not what was saved: it has another checksum", again)
        if state.role not in ("", role):
            raise NoisyChannelError(
                f"{file}: the state of the {state.role} model, not of the {role} model; restore it from a copy, "
                f"or {again}"
            )
        if state.data != data:
            raise NoisyChannelError(
                f"{file}: the training data has changed since; restore it, or start over (--overwrite)"
            )
        return state, tensors

    @staticmethod
    def load(file: Path, model: nn.Module, optimiser: torch.optim.Optimizer, role: str, data: str) -> TrainingState:
        """Restore model and optimiser from a state that is ``verified``."""
        state, tensors = TrainingState.verified(file, role, data)
        weights = {k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")}
        moments: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            if key.startswith("optimiser."):
                _, n, name = key.split(".")
                moments.setdefault(int(n), {})[name] = tensor
        if not _fits(model, weights, moments):
            raise NoisyChannelError(
                f"{file}: not the state of this model; restore it from a copy, or {_training_again(file)}"
            )
        model.load_state_dict(weights)
        optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
        return state

    @staticmethod
    def read(file: Path) -> TrainingState:
        """The numbers only, without the tensors."""
        return _state(file, load_metadata(file))


def _state(file: Path, metadata: Mapping[str, str]) -> TrainingState:
    return parse_record(metadata.get("state", ""), TrainingState, file, _training_again(file))


def _checksum(tensors: Mapping[str, Tensor], numbers: str) -> str:
    """Of everything in a state."""
    return hashlib.sha256(f"{tensors_checksum(tensors)} {numbers}".encode()).hexdigest()


def _training_again(file: Path) -> str:
    return f"remove {file.parent} and train again"


def _fits(model: nn.Module, weights: Mapping[str, Tensor], moments: Mapping[int, Mapping[str, Tensor]]) -> bool:
    """Whether these are the weights of a model, and moments of Adam for its parameters."""
    shapes = [{name: tensor.shape for name, tensor in each.items()} for each in (weights, model.state_dict())]
    parameters = list(model.parameters())
    return shapes[0] == shapes[1] and all(
        n < len(parameters) and tensor.shape in ((), parameters[n].shape)
        for n, of_parameter in moments.items()
        for tensor in of_parameter.values()
    )


def derive_seed(*parts: object) -> int:
    """A seed that depends on all of ``parts``, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7])
