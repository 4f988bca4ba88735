"""Wrong outputs grouped by what is wrong with them, in words: ``a instead of ä``, ``missing e at the end``.

An output is aligned with its nearest reference, symbol by symbol (``data/edits.py``). Neighbouring symbols that differ
are one difference. An output with several differences belongs to the kind of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from noisychannel.data.edits import Cell, align
from noisychannel.evaluation.metrics import levenshtein

MOST_DIFFERENCES = 3
"""An output with more of them is of one kind."""
LONGEST = 4
"""Symbols of a difference that a kind names."""
EXAMPLES = 3
INCOMPLETE = "no end found"
EMPTY = "nothing written"
CASE = "upper or lower case"


@dataclass(frozen=True)
class Judged:
    """An item with what a system made of it."""

    input: str
    output: str
    references: Sequence[str]
    complete: bool = True
    characters: bool = True
    """Whether symbols are characters; else they are words."""
    seen: bool | None = None
    """Whether the training pairs have the input with its features; None if that is not known."""
    direct_right: bool | None = None
    """Whether the direct model alone is right; None if it is the system."""

    @property
    def right(self) -> bool:
        return self.output in self.references

    @property
    def nearest(self) -> str:
        if len(self.references) == 1:
            return self.references[0]
        return min(self.references, key=lambda reference: levenshtein(self.output, reference))


@dataclass(frozen=True)
class Example:
    """A wrong output."""

    input: str
    output: str
    reference: str


@dataclass
class ErrorKind:
    """Wrong outputs with the same difference."""

    kind: str
    share: float = 0.0
    """Of all wrong outputs, in per cent."""
    seen: int | None = None
    """How many of their inputs are in the training pairs."""
    direct_right: int | None = None
    """How many of them the direct model alone gets right."""
    items: list[int] = field(default_factory=list)
    """Which of the test items, counted from 0."""
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class Errors:
    """All wrong outputs of a system."""

    system: str
    items: int
    wrong: int
    direct_right: int | None
    """Wrong outputs that the direct model alone gets right."""
    seen_items: int | None
    """Items whose input is in the training pairs, and how many of them are right; None if that is not known."""
    seen_right: int | None
    kinds: list[ErrorKind]
    """Most frequent first."""


def group_errors(system: str, judged: Sequence[Judged]) -> Errors:
    """The wrong outputs of a system by kind."""
    wrong = [n for n, one in enumerate(judged) if not one.right]
    kinds: dict[str, ErrorKind] = {}
    for n in wrong:
        for name in kinds_of(judged[n]):
            kind = kinds.setdefault(name, ErrorKind(name))
            kind.items.append(n)
            example = Example(judged[n].input, judged[n].output, judged[n].nearest)
            if len(kind.examples) < EXAMPLES and example not in kind.examples:
                kind.examples.append(example)
    for kind in kinds.values():
        kind.share = 100 * len(kind.items) / len(wrong)
        kind.seen = _count([judged[n].seen for n in kind.items])
        kind.direct_right = _count([judged[n].direct_right for n in kind.items])
    seen = [one for one in judged if one.seen]
    known = _count([one.seen for one in judged]) is not None
    return Errors(
        system,
        len(judged),
        len(wrong),
        _count([judged[n].direct_right for n in wrong]),
        len(seen) if known else None,
        sum(one.right for one in seen) if known else None,
        sorted(kinds.values(), key=lambda kind: (-len(kind.items), kind.kind)),
    )


def kinds_of(wrong: Judged) -> list[str]:
    """What is wrong with an output, each kind once, in order."""
    if not wrong.complete:
        return [INCOMPLETE]
    if not wrong.output:
        return [EMPTY]
    reference = wrong.nearest
    if wrong.output.lower() == reference.lower():
        return [CASE]
    sides = [list(text) if wrong.characters else text.split() for text in (wrong.output, reference)]
    names = [_name(*difference, wrong.characters) for difference in differences(align(*sides))]
    if len(names) > MOST_DIFFERENCES:
        return [f"more than {MOST_DIFFERENCES} differences"]
    return list(dict.fromkeys(names))


def differences(cells: Sequence[Cell]) -> Iterator[tuple[list[str], list[str], str]]:
    """Longest stretches of cells whose symbols differ: both sides without gaps, and the place, if it is an end."""
    start = 0
    while start < len(cells):
        end = start
        while end < len(cells) and cells[end][0] != cells[end][1]:
            end += 1
        if end > start:
            place = " at the end" if end == len(cells) else " at the beginning" if start == 0 else ""
            left, right = ([symbol for cell in cells[start:end] if (symbol := cell[side])] for side in (0, 1))
            yield left, right, place
        start = end + 1


def _name(written: Sequence[str], wanted: Sequence[str], place: str, characters: bool) -> str:
    """A difference in words."""
    if max(len(written), len(wanted)) > LONGEST:
        what = f"more than {LONGEST} {'characters' if characters else 'words'}"
        return (
            f"{what} missing{place}" if not written else f"{what} too many{place}" if not wanted else f"{what} differ"
        )
    between = "" if characters else " "
    ours, theirs = (between.join(side).replace(" ", "␣" if characters else " ") for side in (written, wanted))
    if not written:
        return f"missing {theirs}{place}"
    return f"{ours} instead of {theirs}" if wanted else f"extra {ours}{place}"


def _count(values: Sequence[bool | None]) -> int | None:
    """How many are true; None if something is not known."""
    return None if any(value is None for value in values) else sum(map(bool, values))
