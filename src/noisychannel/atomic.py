"""Files that are complete or absent: written under another name, flushed to disk, then renamed.

A name that is a symlink keeps being one: the file it leads to is replaced. What cannot be replaced (a device, a pipe, a
descriptor such as /dev/stdout) is written into.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from noisychannel.errors import NoisyChannelError

MOST_LINKS = 40
"""So many symlinks may follow each other, as in Linux."""


def write_bytes(file: Path, *content: bytes | memoryview) -> None:
    """Replace the content of ``file`` by these bytes, in order.

    If anything fails, the old file stays and nothing else is left behind.
    """
    try:
        target = _followed(file)
        if _is_replaceable(target):
            _replace(target, content)
        else:
            _write_into(target, content)
    except OSError as error:
        raise cannot_write(file, error) from error


def write_text(file: Path, content: str) -> None:
    write_bytes(file, content.encode("utf-8"))


def cannot_write(file: Path, error: OSError) -> NoisyChannelError:
    """The error for a file that cannot be written, most often because the disk is full."""
    return NoisyChannelError(
        f"{file}: cannot be written ({error.strerror or error}); free some space or fix the directory, then try again"
    )


def _followed(file: Path) -> Path:
    """Where a name leads through symlinks. A link to a descriptor of a process is not followed further."""
    for _ in range(MOST_LINKS):
        file = Path(os.path.realpath(file.parent), file.name)
        if not file.is_symlink() or file.is_relative_to("/proc"):
            return file
        file = file.parent / os.readlink(file)
    return file  # a loop of links, which the system refuses


def _is_replaceable(file: Path) -> bool:
    """Whether a file is a regular one, or will be."""
    if file.is_relative_to("/proc"):
        return False
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        return True


def _replace(file: Path, content: Sequence[bytes | memoryview]) -> None:
    beside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as stream:
            stream.writelines(content)
            stream.flush()
            if file.exists():
                os.fchmod(stream.fileno(), stat.S_IMODE(file.stat().st_mode))
            os.fsync(stream.fileno())
        beside.replace(file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _write_into(file: Path, content: Sequence[bytes | memoryview]) -> None:
    if file.parent == Path(f"/proc/{os.getpid()}/fd"):
        # Not opened again, which would start at the beginning of a file that others are writing, too.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        descriptor = os.dup(int(file.name))
    else:
        descriptor = os.open(file, os.O_WRONLY)
    with open(descriptor, "wb") as opened:
        opened.writelines(content)
