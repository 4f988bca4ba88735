"""The same systems on the German data of the SIGMORPHON shared tasks of 2017 (medium) and 2023.

There are few pairs of each tag set, so one model inflects for all, with the tags as its features, and accuracy is over
items. The unpaired forms have attributes of their own, which are translated to the tags of the year; imperatives, of
which there are none, are known from the pairs alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from noisychannel.errors import BadInputError
from noisychannel.reproduce import wiktionary
from noisychannel.reproduce.inflection import Inflection, Scale, Setting, Setup
from noisychannel.reproduce.inflection_data import (
    german_noun_paradigms,
    held_out_paradigms,
    read_sigmorphon,
    read_unpaired,
    without_lemmas,
)

Year = Literal[2017, 2023]
ALL = "all tag sets"
"""The name of the one type that there is."""

FULL: dict[Year, Scale] = {
    2017: Scale(hidden_size=256, epochs=150, lm_updates=4_000, better_lm_updates=6_000),
    2023: Scale(hidden_size=256, batch_size=64, lm_updates=4_000, better_lm_updates=6_000),
}
"""Twice the size of a model for one type, as the joint one has. 1,000 pairs, which need more epochs, and 10,000."""
QUICK = replace(wiktionary.QUICK, types=None, hidden_size=192)

ABBREVIATIONS = {
    "nominative": "NOM",
    "genitive": "GEN",
    "dative": "DAT",
    "accusative": "ACC",
    "singular": "SG",
    "plural": "PL",
    "1st": "1",
    "2nd": "2",
    "3rd": "3",
    "present": "PRS",
    "past": "PST",
    "indicative": "IND",
    "subjunctive": "SBJV",
}


class Sigmorphon(Inflection):
    """The task of one year."""

    parts = ("table",)
    separator = ";"

    def __init__(self, year: Year, setup: Setup) -> None:
        self.year: Year = year
        self.name = f"inflection-sigmorphon{year}"
        self.vocabularies = f"bi-{setup.scale.seeds[0]}"
        super().__init__({ALL: read_sigmorphon(setup.morphology, year)}, setup)

    def lists(self) -> dict[Setting, dict[str, list[str]]]:
        return _lists(self.morphology, self.year)

    def grouped(self, name: str) -> bool:
        return False


@cache
def _lists(morphology: Path, year: Year) -> dict[Setting, dict[str, list[str]]]:
    """The forms of each tag set. The gold tables have few forms of a verb: in *strict*, its others can stay."""
    lists = {
        tags_of(attributes, year): forms
        for part in ("noun", "verb")
        for attributes, forms in read_unpaired(morphology / "unpaired" / f"de_{part}.tsv").items()
    }
    gold = held_out_paradigms({ALL: read_sigmorphon(morphology, year)})
    return {"paper": lists, "strict": without_lemmas(lists, gold, gold, german_noun_paradigms())}


def tags_of(attributes: str, year: Year) -> str:
    """``case=dative:number=plural`` as the shared task has it: N;DAT;PL in 2017, N;DAT(PL) in 2023."""
    try:
        named = dict(attribute.split("=") for attribute in attributes.split(":"))
        match named:
            case {"type": "infinitive"}:
                return "V;NFIN"
            case {"type": "participle", "tense": tense}:
                return f"V.PTCP;{ABBREVIATIONS[tense]}"
        number = ABBREVIATIONS[named["number"]]
        if "case" in named:
            case = ABBREVIATIONS[named["case"]]
            return f"N;{case};{number}" if year == 2017 else f"N;{case}({number})"
        mood, tense, person = (ABBREVIATIONS[named[key]] for key in ("mood", "tense", "person"))
    except (KeyError, ValueError) as error:
        raise BadInputError(
            f"the attributes {attributes!r} of an unpaired list have no tags in the shared task; "
            "name case and number, or person, number, tense and mood, or type and tense"
        ) from error
    agreement = f"{person};{number}" if year == 2017 else f"NOM({person},{number})"
    return f"V;{mood};{tense};{agreement}"
