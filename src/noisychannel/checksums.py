"""Checksums of files, and a lock on the directory whose files several processes change."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from noisychannel.errors import NoisyChannelError


def checksum(file: Path) -> str:
    """SHA-256 of the content of a file, in hexadecimal."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise NoisyChannelError(
            f"{file}: cannot be read ({error.strerror or error}); make it readable, then try again"
        ) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Wait until no other process is inside for the same directory.

    Some network file systems cannot lock a directory. There, processes are not kept apart.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
