"""The rows: the paper's table with four settings of data, three seeds, and rows beyond the paper.

A row names the kinds of its models. Direct models: ``bi``, ``uni`` (the encoder), ``large`` (a larger batch), ``copy``,
``subwords``, ``back`` (with back-translated headlines). Attention: ``bi``, ``better`` (another learning rate), ``long``
(more updates). Channels: ``plain``, ``large``, ``copy``, ``subwords``.
Language models: ``paper``, ``better`` (``better_lm`` of the scale, and a rate that falls), ``rate`` (its rate alone),
``subwords``. The row also says how many pairs they have (``pairs``) and how many unpaired headlines (``unpaired``), all
if None; see ``experiment``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.sentences.rows import beam, beams, both_models, three_seeds, varied, with_two_lms
from noisychannel.experiments.sentences.rows import in_setting as with_data
from noisychannel.experiments.summarisation.cited import ALL, ALL_PAIRED, FEW, FEW_PAIRED

FEW_PAIRS = 100_000
BETTER = "better LM"
"""How names of rows end that have a better language model."""
FEWEST_PAIRS = 25_000
CURVE_PAIRS = (FEWEST_PAIRS, 250_000)
CURVE_HEADLINES = (150_000,)
"""Of the learning curves, beside what the other blocks have."""
BEAMS = ((4, 2), (10, 5), (20, 10), (50, 25), (200, 100))
"""K1 and K2; the paper's are 20 and 10."""
RERANKED = {"k1": 50, "k2": 25}
"""The search of the direct model whose n-best list is reranked."""
RAISED = (0.5, 1.0)
"""What is added to the tuned weight of the language model, to see what a larger one does."""
SETTINGS: Mapping[str, tuple[int | None, int | None]] = {
    ALL: (None, None),
    FEW: (FEW_PAIRS, None),
    ALL_PAIRED: (None, 0),
    FEW_PAIRED: (FEW_PAIRS, 0),
}
"""Pairs, and unpaired headlines; all if None."""


def _row(name: str, system: str, direct: str = "bi", **changes: Any) -> SystemRow:
    """A row with all data and one seed; it uses those of the models that its system has."""
    models = {"direct": direct, "seq2seq": "bi", "attention": "bi", "channel": "plain", "lm": "paper"}
    return SystemRow(name=name, setting=ALL, system=system, models=models, seeds=1, **changes)


def in_setting(rows: Iterable[SystemRow], setting: str) -> tuple[SystemRow, ...]:
    """The same rows with the data of a setting."""
    return with_data(rows, setting, *SETTINGS[setting])


BASELINES = (
    SystemRow(name="first 8 words", baseline="first_8"),
    SystemRow(name="first 15 words", baseline="first_15"),
    SystemRow(name="the whole sentence", baseline="identity"),
)
SEQ2SEQ = _row("seq2seq without attention", "seq2seq")
ATTENTION = _row("seq2seq with attention", "attention")
ATTENTION_BIAS = _row("seq2seq with attention + bias", "attention+length")
"""Not in the paper. It has the bias that the systems have with which it is compared."""
DIRECT_UNI = _row("direct (uni)", "direct", "uni", online=True)
DIRECT = _row("direct (bi)", "direct")
WITH_BIAS = _row("direct + bias", "direct+length")
"""Not in the paper. The direct model alone writes too little, so a part of what other rows gain may be their bias."""
NOISY_UNI = _row("channel + LM + bias (uni)", "channel+lm", "uni", online=True)
NOISY = _row("channel + LM + bias (bi)", "channel+lm")
WITH_LM = _row("direct + LM + bias", "direct+lm")
FULL_UNI = _row("direct + channel + LM + bias (uni)", "direct+channel+lm", "uni")
FULL = _row("direct + channel + LM + bias (bi)", "direct+channel+lm")

