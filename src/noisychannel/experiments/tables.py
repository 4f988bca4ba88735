"""Files of data: plain or compressed, with columns that are checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from noisychannel.data.files import read_lines
from noisychannel.errors import BadInputError

DATA_OPTION = "name the folder of the data with --data"


def existing_file(file: Path, fix: str) -> Path:
    """The file, with or without .xz."""
    plain = file.with_suffix("") if file.suffix == ".xz" else file
    for candidate in (file, plain, plain.with_name(f"{plain.name}.xz")):
        if candidate.is_file():
            return candidate
    raise BadInputError(f"{plain}: no such file, also not with .xz; {fix}")


def read_table(file: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """The values of each line; as many as there are columns, and none empty."""
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
