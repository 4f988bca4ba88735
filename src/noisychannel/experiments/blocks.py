"""A block: rows that were trained, tuned, decoded and scored together, kept as two files.

    EXPERIMENT.BLOCK.json               scores, weights, searches, seeds, the data, and where the figures come from
    EXPERIMENT.BLOCK.outputs.jsonl.xz   a line for each test item: what is right, and every n-best list

A line has ``part``, ``item`` (its number in the part), what ``Item`` has, and
``outputs``: a list of ``{"row", "seed", "n_best"}``. ``row`` counts the rows of the first file; an output of an n-best
list has its text and terms, and the best may have its alignment. The two files are enough to compute every score again.

While a block is measured, the rows that it has so far are kept in the same way, in EXPERIMENT.BLOCK.unfinished.json and
the file beside it. They are removed when the block is finished, and say nothing where a finished block of that name is.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noisychannel.atomic import write_bytes, write_text
from noisychannel.errors import NoisyChannelError
from noisychannel.experiments.decoding import EntryRecord, NBestEntry
from noisychannel.experiments.items import Item
from noisychannel.reporting import Say
from noisychannel.schemas import Record, damaged, parse_record, read_content

FORMAT = 2
"""Format 1 was one file for a whole experiment, without n-best lists."""

ItemKey = tuple[str, int]
"""The name of a part, and the number of an item in it."""
NBest = dict[int, dict[ItemKey, list[NBestEntry]]]
"""By seed and item."""


AGAIN = "measure it again"
NOT_FINISHED = ".unfinished.json"
"""How the name of the file of an unfinished block ends."""
UNFINISHED = " (unfinished)"
"""Stands after the name of a block that does not have all its rows yet."""


@dataclass(frozen=True)
class ScoreRecord(Record):
    """The score of a row in one metric."""

    score: float
    deviation: float | None
    parts: dict[str, float | ScoreRecord] = field(default_factory=dict)


@dataclass(frozen=True)
class RowRecord(Record):
    """What the results need of a row."""

    name: str
    setting: str
    base: str
    pairs: int | None
    unpaired: int | None
    scores: dict[str, ScoreRecord]
    weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockRecord(Record):
    """What the results need of the first file."""

    block: str
    noisychannel: str
    commit: str | None
    torch: str
    date: str
    device: str
    data: dict[str, Any]
    tuned: str
    seconds: dict[str, float]
    rows: list[RowRecord]
    unfinished: bool = False


@dataclass(frozen=True)
class OutputRecord(Record):
    """The n-best list of an item by one row and seed."""

    row: int
    seed: int
    n_best: list[EntryRecord]


@dataclass(frozen=True, kw_only=True)
class LineRecord(Record):
    """A line of the second file."""

    part: str
    item: int
    input: str = ""
    features: tuple[str, ...] = ()
    references: tuple[str, ...]
    unit: str = ""
    count: int = 1
    seen_in: tuple[str, ...] = ()
    outputs: list[OutputRecord]


@dataclass(frozen=True)
class Block:
    """The content of both files."""

    record: dict[str, Any]
    """Of the first file."""
    items: dict[ItemKey, Item]
    n_best: list[NBest]
    """For each row of the record."""

    @property
    def block(self) -> str:
        """Its name in the design."""
        return str(self.record["block"])

    @property
    def unfinished(self) -> bool:
        return bool(self.record.get("unfinished"))

    @property
    def name(self) -> str:
        """In results, where an unfinished block may stand beside an earlier one with all rows."""
        return self.block + (UNFINISHED if self.unfinished else "")

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.record["rows"]
        return rows

    def outputs(self, row: int) -> dict[int, list[str]]:
        """By seed: the best output of each item, in the order of the items."""
        return {seed: [lists[key][0].text for key in self.items] for seed, lists in self.n_best[row].items()}

    def alignments(self, row: int) -> dict[int, list[tuple[int, ...] | None]]:
        """By seed: the alignment of the best output of each item, if it was kept."""
        return {seed: [lists[key][0].aligned for key in self.items] for seed, lists in self.n_best[row].items()}

    def objectives(self, row: int) -> dict[int, list[float | None]]:
        """By seed: equation (3) of the best output of each item, if its terms were kept."""
        weights = {name: weight for name, weight in self.rows[row].get("weights", {}).items() if weight}
        return {
            seed: [
                sum(weight * lists[key][0].terms[name] for name, weight in weights.items())
                if weights and lists[key][0].terms.keys() >= weights.keys()
                else None
                for key in self.items
            ]
            for seed, lists in self.n_best[row].items()
        }

    def parts(self) -> list[tuple[str, list[Item]]]:
        """The items of each part."""
        parts: dict[str, list[Item]] = {}
        for (part, _), item in self.items.items():
            parts.setdefault(part, []).append(item)
        return list(parts.items())

    def write(self, directory: Path, stem: str) -> Path:
        """Both files; the first of them. ``stem``: the name of the experiment, with ``-quick`` if it is a quick one.

        An unfinished block does not replace one that has more rows, such as that of an earlier command.
        """
        directory.mkdir(parents=True, exist_ok=True)
        finished, unfinished = (directory / f"{stem}.{self.block}{ending}" for ending in (".json", NOT_FINISHED))
        file = unfinished if self.unfinished else finished
        if self.unfinished and count_rows(unfinished) > len(self.rows):
            return unfinished
        lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self._lines())
        write_bytes(outputs_file(file), lzma.compress(lines.encode(), preset=1 if self.unfinished else 9))
        write_text(file, json.dumps(self.record, ensure_ascii=False, indent=1) + "\n")
        if not self.unfinished:
            for old in (unfinished, outputs_file(unfinished)):
                old.unlink(missing_ok=True)
        return file

    def _lines(self) -> Iterator[dict[str, Any]]:
        for key, item in self.items.items():
            outputs = [
                {"row": row, "seed": seed, "n_best": [entry.record() for entry in lists[key]]}
                for row, of_row in enumerate(self.n_best)
                for seed, lists in of_row.items()
            ]
            yield {"part": key[0], "item": key[1], **item.record(), "outputs": outputs}

    @staticmethod
    def read(file: Path) -> Block:
        """From the first file; the second is beside it."""
        content = read_content(file, AGAIN)
        checked = parse_record(content, BlockRecord, file, AGAIN, [FORMAT])
        try:
            with lzma.open(outputs_file(file), "rb") as stream:
                items, n_best = _read_lines(stream, outputs_file(file), len(checked.rows))
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise damaged(outputs_file(file), error, AGAIN) from error
        record = json.loads(content)
        block = Block(record, items, n_best)
        for row, of_row in zip(block.rows, block.n_best, strict=True):
            if not of_row or any(lists.keys() != items.keys() for lists in of_row.values()):
                raise NoisyChannelError(f"{outputs_file(file)}: not every item has an output of {row['name']!r}")
        return block


def outputs_file(file: Path) -> Path:
    return file.with_suffix(".outputs.jsonl.xz")


def read_blocks(directory: Path, stem: str, warn: Say = print) -> list[Block]:
    """Every block of an experiment in a directory.

    Another command may be writing an unfinished block, or finishing it: one that cannot be read is left out.
    """
    files = sorted(directory.glob(f"{stem}.*.json"))
    blocks = [Block.read(file) for file in files if not file.name.endswith(NOT_FINISHED)]
    finished = {block.block for block in blocks}
    for file in files:
        if file.name.endswith(NOT_FINISHED) and file.name[len(stem) + 1 : -len(NOT_FINISHED)] not in finished:
            try:
                blocks.append(Block.read(file))
            except NoisyChannelError as error:
                warn(f"left out, because another command may be writing it: {error}")
    return blocks


def count_rows(file: Path) -> int:
    """How many rows the first file of a block has; none if there is no such file, or it is damaged."""
    try:
        return len(parse_record(read_content(file, AGAIN), BlockRecord, file, AGAIN, [FORMAT]).rows)
    except NoisyChannelError:
        return 0


def _read_lines(lines: Iterable[bytes], file: Path, rows: int) -> tuple[dict[ItemKey, Item], list[NBest]]:
    items: dict[ItemKey, Item] = {}
    n_best: list[NBest] = [{} for _ in range(rows)]
    for text in lines:
        line = parse_record(text, LineRecord, file, AGAIN)
        key = line.part, line.item
        items[key] = Item(line.input, line.references, line.features, line.unit, line.count, line.seen_in)
        for output in line.outputs:
            if not 0 <= output.row < rows:
                raise damaged(file, f"a row {output.row}, but there are {rows}", AGAIN)
            n_best[output.row].setdefault(output.seed, {})[key] = [entry.entry() for entry in output.n_best]
    return items, n_best
