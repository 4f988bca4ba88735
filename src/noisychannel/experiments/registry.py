"""The experiments by name: ``noisychannel reproduce`` finds them here.

A new experiment adds one line to ``EXPERIMENTS``: its design, and a function from a ``Setup`` (and whether to be quick)
to the experiment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from noisychannel.errors import BadInputError, did_you_mean
from noisychannel.experiments.design import Design
from noisychannel.experiments.experiment import Experiment
from noisychannel.experiments.few_pairs import pronunciation
from noisychannel.experiments.few_pairs import sigmorphon as few_pairs
from noisychannel.experiments.inflection import sigmorphon, wiktionary
from noisychannel.experiments.normalisation import experiment as normalisation
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.summarisation import experiment as summarisation
from noisychannel.experiments.summarisation.design import DESIGN as SUMMARISATION
from noisychannel.experiments.summarisation.design import SMALL_DESIGN as SUMMARISATION_SMALL
from noisychannel.experiments.translation import design as translation_designs
from noisychannel.experiments.translation import experiment as translation


class ExperimentEntry(NamedTuple):
    """What the name of an experiment stands for."""

    design: Design
    make: Callable[[Setup, bool], Experiment]
    """From where to work, and whether to be quick."""


_ENTRIES = (
    ExperimentEntry(wiktionary.DESIGNS["noun"], partial(wiktionary.make_wiktionary, "noun")),
    ExperimentEntry(wiktionary.DESIGNS["verb"], partial(wiktionary.make_wiktionary, "verb")),
    ExperimentEntry(sigmorphon.DESIGNS[2017], partial(sigmorphon.make_sigmorphon, 2017)),
    ExperimentEntry(sigmorphon.DESIGNS[2023], partial(sigmorphon.make_sigmorphon, 2023)),
    ExperimentEntry(few_pairs.DESIGNS["low"], partial(few_pairs.make_few_pairs, "low")),
    ExperimentEntry(few_pairs.DESIGNS["medium"], partial(few_pairs.make_few_pairs, "medium")),
    ExperimentEntry(pronunciation.DESIGNS["phonemes"], partial(pronunciation.make_pronunciation, "phonemes")),
    ExperimentEntry(pronunciation.DESIGNS["spelling"], partial(pronunciation.make_pronunciation, "spelling")),
    ExperimentEntry(normalisation.DESIGNS["anselm"], partial(normalisation.make_normalisation, "anselm")),
    ExperimentEntry(normalisation.DESIGNS["bohoric"], partial(normalisation.make_normalisation, "bohoric")),
    ExperimentEntry(SUMMARISATION, summarisation.make_summarisation),
    ExperimentEntry(SUMMARISATION_SMALL, summarisation.make_small),
    ExperimentEntry(translation_designs.CHINESE, translation.make_translation),
    ExperimentEntry(translation_designs.CHINESE_SMALL, translation.make_chinese_small),
    ExperimentEntry(translation_designs.MULTI30K, translation.make_multi30k),
    ExperimentEntry(translation_designs.SMALL, translation.make_small),
)
EXPERIMENTS: dict[str, ExperimentEntry] = {entry.design.name: entry for entry in _ENTRIES}
SEVERAL = {
    "inflection-sigmorphon": ("inflection-sigmorphon2017", "inflection-sigmorphon2023"),
    "g2p-cmudict": ("g2p-cmudict-phonemes", "g2p-cmudict-spelling"),
    "normalisation": ("normalisation-anselm", "normalisation-bohoric"),
}
"""Names that stand for several experiments, one after the other."""


def find_experiments(name: str) -> list[ExperimentEntry]:
    """The experiments of a name."""
    if not name:
        raise BadInputError(f"name an experiment: {', '.join([*EXPERIMENTS, *SEVERAL])}")
    names = SEVERAL.get(name, (name,))
    for each in names:
        if each not in EXPERIMENTS:
            raise BadInputError(f"unknown experiment {each!r}{did_you_mean(each, [*EXPERIMENTS, *SEVERAL])}")
    return [EXPERIMENTS[each] for each in names]


def describe_experiments() -> str:
    """The names, what they are, and their blocks; for ``--help``."""
    lines = []
    for name, entry in EXPERIMENTS.items():
        lines += [f"  {name}", f"      {entry.design.about}", f"      blocks: {', '.join(entry.design.blocks)}"]
    return "\n".join([*lines, *(f"  {name}\n      {' and '.join(names)}" for name, names in SEVERAL.items())])
