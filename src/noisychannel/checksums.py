"""Checksums of files, and a lock on the directory whose files several processes change."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from noisychannel.errors import NoisyChannelError

SECONDS_FOR_LOCK = 10.0


def checksum(file: Path) -> str:
    """SHA-256 of the content of a file, in hexadecimal."""
    try:
        if not file.is_file() and file.exists():
            raise NoisyChannelError(f"{file}: not a regular file; restore it from a copy")
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise NoisyChannelError(
            f"{file}: cannot be read ({error.strerror or error}); make it readable, then try again"
        ) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Wait until no other process is inside for the same directory, for which moments are enough.

    Some network file systems cannot lock a directory. There, processes are not kept apart.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            _wait_for_lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, directory: Path) -> None:
    deadline = time.monotonic() + SECONDS_FOR_LOCK
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise NoisyChannelError(
                    f"{directory}: another process is changing it; try again when that has finished"
                ) from None
            time.sleep(0.01)
