"""Translation: its vocabularies, and the kinds of its models. Chinese–English and Multi30k differ in their data alone.

Vocabularies are made from the pairs, as in the paper. With fewer pairs of Multi30k the German vocabulary is made from
these alone; the English one is that of all captions, whose language model all settings share.
"""

from __future__ import annotations

from dataclasses import replace

from noisychannel.experiments.items import Part
from noisychannel.experiments.sentences.experiment import SentenceExperiment
from noisychannel.experiments.sentences.specs import SUBWORDS, WORDS, Kind, RunSpec
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.translation import scale as scales
from noisychannel.experiments.translation.cited import APPENDIX, APPENDIX_PART
from noisychannel.experiments.translation.data import (
    CAPTIONS,
    CHINESE,
    ENGLISH,
    LONGEST,
    read_chinese,
    read_multi30k,
)
from noisychannel.experiments.translation.design import CHINESE as CHINESE_DESIGN
from noisychannel.experiments.translation.design import CHINESE_SMALL as CHINESE_SMALL_DESIGN
from noisychannel.experiments.translation.design import MULTI30K as MULTI30K_DESIGN
from noisychannel.experiments.translation.design import SMALL as SMALL_DESIGN
from noisychannel.experiments.translation.rows import FEW_PAIRS
from noisychannel.experiments.translation.scale import TranslationScale
from noisychannel.text import TextConfig

RARE, CHARACTERS, FEW = "count2", "characters", "few"
"""Vocabularies: with rarer words; the input as characters; of few pairs."""
KINDS = {
    **dict.fromkeys(("bi", "plain", "paper"), Kind()),
    "better": Kind(better_rate=True),
    "back": Kind(back_translated=True),
    "count2": Kind(vocabulary=RARE),
    "characters": Kind(vocabulary=CHARACTERS),
    "subwords": Kind(vocabulary=SUBWORDS),
}


class Translation(SentenceExperiment):
    """The data and the runs."""

    kinds = KINDS
    longest = LONGEST
    unpaired_noun = "sentences"
    scale: TranslationScale
    text: tuple[TextConfig, TextConfig] = (CHINESE, ENGLISH)

    def sides(self, vocabulary: str) -> tuple[TextConfig, TextConfig]:
        scale, text = self.scale, self.text
        if self.data.characters:
            text = replace(text[0], remove_spaces=True), text[1]
        count = min(2, scale.min_count) if vocabulary == RARE else scale.min_count
        types = scale.input_types, scale.output_types
        source, target = (replace(side, min_count=count, max_size=most) for side, most in zip(text, types, strict=True))
        match vocabulary:
            case "subwords":
                subwords = [replace(side, units="subwords", max_size=scale.subwords) for side in text]
                return subwords[0], subwords[1]
            case _ if vocabulary == CHARACTERS or self.data.characters:
                return replace(source, units="characters", remove_spaces=True), target
            case _:
                return source, target


class Multi30k(Translation):
    """Captions. A setting of few pairs has a German vocabulary of its own."""

    text = (CAPTIONS, CAPTIONS)
    unpaired_noun = "captions"

    def vocabulary_of(self, spec: RunSpec) -> str:
        vocabulary = super().vocabulary_of(spec)
        return FEW if vocabulary == WORDS and spec.role != "lm" and spec.pairs is not None else vocabulary

    def vocabulary_data(self, vocabulary: str) -> tuple[int | None, list[str]]:
        """Of few pairs: with the English of the other pairs, so that outputs have the vocabulary of all."""
        if vocabulary != FEW:
            return super().vocabulary_data(vocabulary)
        few = self.amounts.scaled(FEW_PAIRS)
        return few, [self._file("left.txt", self.left_outputs(few))]


def make_translation(setup: Setup, quick: bool) -> Translation:
    """Chinese to English."""
    scale = scales.QUICK if quick else TranslationScale()
    shown = [Part(APPENDIX_PART, (), APPENDIX)]
    return Translation(CHINESE_DESIGN, read_chinese(setup.data, scale.lines), setup, scale, shown)


def make_multi30k(setup: Setup, quick: bool) -> Multi30k:
    """German to English."""
    scale = scales.QUICK_MULTI30K if quick else scales.MULTI30K
    return Multi30k(MULTI30K_DESIGN, read_multi30k(setup.data, scale.lines), setup, scale)


def make_small(setup: Setup, quick: bool) -> Multi30k:
    """German to English for two CPU cores."""
    scale = scales.QUICK_MULTI30K if quick else scales.SMALL
    return Multi30k(SMALL_DESIGN, read_multi30k(setup.data, scale.lines).with_first_test(), setup, scale)


def make_chinese_small(setup: Setup, quick: bool) -> Translation:
    """Chinese to English for two CPU cores."""
    scale = scales.QUICK if quick else scales.CHINESE_SMALL
    shown = [Part(APPENDIX_PART, (), APPENDIX)]
    data = read_chinese(setup.data, scale.lines).with_first_test()
    return Translation(CHINESE_SMALL_DESIGN, data, setup, scale, shown)
