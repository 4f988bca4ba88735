"""Nine languages of the SIGMORPHON 2017 shared task, with 100 (low) or 1,000 pairs (medium) and a list of tagged forms.

Each language has models of its own; weights are tuned on 100 dev items of each language together. The forms are those
of the high training set of the task, without their lemmas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from noisychannel.experiments.design import Design, Figures, Plot
from noisychannel.experiments.few_pairs import rows
from noisychannel.experiments.few_pairs.experiment import FewPairs
from noisychannel.experiments.few_pairs.scale import QUICK, FewPairsScale
from noisychannel.experiments.few_pairs.tasks import Pair, Task, Word
from noisychannel.experiments.inflection.data import TaggedPair, read_forms, read_language
from noisychannel.experiments.items import Item
from noisychannel.experiments.settings import Setup

Size = Literal["low", "medium"]
LANGUAGES = ("arabic", "english", "french", "german", "italian", "quechua", "russian", "spanish", "swedish")
CURVES = ("english", "german", "russian")
OPPONENTS = ("english", "french", "german", "italian")
"""Languages of the curves, and of the transformer."""
QUICK_FIRST = ("english", "german")
"""What a quick try begins with."""

SHARED_TASK: dict[Size, tuple[float, ...]] = {
    "low": (21.8, 80.6, 61.8, 54.3, 5.3, 16.4, 45.6, 57.1, 54.2),
    "medium": (42.1, 90.9, 72.5, 72.1, 71.6, 70.3, 75.9, 84.7, 75.7),
}
"""Test accuracy of the rules of the shared task (its own script), in the order of the languages."""
IMITATION: dict[Size, dict[str, float]] = {
    "low": {"english": 88.3, "french": 52.0, "german": 50.4, "italian": 31.3},
    "medium": {"english": 93.2, "french": 75.3, "german": 77.2, "italian": 86.1},
}
"""Of the imitation-learning transducer, a single model: its authors' public table."""


def _cited(size: Size) -> dict[str, Figures]:
    mean = sum(SHARED_TASK[size]) / len(LANGUAGES)
    figures = {"longest-suffix rules of the shared task": f"{mean:.1f}"}
    figures |= {f"imitation-learning transducer, {name}": f"{x:.1f}" for name, x in IMITATION[size].items()}
    return {name: {"accuracy": figure} for name, figure in figures.items()}


def _design(size: Size, about: str) -> Design:
    return Design(
        name=f"inflection-sigmorphon2017-{size}",
        about=about,
        blocks={"table": rows.table_rows(ensemble=size == "low", three=size == "medium")},
        quick_blocks=("table",),
        average="parts",
        part_table=True,
        part_noun="language",
        unit_noun="lemma",
        baselines={"direct": rows.DIRECT.name, "rules": rows.RULES.name},
        cited=_cited(size),
        examples=(rows.DIRECT.label, rows.FULL_LIST.label),
    )


_OPPONENTS = {"opponent": rows.OPPONENTS[:1], "opponent-made-up": rows.OPPONENTS[1:]}
"""A block each: with made-up pairs a transformer of four languages trains as long as without."""
_LINES = {"full + word list": rows.FULL_LIST.name, "direct": rows.DIRECT.name, "rules": rows.RULES.name}
_LOW = _design("low", "nine languages, 100 pairs and about 10,000 forms each: every ingredient of few pairs")
_MEDIUM = _design("medium", "nine languages, 1,000 pairs and about 10,000 forms each")
DESIGNS: dict[Size, Design] = {
    "low": replace(
        _LOW,
        blocks={
            **_LOW.blocks,
            "lists": tuple(rows.list_rows()),
            **_OPPONENTS,
            "fit": (rows.FITTED,),
        },
        plots=(Plot("unpaired", "unpaired", "words of each language", _LINES, "", "symlog"),),
    ),
    "medium": replace(
        _MEDIUM,
        blocks={**_MEDIUM.blocks, "curves": tuple(rows.curve_rows()), **_OPPONENTS},
        plots=(
            Plot(
                "pairs",
                "pairs",
                "pairs of each of three languages",
                {label: f"{name}, three languages" for label, name in _LINES.items()},
            ),
        ),
    ),
}
SEEDS: dict[Size, tuple[int, ...]] = {"low": (1, 2, 3), "medium": (1,)}


def make_few_pairs(size: Size, setup: Setup, quick: bool) -> FewPairs:
    scale = QUICK if quick else FewPairsScale(seeds=SEEDS[size])
    names = sorted(LANGUAGES, key=lambda name: name not in QUICK_FIRST) if quick else LANGUAGES
    tasks = [read_task(setup, name, size) for name in names[: scale.tasks]]
    return FewPairs(DESIGNS[size], tasks, setup, scale, {"curves": CURVES, **dict.fromkeys(_OPPONENTS, OPPONENTS)})


def read_task(setup: Setup, language: str, size: Size) -> Task:
    """The data of a language."""
    directory = setup.data / "morphology"
    splits = read_language(directory, language, size)
    words = tuple(Word(form, tuple(tags.split(";"))) for tags, form in read_forms(directory, language))
    return Task(
        language,
        tuple(Pair(x.lemma, x.form, tuple(x.tags.split(";"))) for x in splits.train),
        tuple(_item(language, x) for x in splits.dev),
        tuple(_item(language, x) for x in splits.test),
        {"": words},
    )


def _item(language: str, pair: TaggedPair) -> Item:
    return Item(pair.lemma, (pair.form,), tuple(pair.tags.split(";")), unit=f"{language} {pair.lemma}")
