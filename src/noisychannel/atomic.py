"""Files that are complete or absent: written under another name, flushed to disk, then renamed."""

from __future__ import annotations

import os
from pathlib import Path

from noisychannel.errors import NoisyChannelError


def write_bytes(file: Path, content: bytes) -> None:
    """Replace the content of ``file``. If anything fails, the old file stays and nothing else is left behind."""
    beside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        try:
            with beside.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(file)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cannot_write(file, error) from error


def write_text(file: Path, content: str) -> None:
    write_bytes(file, content.encode("utf-8"))


def cannot_write(file: Path, error: OSError) -> NoisyChannelError:
    """The error for a file that cannot be written, most often because the disk is full."""
    return NoisyChannelError(
        f"{file}: cannot be written ({error.strerror or error}); free some space or fix the directory, then try again"
    )
