"""Reading what ``item_outputs`` writes: the outputs of all systems on each item, from tab-separated lines or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from noisychannel.data.files import Line, read_lines
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.evaluation.item_outputs import BETWEEN_REFERENCES, CONFIDENCE, RIGHT, begins_items
from noisychannel.schemas import Record, parse_record

AGAIN = "write it again with evaluate --outputs"


@dataclass(frozen=True)
class OutputRecord(Record):
    """What one system makes of an item."""

    output: str


@dataclass(frozen=True)
class ItemRecord(Record):
    """An item with the outputs of all systems."""

    input: str
    references: tuple[str, ...]
    systems: Mapping[str, OutputRecord]
    features: tuple[str, ...] = ()
    group: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


def is_output_file(file: Path) -> bool:
    """Whether ``evaluate --outputs`` can have written this file, by its first line."""
    first = next(iter(read_lines(file)), None)
    return first is not None and begins_items(first.text + "\n")


def read_output_file(file: Path, separator: str = ";") -> Iterator[ItemRecord]:
    """The items of a file for which ``is_output_file`` holds. ``separator``: between features."""
    lines = iter(read_lines(file))
    first = next(lines)
    if first.text.startswith("{"):
        yield _parsed(first)
        yield from map(_parsed, lines)
        return
    head = first.text.split("\t")
    systems = _systems(head)
    for line in lines:
        cells = line.text.split("\t")
        if len(cells) != len(head):
            raise BadInputError(f"{line.where}: {len(cells)} columns, but the head has {len(head)}; {AGAIN}")
        before = dict(zip(head, cells[: min(systems.values()) - 1], strict=False))
        references = cells[min(systems.values()) - 1]
        features = before.get("features", "")
        yield ItemRecord(
            input=before["input"],
            references=tuple(references.split(BETWEEN_REFERENCES)),
            systems={name: OutputRecord(cells[column]) for name, column in systems.items()},
            features=tuple(features.split(separator)) if features else (),
            group=before.get("group", ""),
        )


def _parsed(line: Line) -> ItemRecord:
    try:
        return parse_record(line.text, ItemRecord, Path(line.where), AGAIN)
    except NoisyChannelError as error:
        raise BadInputError(str(error)) from error


def _systems(head: Sequence[str]) -> dict[str, int]:
    """The column of each system's output: they stand after the references, each before its further columns."""
    first = len(head) - list(reversed(head)).index("references")  # a column of the test set may have that name
    return {
        title: column
        for column, title in enumerate(head)
        if column >= first and not title.endswith((RIGHT, CONFIDENCE))
    }
