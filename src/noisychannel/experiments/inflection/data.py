"""What the inflection experiments read: tables of German forms, and lists of forms without their lemmas.

``directory`` is always the folder ``morphology`` of the data. Every file may be plain or end in .xz.

    durrett2013/de_noun.train.tsv       lemma, form, attributes: the Wiktionary tables of Durrett and DeNero (2013)
    sigmorphon2017/german-train-medium  lemma, form, tags
    sigmorphon2017/german-forms         tags, form
    sigmorphon2023/deu.trn              lemma, tags, form
    unpaired/de_noun.tsv                attributes, form, sources: for the language model

The unpaired lists have the answers to most test items, as the lists of the paper must have; ``strict`` removes them.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

from noisychannel.errors import BadInputError
from noisychannel.experiments.tables import DATA_OPTION, existing_file, read_table

T = TypeVar("T")

TABLE = ("lemma", "form", "attributes")
LIST = ("attributes", "form", "sources")
"""The columns of the files."""


class Pair(NamedTuple):
    """A lemma and its form of one type."""

    lemma: str
    form: str


class TaggedPair(NamedTuple):
    """A lemma and its form with their type, for a model of all types."""

    lemma: str
    form: str
    tags: str
    """As in the file: ``N;ACC;PL`` (SIGMORPHON 2017), ``N;ACC(PL)`` (2023), ``case=accusative:number=plural``."""


class TrainDevTest(NamedTuple, Generic[T]):
    """The rows of one task, in the order of the files."""

    train: list[T]
    dev: list[T]
    test: list[T]


# --- tables


def read_wiktionary(directory: Path, part: Literal["noun", "verb"]) -> dict[str, TrainDevTest[Pair]]:
    """The pairs of each type (its attributes as in the file), types in the order of the training file.

    No lemma is in two splits, and no type lacks a split.
    """
    fix = f"make it from the public release wiktionary-morphology-1.1 (columns {', '.join(TABLE)}), or {DATA_OPTION}"
    files = [
        existing_file(directory / "durrett2013" / f"de_{part}.{split}.tsv", fix) for split in ("train", "dev", "test")
    ]
    types: dict[str, TrainDevTest[Pair]] = {}
    lemmas: dict[Path, set[str]] = {}
    for split, file in enumerate(files):
        lemmas[file] = set()
        for lemma, form, attributes in read_table(file, TABLE):
            types.setdefault(attributes, TrainDevTest([], [], []))[split].append(Pair(lemma, form))
            lemmas[file].add(lemma)
    for one, other in combinations(files, 2):
        if shared := lemmas[one] & lemmas[other]:
            raise BadInputError(
                f"{other}: the lemma {min(shared)!r} is also in {one}; remove it from one of them, "
                "because no lemma may be in two splits"
            )
    for attributes, splits in types.items():
        for file, pairs in zip(files, splits, strict=True):
            if not pairs:
                raise BadInputError(f"{file}: no row of type {attributes!r}; every type needs rows in all splits")
    return types


def read_sigmorphon(directory: Path, year: Literal[2017, 2023]) -> TrainDevTest[TaggedPair]:
    """The German data of a shared task: of 2017 the medium training set, whose splits share lemmas; of 2023 all.

    The test set is the one with the forms filled in.
    """
    if year == 2017:
        names, columns = ("german-train-medium", "german-dev", "german-uncovered-test"), ("lemma", "form", "tags")
    else:
        names, columns = ("deu.trn", "deu.dev", "deu.tst"), ("lemma", "tags", "form")
    fix = f"get it from the public data of the SIGMORPHON {year} shared task, or {DATA_OPTION}"
    files = [existing_file(directory / f"sigmorphon{year}" / name, fix) for name in names]
    order = [columns.index(column) for column in TaggedPair._fields]
    return TrainDevTest(
        *([TaggedPair(*(row[i] for i in order)) for row in read_table(file, columns)] for file in files)
    )


def read_language(directory: Path, language: str, size: Literal["low", "medium"]) -> TrainDevTest[TaggedPair]:
    """A language of the shared task of 2017, with 100 (low) or 1,000 training pairs. Splits share lemmas."""
    names = f"{language}-train-{size}", f"{language}-dev", f"{language}-uncovered-test"
    return TrainDevTest(
        *([TaggedPair(*row) for row in read_table(_task_file(directory, name), TaggedPair._fields)] for name in names)
    )


def read_forms(directory: Path, language: str) -> list[tuple[str, str]]:
    """Tags and form: those of the high training set of 2017, each once."""
    rows = read_table(_task_file(directory, f"{language}-forms"), ("tags", "form"))
    return list(dict.fromkeys((tags, form) for tags, form in rows))


def _task_file(directory: Path, name: str) -> Path:
    fix = f"get it from the public data of the SIGMORPHON 2017 shared task, or {DATA_OPTION}"
    return existing_file(directory / "sigmorphon2017" / name, fix)


# --- unpaired lists


def read_unpaired(file: Path, sources: Collection[str] | None = None) -> dict[str, list[str]]:
    """The forms of each type, in file order, each once; with ``sources``, only forms that one of these attests."""
    file = existing_file(file, f"the language model needs a list of forms; {DATA_OPTION}")
    types: dict[str, dict[str, None]] = {}
    seen: set[str] = set()
    for attributes, form, attested in read_table(file, LIST):
        forms = types.setdefault(attributes, {})  # a dict keeps the order
        named = attested.split(",")
        seen.update(named)
        if sources is None or any(source in sources for source in named):
            forms[form] = None
    for source in sources or ():
        if source not in seen:
            raise BadInputError(f"{file}: no form of the source {source!r}; its sources are {', '.join(sorted(seen))}")
    return {attributes: list(forms) for attributes, forms in types.items()}
