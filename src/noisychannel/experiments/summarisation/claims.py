"""The paper's claims about summarisation, and our goals, as statements about rows."""

from __future__ import annotations

from noisychannel.experiments.design import Claim
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.summarisation.cited import ALL, ALL_PAIRED, FEW, FEW_PAIRED
from noisychannel.experiments.summarisation.rows import (
    ATTENTION,
    BASELINES,
    DIRECT,
    FULL,
    FULL_UNI,
    NOISY,
    RAISED,
    WITH_BIAS,
    WITH_LM,
    in_setting,
)

CLOSE = 0.5
"""Points of ROUGE-1 that are little."""
NAMES = {ALL: "all pairs", FEW: "100k pairs"}


def _label(row: SystemRow, setting: str) -> str:
    return in_setting([row], setting)[0].label


def _more(text: str, better: tuple[SystemRow, str], worse: tuple[SystemRow, str], least: float = 0.0) -> Claim:
    """The first row is better, by at least so much."""
    return Claim(text, (_label(*better),), (_label(*worse),), least=least)


def _claims() -> tuple[Claim, ...]:
    claims = []
    for setting, goal in ((ALL, 1.0), (FEW, 2.0)):
        with_, full = f"with {NAMES[setting]}", (FULL, setting)
        claims += [
            _more(f"goal: full - direct, {with_}", full, (DIRECT, setting), goal),
            _more(f"goal: full beats attention, {with_}", full, (ATTENTION, setting)),
            *(Claim(f"goal: full beats {x.name}, {with_}", (_label(*full),), (x.label,), 0.0) for x in BASELINES),
            _more(f"full beats direct + bias, {with_}", full, (WITH_BIAS, setting)),
            _more(f"channel + LM beats direct, {with_}", (NOISY, setting), (DIRECT, setting)),
            _more(f"full beats channel + LM, {with_}", full, (NOISY, setting)),
            Claim(
                f"direct + LM brings little over direct, {with_}",
                (_label(WITH_LM, setting),),
                (_label(DIRECT, setting),),
                most=CLOSE,
            ),
            _more(f"uni with the channel comes close to bi, {with_}", (FULL_UNI, setting), full, -CLOSE),
        ]
    few, all_ = (_label(FULL, FEW), _label(FULL, FEW_PAIRED)), (_label(FULL, ALL), _label(FULL, ALL_PAIRED))
    gap_few, gap_all = (_label(FULL, FEW), _label(DIRECT, FEW)), (_label(FULL, ALL), _label(DIRECT, ALL))
    return (
        *claims,
        *(
            Claim(
                f"raising the LM weight of direct + LM by {more} hurts",
                (f"{WITH_LM.label}, LM weight raised by {more}",),
                (WITH_LM.label,),
                most=0.0,
            )
            for more in RAISED
        ),
        Claim("more headlines help the full model, with all pairs", all_[:1], all_[1:], 0.0),
        Claim("more headlines help the full model, with 100k pairs", few[:1], few[1:], 0.0),
        Claim("they help more when pairs are few", (few[0], all_[1]), (few[1], all_[0]), 0.0),
        _more("full with 100k pairs comes close to direct with all pairs", (FULL, FEW), (DIRECT, ALL), -CLOSE),
        Claim(
            "the gap, full - direct, shrinks with more pairs", (gap_few[0], gap_all[1]), (gap_few[1], gap_all[0]), 0.0
        ),
    )


CLAIMS = _claims()
