"""Whether the claims of a design hold, from the outputs of the rows that they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noisychannel.experiments.blocks import ItemKey
from noisychannel.experiments.design import Claim, Design
from noisychannel.experiments.merged import MergedRow
from noisychannel.experiments.scores import RowScorer


def check_claims(design: Design, scorer: RowScorer, rows: Sequence[MergedRow]) -> list[dict[str, Any]]:
    """For each claim its figure, interval and whether it holds; None each if one of its rows is not measured.

    It is judged on the first part if parts are reported by themselves, else on all items.
    """
    return [_check(claim, design, scorer, {row.label: row for row in rows}) for claim in design.claims]


def _check(claim: Claim, design: Design, scorer: RowScorer, rows: dict[str, MergedRow]) -> dict[str, Any]:
    record: dict[str, Any] = {"claim": claim.text, "plus": claim.plus, "minus": claim.minus}
    record |= {"least": claim.least, "most": claim.most, "value": None, "interval": None, "holds": None}
    found = difference(design, scorer, rows, claim.plus, claim.minus)
    if found is None:
        return record
    value, interval = found
    return {**record, "value": value, "interval": list(interval), "holds": claim.holds(value, interval)}


def difference(
    design: Design, scorer: RowScorer, rows: Mapping[str, MergedRow], plus: Sequence[str], minus: Sequence[str]
) -> tuple[float, tuple[float, float]] | None:
    """The sum of the scores of some rows less that of others, by label, and its interval; None if one is missing."""
    part = scorer.views()[0]
    items = _items(scorer, rows, part)
    found = {label: rows[label].outputs_of(items) for label in (*plus, *minus) if label in rows}
    sides = [[found.get(label) for label in labels] for labels in (plus, minus)]
    known = [[outputs for outputs in side if outputs is not None] for side in sides]
    if any(len(some) < len(side) for some, side in zip(known, sides, strict=True)):
        return None
    own = RowScorer(design, [(part or "", [scorer.items[n] for n in _places(scorer, part)])])
    return own.sum_of(design.metrics[0], known[0], known[1])


def _places(scorer: RowScorer, part: str | None) -> list[int]:
    return [n for n in range(len(scorer.items)) if part is None or scorer.part_of(n) == part]


def _items(scorer: RowScorer, rows: Mapping[str, MergedRow], part: str | None) -> list[ItemKey]:
    """The keys of the items of a part: those of the row that has most."""
    keys = max((row.items for row in rows.values()), key=len)
    return [keys[n] for n in _places(scorer, part)]