WITH_ATTENTION = (ATTENTION, ATTENTION_BIAS)
"""They need no model of other rows. Trained beside SSNTs, attention is several times slower than alone."""
WITH_LANGUAGE_MODEL = (NOISY_UNI, NOISY, WITH_LM, FULL_UNI, FULL)
PAPER = (DIRECT_UNI, DIRECT, *WITH_LANGUAGE_MODEL)
"""The rows of the paper."""
OF_BI = (NOISY, WITH_LM, FULL)
OF_UNI = (NOISY_UNI, FULL_UNI)
"""Rows with a language model, grouped by direct model; they share all other models."""


def better_lm(row: SystemRow) -> SystemRow:
    """With a better language model: that of the paper has learnt little when its updates end."""
    return varied(row, BETTER, {"lm": "better"})


def seed_rows(setting: str, with_lm: SystemRow = WITH_LM, full: SystemRow = FULL) -> tuple[SystemRow, ...]:
    """Three seeds of direct model and channel (the language model has one), and their ensembles."""
    return three_seeds(in_setting((DIRECT, with_lm, full), setting), (DIRECT.name, full.name))


BETTER_LM = (DIRECT, WITH_BIAS, *map(better_lm, OF_BI))
"""With the rows that they are compared with, so that the block needs no other. These are in ``table`` and ``few``, too:
the one that is measured last counts."""


def uni_rows() -> tuple[SystemRow, ...]:
    """The unidirectional direct model with less data."""
    less = [row for setting in (ALL_PAIRED, FEW_PAIRED) for row in in_setting(OF_UNI, setting)]
    return (*in_setting((DIRECT_UNI, *OF_UNI), FEW), *less)


RERANKED_ATTENTION = replace(
    FULL,
    name="seq2seq with attention, n-best reranked by channel + LM + bias",
    system="attention+channel+lm",
    search=beam(50, 50),
)


def model_rows() -> tuple[SystemRow, ...]:
    """Other models: a larger batch, a rate of the language model, copying, two LMs, everything but the channel."""
    return (
        varied(DIRECT, "batch 256", {"direct": "large"}),
        both_models(FULL, "batch 256", "large"),
        varied(FULL, "LM learning rate 0.001", {"lm": "rate"}),
        with_two_lms(WITH_LM, "all but the channel: direct + two LMs + bias", "better"),
        with_two_lms(FULL, "all: direct + channel + two LMs + bias", "better"),
        varied(DIRECT, "copying", {"direct": "copy"}),
        both_models(FULL, "copying", "copy"),
        RERANKED_ATTENTION,
    )


def subword_rows() -> tuple[SystemRow, ...]:
    """Subwords, so that no word is unknown; outputs may have more symbols."""
    longer = {"max_length": 50}
    return (
        varied(DIRECT, "subwords", {"direct": "subwords"}, search=longer),
        varied(FULL, "subwords", {"direct": "subwords", "channel": "subwords", "lm": "subwords"}, search=longer),
    )


BEAM_ROWS = beams(FULL, BEAMS)
PLAIN, WIDEST = BEAM_ROWS[2], BEAM_ROWS[-1]


def _references(row: SystemRow) -> SystemRow:
    """What the objective gives the references: those that it prefers to the outputs are errors of the search."""
    return varied(row, "scores of the references", choose="references", weights_of=row.name)


REFERENCES = _references(FULL)


def raised_rows(row: SystemRow) -> tuple[SystemRow, ...]:
    """A tuned row with larger weights of the language model."""
    return tuple(
        varied(row, f"LM weight raised by {more}", raised={"lm": more}, weights_of=row.name) for more in RAISED
    )


def search_rows() -> tuple[SystemRow, ...]:
    """The models of the table under other searches, and other weights of the language model."""
    wide = WIDEST.search
    literal = {"look_ahead": False}
    return (
        varied(NOISY, "proposals of Algorithm 1", search=literal),
        varied(FULL, "proposals of Algorithm 1", search=literal),
        varied(FULL, "marginal search", search={"search": "marginal"}, weights_of=FULL.name),
        *BEAM_ROWS,
        varied(DIRECT, f"K1 {wide['k1']}, K2 {wide['k2']}", search=wide),
        varied(FULL, "reranks the n-best of direct", choose="rerank", search=RERANKED, weights_of=FULL.name),
        *raised_rows(WITH_LM),
        REFERENCES,
    )


