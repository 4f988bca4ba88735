"""The data of summarisation: first sentences with their headlines, and unpaired headlines. Three layouts are known:

    summarisation/newsapi.{train,valid,test}.{src,tgt}   news of today, with newsapi.extra_headlines.txt, and beside
    summarisation/giga.test1951.{src,tgt}                them the test sets of Gigaword and
    summarisation/duc2003.{src,ref0,…,ref3}              DUC-2003

    train.article.txt, train.title.txt                   Gigaword, as everyone prepares it (perhaps in train/), with
    valid.article.filter.txt, valid.title.filter.txt     (or without .filter) and the test sets, as far as they are
    giga/input.txt, giga/task1_ref0.txt                  there: Gigaword's (or test.article.txt, test.title.txt) and
    duc2003/input.txt, duc2003/task1_ref{0,…,3}.txt      DUC's

    hf:gigaword                                          a dataset of the hub with the columns document and summary

Every file may be plain or end in .xz. Gigaword has no unpaired headlines unless there is an extra_headlines.txt.

Training pairs, and pairs for early stopping, of more than 50 or 25 words are dropped before anything is sampled. Test
inputs are never dropped. Of a test set with more than 2,000 pairs, as many are drawn at random, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from noisychannel.data.files import read_lines
from noisychannel.data.rows import HUB, Columns, Row, read_pairs, read_parallel
from noisychannel.errors import BadInputError, missing_extra
from noisychannel.experiments.items import Item, at_most
from noisychannel.experiments.tables import DATA_OPTION, existing_file
from noisychannel.text import TextConfig, normalise

TEXT = TextConfig(units="words", lowercase=True, digits_to_hash=True)
"""How inputs and headlines are written: as in the paper's data."""
MOST_INPUT_WORDS, MOST_OUTPUT_WORDS = 50, 25
"""Of a training pair."""
TEST_PAIRS = 2_000
HUB_COLUMNS = "input=document,output=summary"
FIX = f"it is part of the data of summarisation; {DATA_OPTION}"


class Pair(NamedTuple):
    """A first sentence and its headline."""

    source: str
    headline: str


@dataclass(frozen=True)
class SummarisationData:
    """What was read."""

    train: list[Pair]
    valid: list[Pair]
    tests: dict[str, tuple[Item, ...]]
    """By name; the first is the one that the goals are about."""
    headlines: list[str]
    """Unpaired, in the order of the file, which may be sorted."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Pairs of train and valid that were too long."""


def read_data(data: Path, most: int | None = None) -> SummarisationData:
    """``data``: the folder of the data, or the name of a dataset of the hub (``hf:NAME``).

    ``most``: the first so many training pairs, and as many unpaired headlines, for a quick try.
    """
    if str(data).startswith(HUB):
        return _read_hub(str(data), most)
    if _is_there(data / "summarisation" / "newsapi.train.src"):
        return _read_newsapi(data / "summarisation", most)
    for folder in (data, data / "train"):
        if _is_there(folder / "train.article.txt"):
            return _read_gigaword(data, folder, most)
    raise BadInputError(
        f"{data}: neither summarisation/newsapi.train.src nor train.article.txt is there, plain or .xz; {DATA_OPTION}, "
        "or a dataset of the hub (--data hf:gigaword)"
    )


def _read_newsapi(folder: Path, most: int | None) -> SummarisationData:
    def read(name: str, most: int | None = None) -> list[Pair]:
        return _parallel(folder / f"{name}.src", folder / f"{name}.tgt", most)

    headlines = _lines(folder / "newsapi.extra_headlines.txt", most)
    tests = {
        "newsapi.test": _items(read("newsapi.test")),
        "giga.test1951": _items(read("giga.test1951")),
        "duc2003": _with_references(folder / "duc2003.src", [folder / f"duc2003.ref{n}" for n in range(4)], raw=True),
    }
    return _data(read("newsapi.train", most), read("newsapi.valid"), tests, headlines)


def _read_gigaword(root: Path, folder: Path, most: int | None) -> SummarisationData:
    train = _parallel(folder / "train.article.txt", folder / "train.title.txt", most)
    middle = ".filter" if _is_there(folder / "valid.article.filter.txt") else ""
    valid = _parallel(folder / f"valid.article{middle}.txt", folder / f"valid.title{middle}.txt")
    tests = {}
    if _is_there(folder / "test.article.txt"):
        tests["test"] = _items(_parallel(folder / "test.article.txt", folder / "test.title.txt"))
    for name, number in (("giga", 1), ("duc2003", 4), ("duc2004", 4)):
        if _is_there(root / name / "input.txt"):
            files = [root / name / f"task1_ref{n}.txt" for n in range(number)]
            tests[name] = _with_references(root / name / "input.txt", files, raw=name.startswith("duc"))
    if not tests:
        raise BadInputError(
            f"{root}: no test set: give test.article.txt and test.title.txt, or giga/input.txt and giga/task1_ref0.txt"
        )
    extra = root / "extra_headlines.txt"
    return _data(train, valid, tests, _lines(extra, most) if _is_there(extra) else [])


