"""The paper's inflection experiment: the German Wiktionary tables, one set of models for each type.

Beyond the paper, the run joint-1 has one model for all types, and joint-lm-strict one language model. All runs have the
vocabularies of the former.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from noisychannel.experiments.design import Design
from noisychannel.experiments.inflection.data import TaggedPair, TrainDevTest, read_unpaired, read_wiktionary
from noisychannel.experiments.inflection.experiment import Inflection, Lists
from noisychannel.experiments.inflection.few import ensemble_rows, few_rows
from noisychannel.experiments.inflection.rows import PAIRS, PAPER, STRICT, whole_design
from noisychannel.experiments.inflection.scale import QUICK, Scale
from noisychannel.experiments.inflection.strict import german_noun_paradigms, held_out_paradigms, without_lemmas
from noisychannel.experiments.settings import Setup

WordClass = Literal["noun", "verb"]


def _with_few(name: str, about: str) -> Design:
    """With the blocks of what few pairs need."""
    whole = whole_design(name, about)
    return replace(whole, blocks={**whole.blocks, "few": few_rows(PAIRS), "ensemble": ensemble_rows()})


DESIGNS: dict[WordClass, Design] = {
    "noun": _with_few("inflection-nouns", "German nouns of Wiktionary, the paper's data: models for each type"),
    "verb": whole_design("inflection-verbs", "German verbs of Wiktionary, the paper's data: models for each type"),
}
FULL: dict[WordClass, Scale] = {
    "noun": Scale(),
    "verb": Scale(tuned_types=9, updates=6_000, lm_updates=5_000, better_lm_updates=3_000),
}
"""Nine of the 27 types of verbs have as many items to tune on as all types of nouns. Each type of verbs has fewer
unpaired forms."""


class Wiktionary(Inflection):
    """One word class."""

    separator = ":"
    vocabularies = "joint-1"

    def __init__(self, word_class: WordClass, setup: Setup, scale: Scale, design: Design | None = None) -> None:
        self.word_class: WordClass = word_class
        self.morphology = setup.data / "morphology"
        tables = list(read_wiktionary(self.morphology, word_class).items())[-(scale.types or 0) :]
        tagged = {
            type_: TrainDevTest(*([TaggedPair(*pair, type_) for pair in pairs] for pairs in splits))
            for type_, splits in tables
        }
        super().__init__(design or DESIGNS[word_class], tagged, setup, scale)

    def lists(self) -> dict[str, Lists]:
        return _lists(self.morphology, self.word_class)

    def grouped(self, run: str) -> bool:
        return not run.startswith("joint-")


def make_wiktionary(word_class: WordClass, setup: Setup, quick: bool) -> Wiktionary:
    return Wiktionary(word_class, setup, QUICK if quick else FULL[word_class])


@cache
def _lists(morphology: Path, word_class: WordClass) -> dict[str, Lists]:
    lists = read_unpaired(morphology / "unpaired" / f"de_{word_class}.tsv")
    gold = held_out_paradigms(read_wiktionary(morphology, word_class))
    paradigms = [gold, *([german_noun_paradigms()] if word_class == "noun" else [])]
    return {PAPER: lists, STRICT: without_lemmas(lists, gold, *paradigms)}
