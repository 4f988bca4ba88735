"""What the inflection experiments read: tables of German forms, and lists of forms without their lemmas.

``directory`` is always the folder ``morphology`` of the data; every file may be plain or end in .xz.

    durrett2013/de_noun.train.tsv       lemma, form, attributes: the Wiktionary tables of Durrett and DeNero (2013)
    sigmorphon2017/german-train-medium  lemma, form, tags
    sigmorphon2023/deu.trn              lemma, tags, form
    unpaired/de_noun.tsv                attributes, form, sources: for the language model

The unpaired lists hold the answers to most test items, as the lists of the paper must have. In the *strict* setting
they hold none, nor any other form of a dev or test lemma:

    gold = held_out_paradigms(tables)
    strict = without_lemmas(unpaired, gold, gold, german_noun_paradigms())
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

from noisychannel.data.files import read_lines
from noisychannel.data.german_nouns import read_nouns
from noisychannel.errors import BadInputError

T = TypeVar("T")

TABLE = ("lemma", "form", "attributes")
LIST = ("attributes", "form", "sources")
CASES = ("nominativ", "genitiv", "dativ", "akkusativ")


class Pair(NamedTuple):
    """One item of a type: its input and output."""

    lemma: str
    form: str


class TaggedPair(NamedTuple):
    """One item with its type, for a model that inflects for all types."""

    lemma: str
    form: str
    tags: str
    """As in the file: ``N;ACC;PL`` (SIGMORPHON 2017), ``N;ACC(PL)`` (2023), ``case=accusative:number=plural``."""


class Splits(NamedTuple, Generic[T]):
    """The rows of one task, each split in file order."""

    train: list[T]
    dev: list[T]
    test: list[T]


# --- tables


def read_wiktionary(directory: Path, part: Literal["noun", "verb"]) -> dict[str, Splits[Pair]]:
    """The pairs of each type (its attributes as in the file), types in the order of the training file.

    No lemma is in two splits, and no type lacks a split.
    """
    wanted = "make it from the public release wiktionary-morphology-1.1, and name the folder of the data with --data"
    files = [
        _existing(directory / "durrett2013" / f"de_{part}.{split}.tsv", f"{wanted} (columns {', '.join(TABLE)})")
        for split in ("train", "dev", "test")
    ]
    types: dict[str, Splits[Pair]] = {}
    lemmas: dict[Path, set[str]] = {}
    for split, file in enumerate(files):
        lemmas[file] = set()
        for lemma, form, attributes in _rows(file, TABLE):
            types.setdefault(attributes, Splits([], [], []))[split].append(Pair(lemma, form))
            lemmas[file].add(lemma)
    for one, other in combinations(files, 2):
        if shared := lemmas[one] & lemmas[other]:
            raise BadInputError(
                f"{other}: the lemma {min(shared)!r} is also in {one}; remove it from one, splits share no lemma"
            )
    for attributes, splits in types.items():
        for file, pairs in zip(files, splits, strict=True):
            if not pairs:
                raise BadInputError(f"{file}: no row of type {attributes!r}; every type must be in all splits")
    return types


def read_sigmorphon(directory: Path, year: Literal[2017, 2023]) -> Splits[TaggedPair]:
    """The German data of a shared task: of 2017 the medium training set, where splits share lemmas; of 2023 the whole.

    The test set is the one with the forms filled in.
    """
    if year == 2017:
        names, columns = ("german-train-medium", "german-dev", "german-uncovered-test"), ("lemma", "form", "tags")
    else:
        names, columns = ("deu.trn", "deu.dev", "deu.tst"), ("lemma", "tags", "form")
    mend = f"it is in the public data of the SIGMORPHON {year} shared task; name the folder of the data with --data"
    files = [_existing(directory / f"sigmorphon{year}" / name, mend) for name in names]
    order = [columns.index(column) for column in TaggedPair._fields]
    return Splits(*([TaggedPair(*(row[i] for i in order)) for row in _rows(file, columns)] for file in files))


def some(rows: Sequence[T], n: int | None, seed: int) -> list[T]:
    """``n`` rows drawn with ``seed``, for learning curves; ``None``: all, as they are.

    A smaller sample is the beginning of a larger one, and lists of the same length are sampled at the same places:
    where all types have the same lemmas in the same order, so have their samples.
    """
    if n is None:
        return list(rows)
    if not 0 < n <= len(rows):
        raise BadInputError(f"a sample of {n} rows is asked for, but there are {len(rows)}; ask for 1 to {len(rows)}")
    places = list(range(len(rows)))
    random.Random(seed).shuffle(places)
    return [rows[place] for place in places[:n]]


# --- unpaired lists


def read_unpaired(file: Path, sources: Collection[str] | None = None) -> dict[str, list[str]]:
    """The forms of each type, in file order, each once; with ``sources``, only forms that one of these attests."""
    file = _existing(file, "the experiments need a list of forms; name the folder of the data with --data")
    types: dict[str, dict[str, None]] = {}
    seen: set[str] = set()
    for attributes, form, attested in _rows(file, LIST):
        forms = types.setdefault(attributes, {})  # a dict keeps the order
        named = attested.split(",")
        seen.update(named)
        if sources is None or any(source in sources for source in named):
            forms[form] = None
    for source in sources or ():
        if source not in seen:
            raise BadInputError(f"{file}: no form of the source {source!r}; its sources are {', '.join(sorted(seen))}")
    return {attributes: list(forms) for attributes, forms in types.items()}


def held_out_paradigms(tables: Mapping[str, Splits[Pair]] | Mapping[str, Splits[TaggedPair]]) -> dict[str, set[str]]:
    """Lemma to forms of all types, for the dev and test lemmas of the gold tables."""
    paradigms: dict[str, set[str]] = {}
    for splits in tables.values():
        for pair in (*splits.dev, *splits.test):
            paradigms.setdefault(pair.lemma, set()).add(pair.form)
    return paradigms


def german_noun_paradigms() -> dict[str, set[str]]:
    """Lemma to all its attested forms in the PyPI package german-nouns: every case, number and variant.

    Entries of the same spelling (der and die Kiefer) are one paradigm. There is no such list for verbs.
    """
    paradigms: dict[str, set[str]] = {}
    for row in read_nouns("the strict setting"):
        forms = {form.strip() for column, form in row.items() if form and column.split()[0] in CASES}
        paradigms.setdefault(row["lemma"], set()).update(forms - {""})
    return paradigms


def without_lemmas(
    unpaired: Mapping[str, Sequence[str]], lemmas: Iterable[str], *paradigms: Mapping[str, AbstractSet[str]]
) -> dict[str, list[str]]:
    """The strict setting: the lists without the ``lemmas`` and without every form that a paradigm has for them.

    A form goes from the lists of all types, whatever its source, even when it is also a form of another lemma, and so
    does its copy with a capital (Berechnete for berechnete: the verb lists often have both). A compound stays. For
    verbs, only the forms in the gold tables are known: a short imperative (sink!) can stay.
    """
    hidden: set[str] = set()
    for lemma in lemmas:
        hidden.add(_uncapitalised(lemma))
        for paradigm in paradigms:
            hidden.update(map(_uncapitalised, paradigm.get(lemma, ())))
    return {
        attributes: [form for form in forms if _uncapitalised(form) not in hidden]
        for attributes, forms in unpaired.items()
    }


def _uncapitalised(word: str) -> str:
    return word[:1].lower() + word[1:]


# --- files


def _existing(file: Path, mend: str) -> Path:
    """The file itself, or its twin with or without .xz."""
    plain = file.with_suffix("") if file.suffix == ".xz" else file
    for candidate in (file, plain, plain.with_name(f"{plain.name}.xz")):
        if candidate.is_file():
            return candidate
    raise BadInputError(f"{plain}: no such file, nor with .xz; {mend}")


def _rows(file: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """The values of each line, as many as there are columns, none empty."""
    for line in read_lines(file):
        values = line.text.split("\t")
        if len(values) != len(columns):
            raise BadInputError(
                f"{line.where}: {len(values)} tab-separated columns, but {len(columns)} are expected "
                f"({', '.join(columns)})"
            )
        if not all(map(str.strip, values)):
            empty = next(column for column, value in zip(columns, values, strict=True) if not value.strip())
            raise BadInputError(f"{line.where}: the column {empty} is empty; fill it or remove the line")
        yield values
