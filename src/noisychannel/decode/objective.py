"""The objective of the search: equation (3) of the paper, and further named terms.

O(x, y) = w_direct·log q(y|x) + w_channel·log p(x|y) + w_lm·log p(y) + w_length·|y| + Σ_n w_n·term_n(x, y)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from noisychannel.errors import shortened

TERMS = ("direct", "channel", "lm", "length")
"""The terms of equation (3), λ1 to λ4, in the order of every weight vector."""
LARGEST = 1e30
"""A larger weight makes objectives overflow."""
NAME = re.compile(r"[a-z][a-z0-9_]*")
Numbers = TypeVar("Numbers", Tensor, npt.NDArray[np.float64])


@dataclass(frozen=True)
class Weights:
    """The weights of the objective. A weight of zero switches a term off; its model is then not needed and not run."""

    direct: float = 1.0
    channel: float = 0.0
    lm: float = 0.0
    length: float = 0.0
    extra: Mapping[str, float] = field(default_factory=dict)
    """The weights of further terms, by name."""

    def __post_init__(self) -> None:
        for name in self.extra:
            if name in TERMS or not NAME.fullmatch(name):
                raise ValueError(
                    f"a further term cannot be named {name!r}; use lower-case letters, digits and underscores, "
                    f"and none of {', '.join(TERMS)}"
                )
        for name, value in self.by_name().items():
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise ValueError(f"the weight {name} must be a finite number, but is {value!r}")
            if abs(value) > LARGEST:
                raise ValueError(f"the weight {name} must be between -{LARGEST:g} and {LARGEST:g}, but is {value}")
        if not any(value for name, value in self.by_name().items() if name != "length"):
            models = "; only the length has a weight" if self.length else ""
            raise ValueError(f"all weights of models are zero{models}: nothing to maximise; give one a weight")

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.by_name().items())))

    @staticmethod
    def of(by_name: Mapping[str, float]) -> Weights:
        """The weights of these names; a name that is not one of the four terms is a further term."""
        first = {name: value for name, value in by_name.items() if name in TERMS}
        return Weights(**first, extra={name: value for name, value in by_name.items() if name not in TERMS})

    @staticmethod
    def parse(text: str) -> Weights:
        """``1,0.5,0.3,0.2`` (direct, channel, lm, length), or by name: ``direct=1,lm=0.5,word_list=3``."""
        items = [item.strip() for item in text.split(",")]
        if all("=" in item for item in items):
            named = [(name.strip(), value) for name, value in (item.split("=", 1) for item in items)]
            if len(dict(named)) < len(named):
                raise ValueError(f"a weight is given twice in {text!r}")
            return Weights.of({"direct": 0.0, **{name: _number(name, value) for name, value in named}})
        if len(items) == len(TERMS):
            return Weights.of(dict(zip(TERMS, map(_number, TERMS, items), strict=True)))
        raise ValueError(f"give four numbers ({','.join(TERMS)}) or names, such as direct=1,lm=0.5, not {text!r}")

    def by_name(self) -> dict[str, float]:
        """All weights, the four of the paper first."""
        return {name: getattr(self, name) for name in TERMS} | dict(self.extra)

    def combine(self, direct: Numbers, terms: Mapping[str, Numbers], length: int) -> Numbers:
        """Equation (3) for hypotheses of one length; a term that was not computed is absent from ``terms``."""
        # 0 · -inf is nan, so a weight of zero must not meet the -inf of a cell that cannot be reached.
        total = self.direct * direct if self.direct else _zero_if_reached(direct)
        for name, weight in {"channel": self.channel, "lm": self.lm, **self.extra}.items():
            if weight and name in terms:
                total = total + weight * terms[name]
        return total + self.length * length


def _zero_if_reached(direct: Numbers) -> Numbers:
    if isinstance(direct, Tensor):
        return direct.masked_fill(direct > -math.inf, 0.0)
    return np.where(direct > -math.inf, 0.0, direct)


def check_kind(name: str, value: object, cls: type) -> None:
    """Refuse an argument that is no instance of its class."""
    if not isinstance(value, cls):
        raise ValueError(f"{name}: must be {cls.__name__}(...), but is {shortened(value)}")


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the weight {name} must be a number, but is {text.strip()!r}") from None
