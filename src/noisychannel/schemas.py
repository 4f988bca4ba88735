"""Records that cross a file boundary: their types are checked once, at every depth, when a file is read.

A record is a dataclass that derives from one of three classes:

    Record           ignores keys that it does not have: a later version may have added them
    ClosedRecord     refuses such keys
    InfiniteRecord   is a Record that may contain infinite numbers and NaN

A field of the name ``class_`` is the key ``class``. What types cannot express is checked in ``__post_init__``, which
raises ValueError.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from noisychannel import __version__
from noisychannel.errors import BadInputError, NoisyChannelError

T = TypeVar("T")

LONGEST_REASON = 200
"""Characters of what is wrong with a file; keys of a damaged file can be long."""


def _key(field: str) -> str:
    return field.removesuffix("_")


_OPEN = {"strict": True, "allow_inf_nan": False, "extra": "ignore", "alias_generator": _key}


class Record:
    """A dataclass that is read from a file."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _OPEN


class ClosedRecord(Record):
    """A record without other keys."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {**_OPEN, "extra": "forbid"}


class InfiniteRecord(Record):
    """A record in which infinite numbers mean something."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {**_OPEN, "allow_inf_nan": True}


@dataclass(frozen=True)
class _Stamp(Record):
    """What a file says about itself in every version."""

    format: int | None = None
    noisychannel: str | None = None


def read_record(file: Path, kind: type[T], again: str, formats: Collection[int | None] = ()) -> T:
    """The JSON of a file as a record.

    ``again``: how to get another such file, such as ``train again``; the errors say it. ``formats``: those that this
    version reads, if the file has one; None stands for files that name none.
    """
    return parse_record(read_content(file, again), kind, file, again, formats)


def read_content(file: Path, again: str) -> bytes:
    """The bytes of a regular file. A pipe in its place is refused, not waited for."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise NoisyChannelError(f"{file}: not a regular file; restore it from a copy, or {again}")
        return file.read_bytes()
    except OSError as error:
        reason = "missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror or error})"
        raise NoisyChannelError(f"{file}: {reason}; restore it from a copy, or {again}") from error


def parse_record(
    content: bytes | str, kind: type[T], file: Path, again: str, formats: Collection[int | None] = ()
) -> T:
    """JSON that a file contains as a record; see ``read_record``."""
    if formats:
        stamp = _parsed(content, _Stamp, file, again)
        if stamp.format not in formats:
            readable = " or ".join(str(one) for one in formats if one is not None)
            writer = stamp.noisychannel or "of an unknown version"
            raise BadInputError(
                f"{file}: format {stamp.format!s:.20}, written by noisychannel {writer:.30}; "
                f"version {__version__} reads format {readable}: use the other version, or {again}"
            )
    return _parsed(content, kind, file, again)


def parse_metadata(metadata: Mapping[str, str], kind: type[T], file: Path, again: str) -> T:
    """Metadata, in which every value is a string, as a record."""
    return _parsed(metadata, kind, file, again)


def damaged(file: Path, reason: object, again: str) -> NoisyChannelError:
    """The error for a file whose content cannot be right."""
    line = " ".join(str(reason).split())[:LONGEST_REASON]
    return NoisyChannelError(f"{file}: damaged ({line}); restore it from a copy, or {again}")


def _parsed(content: bytes | str | Mapping[str, str], kind: type[T], file: Path, again: str) -> T:
    from pydantic import ValidationError  # imported only when there is a file to read: --help needs none

    adapter = _adapter_of(cast(Any, kind))
    try:
        record: T = (
            adapter.validate_strings(content) if isinstance(content, Mapping) else adapter.validate_json(content)
        )
        return record
    except ValidationError as error:
        raise damaged(file, _reason(error.errors(include_url=False, include_input=False)[0]), again) from error


def _reason(error: Mapping[str, Any]) -> str:
    """``systems.direct+lm.weights.lm: must be a valid number``."""
    where = ".".join(map(str, error["loc"]))
    match error["type"]:
        case "missing":
            what = "missing"
        case "unexpected_keyword_argument":
            what = "unknown key"
        case "value_error":
            what = str(error["ctx"]["error"])
        case _:
            what = error["msg"].replace("Input should be", "must be").replace("Invalid JSON", "not JSON")
    return f"{where}: {what}" if where else what


@cache
def _adapter_of(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
