"""The file into which a server writes ratings: lines are added whole, and flushed to disk before the rater is told."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from noisychannel.atomic import cannot_write
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.prefer.page import PageRecord
from noisychannel.prefer.ratings import Rating
from noisychannel.schemas import parse_record


class RatingsFile:
    """Ratings of one page. Writing them is a ``with`` block; no other process can write at the same time."""

    def __init__(self, file: Path, page: PageRecord) -> None:
        # What is there is read to its end, which a pipe or a device may not have.
        if (file.exists() and not file.is_file()) or not file.parent.is_dir():
            raise BadInputError(f"--ratings: {file} cannot be a file; name one in an existing directory")
        self.file, self.page, self.count = file, page, 0
        self._lock = Lock()

    def __enter__(self) -> Self:
        try:
            self._descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise cannot_write(self.file, error) from error
        try:
            self._take_up()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _take_up(self) -> None:
        """Lock the file, check that it is of this page, and cut off a line that a killed server left half-written."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NoisyChannelError(f"{self.file}: another process is writing it; stop that first") from error
        content = self.file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            rating = parse_record(line, Rating, Path(f"{self.file}:{number}"), "name another file with --ratings")
            if rating.page != self.page.page:
                raise BadInputError(f"{self.file}:{number}: a rating of another page; name another file with --ratings")
            self.count += 1
        os.ftruncate(self._descriptor, len(whole))

    def add(self, ratings: Sequence[Rating]) -> None:
        """All of them, or none if the disk is full."""
        lines = "".join(rating.json() + "\n" for rating in ratings).encode()
        with self._lock:
            before = os.fstat(self._descriptor).st_size
            try:
                left = memoryview(lines)
                while left:
                    left = left[os.write(self._descriptor, left) :]
                os.fsync(self._descriptor)
            except OSError as error:
                os.ftruncate(self._descriptor, before)
                raise cannot_write(self.file, error) from error
            self.count += len(ratings)
