"""Lines of text files, compressed or not, with every complaint naming the file and the line."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

from noisychannel.errors import BadInputError, missing_extra


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
    """The files that paths, directories (all files directly inside) and globs name, in order; each at least one."""
    found: list[Path] = []
    for pattern in patterns:
        path = Path(pattern).expanduser()
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        elif path.exists():
            files = [path]
        else:
            files = sorted(p for p in map(Path, glob.glob(str(path), recursive=True)) if p.is_file())
        if not files:
            raise BadInputError(f"{pattern}: no such file, and no file matches it")
        found += files
    return found


def read_lines(file: Path) -> Iterator[Line]:
    """The lines of a UTF-8 file, decompressed by its ending (.gz .bz2 .xz .zst); only \\n ends a line."""
    number = 0
    try:
        with _open(file) as stream:
            for number, raw in enumerate(stream, start=1):
                yield Line(_decode(raw, file, number), file, number)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, _zstd_error()) as error:
        raise BadInputError(
            f"{file}: damaged or cut off after line {number} ({error}); fetch or compress it again"
        ) from error


def _decode(raw: bytes, file: Path, number: int) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{file}:{number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1}); "
            "convert the file, for example with iconv"
        ) from error
    text = text.removesuffix("\n").removesuffix("\r")
    return text.removeprefix("\ufeff") if number == 1 else text


def _open(file: Path) -> IO[bytes]:
    match file.suffix:
        case ".gz":
            return cast(IO[bytes], gzip.open(file, "rb"))
        case ".bz2":
            return bz2.open(file, "rb")
        case ".xz":
            return lzma.open(file, "rb")
        case ".zst":
            try:
                import zstandard
            except ImportError:
                raise missing_extra("zstandard", "zstd", f"{file}: reading .zst") from None
            stream: IO[bytes] = zstandard.open(file, "rb")
            return stream
        case _:
            return file.open("rb")


def _zstd_error() -> type[Exception]:
    try:
        import zstandard
    except ImportError:
        return EOFError
    error: type[Exception] = zstandard.ZstdError
    return error