def back_translation_rows() -> tuple[SystemRow, ...]:
    """With few pairs: headlines whose first sentences the channel has drawn, as further pairs of the direct model."""
    rows = [varied(row, "back-translation", {"direct": "back"}) for row in (DIRECT, FULL)]
    return in_setting(rows, FEW)


def curve_rows() -> tuple[SystemRow, ...]:
    """Other numbers of pairs, with all headlines; other numbers of unpaired headlines, with all pairs."""
    return (
        *(row.restricted(pairs=n) for n in CURVE_PAIRS for row in (DIRECT, FULL)),
        *(FULL.restricted(unpaired=n) for n in CURVE_HEADLINES),
    )


BLOCKS: dict[str, tuple[SystemRow, ...]] = {
    "table": (*BASELINES, WITH_BIAS, *PAPER),
    "few": in_setting((WITH_BIAS, DIRECT, *OF_BI), FEW),
    "paired": (*in_setting(OF_BI, ALL_PAIRED), *in_setting(OF_BI, FEW_PAIRED)),
    "uni": uni_rows(),
    "attention": WITH_ATTENTION,
    "few-attention": in_setting(WITH_ATTENTION, FEW),
    "seq2seq": (SEQ2SEQ, *in_setting([SEQ2SEQ], FEW)),
    "better-lm": (*BASELINES, *BETTER_LM),
    "few-better-lm": in_setting(BETTER_LM, FEW),
    "seeds": seed_rows(ALL),
    "few-seeds": seed_rows(FEW),
    "search": search_rows(),
    "models": model_rows(),
    "subwords": subword_rows(),
    "back-translation": back_translation_rows(),
    "curves": curve_rows(),
}


def other_training(row: SystemRow) -> tuple[SystemRow, SystemRow]:
    """Attention with more updates, and with the paper's rate: other settings were chosen for SSNTs."""
    return varied(row, "8 passes", {"attention": "long"}), varied(row, "learning rate 0.001", {"attention": "better"})


SMALL_PAPER = (DIRECT_UNI, DIRECT, *map(better_lm, WITH_LANGUAGE_MODEL))
SMALL_FULL = in_setting([better_lm(FULL)], FEW)[0]
SMALL_BEAMS = beams(SMALL_FULL, ((4, 2), (10, 5), (20, 10)))
SMALL_REFERENCES = _references(SMALL_FULL)
SMALL_CURVES = in_setting((DIRECT, WITH_BIAS, better_lm(FULL)), FEW)
SMALL_BLOCKS: dict[str, tuple[SystemRow, ...]] = {
    "table": (*BASELINES, *in_setting((WITH_BIAS, *WITH_ATTENTION, *SMALL_PAPER), FEW)),
    "paired": in_setting(map(better_lm, (*OF_UNI, *OF_BI)), FEW_PAIRED),
    "lm-weight": raised_rows(in_setting([better_lm(WITH_LM)], FEW)[0]),
    "search": (*SMALL_BEAMS, SMALL_REFERENCES),
    "reranked": in_setting([better_lm(RERANKED_ATTENTION)], FEW),
    "seq2seq": in_setting([SEQ2SEQ], FEW),
    "attention": in_setting((*other_training(ATTENTION), *other_training(ATTENTION_BIAS)), FEW),
    "curves": tuple(row.restricted(pairs=FEWEST_PAIRS) for row in SMALL_CURVES),
    "seeds": seed_rows(FEW, *map(better_lm, (WITH_LM, FULL))),
}
"""What two CPU cores can measure: 100,000 pairs, and the better language model alone."""