def _read_hub(name: str, most: int | None) -> SummarisationData:
    columns = Columns.parse(HUB_COLUMNS, "columns", ("input", "output"))

    def read(split: str, most: int | None = None) -> list[Pair]:
        return _pairs(read_pairs([f"{name}:{split}"], columns, ";"), most)

    return _data(read("train", most), read("validation"), {"test": _items(read("test"))}, [])


def _data(
    train: Sequence[Pair], valid: Sequence[Pair], tests: dict[str, tuple[Item, ...]], headlines: Sequence[str]
) -> SummarisationData:
    kept = {"train": short(train), "valid": short(valid)}
    dropped = {"train": len(train) - len(kept["train"]), "valid": len(valid) - len(kept["valid"])}
    for split, pairs in kept.items():
        if not pairs:
            raise BadInputError(f"{split}: no pair of at most {MOST_INPUT_WORDS} and {MOST_OUTPUT_WORDS} words is left")
    drawn = {name: tuple(at_most(items, TEST_PAIRS, seed=1)) for name, items in tests.items()}
    listed = [line for line in headlines if len(line.split()) <= MOST_OUTPUT_WORDS]
    return SummarisationData(kept["train"], kept["valid"], drawn, listed, dropped)


def short(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs that are short enough to train on."""
    return [
        pair
        for pair in pairs
        if len(pair.source.split()) <= MOST_INPUT_WORDS and len(pair.headline.split()) <= MOST_OUTPUT_WORDS
    ]


def _parallel(sources: Path, headlines: Path, most: int | None = None) -> list[Pair]:
    files = [str(existing_file(file, FIX)) for file in (sources, headlines)]
    return _pairs(read_parallel(files[:1], files[1:]), most)


def _pairs(rows: Iterable[Row], most: int | None = None) -> list[Pair]:
    """As one line each: a tab or several spaces are one space."""
    return [Pair(_one_line(row.input), _one_line(row.output)) for row in islice(rows, most)]


def _one_line(text: str) -> str:
    return " ".join(normalise(text, TEXT).split())


def _lines(file: Path, most: int | None = None) -> list[str]:
    lines = (_one_line(line.text) for line in islice(read_lines(existing_file(file, FIX)), most))
    return [line for line in lines if line]


def _items(pairs: Iterable[Pair]) -> tuple[Item, ...]:
    return tuple(Item(pair.source, (pair.headline,)) for pair in pairs)


def _with_references(sources: Path, references: Sequence[Path], raw: bool) -> tuple[Item, ...]:
    """Items with a reference in each of several files; a line of these may be empty.

    ``raw``: split words from punctuation, as in the inputs. The references of DUC are as people wrote them.
    """
    columns = [[line.text for line in read_lines(existing_file(file, FIX))] for file in (sources, *references)]
    for file, lines in zip(references, columns[1:], strict=True):
        if len(lines) != len(columns[0]):
            raise BadInputError(
                f"{file}: {len(lines)} lines, but {sources} has {len(columns[0])}; they must be parallel"
            )
    items = []
    for number, (source, *given) in enumerate(zip(*columns, strict=True), 1):
        found = tuple(_one_line(_tokenised(text) if raw else text) for text in given if text.strip())
        if not source.strip() or not found:
            missing = "an empty sentence" if not source.strip() else "no file has a reference"
            raise BadInputError(f"{sources}:{number}: {missing}; remove the line from all files of the test set")
        items.append(Item(_one_line(source), found))
    return tuple(items)


def _tokenised(text: str) -> str:
    """Words, punctuation and -LRB- for brackets, apart from each other: the Penn Treebank's way."""
    try:
        from nltk.tokenize import TreebankWordTokenizer
    except ImportError:
        raise missing_extra("rouge-score", "metrics", "the references of DUC") from None
    return " ".join(TreebankWordTokenizer().tokenize(text, convert_parentheses=True))


def _is_there(file: Path) -> bool:
    return file.is_file() or file.with_name(f"{file.name}.xz").is_file()
