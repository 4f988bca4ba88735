"""The rules by which ``fit`` chooses, and all their constants.

They were made on the dev sets of nine languages of SIGMORPHON 2017, with 100 and 1,000 pairs, and of two texts in
historical spelling (docs/experiments/few-pairs.md, docs/experiments/normalisation.md).
"""

from __future__ import annotations

import math

from noisychannel.evaluation.default_metric import SMALL_INVENTORY
from noisychannel.fitting.facts import Facts
from noisychannel.fitting.tagging import MOST_TAG_SETS

FEW = 500
"""Fewer pairs than this are held out in turn, in folds."""
FOLDS = 3
DEV_SHARE, LEAST_DEV, MOST_DEV = 0.15, 100, 1_000
"""With more pairs, this much is split off as dev, once."""
COPIED = 0.5
"""With so much copied, copying and made-up pairs are used."""
MADE_UP, MADE_UP_BESIDE_WORDS = 8_000, 2_000
"""Made-up pairs; if words are given inputs, fewer of them are better."""
MADE_UP_UNTIL, MADE_UP_GONE = 500, 1_000
"""If words are given inputs, made-up pairs become fewer still between these numbers of pairs."""
GIVEN_INPUTS = 10_000
"""The most words that are given inputs."""
VARIED = 0.05
"""If the outputs of so many pairs are written in several ways, so should the inputs of words be: they are drawn."""
LEAST_WORDS = 200
"""So few words are not worth a reverse model."""
LEAST_REPEATED, MOST_REPEATED, MOST_REPEATED_IN_REVERSE = 4, 10, 40
"""How often a real pair is repeated beside pairs that were made. A reverse model has made-up ones alone."""
REVERSE_UPDATES = 0.5
"""The share of the updates that a reverse model has: with so little data it learns quickly, and then too much."""
COPY_START = 3.0
HIDDEN, EMBEDDING, DROPOUT = 128, 128, 0.3
BATCH, LEARNING_RATE = 32, 4e-3
UPDATES, MOST_UPDATES, EPOCHS = 2_000, 20_000, 10
"""Updates with 100 pairs or fewer. 1,000 pairs take twice as many, four times as many pairs twice as many again, and
large data so many epochs."""
LM_HIDDEN = ((2_000, 256), (500, 128), (0, 64))
"""Units of the language model by the least number of outputs it is trained on."""
LM_BATCH, LM_RATE, LM_EPOCHS, LM_LEAST, LM_MOST = 64, 4e-3, 20, 300, 4_000
"""The language model is trained for so many epochs, within these numbers of updates."""
WORDS_ALONE = 1_000
"""With so many words, the language model is trained on them alone."""
REPEATED = 0.05
"""If so many pairs are repetitions of earlier ones, they are running text, and inputs come again."""
LISTED = 0.99
"""If so many outputs of pairs are among the words, the list was probably made from them, among others."""
K1, K2 = 10, 5
NO_TAGS = "the pairs have tags, but the words have none"


def folds(facts: Facts) -> int:
    """In how many folds pairs are held out; 0: some are split off once."""
    return FOLDS if facts.pairs < FEW or facts.inputs < LEAST_DEV else 0


def dev_size(pairs: int) -> int:
    """How many pairs are split off."""
    return min(MOST_DEV, max(LEAST_DEV, round(DEV_SHARE * pairs)))


def copying(facts: Facts) -> bool:
    """Whether outputs are mostly copied from inputs, letter by letter."""
    return (facts.input_units, facts.output_units) == ("characters", "characters") and facts.copied >= COPIED


def given_inputs(facts: Facts) -> int:
    """How many words are given inputs by a reverse model."""
    tagged = facts.tagged_words or not facts.tags or can_tag(facts)
    usable = facts.words >= LEAST_WORDS and tagged and not running_text(facts)
    return min(GIVEN_INPUTS, facts.words) if usable else 0


def repeats(pairs: int, made: int) -> int:
    """How often each real pair counts beside so many that were made."""
    return max(LEAST_REPEATED, min(MOST_REPEATED, made // max(pairs, 1))) if made else 1


def can_tag(facts: Facts) -> bool:
    """Whether a reverse model can write the tags of words."""
    return facts.input_units == "characters" and not facts.private_symbols and facts.tag_sets <= MOST_TAG_SETS


def no_tagging(facts: Facts) -> str:
    """Why a reverse model cannot write the tags of words, if it cannot."""
    if facts.input_units != "characters":
        return "the inputs are words, before which a reverse model writes no tags"
    return "inputs have symbols of the private use area" if facts.private_symbols else "there are too few of them"


def made_up(facts: Facts, given: int) -> int:
    """How many pairs are made up beside so many words with inputs."""
    if not copying(facts):
        return 0
    if not given:
        return MADE_UP
    left = (MADE_UP_GONE - facts.pairs) / (MADE_UP_GONE - MADE_UP_UNTIL)
    return 100 * round(MADE_UP_BESIDE_WORDS * min(1.0, max(0.0, left)) / 100)


def updates(pairs: int) -> int:
    """Updates of direct model and channel."""
    by_size = UPDATES * (1 + math.log10(min(max(pairs, 100), 1_000) / 100)) * math.sqrt(max(pairs, 1_000) / 1_000)
    return 10 * round(min(MOST_UPDATES, max(by_size, EPOCHS * pairs / BATCH)) / 10)


def paced(facts: Facts) -> bool:
    """Whether models could fail to align: if both sides are sentences, whose word order may differ."""
    return running_text(facts) and facts.input_units == "words"


def running_text(facts: Facts) -> bool:
    """Whether outputs are sentences: words of a large inventory."""
    return facts.output_units == "words" and facts.output_symbols > SMALL_INVENTORY
