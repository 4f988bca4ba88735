"""What a user should know about outputs: which are incomplete, and what of their inputs the models do not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from noisychannel.data.codec import Unknown

NAMED = 5
"""Different symbols that are named; the others are only counted."""


@dataclass
class _Count:
    """How often something occurred, where first, and the first few of its names."""

    number: int = 0
    where: str = ""
    names: dict[str, None] = field(default_factory=dict)

    def add(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            self.number += 1
            self.where = self.where or where
            if len(self.names) <= NAMED:
                self.names.setdefault(name)

    def of(self, noun: str) -> str:
        return f"{self.number} {noun}" + ("" if self.number == 1 else "s")


class Remarks:
    """Counts over many inputs, for one line at the end."""

    def __init__(self) -> None:
        self._incomplete, self._symbols, self._features = _Count(), _Count(), _Count()

    def add(self, where: str, unknown: Unknown, complete: bool = True) -> None:
        """One input, or one of its given outputs."""
        self._incomplete.add(where, [] if complete else [""])
        self._symbols.add(where, unknown.symbols)
        self._features.add(where, unknown.features)

    def record(self) -> dict[str, Any]:
        """For JSON, such as ``resumed`` reads."""
        return {name: asdict(count) | {"names": list(count.names)} for name, count in self._counts().items()}

    @staticmethod
    def resumed(record: Mapping[str, Any]) -> Remarks:
        """The remarks of a record, to be continued."""
        remarks = Remarks()
        for name, count in remarks._counts().items():
            count.number, count.where = record[name]["number"], record[name]["where"]
            count.names = dict.fromkeys(record[name]["names"])
        return remarks

    def _counts(self) -> dict[str, _Count]:
        return {"incomplete": self._incomplete, "symbols": self._symbols, "features": self._features}

    def line(self) -> str:
        """All remarks; empty if there are none."""
        remarks = []
        if self._incomplete.number:
            remarks.append(
                f"{self._incomplete.of('incomplete output')} (first: {self._incomplete.where}): the search found no "
                "end; widen it with --max_length, --max_growth, --k1 or --k2"
            )
        for noun, unknown in (("unknown symbol", self._symbols), ("unknown feature", self._features)):
            if unknown.number:
                remarks.append(
                    f"{unknown.of(noun)}, read as <unk>: {first_names(unknown.names)} (first: {unknown.where})"
                )
        return "; ".join(remarks)


def first_names(symbols: Iterable[str]) -> str:
    """The first few different ones."""
    different = list(dict.fromkeys(symbols))
    return ", ".join([*map(repr, different[:NAMED]), *(["…"] if len(different) > NAMED else [])])
