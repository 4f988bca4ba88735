"""The items that people compare: those that both systems have, and on which their outputs differ."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from noisychannel.errors import BadInputError, did_you_mean
from noisychannel.prefer.outputs import ItemKey, SystemOutputs


class Pair(NamedTuple):
    """An item with two outputs."""

    key: ItemKey
    references: tuple[str, ...]
    a: str
    b: str


@dataclass(frozen=True)
class Comparison:
    """Two systems on the items that are to be rated."""

    a: str
    """The name of the first system."""
    b: str
    pairs: list[Pair]
    """In the order in which they are shown."""
    seed: int
    common: int
    """Items that both systems have."""
    equal: int
    """Of these, items on which the outputs are the same. They are not shown."""

    @property
    def differing(self) -> int:
        return self.common - self.equal


def compare(
    a: SystemOutputs, b: SystemOutputs, items: int, seed: int, parts: Collection[str] | None = None
) -> Comparison:
    """At most so many items, drawn with ``seed``. ``parts``: of these parts or groups only."""
    common = [key for key in a.items if key in b.items and (parts is None or key.place in parts)]
    places = list(dict.fromkeys(key.place for key in (*a.items, *b.items)))
    for part in parts or ():
        if part not in places:
            named = [place for place in places if place]
            where = did_you_mean(part, named) if named else "; the files have no parts: leave --parts out"
            raise BadInputError(f"--parts: no item belongs to {part!r}{where}")
    if not common:
        raise BadInputError(
            f"{a.source} and {b.source} have no item in common; they must be outputs for the same inputs (and tags)"
        )
    differing = [
        Pair(key, a.items[key].references or b.items[key].references, a.items[key].output, b.items[key].output)
        for key in common
        if not _look_alike(a.items[key].output, b.items[key].output)
    ]
    if not differing:
        raise BadInputError(
            f"{a.source} and {b.source} have the same outputs on all {len(common)} items; there is nothing to compare"
        )
    random.Random(seed).shuffle(differing)
    # Names in the key file and in tables must differ.
    names = (a.name, b.name) if a.name != b.name else (a.source, b.source)
    return Comparison(*names, differing[:items], seed, len(common), len(common) - len(differing))


def _look_alike(one: str, other: str) -> bool:
    """Whether people would see the same text twice."""
    return _as_seen(one) == _as_seen(other)


def _as_seen(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
