"""Errors of the search: items for which an output exists that the objective prefers to what the search has found.

Two rows of the same models and weights are compared: a search, and a wider one or the references. Both must come from
one block: models that were trained again give other scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noisychannel.experiments.design import Design, SearchErrors
from noisychannel.experiments.merged import MergedRow

TOLERANCE = 1e-3
"""Nats by which a score must be higher: terms are kept with four decimals."""


def search_errors(design: Design, rows: Sequence[MergedRow]) -> list[dict[str, Any]]:
    """For each count of the design; ``items`` is None if it cannot be counted."""
    by_label = {row.label: row for row in rows}
    return [_count(errors, by_label.get(errors.row), by_label.get(errors.other)) for errors in design.search_errors]


def _count(errors: SearchErrors, row: MergedRow | None, other: MergedRow | None) -> dict[str, Any]:
    record: dict[str, Any] = {"better": errors.name, "row": errors.row, "items": None, "errors": None, "worse": None}
    if row is None or other is None or not _comparable(row, other):
        return record
    seed = next(iter(row.outputs))
    one, two = (
        dict(zip(each.items, zip(each.outputs[seed], each.objectives[seed], strict=True), strict=True))
        for each in (row, other)
    )
    gains = [
        0.0 if one[key][0] == two[key][0] else two[key][1] - one[key][1]  # type: ignore[operator]
        for key in one.keys() & two.keys()
        if one[key][1] is not None and two[key][1] is not None
    ]
    higher = [gain for gain in gains if gain > TOLERANCE]
    return {
        **record,
        "items": len(gains),
        "errors": len(higher),
        "worse": sum(gain < -TOLERANCE for gain in gains),
        "mean gain": round(sum(higher) / len(higher), 4) if higher else None,
    }


def _comparable(row: MergedRow, other: MergedRow) -> bool:
    """Whether the scores of both rows are of the same models, weights and alignments."""
    same = ("block", "date", "models", "weights")
    alignments = [each.record["search"].get("search") for each in (row, other)]
    return all(row.record.get(key) == other.record.get(key) for key in same) and alignments[0] == alignments[1]


def search_error_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """A table; nothing if nothing was counted."""
    counted = [record for record in results.get("search errors", []) if record["items"]]
    if not counted:
        return
    yield ""
    yield (
        "Errors of the search: items for which something scores higher, under the same models and weights, than the "
        "output of the system. References with unknown words are not among the items."
    )
    yield ""
    yield "| system | compared with | items | these score higher | in percent | mean gain in nats | these score lower |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for record in counted:
        share, gain = 100 * record["errors"] / record["items"], record["mean gain"]
        yield (
            f"| {record['row']} | {record['better']} | {record['items']} | {record['errors']} | {share:.1f} | "
            f"{'' if gain is None else f'{gain:.2f}'} | {record['worse']} |"
        )
