"""The systems of the paper: which weights of the objective a system fixes, and which it leaves to the tuner.

    O(x, y) = w_direct·log q(y|x) + w_channel·log p(x|y) + w_lm·log p(y) + w_length·|y|

Only the ratios of the weights matter, so every system keeps one weight at 1. A weight that is neither free nor fixed to
something other than zero is *barred*: it is zero, and its model need not be run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from noisychannel.decode.objective import Weights
from noisychannel.metrics import FloatArray

TERMS = ("direct", "channel", "lm", "length")
"""The order of the four terms in every weight vector and every array of terms."""


def vector(weights: Weights) -> FloatArray:
    """The weights as an array [4], in float64 whatever the numbers were given as."""
    return np.array([getattr(weights, name) for name in TERMS], np.float64)


def from_vector(values_4: FloatArray) -> Weights:
    """The weights of an array [4]."""
    return Weights(**dict(zip(TERMS, map(float, values_4), strict=True)))


@dataclass(frozen=True)
class FreeWeight:
    """A weight that the tuner may move."""

    name: str
    """One of ``TERMS``."""
    low: float
    """Where the random search begins."""
    high: float
    """Where the random search ends; the line search may go beyond."""
    floor: float
    """What no search goes below: a negative weight would reward what a model finds improbable."""
    start: float
    """Where tuning begins, unless told otherwise."""


@dataclass(frozen=True)
class System:
    """A set of models that decode together."""

    name: str
    fixed: Weights
    """The weights that stay; those that are free are zero here."""
    free: tuple[FreeWeight, ...]

    @property
    def start(self) -> Weights:
        """Weights under which every model of the system is run."""
        return replace(self.fixed, **{free.name: free.start for free in self.free})

    @property
    def used(self) -> tuple[bool, bool, bool, bool]:
        """For each of the four terms, whether it can weigh anything."""
        free = {weight.name for weight in self.free}
        direct, channel, lm, length = (name in free or getattr(self.fixed, name) != 0 for name in TERMS)
        return direct, channel, lm, length

    @property
    def corners(self) -> list[Weights]:
        """Plain weights from which to search: nothing beside the fixed ones, each free model alone, all of them."""
        models = [free.name for free in self.free if free.name != "length"]
        sets = [[], *([name] for name in models), models]
        return list(dict.fromkeys(replace(self.fixed, **dict.fromkeys(names, 1.0)) for names in sets))

    def contains(self, other: System) -> bool:
        """Whether any weights of the other are weights that this one can have."""
        return self.fixed == other.fixed and set(other.free) <= set(self.free)

    def check(self, weights: Weights) -> None:
        """Refuse weights that this system cannot have."""
        free = {weight.name: weight for weight in self.free}
        for name in TERMS:
            value = getattr(weights, name)
            if name not in free and value != getattr(self.fixed, name):
                raise ValueError(
                    f"the weight {name} of the system {self.name} is {getattr(self.fixed, name)}, not {value}"
                )
            if name in free and value < free[name].floor:
                raise ValueError(
                    f"the weight {name} of the system {self.name} is at least {free[name].floor}, not {value}"
                )


CHANNEL = FreeWeight("channel", low=0.0, high=5.0, floor=0.0, start=1.0)
LM = FreeWeight("lm", low=0.0, high=5.0, floor=0.0, start=1.0)
LENGTH = FreeWeight("length", low=-5.0, high=10.0, floor=-math.inf, start=0.0)

DIRECT_ONLY = Weights(direct=1.0)
CHANNEL_ONLY = Weights(direct=0.0, channel=1.0)

SYSTEMS = {
    system.name: system
    for system in (
        System("direct", DIRECT_ONLY, ()),
        System("direct+length", DIRECT_ONLY, (LENGTH,)),
        System("direct+lm", DIRECT_ONLY, (LM, LENGTH)),
        System("channel+lm", CHANNEL_ONLY, (LM, LENGTH)),
        System("direct+channel+lm", DIRECT_ONLY, (CHANNEL, LM, LENGTH)),
    )
}
"""By name; those with a language model or a channel carry the length bias too, as in the paper."""
