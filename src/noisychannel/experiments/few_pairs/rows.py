"""The rows of the experiments with few pairs: the ingredients one by one, what ``fit`` chooses, curves and opponents.

``models`` names the ingredients of a run, see ``specs.plan_of``: ``rule`` is what ``fit`` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noisychannel.experiments.rows import SystemRow

PAIRS = (50, 100, 200, 500, 1_000)
WORDS = (0, 1_000)
"""Of the curves. All words are a row of the table."""


def row(name: str, system: str, kind: str = "rule", setting: str = "", seeds: int | None = None) -> SystemRow:
    """A row whose models all have the same ingredients."""
    roles = ("direct", "channel", "lm", "word_list", "seen")
    return SystemRow(name=name, setting=setting, system=system, models=dict.fromkeys(roles, kind), seeds=seeds)


def baseline(name: str, which: str, setting: str = "") -> SystemRow:
    return SystemRow(name=name, setting=setting, baseline=which)


IDENTITY = baseline("identity", "identity")
MEMORISED = baseline("memorised pairs, else identity", "memorised")
RULES = baseline("longest-suffix rules", "rules")
PLAIN = row("direct", "direct", "plain")
DIRECT = row("direct, as fit chooses", "direct")
WITH_LM = row("direct + LM, as fit chooses", "direct+lm")
WITH_LIST = row("direct + LM + word list, as fit chooses", "direct+lm+word_list")
FULL = row("full (direct + channel + LM), as fit chooses", "direct+channel+lm")
FULL_LIST = row("full + word list, as fit chooses", "direct+channel+lm+word_list")
ENSEMBLE = replace(
    FULL_LIST, name=f"{FULL_LIST.name}, ensemble of the seeds", choose="ensemble", weights_of=FULL_LIST.name
)
INGREDIENTS = (
    row("direct, copying", "direct", "copy"),
    row("direct, made-up pairs", "direct", "made"),
    row("direct, copying, made-up pairs", "direct", "copymade"),
    row("direct, copying, words given inputs", "direct", "inputs"),
)
THREE = row("direct, copying, made-up pairs, words given inputs", "direct", "all")
"""If this is not what ``fit`` chooses."""
FULL_PLAIN = row("full, without ingredients", "direct+channel+lm", "plain", seeds=1)
FULL_COPY_MADE = row("full, copying, made-up pairs", "direct+channel+lm", "copymade", seeds=1)


def table_rows(ensemble: bool, three: bool) -> tuple[SystemRow, ...]:
    """``ensemble``: of several seeds; ``three``: all three ingredients beside what ``fit`` chooses."""
    return (
        IDENTITY,
        MEMORISED,
        RULES,
        PLAIN,
        *INGREDIENTS,
        *([THREE] if three else []),
        DIRECT,
        FULL_PLAIN,
        FULL_COPY_MADE,
        WITH_LM,
        WITH_LIST,
        FULL,
        FULL_LIST,
        *([ENSEMBLE] if ensemble else []),
    )


def of_amounts(of: SystemRow, models: str, **amounts: int | None) -> SystemRow:
    """A row with one seed and fewer pairs or words. ``models``: such as ``rule.p100``."""
    return of.restricted(**amounts, seeds=1, models=dict.fromkeys(of.models, models))


def curve_rows(pairs: Sequence[int] = PAIRS, most: int = 1_000, parts: str = "three languages") -> list[SystemRow]:
    """Rules, direct and full with few pairs, on some parts only, so that the names say so."""
    rows: list[SystemRow] = []
    for n in pairs:
        models = "rule" if n == most else f"rule.p{n}"
        for of in (RULES, DIRECT, FULL_LIST):
            rows.append(of_amounts(replace(of, name=f"{of.name}, {parts}"), models, pairs=n))
    return rows


def list_rows(words: Sequence[int] = WORDS) -> list[SystemRow]:
    """Direct and full with few words. Without words there is no word list."""
    rows: list[SystemRow] = []
    for n in words:
        full = FULL_LIST if n else replace(FULL_LIST, system=FULL.system)
        rows += [of_amounts(of, f"rule.w{n}", unpaired=n) for of in (DIRECT, full)]
    return rows


OPPONENTS = (
    baseline("character transformer, four languages", "transformer"),
    baseline("character transformer, made-up pairs, four languages", "transformer+made_up"),
)
FITTED = baseline("noisychannel fit, without a dev set", "fit")
