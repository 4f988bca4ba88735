"""The words of a report, for readers who do not know them: those that its systems and sections use."""

from __future__ import annotations

from collections.abc import Collection

from noisychannel.pages import escape
from noisychannel.report.section import Section

KEY, TITLE = "words", "Words of this page"
TERMS = {
    "direct": "The direct model, and its term: how probable it thinks the output is, given the input.",
    "attention": "A model that proposes outputs: how probable it thinks the output is, given the input.",
    "seq2seq": "A model that proposes outputs: how probable it thinks the output is, given the input.",
    "transformer": "A model that proposes outputs: how probable it thinks the output is, given the input.",
    "channel": "The channel model: how probable it thinks the input is, given the output. It reads backwards, and so "
    "notices an output that leaves something out.",
    "lm": "The language model: how usual the output is by itself, whatever the input.",
    "word_list": "The word list: whether the output is a word of the list.",
    "seen": "The training pairs: how often the output was seen with this input.",
    "length": "The number of symbols of an output. A positive weight makes outputs longer.",
}
"""Parts of systems, in the order in which they are explained."""
GENERAL = {
    "system": "Models that choose an output together. Its name lists them: direct+lm is the direct model with a "
    "language model.",
    "symbol": "What the models read and write one at a time: a letter, a word or a piece of a word.",
    "term, weight, score": "Each model gives an output a number, its term: the natural logarithm of a probability, so "
    "0 is certain, and one less (one nat) is 2.7 times less probable. The score of an output is the sum of weight × "
    "term. The output with the highest score is chosen.",
    "reference": "An output that the data say is right.",
    "dev data, test data": "Pairs that no model was trained on. Weights are chosen on dev data; test data are for "
    "measuring alone.",
    "95 % interval": "Where the number would lie with other items of the same kind, 95 times in 100. It comes from "
    "drawing the items again and again (bootstrap).",
    "p": "How often chance alone would show a difference at least this large. Below 0.05 is "
    "usually called significant.",
    "k1, k2": "How wide the search is: how many extensions each cell of it considers, and how many it keeps.",
    "viterbi, marginal": "Whether the search scores an output by its best alignment with the input, or by all of them.",
    "confidence": "The probability that an output is right, as the system says it.",
}


def words_section(terms: Collection[str]) -> Section:
    """An explanation of each word. ``terms``: the parts of the systems that are shown."""
    added = dict.fromkeys(sorted(set(terms) - TERMS.keys()), "A term that was added to this run.")
    known = {**{name: text for name, text in TERMS.items() if name in terms}, **added, **GENERAL}
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in known.items())
    return Section(KEY, TITLE, f'<dl class="words">{rows}</dl>')
