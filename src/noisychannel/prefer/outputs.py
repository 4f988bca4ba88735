"""The outputs of one system, from any file that has outputs.

    outputs.tsv:direct                       a file of ``evaluate --outputs``, tab-separated or JSON, and a system in it
    table.outputs.jsonl.xz:direct (bi)       a file that ``reproduce`` leaves, and a row in it (its first seed)
    headlines.txt                            plain lines, parallel to a file of inputs

Items of different files are matched by what they are: where they belong (part or group), input, tags, and which of
several such items it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from noisychannel.data.files import find_files, read_lines
from noisychannel.errors import BadInputError, did_you_mean_system, shortened
from noisychannel.evaluation.output_lines import ItemRecord, is_output_file, read_output_file
from noisychannel.experiments.blocks import Block
from noisychannel.experiments.merged import row_label

KEPT_OUTPUTS = ".outputs.jsonl.xz"


class ItemKey(NamedTuple):
    """Which item it is."""

    place: str
    """Its part or group; empty if there are none."""
    input: str
    features: tuple[str, ...]
    occurrence: int
    """From 0: the items before it in the file that are equal in all this."""


class DecodedItem(NamedTuple):
    """What a system makes of an item."""

    output: str
    references: tuple[str, ...]
    """What is right, if the file says it."""


@dataclass(frozen=True)
class SystemOutputs:
    """The outputs of a system."""

    name: str
    source: str
    """As the user named it."""
    items: dict[ItemKey, DecodedItem]


class PlainText(NamedTuple):
    """What plain lines of outputs are parallel to."""

    inputs: str = ""
    references: tuple[str, ...] = ()


class OutputReader:
    """Reads a file once, even if both systems come from it: the larger ones take a while."""

    def __init__(self, plain: PlainText) -> None:
        self._plain = plain
        self._blocks: dict[Path, Block] = {}
        self._evaluations: dict[Path, list[ItemRecord]] = {}

    def read(self, source: str) -> SystemOutputs:
        """The outputs that ``FILE`` or ``FILE:SYSTEM`` names."""
        file, system = _split(source)
        if file.name.endswith((KEPT_OUTPUTS, ".json")):
            record = file.with_name(file.name.removesuffix(KEPT_OUTPUTS).removesuffix(".json") + ".json")
            if record not in self._blocks:
                self._blocks[record] = Block.read(record)
            name, items = _of_block(file, self._blocks[record], system)
        elif is_output_file(file):
            if file not in self._evaluations:
                self._evaluations[file] = list(read_output_file(file))
            name, items = _of_evaluation(file, self._evaluations[file], system)
        else:
            name, items = file.name, _of_lines(file, system, self._plain)
        return SystemOutputs(name, source, _numbered(items))


Item = tuple[str, str, tuple[str, ...], DecodedItem]
"""Place, input, features, and the rest."""


def _split(source: str) -> tuple[Path, str]:
    """A file and the name after its colon. Both may have colons: the shortest beginning that is a file counts."""
    places = [n for n, character in enumerate(source) if character == ":"]
    for end in (*places, len(source)):
        file = Path(source[:end]).expanduser()
        if file.is_file():
            return file, source[end + 1 :].strip()
    raise BadInputError(f"{source}: no such file; give FILE or FILE:SYSTEM")


def _of_block(file: Path, block: Block, system: str) -> tuple[str, Iterator[Item]]:
    labels = [row_label(row) for row in block.rows]
    # A name without its setting is enough if it is that of one row.
    named = [n for n, label in enumerate(labels) if label == system]
    named = named or [n for n, row in enumerate(block.rows) if row["name"] == system]
    if len(named) != 1:
        raise _unclear(file, system, "row", labels, [labels[n] for n in named])
    lists = next(iter(block.n_best[named[0]].values()))
    items = (
        (key[0], item.input, item.features, DecodedItem(lists[key][0].text, item.references))
        for key, item in block.items.items()
    )
    return labels[named[0]], items


def _of_evaluation(file: Path, records: Sequence[ItemRecord], system: str) -> tuple[str, Iterator[Item]]:
    systems = list(records[0].systems) if records else []
    if not records:
        raise BadInputError(f"{file}: has no items; evaluate a test set first")
    if system not in systems and (system or len(systems) > 1):
        raise _unclear(file, system, "system", systems, [])
    name = system or systems[0]
    for number, record in enumerate(records, start=1):
        if name not in record.systems:
            raise BadInputError(f"{file}: item {number} has no output of {name}; write it again with evaluate")
    return name, (
        (record.group, record.input, record.features, DecodedItem(record.systems[name].output, record.references))
        for record in records
    )


def _of_lines(file: Path, system: str, plain: PlainText) -> Iterator[Item]:
    if system:
        raise BadInputError(f"{file}: plain lines are of one system; leave out :{system}")
    if not plain.inputs:
        raise BadInputError(
            f"{file}: not a file of evaluate --outputs, nor of reproduce; if it has plain outputs, name the file of "
            "their inputs with --inputs"
        )
    files = [*find_files([plain.inputs]), file, *find_files(plain.references)]
    for lines in zip_longest(*map(read_lines, files)):
        if missing := [one for one, line in zip(files, lines, strict=True) if line is None]:
            number = next(line.number for line in lines if line is not None)
            raise BadInputError(
                f"{missing[0]}: ends before line {number}, but other files go on; they must be parallel"
            )
        given, output, *references = (line.text for line in lines)
        yield "", given, (), DecodedItem(output, tuple(references))


def _numbered(items: Iterable[Item]) -> dict[ItemKey, DecodedItem]:
    seen: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    numbered = {}
    for place, given, features, decoded in items:
        same = place, given, features
        numbered[ItemKey(*same, seen[same])] = decoded
        seen[same] += 1
    return numbered


def _unclear(file: Path, system: str, noun: str, known: Sequence[str], found: Sequence[str]) -> BadInputError:
    """The error for a name that is missing, unknown, or that of several rows."""
    listed = ", ".join(map(repr, found or known))
    if found:
        return BadInputError(f"{file}: several rows are named {shortened(system)}; name one of {listed}")
    if not system:
        return BadInputError(f"{file}: name a {noun} after a colon (FILE:{noun.upper()}); it has {listed}")
    meant = did_you_mean_system(system, known)
    if not meant.endswith("?"):  # it lists the names, as we do
        meant = ""
    return BadInputError(f"{file}: no {noun} {shortened(system)}{meant}; it has {listed}")
