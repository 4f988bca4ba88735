"""Summarisation: its vocabularies, and the kinds of its models.

Vocabularies are made from all pairs and all headlines, in every setting: then settings can share the language model of
all headlines.
"""

from __future__ import annotations

from dataclasses import replace

from noisychannel.experiments.design import Design
from noisychannel.experiments.items import Part
from noisychannel.experiments.sentences.experiment import SentenceExperiment
from noisychannel.experiments.sentences.pairs import SentenceData
from noisychannel.experiments.sentences.specs import SUBWORDS, Kind
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.summarisation.cited import APPENDIX, APPENDIX_PART
from noisychannel.experiments.summarisation.data import MOST_INPUT_WORDS, MOST_OUTPUT_WORDS, TEXT, read_data
from noisychannel.experiments.summarisation.design import DESIGN
from noisychannel.experiments.summarisation.rows import FEW_PAIRS
from noisychannel.experiments.summarisation.scale import QUICK, SummarisationScale
from noisychannel.text import TextConfig

KINDS = {
    **dict.fromkeys(("bi", "plain", "paper"), Kind()),
    "uni": Kind(bidirectional=False),
    "large": Kind(large_batch=True),
    "copy": Kind(copy=True),
    "better": Kind(better_rate=True),
    "rate": Kind(better_lm_rate=True),
    "back": Kind(back_translated=True),
    "subwords": Kind(vocabulary=SUBWORDS),
}


class Summarisation(SentenceExperiment):
    """The data and the runs."""

    kinds = KINDS
    longest = MOST_INPUT_WORDS, MOST_OUTPUT_WORDS
    unpaired_noun = "headlines"
    scale: SummarisationScale

    def __init__(self, design: Design, data: SentenceData, setup: Setup, scale: SummarisationScale) -> None:
        super().__init__(design, data, setup, scale, [Part(APPENDIX_PART, (), APPENDIX)])

    def sides(self, vocabulary: str) -> tuple[TextConfig, TextConfig]:
        side = replace(TEXT, max_size=self.scale.vocabulary)
        if vocabulary == SUBWORDS:
            side = replace(TEXT, units="subwords", max_size=self.scale.subwords)
        return side, replace(side)

    def vocabulary_data(self, vocabulary: str) -> tuple[int | None, list[str]]:
        """Subwords are made from fewer pairs."""
        if vocabulary == SUBWORDS:
            return self.amounts.scaled(FEW_PAIRS), []
        return None, self.unpaired_files(None)


def make_summarisation(setup: Setup, quick: bool) -> Summarisation:
    scale = QUICK if quick else SummarisationScale()
    return Summarisation(DESIGN, read_data(setup.data, scale.lines), setup, scale)
