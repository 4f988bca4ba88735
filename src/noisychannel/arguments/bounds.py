"""Which numbers a field of a dataclass may have: said once, in its type, for the check and for ``--help``.

    seed: Seed = 1
    dropout: Annotated[float, Bounds(least=0, below=1)] = 0.2

``arguments`` checks every value that a user gives. A dataclass that can also be made in Python calls ``check_bounds``
in its ``__post_init__``. Without bounds, a float must be finite and a whole number is at most ``LARGEST``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from noisychannel.arguments.kinds import expected
from noisychannel.errors import BadInputError, shortened

LARGEST = 2**40
"""Of whole numbers without a bound of their own: products of such a number and a small one fit into 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """An interval; ends that are None are open."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def contains(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """In words, such as ``at least 0 and less than 1``."""
        ends = {"at least": self.least, "greater than": self.above, "at most": self.most, "less than": self.below}
        return " and ".join(f"{words} {end}" for words, end in ends.items() if end is not None)


Count: TypeAlias = Annotated[int, Bounds(least=1)]
"""How many there are of something that is needed."""
CountOrZero: TypeAlias = Annotated[int, Bounds(least=0)]
Seed: TypeAlias = Annotated[int, Bounds(least=0, most=2**32 - 1)]
"""What every source of random numbers takes."""
Positive: TypeAlias = Annotated[float, Bounds(above=0)]
"""Such as a learning rate."""


@cache
def all_bounds(cls: type, prefix: str = "") -> dict[str, Bounds]:
    """The bounds of every dotted key of a dataclass that has some."""
    plain = get_type_hints(cls)
    found: dict[str, Bounds] = {}
    for name, kind in get_type_hints(cls, include_extras=True).items():
        if isinstance(plain[name], type) and is_dataclass(plain[name]):
            section: Any = plain[name]
            found |= all_bounds(section, f"{prefix}{name}.")
        else:
            found |= {f"{prefix}{name}": note for note in _notes(kind) if isinstance(note, Bounds)}
    return found


def check_bounds(values: Any, prefix: str = "") -> None:
    """Refuse a dataclass, with its sections, in which a number is no number or outside its bounds."""
    cls: Any = type(values)
    bounds = all_bounds(cls)
    for name, kind in get_type_hints(cls).items():
        value = getattr(values, name)
        if isinstance(kind, type) and is_dataclass(kind):
            check_bounds(value, f"{prefix}{name}.")
        else:
            check_number(value, kind, bounds.get(name), f"{prefix}{name}")


def check_number(value: Any, kind: Any, bounds: Bounds | None, where: str) -> None:
    """Refuse a number that its type or its bounds do not allow; what is not meant to be a number is not checked."""
    kinds = set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}
    if not kinds & {int, float} or (value is None and type(None) in kinds):
        return
    if isinstance(value, bool) or not isinstance(value, Real if float in kinds else Integral):
        raise BadInputError(f"{where}: must be {expected(kind)}, but is {shortened(value)}")
    if not isinstance(value, Integral) and not math.isfinite(value):
        raise BadInputError(f"{where}: must be a finite number, but is {value}")
    if bounds is not None and not bounds.contains(value):  # type: ignore[arg-type]
        raise BadInputError(f"{where}: must be {bounds}, but is {shortened(value)}")
    if isinstance(value, Integral) and abs(int(value)) > LARGEST:
        raise BadInputError(f"{where}: must be at most {LARGEST}, but is {shortened(value)}")


def _notes(kind: Any) -> Iterator[Any]:
    """What ``Annotated`` says of a type, or of one of the alternatives of a type."""
    yield from getattr(kind, "__metadata__", ())
    for one in get_args(kind):
        yield from getattr(one, "__metadata__", ())
