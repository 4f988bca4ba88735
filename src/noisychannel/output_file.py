"""A file of results that is written in parts, and continued exactly where it was if the writer is killed.

Beside FILE there is FILE.journal: how many lines of the input are done, how many bytes of FILE belong to them, the
checksums of both, what decides the results, and what the writer wants to remember. The journal is complete or absent,
and it is written after the bytes that it counts. What FILE has beyond these bytes is cut off before it is continued.
The journal stays when the file is finished: it says how the file was made, and FILE can grow if its input grows.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from noisychannel.atomic import cannot_write, write_text
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.schemas import ClosedRecord, T, parse_record, read_record

Item = TypeVar("Item")

NOTHING = hashlib.sha256().hexdigest()
READ_AT_ONCE = 1 << 20
"""Bytes."""


@dataclass(frozen=True)
class Journal(ClosedRecord):
    """How far a file is."""

    decided_by: Mapping[str, str]
    """What decides the results, by name."""
    lines: int = 0
    """Lines of the input that are done."""
    input: str = NOTHING
    """The checksum of these lines."""
    bytes: int = 0
    """Of the file, that belong to these lines."""
    output: str = NOTHING
    """The checksum of these bytes."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the writer wants to remember."""
    checksum: str = ""
    """Of all the above."""

    def signed(self) -> Journal:
        """With its checksum."""
        content = json.dumps({**asdict(self), "checksum": ""}, sort_keys=True)
        return replace(self, checksum=hashlib.sha256(content.encode()).hexdigest())


class OutputFile:
    """One file of results. Writing it is a ``with`` block.

    A file that is no regular one, such as a pipe, is simply written.
    """

    def __init__(self, file: Path, resume: bool = False) -> None:
        """Refuse a file that would be lost, or cannot be continued. ``resume``: continue what is there."""
        if file.is_dir() or not file.parent.is_dir():
            raise BadInputError(f"--output: {file} cannot be a file; name one in an existing directory")
        self.resume, self.regular = resume, file.is_file() or not file.exists()
        self.file = Path(os.path.realpath(file)) if self.regular else file
        self.journal_file = self.file.with_name(f"{self.file.name}.journal")
        self.again = f"remove it and {self.file.name}, then start again"
        """How to mend a damaged journal."""
        if resume and not self.regular:
            raise BadInputError(f"--resume: {file} is not a regular file, so it cannot be continued; leave it out")
        self._check(self.file.stat().st_size if self.regular and self.file.exists() else 0)

    def begin(self, decided_by: Mapping[str, str]) -> Self:
        """Say what decides the results. If the file was begun with anything else, entering the block is refused."""
        self.journal = Journal(decided_by)
        return self

    def __enter__(self) -> Self:
        self._input, self._output = hashlib.sha256(), hashlib.sha256()
        self._read = deque[bytes]()
        try:
            if not self.regular:
                self.stream: IO[bytes] = self.file.open("wb")
                return self
            self.stream = os.fdopen(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        except OSError as error:
            raise cannot_write(self.file, error) from error
        try:
            self._take_up()
        except BaseException:
            self.stream.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self.regular and not self.journal.bytes and not self.journal.lines:
                # Nothing was done: leave nothing behind.
                self.file.unlink(missing_ok=True)
                self.journal_file.unlink(missing_ok=True)
            self.stream.close()
        except OSError:
            if error is None:
                raise

    def state(self, kind: type[T]) -> T:
        """What the writer wanted to remember, as a record; one with its defaults if nothing is done yet."""
        return parse_record(json.dumps(self.journal.state), kind, self.journal_file, self.again)

    def rest(self, lines: Iterable[Item], content: Callable[[Item], str] = str) -> Iterator[Item]:
        """The lines of the input that are not done yet; those that are done must have the same content as before."""
        stream = iter(lines)
        for _, line in zip(range(self.journal.lines), stream, strict=False):
            self._input.update(_bytes_of(content(line)))
        if self._input.hexdigest() != self.journal.input:
            raise BadInputError(
                f"{self.file}: was begun with another input; give the same one, or remove the file and "
                f"{self.journal_file.name}"
            )
        if self.regular:
            self.stream.seek(self.journal.bytes)
            self.stream.truncate()
        for line in stream:
            self._read.append(_bytes_of(content(line)))
            yield line

    def write(self, text: str, lines: int, state: Mapping[str, Any]) -> None:
        """Add the results of so many further lines of the input, with what is to be remembered then."""
        added = text.encode("utf-8")
        try:
            self.stream.write(added)
            self.stream.flush()
            if self.regular:
                os.fsync(self.stream.fileno())
        except OSError as error:
            raise cannot_write(self.file, error) from error
        for _ in range(lines):
            self._input.update(self._read.popleft())
        self._output.update(added)
        self.journal = replace(
            self.journal,
            lines=self.journal.lines + lines,
            input=self._input.hexdigest(),
            bytes=self.journal.bytes + len(added),
            output=self._output.hexdigest(),
            state=state,
        )
        if self.regular:
            self._note()

    def _check(self, size: int) -> None:
        """Refuse a file of this size that would be lost, or cannot be continued."""
        if not self.regular or not size:
            return
        has_journal = os.path.lexists(self.journal_file)
        if not self.resume:
            further = "continue it with --resume, " if has_journal else ""
            others = f" and {self.journal_file.name}" if has_journal else ""
            raise BadInputError(f"{self.file}: exists; {further}remove it{others}, or name another file")
        if not has_journal:
            raise BadInputError(
                f"{self.file}: cannot be continued, because {self.journal_file.name} is not beside it; was it written "
                "by decode --output? Remove it, or name another file"
            )

    def _take_up(self) -> None:
        """Lock the file, and find where to go on. Nothing of it is changed yet."""
        try:
            fcntl.flock(self.stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NoisyChannelError(f"{self.file}: another process is writing it") from error
        size = os.fstat(self.stream.fileno()).st_size
        self._check(size)
        if not os.path.lexists(self.journal_file):
            self._note()
            return
        before = read_record(self.journal_file, Journal, self.again)
        if before.signed() != before:
            raise NoisyChannelError(f"{self.journal_file}: damaged (its checksum is another one); {self.again}")
        names = {**before.decided_by, **self.journal.decided_by}
        other = [name for name in names if before.decided_by.get(name) != self.journal.decided_by.get(name)]
        if other and (before.lines or size):
            raise BadInputError(
                f"{self.file}: was begun with other {', '.join(other)}; repeat the command as it was with --resume, or "
                f"remove the file and {self.journal_file.name}"
            )
        self.journal = replace(before, decided_by=self.journal.decided_by)
        left = self.journal.bytes
        while left and (part := self.stream.read(min(left, READ_AT_ONCE))):
            self._output.update(part)
            left -= len(part)
        if self._output.hexdigest() != self.journal.output:
            raise NoisyChannelError(
                f"{self.file}: not what {self.journal_file.name} counts; restore it, or remove both and start again"
            )

    def _note(self) -> None:
        self.journal = self.journal.signed()
        write_text(self.journal_file, json.dumps(asdict(self.journal), ensure_ascii=False) + "\n")


def _bytes_of(content: str) -> bytes:
    """Of one line: no two different lines can look like one another, or like two."""
    line = content.encode("utf-8", "backslashreplace")
    return len(line).to_bytes(8, "little") + line
