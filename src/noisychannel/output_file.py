"""A file of results that is written in parts, and continued exactly where it was if the writer is killed.

Beside FILE there is FILE.journal while it is unfinished: how many lines of the input are done, how many bytes of FILE
belong to them, what decides the results, and what the writer wants to remember. The journal is complete or absent, and
it is written after the bytes that it counts. What FILE has beyond these bytes is cut off before it is continued.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from noisychannel.atomic import cannot_write, write_text
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.schemas import ClosedRecord, T, parse_record, read_record

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class Journal(ClosedRecord):
    """How far an unfinished file is."""

    decided_by: Mapping[str, str]
    """What decides the results, by name."""
    lines: int = 0
    """Lines of the input that are done."""
    bytes: int = 0
    """Of the file, that belong to these lines."""
    input: str = hashlib.sha256().hexdigest()
    """The checksum of these lines."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the writer wants to remember."""

    def __post_init__(self) -> None:
        if min(self.lines, self.bytes) < 0:
            raise ValueError(f"{self.lines} lines and {self.bytes} bytes")


class OutputFile:
    """One file of results. Writing it is a ``with`` block; ``finish`` is its last act.

    A file that is no regular one, such as a pipe, is simply written.
    """

    def __init__(self, file: Path, resume: bool = False) -> None:
        """Refuse a file that would be lost, or cannot be continued. ``resume``: continue an unfinished one."""
        if file.is_dir() or not file.parent.is_dir():
            raise BadInputError(f"--output: {file} cannot be a file; name one in an existing directory")
        self.regular = file.is_file() or not file.exists()
        self.file = Path(os.path.realpath(file)) if self.regular else file
        self.journal_file = self.file.with_name(f"{self.file.name}.journal")
        self.again = f"remove it and {self.file.name}, then start again"
        """How to mend a damaged journal."""
        unfinished = self.journal_file.exists()
        if resume and not self.regular:
            raise BadInputError(f"--resume: {file} is not a regular file, so it cannot be continued; leave it out")
        if unfinished and not resume:
            raise BadInputError(
                f"{file}: unfinished; continue it with --resume, or remove it and {self.journal_file.name}"
            )
        exists = self.regular and self.file.exists() and self.file.stat().st_size > 0
        if exists and not unfinished and not resume:
            raise BadInputError(f"{file}: exists; remove it, or name another file")
        self.finished = resume and self.regular and self.file.exists() and not unfinished
        """Whether there is nothing left to do."""

    def begin(self, decided_by: Mapping[str, str]) -> Self:
        """Write, or continue, with these things that decide the results; other ones than before are refused."""
        self.journal = Journal(decided_by)
        if self.journal_file.exists():
            self.journal = read_record(self.journal_file, Journal, self.again)
            before = self.journal.decided_by
            names = [name for name in {**before, **decided_by} if before.get(name) != decided_by.get(name)]
            if names:
                raise BadInputError(
                    f"{self.file}: was begun with other {', '.join(names)}; repeat the command as it was with "
                    f"--resume, or remove the file and {self.journal_file.name}"
                )
        elif self.regular:
            self._note(self.journal)
        return self

    def __enter__(self) -> Self:
        try:
            self.stream: IO[bytes] = self.file.open("r+b" if self.regular and self.file.exists() else "wb")
        except OSError as error:
            raise cannot_write(self.file, error) from error
        if self.regular:
            self._cut()
        self._hash, self._read = hashlib.sha256(), deque[bytes]()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stream.close()
        except OSError:
            if error is None:
                raise
        if kind is not None and self.regular and not self.journal.lines:  # nothing was done: leave nothing behind
            self.file.unlink(missing_ok=True)
            self.journal_file.unlink(missing_ok=True)

    def state(self, kind: type[T]) -> T:
        """What the writer wanted to remember, as a record; one with its defaults if nothing is done yet."""
        return parse_record(json.dumps(self.journal.state), kind, self.journal_file, self.again)

    def rest(self, lines: Iterable[Item]) -> Iterator[Item]:
        """The lines of the input that are not done yet; those that are done must be the same as before."""
        stream = iter(lines)
        for _ in range(self.journal.lines):
            line = next(stream, None)
            self._hash.update(_bytes_of(line))
        if self._hash.hexdigest() != self.journal.input:
            raise BadInputError(
                f"{self.file}: was begun with another input; give the same one, or remove the file and "
                f"{self.journal_file.name}"
            )
        for line in stream:
            self._read.append(_bytes_of(line))
            yield line

    def write(self, text: str, lines: int, state: Mapping[str, Any]) -> None:
        """Add the results of so many further lines of the input, with what is to be remembered then."""
        content = text.encode("utf-8")
        try:
            self.stream.write(content)
            self.stream.flush()
            if self.regular:
                os.fsync(self.stream.fileno())
        except OSError as error:
            raise cannot_write(self.file, error) from error
        for _ in range(lines):
            self._hash.update(self._read.popleft())
        journal = self.journal
        self.journal = replace(
            journal,
            lines=journal.lines + lines,
            bytes=journal.bytes + len(content),
            input=self._hash.hexdigest(),
            state=state,
        )
        if self.regular:
            self._note(self.journal)

    def finish(self) -> None:
        """Nothing follows: the file is complete."""
        self.journal_file.unlink(missing_ok=True)

    def _note(self, journal: Journal) -> None:
        write_text(self.journal_file, json.dumps(asdict(journal), ensure_ascii=False) + "\n")

    def _cut(self) -> None:
        """Remove what the journal does not count. Two writers would do so to each other."""
        try:
            fcntl.flock(self.stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.stream.close()
            raise NoisyChannelError(f"{self.file}: another process is writing it") from error
        size = self.stream.seek(0, os.SEEK_END)
        if size < self.journal.bytes:
            self.stream.close()
            raise NoisyChannelError(
                f"{self.file}: has {size} bytes, but {self.journal_file.name} counts {self.journal.bytes}; restore it, "
                "or remove both and start again"
            )
        self.stream.truncate(self.journal.bytes)
        self.stream.seek(self.journal.bytes)


def _bytes_of(line: Hashable) -> bytes:
    return repr(line).encode("utf-8", "backslashreplace") + b"\n"
