"""The paper's claims about summarisation, and our goals, as statements about rows."""

from __future__ import annotations

from collections.abc import Iterable

from noisychannel.experiments.design import Claim
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.sentences.rows import of_three_seeds
from noisychannel.experiments.summarisation.cited import ALL, ALL_PAIRED, FEW, FEW_PAIRED
from noisychannel.experiments.summarisation.rows import (
    ATTENTION,
    ATTENTION_BIAS,
    BASELINES,
    DIRECT,
    FEWEST_PAIRS,
    FULL,
    FULL_UNI,
    NOISY,
    RAISED,
    SMALL_CURVES,
    WITH_BIAS,
    WITH_LM,
    better_lm,
    in_setting,
    other_training,
)

CLOSE = 0.5
"""Points of ROUGE-1 that are little."""
NAMES = {ALL: "all pairs", FEW: "100k pairs"}


def _label(row: SystemRow, setting: str) -> str:
    return in_setting([row], setting)[0].label


def _more(text: str, better: tuple[SystemRow, str], worse: tuple[SystemRow, str], least: float = 0.0) -> Claim:
    """The first row is better, by at least so much."""
    return Claim(text, (_label(*better),), (_label(*worse),), least=least)


def _about(setting: str, goal: float, rows: Iterable[SystemRow], name: str = "") -> list[Claim]:
    """Claims about full, channel + LM and direct + LM with one language model, with the pairs of a setting."""
    full, noisy, with_lm = rows
    with_, of_full = f"with {NAMES[setting]}{name}", (full, setting)
    return [
        _more(f"goal: full - direct, {with_}", of_full, (DIRECT, setting), goal),
        _more(f"goal: full beats attention, {with_}", of_full, (ATTENTION, setting)),
        _more(f"full beats attention + bias, {with_}", of_full, (ATTENTION_BIAS, setting)),
        *(Claim(f"goal: full beats {x.name}, {with_}", (_label(*of_full),), (x.label,), 0.0) for x in BASELINES),
        _more(f"full beats direct + bias, {with_}", of_full, (WITH_BIAS, setting)),
        _more(f"full beats direct + LM, {with_}", of_full, (with_lm, setting)),
        _more(f"channel + LM beats direct, {with_}", (noisy, setting), (DIRECT, setting)),
        _more(f"full beats channel + LM, {with_}", of_full, (noisy, setting)),
        *(
            Claim(
                f"direct + LM brings little over {than.name}, {with_}",
                (_label(with_lm, setting),),
                (_label(than, setting),),
                most=CLOSE,
            )
            for than in (DIRECT, WITH_BIAS)
        ),
    ]


def _more_pairs(full: SystemRow, name: str) -> list[Claim]:
    """Claims about few pairs against all."""
    few, all_ = _label(full, FEW), _label(full, ALL)
    gap = "the gap, full - direct, shrinks with more pairs"
    return [
        _more(f"full with 100k pairs comes close to direct with all pairs{name}", (full, FEW), (DIRECT, ALL), -CLOSE),
        Claim(f"{gap}{name}", (few, _label(DIRECT, ALL)), (_label(DIRECT, FEW), all_), 0.0),
    ]


def _uni(setting: str, uni: SystemRow, bi: SystemRow) -> Claim:
    text = f"uni with the channel comes close to bi, with {NAMES[setting]}"
    return _more(text, (uni, setting), (bi, setting), -CLOSE)


def _raised(with_lm: SystemRow) -> list[Claim]:
    return [
        Claim(
            f"raising the LM weight of direct + LM by {more} hurts",
            (f"{with_lm.label}, LM weight raised by {more}",),
            (with_lm.label,),
            most=0.0,
        )
        for more in RAISED
    ]


def _claims() -> tuple[Claim, ...]:
    claims = []
    for setting, goal in ((ALL, 1.0), (FEW, 2.0)):
        claims += _about(setting, goal, (FULL, NOISY, WITH_LM))
        claims += _about(setting, goal, map(better_lm, (FULL, NOISY, WITH_LM)), ", better LM")
        full, direct = ((of_three_seeds(row), setting) for row in (FULL, DIRECT))
        name, attention = f"with {NAMES[setting]}, three seeds", (ATTENTION, setting)
        claims.append(_more(f"goal: full - direct, {name}", full, direct, goal))
        claims.append(_more(f"goal: full beats attention, {name} of full and one of attention", full, attention))
        claims.append(_uni(setting, FULL_UNI, FULL))
    few, all_ = (_label(FULL, FEW), _label(FULL, FEW_PAIRED)), (_label(FULL, ALL), _label(FULL, ALL_PAIRED))
    return (
        *claims,
        *_raised(WITH_LM),
        Claim("more headlines help the full model, with all pairs", all_[:1], all_[1:], 0.0),
        Claim("more headlines help the full model, with 100k pairs", few[:1], few[1:], 0.0),
        Claim("they help more when pairs are few", (few[0], all_[1]), (few[1], all_[0]), 0.0),
        *_more_pairs(FULL, ""),
        *_more_pairs(better_lm(FULL), ", better LM"),
    )


CLAIMS = _claims()


def _small() -> tuple[Claim, ...]:
    """About 100,000 pairs, and the better language model alone."""
    full, noisy, with_lm, uni = map(better_lm, (FULL, NOISY, WITH_LM, FULL_UNI))
    others = [row for of in (ATTENTION, ATTENTION_BIAS) for row in other_training(of)]
    direct, _, full_few = SMALL_CURVES
    full_fewest, direct_fewest = (row.restricted(pairs=FEWEST_PAIRS).label for row in (full_few, direct))
    return (
        *_about(FEW, 2.0, (full, noisy, with_lm)),
        _more(f"channel + LM beats attention, with {NAMES[FEW]}", (noisy, FEW), (ATTENTION, FEW)),
        *(_more(f"full beats {row.name}", (full, FEW), (row, FEW)) for row in others),
        _uni(FEW, uni, full),
        *_raised(in_setting([with_lm], FEW)[0]),
        *(_more(f"more headlines help {row.name}", (row, FEW), (row, FEW_PAIRED)) for row in (full, noisy, with_lm)),
        Claim(
            f"the gap, full - direct, shrinks from {FEWEST_PAIRS:,} pairs to 100k",
            (full_fewest, direct.label),
            (direct_fewest, full_few.label),
            0.0,
        ),
    )


SMALL_CLAIMS = _small()
