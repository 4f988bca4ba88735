"""Pairs that nobody has written: made-up ones (``made_up.py``) and copies of listed words.

Direct model and channel are trained on them beside the real pairs. The language model, the word list and dev never see
them. They depend only on the seed and on what the files contain, not on the order of its lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from noisychannel.arguments import Count, CountOrZero, Seed
from noisychannel.data.edits import Cell, align
from noisychannel.data.made_up import Material, Symbols, make_up
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.text import TextConfig, normalise

TRIES = 10
"""For each pair that is wanted. A try fails if the pair has nothing to replace, or if its input is a real one."""
LONGEST = 200
"""Symbols of a side. Longer pairs are not varied: the time of an alignment is quadratic."""


@dataclass(kw_only=True)
class AugmentConfig:
    """Further training pairs of the direct model and the channel.

    Args:
        made_up: How many pairs to make up: real pairs in which what both sides share is replaced by pieces of unpaired
            outputs. For tasks whose sides share an alphabet. With groups: for each group.
        copies: How many pairs of an unpaired output with itself. With groups: for each group.
        repeat: How often each real pair is in the training data.
        seed: The seed of the made-up pairs and the copies.
    """

    made_up: CountOrZero = 0
    copies: CountOrZero = 0
    repeat: Count = 1
    seed: Seed = 1

    @property
    def makes_pairs(self) -> bool:
        return self.made_up > 0 or self.copies > 0

    def check(self, input: TextConfig, output: TextConfig, unpaired: Sequence[str]) -> None:
        """Refuse what cannot work with these sides and these unpaired outputs."""
        if self.made_up and (input.units != output.units or input.units == "subwords"):
            raise BadInputError(
                f"data.augment.made_up: needs characters or words on both sides, but data.input.units is {input.units} "
                f"and data.output.units {output.units}; set made_up to 0"
            )
        if self.copies and not unpaired:
            raise BadInputError(
                "data.augment.copies: copies are made of unpaired outputs, but data.unpaired names no file; set copies "
                "to 0"
            )


class Augmented(NamedTuple):
    """Fewer than wanted if the data does not allow more."""

    made_up: list[Row]
    copies: list[Row]


@dataclass
class _Texts:
    """Of one group, normalised."""

    pairs: list[Row] = field(default_factory=list)
    words: list[Row] = field(default_factory=list)


def augment(
    config: AugmentConfig, pairs: Iterable[Row], words: Iterable[Row], input: TextConfig, output: TextConfig
) -> Augmented:
    """Pairs for each group of real pairs. ``words``: the unpaired outputs; if a group has none, its pairs serve."""
    groups: dict[str, _Texts] = defaultdict(_Texts)
    for row in pairs:
        sides = normalise(row.input, input), normalise(row.output, output)
        groups[row.group].pairs.append(Row(*sides, row.features, row.group, where=""))
    for row in words:
        if row.group in groups:
            word = normalise(row.output, output)
            groups[row.group].words.append(Row("", word, row.features, row.group, where=""))
    augmented = Augmented([], [])
    for group, texts in groups.items():
        texts.pairs.sort()
        texts.words.sort()
        # A string as seed is hashed the same way everywhere. The pairs of a group do not depend on other groups.
        made_up, copies = (Random(f"{kind} {config.seed} {group}") for kind in ("made up", "copies"))
        augmented.made_up.extend(_made_up(config.made_up, texts, input, output, made_up) if config.made_up else ())
        augmented.copies.extend(_copies(config.copies, texts, input, copies) if config.copies else ())
    return augmented


def _made_up(count: int, texts: _Texts, input: TextConfig, output: TextConfig, rng: Random) -> list[Row]:
    """At most ``count`` made-up pairs. None has the input and the features of a real one; none contradicts another."""

    def symbols(text: str) -> Symbols:
        return text if input.units == "characters" else text.split()

    between = "" if input.units == "characters" else " "
    listed = [(row.output, row.features) for row in texts.words]
    listed = listed or [(text, row.features) for row in texts.pairs for text in (row.output, row.input)]
    # A piece stands on both sides, so it is normalised like both.
    material = Material(
        (symbols(normalise(normalise(text, output), input)), _first(features)) for text, features in listed
    )
    patterns = [row for row in texts.pairs if _short(symbols(row.input), input) and _short(symbols(row.output), output)]
    known = {(between.join(symbols(row.input)), row.features) for row in texts.pairs}
    aligned: dict[int, list[Cell]] = {}
    outputs: dict[tuple[str, tuple[str, ...]], str] = {}
    made: list[Row] = []
    for _ in range(TRIES * count if patterns else 0):
        n = rng.randrange(len(patterns))
        row = patterns[n]
        if n not in aligned:
            aligned[n] = align(symbols(row.input), symbols(row.output))
        cells = make_up(aligned[n], _first(row.features), material, rng)
        left, right = (between.join(filter(None, side)) for side in zip(*cells, strict=True))
        key = left, row.features
        if left.strip() and right.strip() and key not in known and outputs.setdefault(key, right) == right:
            made.append(row._replace(input=left, output=right, where="data.augment.made_up"))
            if len(made) == count:
                break
    return made


def _copies(count: int, texts: _Texts, input: TextConfig, rng: Random) -> list[Row]:
    """At most ``count`` words with themselves. Features are those of real pairs that are copies as well."""
    tags = [row.features for row in texts.pairs if normalise(row.output, input) == row.input]
    if not any(row.features for row in texts.pairs):
        tags = [()]
    known = {(row.input, row.features) for row in texts.pairs}
    made: list[Row] = []
    for word in rng.sample(texts.words, len(texts.words)) if tags else ():
        features = rng.choice(tags)
        if (normalise(word.output, input), features) not in known:
            made.append(Row(word.output, word.output, features, word.group, "data.augment.copies"))
            if len(made) == count:
                break
    return made


def _first(features: tuple[str, ...]) -> str:
    return features[0] if features else ""


def _short(symbols: Symbols, config: TextConfig) -> bool:
    return len(symbols) <= min(LONGEST, config.max_length or LONGEST)
