"""What an experiment with few pairs is about: pairs, held-out items and words, of one language or direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from noisychannel.atomic import write_text
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.experiments.items import Item, at_most, sample

SEPARATOR = ";"
"""Of tags, in files."""


class Pair(NamedTuple):
    """An input with its tags, and its output."""

    input: str
    output: str
    tags: tuple[str, ...] = ()

    def row(self) -> Row:
        return Row(self.input, self.output, self.tags, "", "")


class Word(NamedTuple):
    """An output without an input."""

    output: str
    tags: tuple[str, ...] = ()

    def row(self) -> Row:
        return Row("", self.output, self.tags, "", "")


@dataclass(frozen=True)
class Task:
    """The data of one part of an experiment."""

    name: str
    train: tuple[Pair, ...]
    dev: tuple[Item, ...]
    test: tuple[Item, ...]
    words: Mapping[str, tuple[Word, ...]]
    """By setting; an empty name if there is one setting only."""
    running_text: bool = False
    """Whether the pairs are tokens in the order of a text. Seed k then has the k-th sample of neighbouring tokens."""

    @property
    def tagged(self) -> bool:
        return any(pair.tags for pair in self.train)

    def pairs(self, number: int | None, seed: int = 1) -> list[Pair]:
        """Training pairs; a smaller number is the beginning of a larger one, and the seed does not matter.

        Of running text, sample k of n tokens is lines (k - 1) n + 1 to k n.
        """
        if not self.running_text or number is None:
            return sample(self.train, number, seed=1)
        if seed * number > len(self.train):
            raise BadInputError(
                f"{self.name}: {len(self.train):,} training tokens have no sample {seed} of {number:,}; "
                f"the samples of {number:,} end with {len(self.train) // number}"
            )
        return list(self.train[(seed - 1) * number : seed * number])

    def listed(self, setting: str, number: int | None) -> list[Word]:
        """Words of a setting, at most ``number``."""
        words = self.words[setting]
        return [] if number == 0 else at_most(words, number, seed=1)

    def all_words(self) -> list[Word]:
        """Of all settings, each once."""
        return list(dict.fromkeys(word for words in self.words.values() for word in words))

    def smaller(self, dev: int | None, test: int | None, words: int | None) -> Task:
        """With at most so many held-out items and words."""
        fewer = {setting: tuple(at_most(listed, words, seed=1)) for setting, listed in self.words.items()}
        return replace(self, dev=self.dev[:dev], test=self.test[:test], words=fewer)


def write_pairs(file: Path, pairs: Sequence[Pair], tagged: bool) -> str:
    """A file as ``noisychannel train`` reads it; its name."""
    return _write(file, [[*pair[:2], *([SEPARATOR.join(pair.tags)] if tagged else [])] for pair in pairs])


def write_words(file: Path, words: Sequence[Word], tagged: bool) -> str:
    return _write(file, [[*([SEPARATOR.join(word.tags)] if tagged else []), word.output] for word in words])


def _write(file: Path, rows: Sequence[Sequence[str]]) -> str:
    """A file that is there already stays as it is: another block may be reading it."""
    content = "".join("\t".join(row) + "\n" for row in rows)
    if not file.exists() or file.read_text(encoding="utf-8") != content:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, content)
    return str(file)
