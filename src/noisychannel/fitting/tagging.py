"""Tags for words that have none: the reverse model writes them before the input.

Each tag set of the pairs is one symbol, from Unicode's private use area, in front of the input:

    form       tags      lemma           reads      writes
    Häusern    N;DAT;PL  Haus            Häusern    U+E003 Haus

A word is then given a tag set and an input at once. The tags are guesses, and often wrong where forms of several tag
sets look alike; but which forms a tag set can have at all is what few pairs do not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from noisychannel.data.rows import Row

FIRST, LAST = 0xE000, 0xF8FF
"""The private use area."""
MOST_TAG_SETS = LAST - FIRST + 1


class Analysis(NamedTuple):
    """What a reverse model says about a word."""

    input: str
    features: tuple[str, ...]


class TagSymbols:
    """The tag sets of pairs as symbols."""

    def __init__(self, pairs: Iterable[Row]) -> None:
        self.tag_sets = sorted({row.features for row in pairs})

    def marked(self, row: Row) -> Row:
        """A pair with its tags in front of its input."""
        return row._replace(input=chr(FIRST + self.tag_sets.index(row.features)) + row.input, features=())

    def read(self, text: str) -> Analysis | None:
        """Tags and input of what a reverse model wrote; None if it is not one symbol and an input."""
        place = ord(text[0]) - FIRST if text else -1
        rest = text[1:]
        if not 0 <= place < len(self.tag_sets) or not rest.strip() or has_tag_symbols([rest]):
            return None
        return Analysis(rest, self.tag_sets[place])


def has_tag_symbols(texts: Sequence[str]) -> bool:
    """Whether a text has a symbol that could be one of ours."""
    return any(FIRST <= ord(symbol) <= LAST for text in texts for symbol in text)
