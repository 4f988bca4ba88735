"""What a client asks of a run: the settings that inputs of one batch share, and the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from noisychannel.decode.objective import Weights
from noisychannel.errors import BadInputError

Kind = Literal["decode", "explain", "score", "rerank"]


@dataclass(frozen=True)
class TaskSettings:
    """Inputs with equal settings can be decoded together."""

    kind: Kind
    system: str
    weights: Weights
    n_best: int = 1


class Task(NamedTuple):
    """One input, with given outputs if they are to be scored or ranked."""

    text: str
    features: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class RefusedTaskError(BadInputError):
    """One input that cannot be used; the others can."""


class UnknownNameError(BadInputError):
    """A run or a system that is not served."""
