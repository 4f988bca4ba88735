"""Lines of text files, compressed or not. Every error names the file and the line."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import shlex
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from noisychannel.data.standard_input import DASH, SPOOLED, STANDARD_INPUT, count_standard_input, standard_input
from noisychannel.errors import BadInputError, missing_extra

LONGEST_LINE = 1 << 26
"""Bytes. What has no line end for so long is no text, such as /dev/zero."""
KINDS = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))
MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""The first bytes of files in other encodings."""


class Line(NamedTuple):
    text: str
    """Without its line end."""
    file: Path
    number: int
    """From 1."""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"


def find_files(patterns: Sequence[str]) -> list[Path]:
    """The files that paths, directories (all files directly inside) and globs name, in order; at least one for each.

    ``-`` is standard input.
    """
    found: list[Path] = []
    for pattern in patterns:
        if not pattern:
            raise BadInputError("a file name is empty; give a file, a directory or a glob")
        try:
            found += [STANDARD_INPUT] if pattern == DASH else _find(pattern)
        except OSError as error:
            raise BadInputError(f"{pattern}: cannot be read ({error.strerror})") from error
        except RuntimeError as error:  # the home directory of a user who does not exist
            raise BadInputError(f"{pattern}: {error}") from error
    return found


def find_stored_files(patterns: Sequence[str]) -> list[Path]:
    """``find_files`` for data that is read several times, now and later: a pipe is refused, without opening it."""
    files = find_files(patterns)
    for file in files:
        if file == STANDARD_INPUT:
            raise BadInputError(
                "standard input (-) can be read once, but training data is read several times; write it to a file "
                "first, and name that"
            )
        mode = file.stat().st_mode
        kind = next((name for is_kind, name in KINDS if is_kind(mode)), None)
        if kind is None and file.is_relative_to("/dev"):
            kind = "an open file"
        if kind is not None:
            raise BadInputError(
                f"{file}: {kind}, but training data is read several times; write it to a file first, and name that"
            )
    return files


def _find(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        if not files:
            raise BadInputError(f"{pattern}: the directory has no files")
    elif path.exists():
        files = [path]
    else:
        files = sorted(p for p in map(Path, glob.glob(str(path), recursive=True)) if p.is_file())
    if not files:
        further = ", and no file matches the pattern" if any(sign in pattern for sign in "*?[") else ""
        raise BadInputError(f"{pattern}: no such file{further}")
    return files


def read_lines(file: Path) -> Iterator[Line]:
    """The lines of a UTF-8 file, decompressed according to its suffix (.gz .bz2 .xz .zst); only \\n ends a line."""
    with open_file(file) as stream:
        for line in read_stream(stream, shown_name(file)):
            if isinstance(line, BadLine):
                raise BadInputError(line.reason)
            yield line


class BadLine(NamedTuple):
    """A line that cannot be read, in a stream whose other lines can."""

    reason: str
    number: int


def read_stream(stream: IO[bytes], name: Path) -> Iterator[Line | BadLine]:
    """The lines of an open stream. A line that is no text is yielded as a ``BadLine``, and reading continues;
    a file in another encoding is refused."""
    number = 0
    try:
        for number, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), start=1):
            if len(raw) > LONGEST_LINE:
                raise BadInputError(
                    f"{name}:{number}: longer than {LONGEST_LINE >> 20} MiB; not a text file with one item per line?"
                )
            if number == 1:
                _check_encoding(raw, name)
            try:
                yield Line(_decode(raw, name, number), name, number)
            except BadInputError as error:
                yield BadLine(str(error), number)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise BadInputError(f"{name}: cannot be read ({error.strerror})") from error
        raise BadInputError(
            f"{name}: damaged or truncated after line {number} ({error}); download or compress it again"
        ) from error


def read_inputs(files: Sequence[str]) -> Iterator[Line | BadLine]:
    """The lines of the files, or of standard input if there are none."""
    for file in find_files(files or [DASH]):
        with open_file(file) as stream:
            yield from read_stream(stream, shown_name(file))


def count_inputs(files: Sequence[str]) -> int | None:
    """How many lines ``read_inputs`` gives; None if they cannot be read twice."""
    found = find_files(files or [DASH])
    if found == [STANDARD_INPUT]:
        return count_standard_input()
    if not all(file.is_file() and file != STANDARD_INPUT for file in found):
        return None
    return sum(1 for _ in read_inputs(files))


def shown_name(file: Path) -> Path:
    """The name of a file in messages."""
    return Path(SPOOLED) if file == STANDARD_INPUT else file


def open_file(file: Path) -> AbstractContextManager[IO[bytes]]:
    """The bytes of a file, decompressed according to its suffix; standard input stays open after it is read."""
    if file == STANDARD_INPUT:
        return nullcontext(standard_input())
    try:
        return _open(file)
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read ({error.strerror})") from error


def _check_encoding(first: bytes, file: Path) -> None:
    """Refuse a whole file whose first line begins with the mark of another encoding."""
    encoding = next((name for mark, name in MARKS.items() if first.startswith(mark)), None)
    if encoding is not None:
        command = f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(file))} > NEW_FILE"
        raise BadInputError(f"{file}: {encoding}, not UTF-8; convert it: {command}")


def _decode(raw: bytes, file: Path, number: int) -> str:
    if b"\0" in raw:
        raise BadInputError(
            f"{file}:{number}: NUL byte at column {raw.index(0) + 1}; not a text file: save a spreadsheet as text with "
            "tabs, convert UTF-16 to UTF-8"
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{file}:{number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1}); "
            "convert the file, for example with iconv"
        ) from error
    # A byte order mark stands at the beginning of a file, or of one of several that were joined.
    return text.removesuffix("\n").removesuffix("\r").removeprefix("\ufeff")


def _open(file: Path) -> IO[bytes]:
    match file.suffix:
        case ".gz":
            return cast(IO[bytes], gzip.open(file, "rb"))
        case ".bz2":
            return bz2.open(file, "rb")
        case ".xz":
            return lzma.open(file, "rb")
        case ".zst":
            return io.BufferedReader(_ZstdFile(file))
        case _:
            return file.open("rb")


class _ZstdFile(io.RawIOBase):
    """The content of a .zst file. The reader of the package does not notice that a file is truncated."""

    def __init__(self, file: Path) -> None:
        try:
            import zstandard
        except ImportError:
            raise missing_extra("zstandard", "zstd", f"{file}: reading .zst") from None
        self._library = zstandard
        self._file = file.open("rb")
        self._frame: Any = None
        self._packed = b""
        self._unpacked = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked and (packed := self._packed or self._file.read(1 << 16)):
            self._frame = self._frame or self._library.ZstdDecompressor().decompressobj()
            try:
                self._unpacked = self._frame.decompress(packed)
            except self._library.ZstdError as error:
                raise EOFError(str(error)) from error
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        if not self._unpacked and self._frame is not None:
            raise EOFError("the last frame is incomplete")
        count = min(len(buffer), len(self._unpacked))
        buffer[:count] = self._unpacked[:count]
        self._unpacked = self._unpacked[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
