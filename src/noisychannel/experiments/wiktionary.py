"""The paper's inflection experiment: the German Wiktionary tables, one set of models for each type.

Beyond the paper, the run joint-1 has one model for all types, and joint-lm-strict one language model; the vocabularies
of the former are those of all runs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.inflection import Inflection, Scale, Setting, Setup
from noisychannel.experiments.inflection_data import (
    Splits,
    TaggedPair,
    german_noun_paradigms,
    held_out_paradigms,
    read_unpaired,
    read_wiktionary,
    without_lemmas,
)
from noisychannel.training.config import ModelConfig

Part = Literal["noun", "verb"]

FULL: dict[Part, Scale] = {
    "noun": Scale(),
    "verb": Scale(tuned_types=9, updates=6_000, lm_updates=5_000, better_lm_updates=3_000),
}
"""Of 27 types of verbs nine have as many items to tune on as all of nouns; and each has fewer unpaired forms."""
QUICK = Scale(
    types=2,
    pairs=500,
    held_out=100,
    unpaired=5000,
    seeds=(1,),
    hidden_size=96,
    updates=600,
    lm=ModelConfig(hidden_size=128, num_layers=1, dropout=0.2, learning_rate=1e-3, batch_size=64),
    lm_updates=600,
    better_lm_updates=600,
    search=SearchSettings(k1=10, k2=5, max_growth=8),
    tuning=SearchSettings(k1=10, k2=5, max_growth=8),
    iterations=2,
)
"""A few minutes on two cores. Its figures say that everything works, and nothing else."""


class Wiktionary(Inflection):
    """One part of speech."""

    parts = ("table", "further", "curves")
    separator = ":"
    vocabularies = "joint-1"

    def __init__(self, part: Part, setup: Setup) -> None:
        self.part: Part = part
        self.name = f"inflection-{part}s"
        tables = list(read_wiktionary(setup.morphology, part).items())[-(setup.scale.types or 0) :]
        tagged = {
            type_: Splits(*([TaggedPair(*pair, type_) for pair in pairs] for pairs in splits))
            for type_, splits in tables
        }
        super().__init__(tagged, setup)

    def lists(self) -> dict[Setting, dict[str, list[str]]]:
        return _lists(self.morphology, self.part)

    def grouped(self, name: str) -> bool:
        return not name.startswith("joint-")


@cache
def _lists(morphology: Path, part: Part) -> dict[Setting, dict[str, list[str]]]:
    lists = read_unpaired(morphology / "unpaired" / f"de_{part}.tsv")
    gold = held_out_paradigms(read_wiktionary(morphology, part))
    paradigms = [gold, *([german_noun_paradigms()] if part == "noun" else [])]
    return {"paper": lists, "strict": without_lemmas(lists, gold, *paradigms)}
