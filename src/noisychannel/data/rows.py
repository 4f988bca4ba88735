"""Rows of paired and unpaired data: the text of a line, before it is split into symbols.

A source is a file, a directory, a glob, two parallel files, or ``hf:NAME[@CONFIG]:SPLIT`` for a Hugging Face dataset.
``columns`` says what its columns are: a comma-separated list of

    input, output    the two sides
    features         morphological tags, prepended to the input as symbols
    group            one set of models is trained per value
    -                ignored
    -NAME            ignored by training; ``evaluate`` can resample by it

(for a Hugging Face dataset ``input=document,output=summary``, with dots for nested fields), or a preset. Blank lines
are skipped, and counted if the caller passes ``BlankLines``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from noisychannel.data.blank_lines import BlankLines, is_blank
from noisychannel.data.files import BadLine, Line, find_files, read_inputs, read_lines
from noisychannel.errors import BadInputError, missing_extra

PRESETS = {
    "pairs": "input,output",
    "unimorph": "input,output,features",
    "sigmorphon2016": "input,features,output",
    "sigmorphon2017": "input,output,features",
    "sigmorphon2018": "input,output,features",
    "sigmorphon2019": "input,output,features",
    "sigmorphon2020": "input,output,features",
    "sigmorphon2021": "input,output,features",
    "sigmorphon2022": "input,output,features",
    "sigmorphon2023": "input,features,output",
}
COLUMN_KINDS = ("input", "output", "features", "group", "-")
RESERVED = ("input", "output", "features", "group", "line")
"""The names that ``evaluate --resample-by`` knows without such a column."""
HUB = "hf:"
HUB_CONVERTED = "refs/convert/parquet"
"""The branch in which the hub keeps its own conversion of a dataset, if it has made one."""
NEEDS_SCRIPT = "Dataset scripts are no longer supported"
"""How the error of ``datasets`` begins if a dataset can be read only by a program of its own, such as gigaword.py."""


class Row(NamedTuple):
    """One item of data as text."""

    input: str
    """Empty in unpaired data."""
    output: str
    features: tuple[str, ...]
    group: str
    """Empty if there are no groups."""
    where: str
    """file:line, for messages."""
    further: tuple[tuple[str, str], ...] = ()
    """Name and value of each ignored column that has a name."""


class Columns(NamedTuple):
    """What each column contains; ``fields`` are the names in a Hugging Face dataset."""

    roles: tuple[str, ...]
    fields: tuple[str, ...]

    @staticmethod
    def parse(text: str, key: str, needed: Sequence[str]) -> Columns:
        """Read a ``columns`` value of the configuration; ``key`` is its name there, for messages."""
        items = [item.strip() for item in PRESETS.get(text.strip(), text).split(",")]
        roles = tuple(item.partition("=")[0] for item in items)
        fields = tuple(item.partition("=")[2] for item in items)
        named = [role for role in roles if role != "-"]
        for role in roles:
            if role[1:] in RESERVED and role[0] == "-":
                raise BadInputError(f"{key}: {role!r}: this name is reserved; choose another")
            if role not in COLUMN_KINDS and not role.startswith("-"):
                raise BadInputError(
                    f"{key}: unknown column {role!r}; use a list of {', '.join(COLUMN_KINDS)}, -NAME, "
                    f"or one of {', '.join(PRESETS)}"
                )
        for role in {*named, *needed}:
            if named.count(role) != 1:
                raise BadInputError(f"{key}: {role!r} must occur exactly once in {text!r}")
        return Columns(roles, fields)

    @property
    def written(self) -> str:
        """As a user writes them."""
        pairs = zip(self.roles, self.fields, strict=True)
        return ",".join(f"{role}={name}" if name else role for role, name in pairs)

    def exchanged(self, one: str, other: str) -> Columns:
        """With each of two columns in the place of the other."""
        exchange = {one: other, other: one}
        return Columns(tuple(exchange.get(role, role) for role in self.roles), self.fields)


def read_pairs(
    sources: Sequence[str], columns: Columns, feature_separator: str, blank: BlankLines | None = None
) -> Iterator[Row]:
    """Rows of tab-separated files or of Hugging Face datasets. An empty input or output is an error."""
    for row in _read(sources, columns, feature_separator, blank):
        yield _complete(row)


def try_pairs(source: str, columns: Columns, feature_separator: str) -> Iterator[Row | BadLine | None]:
    """``read_pairs`` of one source, line by line: a line that is no pair is a ``BadLine``, a blank one None."""
    if source.startswith(HUB):
        yield from read_pairs([source], columns, feature_separator)
        return
    for line in read_inputs([source]):
        if isinstance(line, BadLine):
            yield line
            continue
        try:
            rows = [_row(*item, columns, feature_separator) for item in _file_rows([line], columns, None)]
            yield _complete(rows[0]) if rows else None
        except BadInputError as error:
            yield BadLine(str(error), line.number)


def read_parallel(inputs: Sequence[str], outputs: Sequence[str], blank: BlankLines | None = None) -> Iterator[Row]:
    """Rows of two sets of parallel files, line by line. Lines that are blank on both sides are skipped."""
    blank = BlankLines() if blank is None else blank
    for input_file, output_file in zip_longest(find_files(inputs), find_files(outputs)):
        if input_file is None or output_file is None:
            raise BadInputError(
                f"{input_file or output_file}: its parallel file is missing; give as many files on both sides"
            )
        here = there = None
        for here, there in zip_longest(read_lines(input_file), read_lines(output_file)):
            if here is None or there is None:
                short, long = (output_file, input_file) if there is None else (input_file, output_file)
                lines = (here or there).number - 1
                raise BadInputError(f"{short}: ends after line {lines}, but {long} is longer; they must be parallel")
            if is_blank(here) and blank.skips(there):
                continue
            for line in (here, there):
                if is_blank(line):
                    raise BadInputError(
                        f"{line.where}: the line is empty; fill it in, or remove it on both sides"
                        f"{_further_blanks(input_file, output_file, line.number)}"
                    )
            yield Row(here.text, there.text, (), "", here.where)


def _further_blanks(input_file: Path, output_file: Path, after: int) -> str:
    """How many more lines of two parallel files are empty on one side: whoever removes them removes all at once."""
    pairs = zip(read_lines(input_file), read_lines(output_file), strict=False)
    more = sum(is_blank(here) != is_blank(there) for here, there in pairs if here.number > after)
    return f" (as for {more:,} more lines that are empty on one side)" if more else ""


def read_unpaired(
    sources: Sequence[str], columns: Columns, feature_separator: str, blank: BlankLines | None = None
) -> Iterator[Row]:
    """Rows of lists of outputs; those without an output are skipped."""
    for row in _read(sources, columns, feature_separator, blank):
        if row.output.strip():
            yield row


def _read(sources: Sequence[str], columns: Columns, feature_separator: str, blank: BlankLines | None) -> Iterator[Row]:
    for source in sources:
        if source.startswith(HUB):
            rows: Iterable[tuple[list[str], str]] = _hub_rows(source, columns, feature_separator)
        else:
            rows = (row for file in find_files([source]) for row in _file_rows(read_lines(file), columns, blank))
        for values, where in rows:
            yield _row(values, where, columns, feature_separator)


def _row(values: Sequence[str], where: str, columns: Columns, feature_separator: str) -> Row:
    """The values of one line by what they are."""
    named = dict(zip(columns.roles, values, strict=True))
    features = tuple(f for f in named.get("features", "").split(feature_separator) if f)
    further = tuple((role[1:], value) for role, value in named.items() if role[0] == "-" and role != "-")
    return Row(named.get("input", ""), named.get("output", ""), features, named.get("group", ""), where, further)


def _complete(row: Row) -> Row:
    """A pair that has both sides."""
    for side, text in (("input", row.input), ("output", row.output)):
        if not text.strip():
            raise BadInputError(f"{row.where}: the {side} is empty; fill it in or remove the line")
    return row


def _file_rows(lines: Iterable[Line], columns: Columns, blank: BlankLines | None) -> Iterator[tuple[list[str], str]]:
    blank = BlankLines() if blank is None else blank
    for line in lines:
        if blank.skips(line):
            continue
        values = line.text.split("\t")
        if len(values) != len(columns.roles):
            if columns.roles == ("output",):
                raise BadInputError(f"{line.where}: a tab in a plain list; name its columns with unpaired_columns")
            raise BadInputError(
                f"{line.where}: {len(values)} tab-separated column{'s' if len(values) > 1 else ''}, but "
                f"{len(columns.roles)} are expected ({', '.join(columns.roles)}){_hint(line.text)}"
            )
        yield values, line.where


def _hint(line: str) -> str:
    """What a line without the right number of tabs may be."""
    if "\r" in line:
        return "; its lines end in \\r: convert them to \\n"
    if "\t" not in line and ("," in line or ";" in line):
        return "; if its columns are separated by something else, save the file with tabs"
    if "\t" not in line and " " in line.strip():
        return "; it has spaces: put one tab between the columns instead"
    return "; say what they are with --columns (data.columns in a configuration)"


def _hub_rows(source: str, columns: Columns, feature_separator: str) -> Iterator[tuple[list[str], str]]:
    try:
        import datasets
    except ImportError:
        raise missing_extra("datasets", "hub", source) from None
    name, colon, split = source.removeprefix(HUB).rpartition(":")
    if not colon or not name or not split:
        raise BadInputError(f"{source}: give a dataset and a split, such as hf:gigaword:train")
    if not all(columns.fields):
        raise BadInputError(f"{source}: say which field is which, such as columns: input=document,output=summary")
    name, _, config = name.partition("@")
    try:
        rows = _load_from_hub(datasets.load_dataset, source, name, config or None, split)
        for number, row in enumerate(rows):
            where = f"{source}[{number}]"
            yield [_field(row, field, where, feature_separator) for field in columns.fields], where
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(f"{source}: {_first_line(error)}") from error


def _load_from_hub(load: Callable[..., Any], source: str, name: str, config: str | None, split: str) -> Iterable[Any]:
    """The rows of a split. If the dataset needs a program of its own, those of the hub's conversion of it."""
    try:
        rows: Iterable[Any] = load(name, config, split=split, streaming=True)
        return rows
    except RuntimeError as error:
        if not str(error).startswith(NEEDS_SCRIPT):
            raise
    try:
        rows = load(name, config, split=split, streaming=True, revision=HUB_CONVERTED)
        return rows
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInputError(
            f"{source}: the dataset needs a program of its own, which the package datasets no longer runs, and its "
            f"conversion on the hub ({HUB_CONVERTED}) cannot be read ({_first_line(error)}); download its files from "
            f"https://huggingface.co/datasets/{name} and name these (for reproduce, --data is their folder)"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _field(row: Any, field: str, where: str, feature_separator: str) -> str:
    """A field as text: a missing value is empty, a list is joined like features."""
    value = row
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise BadInputError(f"{where}: no field {field!r}; the fields are {', '.join(map(str, row))}")
        value = value[name]
    if isinstance(value, list):
        return feature_separator.join(map(str, value))
    return "" if value is None else str(value).replace("\n", " ")
