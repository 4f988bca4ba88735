"""The state of an unfinished training: saved so that a killed training goes on as if nothing had happened.

Random numbers are not part of it. Every update seeds them anew from (seed, role, step, rank), and every epoch's
order from (seed, epoch), so where a training stands is a few numbers, the weights, and Adam's moments.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from noisychannel.errors import NoisyChannelError
from noisychannel.tensors import load_metadata, load_tensors, save_tensors
from noisychannel.training.config import Limits


@dataclass
class TrainingState:
    """Where a training stands; all that changes from update to update besides the tensors."""

    learning_rate: float
    data: str
    """Fingerprint of the training corpus."""
    epoch: int = 0
    position: int = 0
    """Updates done in this epoch."""
    step: int = 0
    """Updates done in all."""
    best_loss: float = math.inf
    best_step: int = 0
    since_best: int = 0
    """Evaluations since the best."""
    evaluated_step: int = 0
    """When dev was last looked at."""
    interval_loss: float = 0.0
    """Summed -log p since the last training record."""
    interval_symbols: int = 0

    def at_limit(self, limits: Limits) -> bool:
        """Whether a training with these limits goes no further than this."""
        return self.step >= limits.updates or self.epoch >= limits.epochs

    def save(self, file: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for n, moments in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{n}.{name}": tensor for name, tensor in moments.items()}
        save_tensors(file, tensors, {"state": json.dumps(asdict(self))})

    @staticmethod
    def load(file: Path, model: nn.Module, optimiser: torch.optim.Optimizer, data: str) -> TrainingState:
        """Put model and optimiser back to where they were; refused if the data has changed since."""
        tensors, metadata = load_tensors(file)
        state = TrainingState(**_record(file, metadata))
        if state.data != data:
            raise NoisyChannelError(
                f"{file}: the training data has changed since it was written; restore it, or start anew (--overwrite)"
            )
        model.load_state_dict({k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")})
        moments: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            if key.startswith("optimiser."):
                _, n, name = key.split(".")
                moments.setdefault(int(n), {})[name] = tensor
        optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
        return state

    @staticmethod
    def read(file: Path) -> TrainingState:
        """How far a training has come, without its tensors."""
        return TrainingState(**_record(file, load_metadata(file)))


def _record(file: Path, metadata: dict[str, str]) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(metadata["state"])
    except (KeyError, ValueError) as error:
        raise NoisyChannelError(f"{file}: damaged; remove {file.parent} and repeat the command") from error
    return record


def derive_seed(*parts: object) -> int:
    """A seed that depends on all of ``parts``, alike on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7])
