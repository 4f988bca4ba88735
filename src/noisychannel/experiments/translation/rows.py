"""The rows: the paper's table, other amounts of English, three seeds, and rows beyond the paper; and Multi30k's.

A row names the kinds of its models; ``experiment.KINDS`` says what they are. Direct models, baselines and channels:
``bi`` and ``plain`` (the paper's), ``better`` (another learning rate), ``count2`` (words seen twice are known),
``characters`` (of the Chinese), ``subwords``; direct models and transformers also ``back`` (with back-translated
English). Language models: ``paper``, ``better``, ``count2``, ``subwords``. A new block is a tuple of rows, and a line
in ``BLOCKS``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.sentences.rows import (
    beam,
    beams,
    both_models,
    in_setting,
    three_seeds,
    varied,
    with_two_lms,
)

LM_DATA = (0, 184_000, 1_000_000)
"""Unpaired English sentences of the language model, beside all."""
BEAMS = ((4, 2), (20, 10), (50, 25), (200, 100))
"""K1 and K2; the paper's are 20 and 10."""
RERANKED = beam(50, 50)
"""The beam of a model whose n-best list is reranked."""
FEW_PAIRS = 5_000
ALL, FEW = "29,000 pairs", "5,000 pairs, 24,000 more captions"
"""The settings of Multi30k."""


def _row(name: str, system: str, **changes: Any) -> SystemRow:
    """A row with all data and one seed; it uses those of the models that its system has."""
    proposing = dict.fromkeys(("direct", "seq2seq", "attention", "transformer", "ngram_pairs"), "bi")
    models = {**proposing, "channel": "plain", "lm": "paper"}
    return SystemRow(name=name, system=system, models=models, seeds=1, **changes)


BASELINES = (
    SystemRow(name="the source as it is", baseline="identity"),
    SystemRow(name="memorised sentences", baseline="memorised"),
    SystemRow(name="the nearest known sentence", baseline="nearest"),
)
"""Without models, so the block of these alone needs no GPU."""
SEQ2SEQ = _row("seq2seq without attention", "seq2seq")
ATTENTION = _row("seq2seq with attention", "attention")
DIRECT = _row("direct (bi)", "direct")
WITH_LM = _row("direct + LM + bias", "direct+lm")
NOISY = _row("channel + LM + bias", "channel+lm")
FULL = _row("direct + channel + LM + bias", "direct+channel+lm")
PAPER = (SEQ2SEQ, ATTENTION, DIRECT, WITH_LM, NOISY, FULL)
"""The rows of the paper's table."""

TRANSFORMER = _row("transformer", "transformer")
CHANNEL_WORDS = 500
"""Frequent words in the softmax of the channel of later work, beside those of the sentence."""
WITH_BIAS = _row("direct + bias", "direct+length")
ATTENTION_BIAS = _row("seq2seq with attention + bias", "attention+length")
BIASED = WITH_BIAS, ATTENTION_BIAS
"""Not in the paper: the models alone, with the bias that the systems have with which they are compared."""
BUT_CHANNEL = with_two_lms(WITH_LM, "all but the channel: direct + two LMs + bias", "better")
EVERYTHING = with_two_lms(FULL, "all: direct + channel + two LMs + bias", "better")
RERANKED_ATTENTION = replace(
    FULL,
    name="seq2seq with attention, n-best reranked by channel + LM + bias",
    system="attention+channel+lm",
    search=RERANKED,
)
BEAM_ROWS = beams(FULL, BEAMS)
PLAIN, WIDEST = BEAM_ROWS[1], BEAM_ROWS[-1]


def _references(row: SystemRow) -> SystemRow:
    """What the objective gives the references: those that it prefers to the outputs are errors of the search."""
    return varied(row, "scores of the references", choose="references", weights_of=row.name)


REFERENCES = _references(FULL)


def _better_lm(row: SystemRow) -> SystemRow:
    return varied(row, "LM learning rate 0.001", {"lm": "better"})


BETTER_LM = tuple(map(_better_lm, (WITH_LM, NOISY, FULL)))


def _all_models(row: SystemRow, name: str, kind: str) -> SystemRow:
    """With all three models of another kind."""
    return varied(row, name, {"direct": kind, "channel": kind, "lm": kind})


def lm_rows() -> tuple[SystemRow, ...]:
    """The language model with less English."""
    return tuple(row.restricted(unpaired=n) for n in LM_DATA for row in (WITH_LM, NOISY, FULL))


def bias_rows() -> tuple[SystemRow, ...]:
    """The systems of ``better-lm`` without the length bias, and tuned without it."""
    return tuple(replace(row, name=row.name.replace(" + bias", ""), bias=False) for row in BETTER_LM)


def model_rows() -> tuple[SystemRow, ...]:
    """Better learning rates; everything but the channel; reranking the attention model's n-best list."""
    return (
        varied(DIRECT, "learning rate 0.002", {"direct": "better"}),
        varied(ATTENTION, "learning rate 0.002", {"attention": "better"}),
        *BETTER_LM,
        _all_models(FULL, "better learning rates", "better"),
        BUT_CHANNEL,
        EVERYTHING,
        RERANKED_ATTENTION,
    )


