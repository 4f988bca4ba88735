"""A block: rows that were trained, tuned, decoded and scored together, kept as two files.

    EXPERIMENT.BLOCK.json               scores, weights, searches, seeds, the data, and where the figures come from
    EXPERIMENT.BLOCK.outputs.jsonl.xz   a line for each test item: what is right, and every n-best list

A line has ``part``, ``item`` (its number in the part), ``input``, ``features``, ``references``, ``unit`` and
``outputs``: a list of ``{"row", "seed", "n_best"}``. ``row`` counts the rows of the first file; an output of an n-best
list has its text and terms. The two files are enough to compute every score again.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisychannel.atomic import write_bytes, write_text
from noisychannel.errors import NoisyChannelError
from noisychannel.experiments.decoding import NBestEntry
from noisychannel.experiments.items import Item

FORMAT = 2
"""Format 1 was one file for a whole experiment, without n-best lists."""

ItemKey = tuple[str, int]
"""The name of a part, and the number of an item in it."""
NBest = dict[int, dict[ItemKey, list[NBestEntry]]]
"""By seed and item."""


@dataclass(frozen=True)
class Block:
    """The content of both files."""

    record: dict[str, Any]
    """Of the first file."""
    items: dict[ItemKey, Item]
    n_best: list[NBest]
    """For each row of the record."""

    @property
    def name(self) -> str:
        return str(self.record["block"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.record["rows"]
        return rows

    def outputs(self, row: int) -> dict[int, list[str]]:
        """By seed: the best output of each item, in the order of the items."""
        return {seed: [lists[key][0].text for key in self.items] for seed, lists in self.n_best[row].items()}

    def parts(self) -> list[tuple[str, list[Item]]]:
        """The items of each part."""
        parts: dict[str, list[Item]] = {}
        for (part, _), item in self.items.items():
            parts.setdefault(part, []).append(item)
        return list(parts.items())

    def write(self, directory: Path, stem: str) -> None:
        """``stem``: the name of the experiment, with ``-quick`` if it is a quick one."""
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f"{stem}.{self.name}.json"
        lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self._lines())
        write_bytes(outputs_file(file), lzma.compress(lines.encode(), preset=9))
        write_text(file, json.dumps(self.record, ensure_ascii=False, indent=1) + "\n")

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
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            if record.get("format") != FORMAT:
                raise NoisyChannelError(
                    f"{file}: format {record.get('format')}, but this version reads format {FORMAT}"
                )
            with lzma.open(outputs_file(file), "rt", encoding="utf-8") as stream:
                items, n_best = _read_lines(map(json.loads, stream), len(record["rows"]))
        except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, lzma.LZMAError) as error:
            if isinstance(error, NoisyChannelError):
                raise
            raise NoisyChannelError(f"{file}: not a whole block ({error!r}); restore it from a copy") from error
        block = Block(record, items, n_best)
        for row, of_row in zip(block.rows, block.n_best, strict=True):
            if not of_row or any(lists.keys() != items.keys() for lists in of_row.values()):
                raise NoisyChannelError(f"{outputs_file(file)}: not every item has an output of {row['name']!r}")
        return block


def outputs_file(file: Path) -> Path:
    return file.with_suffix(".outputs.jsonl.xz")


def read_blocks(directory: Path, stem: str) -> list[Block]:
    """Every block of an experiment in a directory."""
    return [Block.read(file) for file in sorted(directory.glob(f"{stem}.*.json"))]


def _read_lines(lines: Iterable[Mapping[str, Any]], rows: int) -> tuple[dict[ItemKey, Item], list[NBest]]:
    items: dict[ItemKey, Item] = {}
    n_best: list[NBest] = [{} for _ in range(rows)]
    for line in lines:
        key = line["part"], line["item"]
        items[key] = Item.from_record(dict(line))
        for output in line["outputs"]:
            entries = [NBestEntry.from_record(entry) for entry in output["n_best"]]
            n_best[output["row"]].setdefault(output["seed"], {})[key] = entries
    return items, n_best
