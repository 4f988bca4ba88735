"""The key of a page: which output is of which system. Raters get the page, and never this file.

Sides and ids are drawn by the operating system, not with the seed of the items: whoever knows this program and guesses
the seed cannot compute them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from noisychannel import __version__
from noisychannel.errors import BadInputError
from noisychannel.schemas import ClosedRecord, parse_record, read_content

if TYPE_CHECKING:
    from noisychannel.prefer.pairing import Comparison  # which imports torch; a server needs neither

FORMAT = 1
AGAIN = "make another page, which needs new ratings"

System = Literal["A", "B"]


@dataclass(frozen=True)
class KeyItem(ClosedRecord):
    """One item of the page, unveiled."""

    id: str
    first: System
    """Whose output is the first of the two in the page."""
    input: str
    a: str
    b: str
    place: str = ""
    features: tuple[str, ...] = ()

    def system(self, side: Literal["first", "second"]) -> System:
        """Whose output stands there."""
        other: System = "B" if self.first == "A" else "A"
        return self.first if side == "first" else other


@dataclass(frozen=True)
class Key(ClosedRecord):
    """What ``tally`` needs besides the ratings."""

    format: int
    noisychannel: str
    page: str
    """The fingerprint of the page, which every rating has, too."""
    a: str
    """The name of system A."""
    b: str
    seed: int
    """Which items were drawn."""
    common: int
    equal: int
    references: bool
    """Whether the raters saw what is right."""
    items: list[KeyItem]

    def __post_init__(self) -> None:
        if len({item.id for item in self.items}) < len(self.items):
            raise ValueError("an item has two entries")

    def json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def read(file: Path) -> Key:
        if not file.is_file():
            raise BadInputError(f"{file}: no such file; name the key that was written beside the page")
        content = read_content(file, AGAIN)
        if not _may_be_key(content):
            raise BadInputError(f"{file} is no key (is it a file of ratings?); name the key written beside the page")
        return parse_record(content, Key, file, AGAIN, [FORMAT])


def _may_be_key(content: bytes) -> bool:
    """Whether it is a key, if perhaps a damaged one; a file of ratings has an object in its first line."""
    first = content.lstrip().split(b"\n", 1)[0]
    if not first.startswith(b"{"):
        return False
    try:
        record = json.loads(first)
    except ValueError:
        return True
    return isinstance(record, dict) and "items" in record


def key_file(page: Path) -> Path:
    """Where the key of a page is."""
    return page.with_suffix(".key.json")


def draw_sides(comparison: Comparison, secret: int | None = None) -> list[KeyItem]:
    """Each item with an id that says nothing, and the side of each system: A is first in half of the items."""
    # Not a generator with a secret seed: from the ids of some hundred items one can compute what it drew before them.
    drawn = random.SystemRandom() if secret is None else random.Random(secret)
    count = len(comparison.pairs)
    a: System = "A"
    b: System = "B"
    halves = [a, b] * (count // 2)
    if count % 2:
        halves.append(a if drawn.getrandbits(1) else b)
    drawn.shuffle(halves)
    return [
        KeyItem(name, first, pair.key.input, pair.a, pair.b, pair.key.place, pair.key.features)
        for name, first, pair in zip(_ids(drawn, count), halves, comparison.pairs, strict=True)
    ]


def make_key(comparison: Comparison, items: Sequence[KeyItem], page: str, references: bool) -> Key:
    return Key(
        FORMAT,
        __version__,
        page,
        comparison.a,
        comparison.b,
        comparison.seed,
        comparison.common,
        comparison.equal,
        references,
        list(items),
    )


def _ids(drawn: random.Random, count: int) -> list[str]:
    """So many different ids."""
    ids: dict[str, None] = {}
    while len(ids) < count:
        ids[f"{drawn.getrandbits(40):010x}"] = None
    return list(ids)
