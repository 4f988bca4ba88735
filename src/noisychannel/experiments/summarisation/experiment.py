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
from noisychannel.experiments.summarisation.design import DESIGN, SMALL_DESIGN
from noisychannel.experiments.summarisation.rows import FEW_PAIRS
from noisychannel.experiments.summarisation.scale import QUICK, SMALL, SummarisationScale
from noisychannel.text import TextConfig

PAPERS_FEW_PAIRS, PAPERS_PAIRS = 1_000_000, 3_000_000
"""The paper's few pairs, and at least how many there are if a user has its data: 3.8m."""
KINDS = {
    **dict.fromkeys(("bi", "plain", "paper"), Kind()),
    "uni": Kind(bidirectional=False),
    "long": Kind(most_passes=True),
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
    """Half a million pairs, or a user's own."""
    scale = QUICK if quick else SummarisationScale()
    return _make(DESIGN, read_data(setup.data, scale.lines), setup, scale)


def make_small(setup: Setup, quick: bool) -> Summarisation:
    """The first test set and few pairs, for two CPU cores."""
    scale = QUICK if quick else SMALL
    return _make(SMALL_DESIGN, read_data(setup.data, scale.lines).with_first_test(), setup, scale)


def _make(design: Design, data: SentenceData, setup: Setup, scale: SummarisationScale) -> Summarisation:
    if scale is not QUICK:
        scale = replace(scale, share=few_pairs(len(data.train)) / FEW_PAIRS)
    return Summarisation(design, data, setup, scale)


def few_pairs(pairs: int) -> int:
    """Those of the settings with 100k pairs in their name, if there are so many pairs: the paper's 1.0m of Gigaword's
    3.8m; of less data 100,000, or a fifth if that is fewer."""
    return PAPERS_FEW_PAIRS if pairs >= PAPERS_PAIRS else max(1, min(FEW_PAIRS, pairs // 5))
