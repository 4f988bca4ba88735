"""Outputs item by item, for a spreadsheet (tab-separated, with a head) or a program (lines of JSON)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from noisychannel.evaluation.table import EvaluationTable

BETWEEN_REFERENCES = " ||| "
RIGHT, CONFIDENCE = ": right", ": confidence"
"""What follows the name of a system in the heads of its further columns."""
KEYS = {"input", "features", "group", "columns", "references", "systems"}
"""Of a line of JSON."""


def item_records(table: EvaluationTable) -> list[dict[str, Any]]:
    """One record for each item, in the order of the file."""
    held_out, records = table.held_out, []
    for n in sorted(range(len(held_out.inputs)), key=lambda n: _order(held_out.places, n)):
        records.append(
            {
                "input": held_out.inputs[n],
                "features": list(held_out.features[n]),
                "group": held_out.groups[n] if held_out.groups else "",
                "columns": {name: values[n] for name, values in held_out.columns.items()},
                "references": held_out.references[n],
                "systems": {
                    result.system: {
                        "output": result.outputs[n],
                        "right": result.outputs[n] in held_out.references[n],
                        "confidence": None if result.confidence is None else round(result.confidence[n], 6),
                        "complete": result.complete[n],
                    }
                    for result in table.results
                },
            }
        )
    return records


def as_json_lines(table: EvaluationTable) -> str:
    """A line of JSON for each item."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in item_records(table))


def as_tsv(table: EvaluationTable, separator: str = ";") -> str:
    """A head and a line for each item.

    The columns: input; features and group, if there are any; further named columns; references; and for each system its
    output, whether it is right (1 or 0) and its confidence, if the system has one.
    """
    held_out = table.held_out
    with_features, with_groups = any(held_out.features), any(held_out.groups)
    sure = {result.system for result in table.results if result.confidence is not None}
    head = ["input", *(["features"] if with_features else []), *(["group"] if with_groups else [])]
    head += [*held_out.columns, "references"]
    for result in table.results:
        head += [result.system, result.system + RIGHT]
        head += [result.system + CONFIDENCE] if result.system in sure else []
    lines = [head]
    for record in item_records(table):
        cells = [record["input"]]
        cells += [separator.join(record["features"])] if with_features else []
        cells += [record["group"]] if with_groups else []
        cells += [*record["columns"].values(), BETWEEN_REFERENCES.join(record["references"])]
        for system, one in record["systems"].items():
            cells += [one["output"], str(int(one["right"]))]
            cells += [f"{one['confidence']:.4f}"] if system in sure else []
        lines.append(cells)
    return "".join("\t".join(_cell(cell) for cell in line) + "\n" for line in lines)


def begins_items(line: str) -> bool:
    """Whether the first line of a file, with its end, is one that ``as_tsv`` or ``as_json_lines`` writes."""
    if not line.endswith("\n"):
        return False
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return _is_head(line[:-1].split("\t"))
    return isinstance(record, dict) and record.keys() == KEYS


def _is_head(head: Sequence[str]) -> bool:
    """Whether the columns after the references are those of systems, and of nothing else."""
    if head[0] != "input" or "references" not in head:
        return False
    rest = list(head[len(head) - list(reversed(head)).index("references") :])  # a column of the file may have that name
    systems = 0
    while len(rest) > 1 and rest[1] == rest[0] + RIGHT:
        del rest[: 3 if rest[2:3] == [rest[0] + CONFIDENCE] else 2]
        systems += 1
    return systems > 0 and not rest


def _cell(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")


def _order(places: Sequence[str], n: int) -> tuple[str, int, int]:
    """Groups are evaluated one after another; their items come from one file."""
    file, _, line = places[n].rpartition(":") if n < len(places) else ("", "", "")
    return (file, int(line), n) if line.isdigit() else ("", 0, n)
