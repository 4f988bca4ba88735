"""The lock of a run directory, which one training at a time holds."""

from __future__ import annotations

import fcntl
import math
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from noisychannel.atomic import cannot_write
from noisychannel.errors import BadInputError
from noisychannel.run_files import RunFiles

SECONDS_FOR_LOCK = 1.0


class Lock(NamedTuple):
    begun: bool
    """Whether the content of the directory is ours to replace."""
    descriptor: int


@contextmanager
def locked_run(run: RunFiles, wait: bool = False) -> Iterator[Lock]:
    """Keep other processes from training in the directory; ``wait`` until they have ended, or refuse it."""
    file = run.path / ".lock"
    if run.path.exists() and not run.path.is_dir():
        raise BadInputError(f"run_dir: {run.path} is a file; choose another directory (--run-dir)")
    try:
        lock, begun = _acquire(file, math.inf if wait else SECONDS_FOR_LOCK)
        # Only now: whoever held the lock before may have filled the directory, or emptied it.
        empty = all(path == file for path in run.path.iterdir())
        ours = begun or empty or run.header_file.exists()
    except OSError as error:
        raise cannot_write(run.path, error) from error
    with lock:
        try:
            yield Lock(begun or empty, lock.fileno())
        finally:
            # The file stays if our preparation was interrupted. It marks the content as ours to replace.
            left_over = ours and not run.header_file.exists()
            if not left_over or [p.name for p in run.path.iterdir()] == [file.name]:
                file.unlink(missing_ok=True)
            if empty and not any(run.path.iterdir()):
                with suppress(OSError):  # another process has just locked it
                    run.path.rmdir()


def _acquire(file: Path, patience: float) -> tuple[IO[bytes], bool]:
    """Lock a file, and say whether it was there. The processes of a training that was killed hold the lock for a moment
    longer."""
    deadline = time.monotonic() + patience
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                lock, was_there = _open_lock(file)
            except FileNotFoundError:  # whoever held the lock has just removed the directory
                continue
            stack.enter_context(lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BadInputError(
                        f"{file.parent}: in use by another process; wait until it has finished, "
                        "or choose another directory (--run-dir)"
                    ) from None
                time.sleep(0.05)
                continue
            # Whoever held the lock may have removed the file since it was opened.
            if file.exists() and file.lstat().st_ino == os.fstat(lock.fileno()).st_ino:
                stack.pop_all()
                return lock, was_there


def _open_lock(file: Path) -> tuple[IO[bytes], bool]:
    """Open a lock, or create it, and say whether it was there. A link is not followed, and nothing else than a regular
    file is opened."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            descriptor, was_there = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o644), False
        except FileExistsError:
            descriptor, was_there = os.open(file, flags), True
    except OSError:
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise _not_a_lock(file) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_a_lock(file)
    return os.fdopen(descriptor, "r+b", buffering=0), was_there


def _not_a_lock(file: Path) -> BadInputError:
    return BadInputError(f"{file}: not a regular file, so it cannot be the lock of the run; remove it, then try again")
