"""Letters and phonemes of English, with 200 and 1,000 pairs: two sides that share no alphabet.

    g2p-cmudict-phonemes    spelling → phonemes, with unpaired phoneme strings
    g2p-cmudict-spelling    phonemes → spelling, with a list of words

Training, dev and test words are drawn from the dictionary at random; all other words are unpaired. In the setting
``open`` these contain the right outputs, as a user's list of words would; in ``strict`` they contain no right output of
a dev or test item. A word with several pronunciations, or phonemes with several spellings, has several right outputs.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from noisychannel.data.pronunciations import read_pronunciations
from noisychannel.evaluation.baselines import Answer
from noisychannel.experiments.design import Design, Plot
from noisychannel.experiments.experiment import TrainingPair
from noisychannel.experiments.few_pairs.experiment import FewPairs
from noisychannel.experiments.few_pairs.rows import baseline, of_amounts, row
from noisychannel.experiments.few_pairs.scale import QUICK, FewPairsScale
from noisychannel.experiments.few_pairs.tasks import Pair, Task, Word
from noisychannel.experiments.items import Item, Part
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import Setup
from noisychannel.text import TextConfig

Side = Literal["phonemes", "spelling"]
"""What is written."""
OPEN, STRICT = "open", "strict"
PAIRS, FEW = 1_000, 200
DEV, TEST = 500, 1_000
"""Words that are drawn."""

NEAREST = baseline("output of the most similar training input", "nearest", STRICT)
DIRECT = row("direct", "direct", "plain", STRICT)
FULL = row("full (direct + channel + LM)", "direct+channel+lm", "plain", STRICT)
FULL_LIST = row("full + word list", "direct+channel+lm+word_list", "plain", OPEN)
FULL_INPUTS = row("full, words given inputs", "direct+channel+lm", "inputs", STRICT)
FULL_LIST_INPUTS = row("full + word list, words given inputs", "direct+channel+lm+word_list", "inputs", OPEN)
ROWS = (
    NEAREST,
    DIRECT,
    row("direct + LM", "direct+lm", "plain", STRICT),
    FULL,
    row("direct, words given inputs", "direct", "inputs", STRICT),
    FULL_INPUTS,
    row("direct + LM + word list", "direct+lm+word_list", "plain", OPEN),
    FULL_LIST,
    FULL_LIST_INPUTS,
)


def _fewer(of: SystemRow) -> SystemRow:
    kinds = dict.fromkeys(of.models.values())
    return of_amounts(of, f"{next(iter(kinds))}.p{FEW}" if kinds else "", pairs=FEW)


def _design(side: Side, about: str) -> Design:
    lines = {of.name: of.name for of in (FULL_LIST_INPUTS, FULL, DIRECT)}
    return Design(
        name=f"g2p-cmudict-{side}",
        about=about,
        blocks={"table": ROWS, "few": tuple(map(_fewer, ROWS))},
        quick_blocks=("few",),
        metrics=("accuracy", "edit_distance"),
        text=TextConfig(units="words" if side == "phonemes" else "characters"),
        unit_noun="word",
        baselines={"direct": DIRECT.name},
        examples=(DIRECT.label, FULL_LIST.label),
        plots=(Plot("pairs", "pairs", "pairs", lines, STRICT),),
    )


DESIGNS: dict[Side, Design] = {
    "phonemes": _design("phonemes", "English spelling to phonemes, 1,000 and 200 pairs, and unpaired phoneme strings"),
    "spelling": _design("spelling", "English phonemes to spelling, 1,000 and 200 pairs, and a list of words"),
}


class Pronunciation(FewPairs):
    """One direction."""

    def baseline(self, row: SystemRow, part: Part, seed: int) -> Answer:
        if row.baseline == "nearest":
            return most_similar(self.training_pairs(part, row.pairs, seed))
        return super().baseline(row, part, seed)


def most_similar(pairs: Iterable[TrainingPair]) -> Answer:
    """The output of the training input that shares most pairs of neighbouring symbols; of equals the first."""
    known = [(_neighbours(text), output) for text, output, _ in pairs]

    def answer(text: str, tags: Hashable) -> str:
        own = _neighbours(text)
        return max(known, key=lambda one: len(own & one[0]) / (len(own) + len(one[0])))[1]

    return answer


def _neighbours(text: str) -> set[tuple[str, str]]:
    symbols = ["", *(text.split() if " " in text else text), ""]
    return set(pairwise(symbols))


def make_pronunciation(side: Side, setup: Setup, quick: bool) -> FewPairs:
    task = make_task(side, read_pronunciations(DESIGNS[side].name))
    return Pronunciation(DESIGNS[side], [task], setup, QUICK if quick else FewPairsScale(dev=300))


def make_task(side: Side, words: Mapping[str, Sequence[str]], pairs: int = PAIRS, seed: int = 1) -> Task:
    """Draw the words. Both directions have the same ones."""
    drawn = sorted(words)
    random.Random(seed).shuffle(drawn)
    test, dev, others = drawn[:TEST], drawn[TEST : TEST + DEV], drawn[TEST + DEV :]
    held_out = {words[word][0] for word in (*test, *dev)}
    train = [word for word in others if words[word][0] not in held_out][:pairs]  # no input is in two sets
    rest = sorted(set(others) - set(train))
    spellings: dict[str, list[str]] = {}
    for word in drawn:
        for sounds in words[word]:
            spellings.setdefault(sounds, []).append(word)

    def item(word: str) -> Item:
        if side == "phonemes":
            return Item(word, tuple(words[word]))
        sounds = words[word][0]
        return Item(sounds, (word, *(other for other in spellings[sounds] if other != word)))

    def pair(word: str) -> Pair:
        return Pair(word, words[word][0]) if side == "phonemes" else Pair(words[word][0], word)

    items = [item(word) for word in (*test, *dev)]
    hidden = {text for each in items for text in each.references}
    seen = {pair(word).output for word in train}
    outputs = [text for word in rest for text in (words[word] if side == "phonemes" else [word])]
    strict = dict.fromkeys(text for text in outputs if text not in hidden | seen)
    right = dict.fromkeys(text for text in sorted(hidden) if text not in seen)
    listed = {
        STRICT: tuple(map(Word, strict)),
        OPEN: tuple(Word(text) for text in sorted({**strict, **right})),
    }
    return Task(
        side,
        tuple(pair(word) for word in train),
        tuple(items[TEST:]),
        tuple(items[:TEST]),
        listed,
    )
