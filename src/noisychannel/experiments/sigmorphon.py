"""The same systems on the German data of the SIGMORPHON shared tasks of 2017 (medium) and 2023.

There are few pairs of each tag set, so one model inflects for all, with the tags as its features, and accuracy is over
items. The unpaired forms have attributes of their own, which are translated to the tags of the year; imperatives, of
which there are none, are known from the pairs alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from noisychannel.errors import BadInputError
from noisychannel.evaluation.baselines import SuffixRules
from noisychannel.experiments import wiktionary
from noisychannel.experiments.inflection import Inflection, Scale, Setting, Setup
from noisychannel.experiments.inflection_data import (
    TaggedPair,
    german_noun_paradigms,
    held_out_paradigms,
    read_sigmorphon,
    read_unpaired,
    read_wiktionary,
    without_lemmas,
)

Year = Literal[2017, 2023]
ALL = "all tag sets"
"""The name of the one type that there is."""

FULL: dict[Year, Scale] = {
    2017: Scale(hidden_size=256, lm_updates=4_000, better_lm_updates=6_000),
    2023: Scale(hidden_size=256, batch_size=64, lm_updates=4_000, better_lm_updates=6_000),
}
"""Twice the size of a model for one type, as the joint one has; 1,000 and 10,000 pairs."""
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
    """The forms of each tag set.

    The gold tables of the shared tasks have few forms of a verb, so *strict* removes those of the Wiktionary tables
    too, and for a verb that these do not have the forms that the rules of their verbs predict.
    """
    lists = {
        tags_of(attributes, year): forms
        for part in ("noun", "verb")
        for attributes, forms in read_unpaired(morphology / "unpaired" / f"de_{part}.tsv").items()
    }
    splits = read_sigmorphon(morphology, year)
    gold = held_out_paradigms({ALL: splits})
    verbs = {pair.lemma for pair in (*splits.dev, *splits.test) if pair.tags.startswith("V")}
    paradigms = gold, german_noun_paradigms(), verb_paradigms(morphology, verbs)
    return {"paper": lists, "strict": without_lemmas(lists, gold, *paradigms)}


def verb_paradigms(morphology: Path, lemmas: Iterable[str]) -> dict[str, set[str]]:
    """The forms of verbs: all that the Wiktionary tables have, or that the rules learned from these tables predict."""
    known: dict[str, set[str]] = {}
    rules: dict[str, SuffixRules] = {}
    for type_, splits in read_wiktionary(morphology, "verb").items():
        pairs = [TaggedPair(*pair, type_) for split in splits for pair in split]
        rules[type_] = SuffixRules(pairs)
        for pair in pairs:
            known.setdefault(pair.lemma, set()).add(pair.form)
    return {
        lemma: known.get(lemma) or {of_type.inflect(lemma, type_) for type_, of_type in rules.items()}
        for lemma in lemmas
    }


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
