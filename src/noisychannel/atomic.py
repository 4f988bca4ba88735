"""Files that are there whole or not at all: written beside their place, flushed to disk, then renamed into it."""

from __future__ import annotations

import os
from pathlib import Path

from noisychannel.errors import NoisyChannelError


def write_bytes(file: Path, content: bytes) -> None:
    """Replace ``file`` by ``content``; on any failure the old file stays and nothing else is left behind."""
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
    """The complaint about a file that cannot be written, most often for want of space."""
    return NoisyChannelError(
        f"{file}: cannot be written ({error.strerror or error}); make room or mend the directory, then repeat"
    )
