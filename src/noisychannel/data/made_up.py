"""One made-up pair: a real pair with other symbols in the places that both of its sides share.

    real     such en   ->   ge such t      the stretch "such" stays the same; "ge", "en" and "t" are the change
    made up  stich en  ->   ge stich t     a piece of a listed word instead of the stretch

What changes is kept, in its order. The longest stretch, if it has at least ``LONG`` symbols, gets a piece of a listed
word: its beginning if the stretch begins the pair, else an inner piece. Up to three symbols beside a change stay, since
the change may depend on them; so do those at the end of the pair, because endings matter even if nothing changes there.
Symbols of the other stretches are exchanged one by one for others of the same kind (a letter for a letter, a mark for a
mark). Where no stretch is long, as between the vowels of a root-and-pattern language, most symbols are exchanged.

Symbols are characters or words. All random choices come from one generator.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple, TypeAlias

from noisychannel.data.edits import Cell, stretches

Symbols: TypeAlias = Sequence[str]
"""Of a text: the text itself if its symbols are characters, else a list of words."""

LONG = 3
"""Symbols of a stretch that is replaced as a whole."""
KEPT, KEPT_WEIGHTS = (0, 1, 2, 3), (1, 3, 4, 2)
"""How many symbols beside a change stay as they are, and how often."""
LENGTH_CHANGE = 2
"""The most symbols by which a piece may be longer or shorter than what it replaces."""
EXCHANGED, EXCHANGED_IF_SHORT = 0.15, 0.7
"""The probability that a symbol of another stretch is exchanged; the latter if no stretch is long."""


class _Pool(NamedTuple):
    """Symbols of one kind, and how often they and those before them occur."""

    symbols: list[str]
    cumulated: list[int]


class Material:
    """Listed words, by their first tag, and their symbols by kind."""

    def __init__(self, words: Iterable[tuple[Symbols, str]]) -> None:
        """``words``: the symbols of each and its first tag, which may be empty. Words of one symbol are not used."""
        self.words: list[Symbols] = []
        self._by_tag: dict[str, list[Symbols]] = defaultdict(list)
        counts: Counter[str] = Counter()
        for symbols, tag in words:
            if len(symbols) < 2:
                continue
            self.words.append(symbols)
            if tag:
                self._by_tag[tag].append(symbols)
            counts.update(symbols)
        kinds: dict[str, list[str]] = defaultdict(list)
        for symbol in counts:
            kinds[_kind(symbol)].append(symbol)
        self._pools = {kind: _Pool(of, list(accumulate(counts[s] for s in of))) for kind, of in kinds.items()}

    def piece(self, rng: Random, tag: str, length: int, beginning: bool) -> Symbols:
        """At most ``length`` symbols of a word, one of this first tag if there are some. Not empty."""
        word = rng.choice(self._by_tag.get(tag) or self.words)
        start = 0 if beginning else rng.randrange(1, max(1, len(word) - length) + 1)
        return word[start : start + length]

    def similar(self, rng: Random, symbol: str) -> str:
        """A symbol of the same kind, by frequency in the list; the symbol itself if the list has none."""
        pool = self._pools.get(_kind(symbol))
        return rng.choices(pool.symbols, cum_weights=pool.cumulated)[0] if pool else symbol


def make_up(cells: Sequence[Cell], tag: str, material: Material, rng: Random) -> list[Cell]:
    """An aligned pair with other symbols where its sides are the same; the changes between them stay as they are."""
    same = stretches(cells)
    if not same:
        return list(cells)
    longest = max(same, key=lambda stretch: (stretch.stop - stretch.start, rng.random()))
    replaced = longest.stop - longest.start >= LONG and bool(material.words)
    made: list[Cell] = []
    end = 0
    for stretch in same:
        made += cells[end : stretch.start]
        if replaced and stretch is longest:
            made += _with_piece(cells[stretch], _begins(cells[: stretch.start]), tag, material, rng)
        else:
            made += _exchanged(cells[stretch], EXCHANGED if replaced else EXCHANGED_IF_SHORT, material, rng)
        end = stretch.stop
    return [*made, *cells[end:]]


def _begins(before: Sequence[Cell]) -> bool:
    """Whether a stretch begins the pair: nothing is before it but private symbols, which are no text."""
    return all(unicodedata.category(symbol) == "Co" for cell in before for symbol in "".join(cell))


def _with_piece(stretch: Sequence[Cell], first: bool, tag: str, material: Material, rng: Random) -> list[Cell]:
    """A stretch whose middle is a piece of a word; ``first``: whether the stretch begins the pair."""
    left, right = rng.choices(KEPT, KEPT_WEIGHTS, k=2)
    left = 0 if first else min(left, len(stretch) // 2)
    right = min(right, len(stretch) - left - 1)
    length = len(stretch) - left - right + rng.randint(-LENGTH_CHANGE, LENGTH_CHANGE)
    piece = material.piece(rng, tag, max(1, length), first)
    return [*stretch[:left], *((symbol, symbol) for symbol in piece), *stretch[len(stretch) - right :]]


def _exchanged(stretch: Sequence[Cell], probability: float, material: Material, rng: Random) -> list[Cell]:
    made = []
    for cell in stretch:
        symbol = material.similar(rng, cell[0]) if rng.random() < probability else cell[0]
        made.append((symbol, symbol))
    return made


def _kind(symbol: str) -> str:
    """The Unicode category of a symbol's first character, such as Lu for a capital letter."""
    return unicodedata.category(symbol[0])
