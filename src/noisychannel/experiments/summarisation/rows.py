"""The rows: the paper's table with four settings of data, three seeds, and rows beyond the paper.

A row names the kinds of its models. Direct models: ``bi``, ``uni`` (the encoder), ``large`` (a larger batch), ``copy``,
``subwords``, ``back`` (with back-translated headlines). Channels: ``plain``, ``large``, ``copy``, ``subwords``.
Language models: ``paper``, ``better`` (a better learning rate), ``subwords``. The row also says how many pairs they
have (``pairs``) and how many unpaired headlines (``unpaired``), all if None; see ``experiment``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.summarisation.cited import ALL, ALL_PAIRED, FEW, FEW_PAIRED

FEW_PAIRS = 100_000
CURVE_PAIRS = (25_000, 250_000)
CURVE_HEADLINES = (150_000,)
"""Of the learning curves, beside what the other blocks have."""
BEAMS = ((4, 2), (10, 5), (50, 25), (200, 100))
"""K1 and K2 beside the paper's 20 and 10."""
WIDE, WIDE_GIB = 50, 20
"""A search with a larger K2 than this needs so much memory, in GiB."""
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


def _with(row: SystemRow, name: str, models: Mapping[str, str] | None = None, **changes: Any) -> SystemRow:
    """A row beyond the paper: ``row, name``."""
    return replace(row, name=f"{row.name}, {name}", models={**row.models, **(models or {})}, **changes)


def in_setting(rows: Iterable[SystemRow], setting: str) -> tuple[SystemRow, ...]:
    """The same rows with the data of a setting."""
    pairs, unpaired = SETTINGS[setting]
    return tuple(replace(row, setting=setting, pairs=pairs, unpaired=unpaired) for row in rows)


BASELINES = (
    SystemRow(name="first 8 words", baseline="first_8"),
    SystemRow(name="first 15 words", baseline="first_15"),
    SystemRow(name="the whole sentence", baseline="identity"),
)
SEQ2SEQ = _row("seq2seq", "seq2seq")
ATTENTION = _row("seq2seq with attention", "attention")
DIRECT_UNI = _row("direct (uni)", "direct", "uni", online=True)
DIRECT = _row("direct (bi)", "direct")
NOISY_UNI = _row("channel + LM + bias (uni)", "channel+lm", "uni", online=True)
NOISY = _row("channel + LM + bias (bi)", "channel+lm")
WITH_LM = _row("direct + LM + bias", "direct+lm")
FULL_UNI = _row("direct + channel + LM + bias (uni)", "direct+channel+lm", "uni")
FULL = _row("direct + channel + LM + bias (bi)", "direct+channel+lm")

WITHOUT_LM = (SEQ2SEQ, ATTENTION, DIRECT_UNI, DIRECT)
WITH_LANGUAGE_MODEL = (NOISY_UNI, NOISY, WITH_LM, FULL_UNI, FULL)
PAPER = (*WITHOUT_LM, *WITH_LANGUAGE_MODEL)
"""The rows of the paper, and the two baselines with models."""


def seed_rows(setting: str) -> tuple[SystemRow, ...]:
    """Three seeds of direct model and channel (the language model has one), and their ensembles."""
    rows = in_setting((DIRECT, WITH_LM, FULL), setting)
    three = [_with(row, "three seeds", seeds=None) for row in rows]
    ensembles = [
        _with(row, "ensemble of three seeds", seeds=None, choose="ensemble", weights_of=three_seeds.name)
        for row, three_seeds in zip(rows, three, strict=True)
        if row.name != WITH_LM.name
    ]
    return (*three, *ensembles)


def _better(row: SystemRow) -> SystemRow:
    return _with(row, "better LM rate", {"lm": "better"})


def _both_models(row: SystemRow, name: str, kind: str) -> SystemRow:
    """With a direct model and a channel of another kind."""
    return _with(row, name, {"direct": kind, "channel": kind})


def _two_lms(row: SystemRow, name: str) -> SystemRow:
    models = {**row.models, "second_lm": "better"}
    return replace(row, name=name, system=f"{row.system}+second_lm", models=models, term_kinds={"second_lm": "lm"})


def model_rows() -> tuple[SystemRow, ...]:
    """Other models: a larger batch, a better language model, copying, and everything but the channel."""
    return (
        _with(DIRECT, "batch 256", {"direct": "large"}),
        _both_models(FULL, "batch 256", "large"),
        _better(WITH_LM),
        _better(FULL),
        _two_lms(WITH_LM, "all but the channel: direct + two LMs + bias"),
        _two_lms(FULL, "all: direct + channel + two LMs + bias"),
        _with(DIRECT, "copying", {"direct": "copy"}),
        _both_models(FULL, "copying", "copy"),
        replace(
            FULL,
            name="seq2seq with attention, n-best reranked by channel + LM + bias",
            system="attention+channel+lm",
        ),
    )


def subword_rows() -> tuple[SystemRow, ...]:
    """Subwords, so that no word is unknown; outputs may have more symbols."""
    longer = {"max_length": 50}
    return (
        _with(DIRECT, "subwords", {"direct": "subwords"}, search=longer),
        _with(FULL, "subwords", {"direct": "subwords", "channel": "subwords", "lm": "subwords"}, search=longer),
    )


def beam(k1: int, k2: int) -> dict[str, int]:
    """A search; a wide one needs much memory for a long sentence."""
    return {"k1": k1, "k2": k2, **({"memory": WIDE_GIB} if k2 > WIDE else {})}


BEAM_ROWS = tuple(_with(FULL, f"K1 {k1}, K2 {k2}", search=beam(k1, k2), weights_of=FULL.name) for k1, k2 in BEAMS)


def search_rows() -> tuple[SystemRow, ...]:
    """The models of the table under other searches, and other weights of the language model."""
    wide = beam(*BEAMS[-1])
    return (
        _with(FULL, "marginal search", search={"search": "marginal"}, weights_of=FULL.name),
        *BEAM_ROWS,
        _with(DIRECT, f"K1 {wide['k1']}, K2 {wide['k2']}", search=wide),
        _with(FULL, "reranks the n-best of direct", choose="rerank", search=RERANKED, weights_of=FULL.name),
        *(
            _with(WITH_LM, f"LM weight raised by {more}", raised={"lm": more}, weights_of=WITH_LM.name)
            for more in RAISED
        ),
    )


def back_translation_rows() -> tuple[SystemRow, ...]:
    """With few pairs: headlines whose first sentences the channel has drawn, as further pairs of the direct model."""
    rows = [_with(row, "back-translation", {"direct": "back"}) for row in (DIRECT, FULL)]
    return in_setting(rows, FEW)


def curve_rows() -> tuple[SystemRow, ...]:
    """Other numbers of pairs, with all headlines; other numbers of unpaired headlines, with all pairs."""
    return (
        *(row.restricted(pairs=n) for n in CURVE_PAIRS for row in (DIRECT, FULL)),
        *(FULL.restricted(unpaired=n) for n in CURVE_HEADLINES),
    )


BLOCKS: dict[str, tuple[SystemRow, ...]] = {
    "table": (*BASELINES, *PAPER),
    "few": in_setting(PAPER, FEW),
    "paired": (*in_setting(WITH_LANGUAGE_MODEL, ALL_PAIRED), *in_setting(WITH_LANGUAGE_MODEL, FEW_PAIRED)),
    "seeds": seed_rows(ALL),
    "few-seeds": seed_rows(FEW),
    "search": search_rows(),
    "models": model_rows(),
    "subwords": subword_rows(),
    "back-translation": back_translation_rows(),
    "curves": curve_rows(),
}