def unit_rows() -> tuple[SystemRow, ...]:
    """Other symbols: rarer words, the Chinese as characters, subwords on both sides."""
    longer = {"max_length": 100}
    return (
        varied(DIRECT, "count ≥ 2", {"direct": "count2"}),
        _all_models(FULL, "count ≥ 2", "count2"),
        varied(DIRECT, "Chinese as characters", {"direct": "characters"}),
        both_models(FULL, "Chinese as characters", "characters"),
        varied(DIRECT, "subwords", {"direct": "subwords"}, search=longer),
        replace(_all_models(FULL, "subwords", "subwords"), search=longer),
    )


def back_translation_rows() -> tuple[SystemRow, ...]:
    """English sentences whose Chinese the channel has drawn, as further pairs of the direct model."""
    return tuple(varied(row, "back-translation", {"direct": "back"}) for row in (DIRECT, FULL))


def later_rows() -> tuple[SystemRow, ...]:
    """What later work does: terms divided by lengths, a smaller softmax of the channel, a density ratio."""
    few_words = {"channel_words": CHANNEL_WORDS}
    return (
        varied(RERANKED_ATTENTION, "lengths normalised", search={**RERANKED, "per_symbol": True}),
        varied(FULL, f"channel over {CHANNEL_WORDS} words", search=few_words, weights_of=FULL.name),
        varied(WITH_LM, "density ratio", system=f"{WITH_LM.system}+ngram_pairs"),
        varied(FULL, "density ratio", system=f"{FULL.system}+ngram_pairs"),
    )


def transformer_rows() -> tuple[SystemRow, ...]:
    """The present-day opponent, alone, with back-translation, and with its n-best list reranked."""
    reranked = replace(RERANKED_ATTENTION, name="transformer, n-best reranked by channel + LM + bias")
    return (
        TRANSFORMER,
        varied(TRANSFORMER, "back-translation", {"transformer": "back"}),
        replace(reranked, system="transformer+channel+lm"),
    )


def search_rows() -> tuple[SystemRow, ...]:
    """The models of the table under other searches."""
    wide = WIDEST.search
    literal = {"look_ahead": False}
    return (
        varied(NOISY, "proposals of Algorithm 1", search=literal),
        varied(FULL, "proposals of Algorithm 1", search=literal),
        varied(FULL, "marginal search", search={"search": "marginal"}, weights_of=FULL.name),
        *BEAM_ROWS,
        varied(DIRECT, f"K1 {wide['k1']}, K2 {wide['k2']}", search=wide),
        varied(FULL, "reranks the n-best of direct", choose="rerank", search=beam(50, 25), weights_of=FULL.name),
        REFERENCES,
    )


BLOCKS: dict[str, tuple[SystemRow, ...]] = {
    "table": (*BASELINES, DIRECT, WITH_LM, NOISY, FULL, WITH_BIAS),
    "better-lm": (*BASELINES, DIRECT, WITH_BIAS, *BETTER_LM),
    "attention": (ATTENTION, ATTENTION_BIAS),
    "seq2seq": (SEQ2SEQ,),
    "lm-data": lm_rows(),
    "seeds": three_seeds((DIRECT, ATTENTION, FULL), (DIRECT.name, FULL.name)),
    "bias": bias_rows(),
    "search": search_rows(),
    "models": model_rows(),
    "units": unit_rows(),
    "back-translation": back_translation_rows(),
    "later": later_rows(),
    "transformer": transformer_rows(),
    "baselines": BASELINES,
}


SMALL_TABLE = (*BASELINES, ATTENTION, DIRECT, *BIASED, *BETTER_LM)
SMALL_ROWS = (*SMALL_TABLE, _better_lm(RERANKED_ATTENTION))
"""What two CPU cores can measure: the better language model alone."""
SMALL_FULL = BETTER_LM[-1]
SMALL_BEAMS = beams(SMALL_FULL, ((4, 2), (10, 5), (20, 10)))
SMALL_REFERENCES = _references(SMALL_FULL)
CHINESE_SMALL_BLOCKS: dict[str, tuple[SystemRow, ...]] = {
    "table": SMALL_TABLE,
    "reranked": SMALL_ROWS[-1:],
    "lm-data": tuple(row.restricted(unpaired=0) for row in BETTER_LM),
    "search": (*SMALL_BEAMS, SMALL_REFERENCES),
    "seq2seq": (SEQ2SEQ,),
}
SMALL_BLOCKS = {
    "few": in_setting(SMALL_ROWS, FEW, FEW_PAIRS),
    "all": in_setting(SMALL_TABLE, ALL, None),
    "all-reranked": in_setting(SMALL_ROWS[-1:], ALL, None),
}


def multi30k_rows(setting: str) -> tuple[SystemRow, ...]:
    """The paper's rows, everything but the channel, and better learning rates."""
    rows = (*BASELINES, *PAPER, *BIASED, *BETTER_LM, BUT_CHANNEL, EVERYTHING, RERANKED_ATTENTION)
    return in_setting(rows, setting, None if setting == ALL else FEW_PAIRS)


MULTI30K_BLOCKS: dict[str, tuple[SystemRow, ...]] = {
    "all": multi30k_rows(ALL),
    "few": multi30k_rows(FEW),
    "seeds": three_seeds(in_setting((DIRECT, ATTENTION, FULL), ALL, None), (DIRECT.name, FULL.name)),
    "few-back-translation": in_setting(back_translation_rows(), FEW, FEW_PAIRS),
    "transformer": in_setting(transformer_rows()[::2], ALL, None),
    "few-transformer": in_setting(transformer_rows(), FEW, FEW_PAIRS),
    "baselines": (*in_setting(BASELINES, ALL, None), *in_setting(BASELINES, FEW, FEW_PAIRS)),
}
