"""Standard input as a file: ``-`` in the place of a name."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from noisychannel.errors import BadInputError

DASH = "-"
STANDARD_INPUT = Path("/dev/stdin")
"""The path of ``-``. (A file whose name is a dash is ``./-``.)"""
SPOOLED = "standard input"
"""The name of standard input in messages, and of the file to which it is copied."""


def standard_input() -> IO[bytes]:
    """The bytes of standard input."""
    if sys.stdin is None:
        raise BadInputError("standard input is closed; name a file, or give the input with <")
    return sys.stdin.buffer


def check_read_once(names: Iterable[str]) -> None:
    """Refuse a command that would read standard input twice, or that cannot read it."""
    dashes = sum(name in (DASH, str(STANDARD_INPUT)) for name in names)
    if dashes > 1:
        raise BadInputError("standard input (-) is named twice, but can be read once; name a file for one of them")
    if dashes:
        standard_input()


def count_standard_input() -> int | None:
    """How many lines standard input has, if it is a file; None if it can be read only once, such as a pipe."""
    stream = standard_input()
    try:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        before = stream.tell()
        lines = sum(1 for _ in stream)
        stream.seek(before)
    except (OSError, io.UnsupportedOperation):
        return None
    return lines


def spool(directory: Path) -> str:
    """Copy standard input into a directory, for data that is read several times; the name of the copy."""
    file = directory / SPOOLED
    with file.open("wb") as copy:
        shutil.copyfileobj(standard_input(), copy)
    return str(file)
