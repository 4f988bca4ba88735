"""Pairs of sentences, unpaired outputs and test sets, read from files that may be plain or end in .xz."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from noisychannel.data.files import read_lines
from noisychannel.data.rows import Row, read_parallel
from noisychannel.errors import BadInputError
from noisychannel.experiments.items import Item
from noisychannel.experiments.tables import existing_file
from noisychannel.text import TextConfig, normalise


class Pair(NamedTuple):
    """A sentence and its output, such as a headline or a translation."""

    source: str
    target: str


@dataclass(frozen=True)
class SentenceData:
    """What was read."""

    train: list[Pair]
    valid: list[Pair]
    """For early stopping and tuning."""
    tests: dict[str, tuple[Item, ...]]
    """By name; the first is the one that the goals are about."""
    unpaired: list[str]
    """Outputs without inputs, in the order of the file, which may be sorted."""
    longest: tuple[int, int]
    """Tokens of the longest training pair, of the two sides."""
    dropped: dict[str, int] = field(default_factory=dict)
    """How many pairs of train and valid, and unpaired outputs (if any), were too long."""
    characters: bool = False
    """Whether inputs are not segmented into words. Their characters then stand apart, and are their symbols."""

    def with_first_test(self) -> SentenceData:
        """With the first test set alone: on a CPU searches take most of the time."""
        return replace(self, tests=dict([next(iter(self.tests.items()))]))


@dataclass(frozen=True)
class PairReader:
    """Reads files of sentences in the form in which models see them."""

    input: TextConfig
    output: TextConfig
    fix: str
    """How to fix a missing file, for messages."""

    def parallel(self, sources: Path, targets: Path, most: int | None = None) -> list[Pair]:
        """The pairs of two parallel files; the first ``most`` of them."""
        files = [str(existing_file(file, self.fix)) for file in (sources, targets)]
        return self.pairs(read_parallel(files[:1], files[1:]), most)

    def pairs(self, rows: Iterable[Row], most: int | None = None) -> list[Pair]:
        """As one line each: a tab or several spaces are one space."""
        return [Pair(one_line(row.input, self.input), one_line(row.output, self.output)) for row in islice(rows, most)]

    def outputs(self, file: Path, most: int | None = None) -> list[str]:
        """The lines of a file of outputs; empty ones are left out."""
        texts = islice(read_lines(existing_file(file, self.fix)), most)
        lines = (one_line(line.text, self.output) for line in texts)
        return [line for line in lines if line]

    def test_set(
        self,
        sources: Path,
        references: Sequence[Path],
        prepare_source: Callable[[str], str] = str,
        prepare_reference: Callable[[str], str] = str,
    ) -> tuple[Item, ...]:
        """Items with a reference in each of several files; a line of these may be empty.

        The two functions bring a source and a reference into the form of the training text.
        """
        files = [existing_file(file, self.fix) for file in (sources, *references)]
        columns = [[line.text for line in read_lines(file)] for file in files]
        for file, lines in zip(references, columns[1:], strict=True):
            if len(lines) != len(columns[0]):
                raise BadInputError(
                    f"{file}: {len(lines)} lines, but {sources} has {len(columns[0])}; they must be parallel"
                )
        items = []
        for number, (source, *given) in enumerate(zip(*columns, strict=True), 1):
            found = tuple(one_line(prepare_reference(text), self.output) for text in given if text.strip())
            if not source.strip() or not found:
                missing = "an empty sentence" if not source.strip() else "no file has a reference"
                raise BadInputError(f"{sources}:{number}: {missing}; remove the line from all files of the test set")
            items.append(Item(one_line(prepare_source(source), self.input), found))
        return tuple(items)


def one_line(text: str, config: TextConfig) -> str:
    """Normalised, with single spaces."""
    return " ".join(normalise(text, config).split())


def items_of(pairs: Iterable[Pair]) -> tuple[Item, ...]:
    """Pairs as items of a test set with one reference."""
    return tuple(Item(pair.source, (pair.target,)) for pair in pairs)


def short_pairs(pairs: Iterable[Pair], inputs: int, outputs: int) -> list[Pair]:
    """The pairs of at most so many words on each side."""
    return [x for x in pairs if len(x.source.split()) <= inputs and len(x.target.split()) <= outputs]


def sentence_data(
    train: Sequence[Pair],
    valid: Sequence[Pair],
    tests: dict[str, tuple[Item, ...]],
    unpaired: Sequence[str],
    longest: tuple[int, int],
    keep_valid: bool = False,
) -> SentenceData:
    """Without pairs and unpaired outputs of more words than ``longest`` (of the two sides). Tests keep all.

    ``keep_valid``: weights are tuned on all of valid, too. Early stopping never sees longer pairs.
    """
    inputs, outputs = longest
    short = {"train": short_pairs(train, *longest), "valid": short_pairs(valid, *longest)}
    for split, pairs in short.items():
        if not pairs:
            raise BadInputError(f"{split}: no pair of at most {inputs} and {outputs} words is left")
    kept = list(valid) if keep_valid else short["valid"]
    listed = [line for line in unpaired if len(line.split()) <= outputs]
    dropped = {"train": len(train) - len(short["train"]), "valid": len(valid) - len(kept)}
    if left_out := len(unpaired) - len(listed):
        dropped["unpaired"] = left_out
    return SentenceData(short["train"], kept, tests, listed, longest, dropped)


def is_there(file: Path) -> bool:
    """Whether a file is there, plain or .xz."""
    return file.is_file() or file.with_name(f"{file.name}.xz").is_file()
