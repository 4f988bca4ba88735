"""What a user should know about outputs: which are incomplete, and what of their inputs the models do not know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from noisychannel.data.codec import Unknown
from noisychannel.schemas import Record

NAMED = 5
"""Different symbols that are named; the others are only counted."""


@dataclass
class Count(Record):
    """How often something occurred, where first, and the first few of its names."""

    number: int = 0
    where: str = ""
    names: list[str] = field(default_factory=list)

    def add(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            self.number += 1
            self.where = self.where or where
            if len(self.names) <= NAMED and name not in self.names:
                self.names.append(name)

    def of(self, noun: str) -> str:
        return f"{self.number} {noun}" + ("" if self.number == 1 else "s")


@dataclass
class Remarks(Record):
    """Counts over many inputs, for one line at the end."""

    incomplete: Count = field(default_factory=Count)
    symbols: Count = field(default_factory=Count)
    features: Count = field(default_factory=Count)

    def add(self, where: str, unknown: Unknown, complete: bool = True) -> None:
        """One input, or one of its given outputs."""
        self.incomplete.add(where, [] if complete else [""])
        self.symbols.add(where, unknown.symbols)
        self.features.add(where, unknown.features)

    def line(self) -> str:
        """All remarks; empty if there are none."""
        remarks = []
        if self.incomplete.number:
            remarks.append(
                f"{self.incomplete.of('incomplete output')} (first: {self.incomplete.where}): the search found no "
                "end; widen it with --max-length, --max-growth or --k2"
            )
        for noun, unknown in (("unknown symbol", self.symbols), ("unknown feature", self.features)):
            if unknown.number:
                remarks.append(
                    f"{unknown.of(noun)}, read as <unk>: {first_names(unknown.names)} (first: {unknown.where})"
                )
        return "; ".join(remarks)


def first_names(symbols: Iterable[str]) -> str:
    """The first few different ones."""
    different = list(dict.fromkeys(symbols))
    return ", ".join([*map(repr, different[:NAMED]), *(["…"] if len(different) > NAMED else [])])
