"""The state of an unfinished training. A training that was killed resumes from it with exactly the same result.

Random numbers are not part of it: every update seeds them from (seed, role, step, rank), and the order of every epoch
comes from (seed, epoch). So the state is a few numbers, the weights, and the moments of Adam.
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
    """The numbers that change from update to update."""

    learning_rate: float
    data: str
    """The fingerprint of the training corpus."""
    threads: int = 0
    """CPU threads of each operation, which decide the rounding; 0 if a version before 0.3 has not recorded them."""
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

    def at_limit(self, limits: Limits) -> bool:
        """Whether a training with these limits ends here."""
        return self.step >= limits.updates or self.epoch >= limits.epochs

    def save(self, file: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for n, moments in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{n}.{name}": tensor for name, tensor in moments.items()}
        save_tensors(file, tensors, {"state": json.dumps(asdict(self))})

    @staticmethod
    def load(file: Path, model: nn.Module, optimiser: torch.optim.Optimizer, data: str) -> TrainingState:
        """Restore model and optimiser. An error if the data has changed since."""
        tensors, metadata = load_tensors(file)
        state = TrainingState(**_record(file, metadata))
        if state.data != data:
            raise NoisyChannelError(
                f"{file}: the training data has changed since; restore it, or start over (--overwrite)"
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
        """The numbers only, without the tensors."""
        return TrainingState(**_record(file, load_metadata(file)))


def _record(file: Path, metadata: dict[str, str]) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(metadata["state"])
    except (KeyError, ValueError) as error:
        raise NoisyChannelError(f"{file}: damaged; remove {file.parent} and train again") from error
    return record


def derive_seed(*parts: object) -> int:
    """A seed that depends on all of ``parts``, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7])
