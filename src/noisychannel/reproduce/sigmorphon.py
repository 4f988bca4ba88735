"""The same systems on the German data of the SIGMORPHON shared tasks of 2017 (medium) and 2023.

There are few pairs of each tag set, so one model inflects for all, with the tags as its features, and accuracy is over
items. The language model knows no tags: it has the forms of nouns and verbs in one list.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from noisychannel.reproduce import wiktionary
from noisychannel.reproduce.inflection import Inflection, Scale, Setting
from noisychannel.reproduce.inflection_data import (
    german_noun_paradigms,
    held_out_paradigms,
    read_sigmorphon,
    read_unpaired,
    without_lemmas,
)
from noisychannel.training.run import Say

Year = Literal[2017, 2023]
ALL = "all tag sets"
"""The name of the one type that there is."""

FULL: dict[Year, Scale] = {
    2017: Scale(hidden_size=256, epochs=150),
    2023: Scale(hidden_size=256, batch_size=64),
}
"""Twice the size of a model for one type, as the joint one has. 1,000 pairs, which need more epochs, and 10,000."""
QUICK = replace(wiktionary.QUICK, types=None, hidden_size=192)


class Sigmorphon(Inflection):
    """The task of one year."""

    parts = ("table",)
    separator = ";"

    def __init__(
        self,
        year: Year,
        data: Path,
        work: Path,
        scale: Scale,
        device: str = "auto",
        jobs: int | None = None,
        say: Say = print,
    ) -> None:
        self.year: Year = year
        self.name = f"inflection-sigmorphon{year}"
        self.vocabularies = f"bi-{scale.seeds[0]}"
        self._morphology = data / "morphology"
        super().__init__({ALL: read_sigmorphon(self._morphology, year)}, work, scale, device, jobs, say)

    def lists(self) -> dict[Setting, dict[str, list[str]]]:
        return _lists(self._morphology, self.year)

    def grouped(self, name: str) -> bool:
        return False


@cache
def _lists(morphology: Path, year: Year) -> dict[Setting, dict[str, list[str]]]:
    """Every noun and verb form once. The gold tables have few forms of a verb: in *strict*, its others can stay."""
    types = [read_unpaired(morphology / "unpaired" / f"de_{part}.tsv") for part in ("noun", "verb")]
    lists = {ALL: list(dict.fromkeys(form for of_part in types for forms in of_part.values() for form in forms))}
    gold = held_out_paradigms({ALL: read_sigmorphon(morphology, year)})
    return {"paper": lists, "strict": without_lemmas(lists, gold, gold, german_noun_paradigms())}
