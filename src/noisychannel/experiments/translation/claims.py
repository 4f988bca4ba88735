"""The paper's claims about translation, and our goals, as statements about rows."""

from __future__ import annotations

from collections.abc import Iterable

from noisychannel.experiments.design import Claim
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.sentences.rows import in_setting, of_three_seeds
from noisychannel.experiments.translation.cited import MULTI30K_GOAL
from noisychannel.experiments.translation.rows import (
    ALL,
    ATTENTION,
    ATTENTION_BIAS,
    BASELINES,
    BETTER_LM,
    BIASED,
    BUT_CHANNEL,
    DIRECT,
    EVERYTHING,
    FEW,
    FEW_PAIRS,
    FULL,
    LM_DATA,
    NOISY,
    WITH_BIAS,
    WITH_LM,
)

CLOSE = 0.5
"""Points of BLEU that are little."""
ABOUT_THREE = 2.0, 4.0
GOAL = 3.1
"""The paper's gain of the full model over the direct one."""


BETTER_WITH_LM, BETTER_NOISY, BETTER_FULL = BETTER_LM


def _more(text: str, better: SystemRow, worse: SystemRow, least: float = 0.0) -> Claim:
    """The first row is better, by at least so much."""
    return Claim(text, (better.label,), (worse.label,), least=least)


def _gains_nothing(with_lm: SystemRow) -> list[Claim]:
    """The paper's claim about direct + LM, against the direct model alone and with the bias."""
    return [
        Claim(f"direct + LM gains nothing over {row.name}", (with_lm.label,), (row.label,), most=CLOSE)
        for row in (DIRECT, WITH_BIAS)
    ]


CLAIMS = (
    _more("goal: full - direct", FULL, DIRECT, GOAL),
    _more("goal: full beats attention", FULL, ATTENTION),
    _more("full beats attention + bias", FULL, ATTENTION_BIAS),
    *(_more(f"full beats the baseline: {row.name}", FULL, row) for row in BASELINES),
    _more("goal, with the better LM: full - direct", BETTER_FULL, DIRECT, GOAL),
    _more("goal, with the better LM: full beats attention", BETTER_FULL, ATTENTION),
    _more("full beats direct + bias", FULL, WITH_BIAS),
    _more("with the better LM: full beats attention + bias", BETTER_FULL, ATTENTION_BIAS),
    _more("with the better LM: full beats direct + bias", BETTER_FULL, WITH_BIAS),
    _more("with the better LM: full beats direct + LM + bias", BETTER_FULL, BETTER_WITH_LM),
    _more("goal, three seeds: full - direct", of_three_seeds(FULL), of_three_seeds(DIRECT), GOAL),
    _more("goal, three seeds: full beats attention", of_three_seeds(FULL), of_three_seeds(ATTENTION)),
    Claim(
        "channel + LM gains about three over direct",
        (NOISY.label,),
        (DIRECT.label,),
        least=ABOUT_THREE[0],
        most=ABOUT_THREE[1],
    ),
    _more("the combination, full, gains a little more than channel + LM", FULL, NOISY),
    *_gains_nothing(WITH_LM),
    _more("attention beats direct, because word order diverges", ATTENTION, DIRECT),
    _more("channel + LM overtakes attention", NOISY, ATTENTION),
    *(
        _more(f"all English helps the full model, against {n:,} unpaired sentences", FULL, FULL.restricted(unpaired=n))
        for n in LM_DATA
    ),
    _more("the channel adds to everything else, tuned alike", EVERYTHING, BUT_CHANNEL),
)


def _multi30k() -> tuple[Claim, ...]:
    claims = []
    for setting, pairs in ((ALL, None), (FEW, FEW_PAIRS)):
        full, better, all_, but_channel, *others = in_setting(
            (FULL, BETTER_FULL, EVERYTHING, BUT_CHANNEL, DIRECT, *BIASED, ATTENTION, *BASELINES), setting, pairs
        )
        claims += [
            *(_more(f"full beats {row.name}, {setting}", full, row) for row in others),
            *(_more(f"with the better LM: full beats {row.name}, {setting}", better, row) for row in others[:4]),
            _more(f"the channel adds to everything else, tuned alike, {setting}", all_, but_channel),
        ]
    full, *others = in_setting(map(of_three_seeds, (FULL, DIRECT, ATTENTION)), ALL, None)
    claims += [
        _more(f"full beats {name}, {ALL}, three seeds", full, other)
        for name, other in zip(("direct", "attention"), others, strict=True)
    ]
    (full,) = in_setting((FULL,), ALL, None)
    goal = Claim(f"goal: full above {MULTI30K_GOAL}, GRU + attention of tutorials", (full.label,), (), MULTI30K_GOAL)
    return (goal, *claims)


MULTI30K_CLAIMS = _multi30k()


def _of_small(rows: Iterable[SystemRow], of: str = "") -> list[Claim]:
    """Claims about the rows that two CPU cores measure, of one setting."""
    full, noisy, with_lm, direct, *others = rows
    return [
        *(_more(f"full beats {row.name}{of}", full, row) for row in (direct, *others, with_lm)),
        _more(f"channel + LM beats direct{of}", noisy, direct),
    ]


_CLAIMED = (BETTER_FULL, BETTER_NOISY, BETTER_WITH_LM, DIRECT, *BIASED, ATTENTION, *BASELINES)


def _small() -> tuple[Claim, ...]:
    claims = []
    for setting, pairs in ((FEW, FEW_PAIRS), (ALL, None)):
        claims += _of_small(in_setting(_CLAIMED, setting, pairs), f", {setting}")
    (full,) = in_setting((BETTER_FULL,), ALL, None)
    goal = Claim(f"goal: full above {MULTI30K_GOAL}, GRU + attention of tutorials", (full.label,), (), MULTI30K_GOAL)
    return (goal, *claims)


SMALL_CLAIMS = _small()
CHINESE_SMALL_CLAIMS = (
    _more("goal: full - direct", BETTER_FULL, DIRECT, GOAL),
    *_of_small(_CLAIMED),
    Claim(
        "channel + LM gains about three over direct",
        (BETTER_NOISY.label,),
        (DIRECT.label,),
        least=ABOUT_THREE[0],
        most=ABOUT_THREE[1],
    ),
    _more("the combination, full, gains a little more than channel + LM", BETTER_FULL, BETTER_NOISY),
    *_gains_nothing(BETTER_WITH_LM),
    _more("attention beats direct, because word order diverges", ATTENTION, DIRECT),
    _more("channel + LM overtakes attention", BETTER_NOISY, ATTENTION),
    _more("all English helps the full model, against none unpaired", BETTER_FULL, BETTER_FULL.restricted(unpaired=0)),
)
