"""What is counted in a user's pairs and words before anything is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Literal, TypeAlias, TypeVar

from noisychannel.data.edits import align
from noisychannel.data.rows import Row
from noisychannel.fitting.tagging import has_tag_symbols

T = TypeVar("T")
FitUnits: TypeAlias = Literal["characters", "words"]

LOOKED_AT = 2_000
"""Texts of a side from which its units are found."""
ALIGNED = 300
"""Pairs that are aligned to see how much is copied."""
LONGEST_ALIGNED = 200
"""Symbols of a side of a pair that is aligned; the time is quadratic."""
WORDS_IN_TEXT = 2.5
"""With so many words in a text on average, words (or phonemes) are the symbols."""
WITH_SPACES = 0.6
"""The share of texts that then have a space at least."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Counted in the data; nothing is chosen here."""

    pairs: int
    inputs: int
    """Different inputs."""
    repeated: float = 0.0
    """The share of the pairs that are repetitions of an earlier one, tags included."""
    varied: float = 0.0
    """The share of the pairs whose output (with the same tags) also has another input: it is written in more ways."""
    words: int
    """Different unpaired outputs, with their tags if these are used."""
    tags: bool
    """Whether the pairs have tags."""
    tagged_words: bool
    """Whether the words have tags, and the pairs too."""
    tag_sets: int
    """Different sets of tags among the pairs."""
    copied: float
    """The mean share of an output's symbols that an alignment by edits matches with equal symbols of the input."""
    listed: float
    """The share of the pairs' outputs that are among the words (with the same tags, if the words have tags)."""
    listed_words: int
    """How many of the words are outputs of pairs."""
    private_symbols: bool
    """Whether an input has symbols of Unicode's private use area, which mark tags (``tagging``)."""
    input_units: FitUnits
    output_units: FitUnits
    input_symbols: int
    """Different symbols of the inputs."""
    output_symbols: int
    """Different symbols of the outputs of pairs."""
    input_length: float
    """The mean number of symbols."""
    output_length: float

    def describe(self) -> str:
        """One line for a person."""
        words = f"{self.words:,} {'tagged ' if self.tagged_words else ''}words" if self.words else "no words"
        tags = f" with {self.tag_sets:,} different tag sets" if self.tags else ""
        return (
            f"{self.pairs:,} pairs of {self.inputs:,} inputs{tags}, {words}; {100 * self.copied:.0f} % of the output "
            f"symbols are copied from the input"
        )


def count_facts(pairs: Sequence[Row], words: Sequence[Row] = ()) -> Facts:
    """Count. ``words``: rows of unpaired outputs; their features count only if the pairs have features."""
    tags = any(row.features for row in pairs)
    tagged_words = tags and bool(words) and all(row.features for row in words)
    units: dict[str, FitUnits] = {
        side: choose_units([getattr(row, side) for row in pairs]) for side in ("input", "output")
    }
    sides = [(symbols(row.input, units["input"]), symbols(row.output, units["output"])) for row in pairs]
    known = {(row.output, row.features if tagged_words else ()) for row in words}
    listed = [(row.output, row.features if tagged_words else ()) in known for row in pairs]
    return Facts(
        pairs=len(pairs),
        inputs=len({row.input for row in pairs}),
        repeated=1 - len({(row.input, row.output, row.features) for row in pairs}) / len(pairs) if pairs else 0.0,
        varied=_varied(pairs),
        words=len(known),
        tags=tags,
        tagged_words=tagged_words,
        tag_sets=len({row.features for row in pairs}) if tags else 0,
        copied=share_copied(sides),
        listed=fmean(listed) if listed else 0.0,
        listed_words=len(known & {(row.output, row.features if tagged_words else ()) for row in pairs}),
        private_symbols=has_tag_symbols([row.input for row in pairs]),
        input_units=units["input"],
        output_units=units["output"],
        input_symbols=len({symbol for one, _ in sides for symbol in one}),
        output_symbols=len({symbol for _, one in sides for symbol in one}),
        input_length=fmean(len(one) for one, _ in sides) if sides else 0.0,
        output_length=fmean(len(one) for _, one in sides) if sides else 0.0,
    )


def _varied(pairs: Sequence[Row]) -> float:
    inputs: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for row in pairs:
        inputs.setdefault((row.output, row.features), set()).add(row.input)
    return fmean(len(inputs[row.output, row.features]) > 1 for row in pairs) if pairs else 0.0


def choose_units(texts: Sequence[str]) -> FitUnits:
    """Words if the texts are mostly several words (running text) or phonemes with spaces between, else characters."""
    some = _sample(texts, LOOKED_AT)
    counts = [len(text.split()) for text in some]
    if not counts:
        return "characters"
    several = fmean(count > 1 for count in counts)
    return "words" if several >= WITH_SPACES and fmean(counts) >= WORDS_IN_TEXT else "characters"


def symbols(text: str, units: FitUnits) -> list[str]:
    """A text as symbols."""
    return text.split() if units == "words" else list(text)


def share_copied(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """The mean share of output symbols that an alignment matches with equal input symbols."""
    shares = []
    for one, other in _sample([side for side in sides if side[1]], ALIGNED):
        x, y = one[:LONGEST_ALIGNED], other[:LONGEST_ALIGNED]
        shares.append(sum(a == b for a, b in align(x, y)) / len(y))
    return fmean(shares) if shares else 0.0


def _sample(items: Sequence[T], most: int) -> Sequence[T]:
    """Not more than so many, always the same ones."""
    return items if len(items) <= most else Random(1).sample(items, most)
