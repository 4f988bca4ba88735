"""The same systems on the German data of the SIGMORPHON shared tasks of 2017 (medium) and 2023.

Each tag set has few pairs, so one model inflects for all, with the tags as its features, and accuracy is over items.
The unpaired forms have attributes of their own, which are translated to the tags of the year. There are no unpaired
imperatives: the models know them from the pairs alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from noisychannel.errors import BadInputError
from noisychannel.experiments.design import Design
from noisychannel.experiments.inflection import scale as scales
from noisychannel.experiments.inflection.data import read_sigmorphon, read_unpaired
from noisychannel.experiments.inflection.experiment import Inflection, Lists
from noisychannel.experiments.inflection.rows import PAPER, STRICT, table_design
from noisychannel.experiments.inflection.scale import Scale
from noisychannel.experiments.inflection.strict import (
    german_noun_paradigms,
    held_out_paradigms,
    verb_paradigms,
    without_lemmas,
)
from noisychannel.experiments.settings import Setup

Year = Literal[2017, 2023]
ALL = "all tag sets"
"""The name of the only part."""

ABOUT = "German of the shared task of {}: one model for all tag sets, with the tags as its features"
DESIGNS: dict[Year, Design] = {
    2017: table_design("inflection-sigmorphon2017", ABOUT.format("2017 (medium training set)")),
    2023: table_design("inflection-sigmorphon2023", ABOUT.format("2023")),
}
FULL: dict[Year, Scale] = {
    2017: Scale(hidden_size=256, lm_updates=4_000, better_lm_updates=6_000),
    2023: Scale(hidden_size=256, batch_size=64, lm_updates=4_000, better_lm_updates=6_000),
}
"""Twice the size of a model for one type, like the joint model there; 1,000 and 10,000 pairs."""
QUICK = replace(scales.QUICK, types=None, hidden_size=192)

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

    separator = ";"

    def __init__(self, year: Year, setup: Setup, scale: Scale) -> None:
        self.year: Year = year
        self.morphology = setup.data / "morphology"
        self.vocabularies = f"bi-{scale.seeds[0]}"
        super().__init__(DESIGNS[year], {ALL: read_sigmorphon(self.morphology, year)}, setup, scale)

    def lists(self) -> dict[str, Lists]:
        return _lists(self.morphology, self.year)

    def grouped(self, run: str) -> bool:
        return False


def make_sigmorphon(year: Year, setup: Setup, quick: bool) -> Sigmorphon:
    return Sigmorphon(year, setup, QUICK if quick else FULL[year])


@cache
def _lists(morphology: Path, year: Year) -> dict[str, Lists]:
    """The forms of each tag set.

    The tables of the shared tasks have few forms of a verb. So *strict* removes those of the Wiktionary tables too, and
    of a verb that these do not have, the forms that the rules of their verbs predict.
    """
    lists = {
        tags_of(attributes, year): forms
        for word_class in ("noun", "verb")
        for attributes, forms in read_unpaired(morphology / "unpaired" / f"de_{word_class}.tsv").items()
    }
    pairs = read_sigmorphon(morphology, year)
    gold = held_out_paradigms({ALL: pairs})
    verbs = {pair.lemma for pair in (*pairs.dev, *pairs.test) if pair.tags.startswith("V")}
    paradigms = gold, german_noun_paradigms(), verb_paradigms(morphology, verbs)
    return {PAPER: lists, STRICT: without_lemmas(lists, gold, *paradigms)}


def tags_of(attributes: str, year: Year) -> str:
    """``case=dative:number=plural`` in the tags of the shared task: N;DAT;PL in 2017, N;DAT(PL) in 2023."""
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
