"""Lines of files: every compression, every kind of damage, and what does and does not end a line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel.data import files
from noisychannel.data.files import BadLine, Line, find_files, open_file, read_lines, read_stream
from noisychannel.errors import BadInputError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
COMPRESSED = [suffix for suffix in COMPRESS if suffix]
NOT_LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"]


def write(file: Path, content: bytes) -> Path:
    """A file that holds ``content``, compressed as its name promises."""
    file.write_bytes(COMPRESS[file.suffix if file.suffix in COMPRESS else ""](content))
    return file


def texts(file: Path) -> list[str]:
    return [line.text for line in read_lines(file)]


def letters(lines: int, seed: int = 1) -> bytes:
    """Lines that compress badly, so that a compressed file has many blocks."""
    rng = random.Random(seed)
    return "".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=60)) + "\n" for _ in range(lines)).encode()


def read_until_refused(file: Path) -> tuple[int, str]:
    """How many lines come before the complaint, and the complaint."""
    number = 0
    with pytest.raises(BadInputError) as caught:  # noqa: PT012
        for line in read_lines(file):
            number = line.number
    return number, str(caught.value)


# --- compression -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_is_decompressed_by_its_ending(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"words.tsv{suffix}", "Haus\tHäuser\n\nлето\n".encode())
    assert list(read_lines(file)) == [Line("Haus\tHäuser", file, 1), Line("", file, 2), Line("лето", file, 3)]
    assert [line.where for line in read_lines(file)] == [f"{file}:1", f"{file}:2", f"{file}:3"]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_long_file_is_read_to_its_end(tmp_path: Path, suffix: str) -> None:
    content = letters(5000)
    assert texts(write(tmp_path / f"long.txt{suffix}", content)) == content.decode().split("\n")[:-1]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_the_last_line_needs_no_line_end(tmp_path: Path, suffix: str) -> None:
    assert texts(write(tmp_path / f"open.txt{suffix}", b"a\nb")) == ["a", "b"]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_without_lines_has_none(tmp_path: Path, suffix: str) -> None:
    assert texts(write(tmp_path / f"empty.txt{suffix}", b"")) == []


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_compressed_files_may_be_concatenated(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"two.txt{suffix}"
    file.write_bytes(COMPRESS[suffix](b"a\nb\n") + COMPRESS[suffix](b"c\n"))
    assert texts(file) == ["a", "b", "c"]


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_compressed_file_cut_anywhere_is_refused(tmp_path: Path, suffix: str) -> None:
    whole = COMPRESS[suffix](letters(4))
    file = tmp_path / f"cut.txt{suffix}"
    for length in range(1, len(whole)):
        file.write_bytes(whole[:length])
        number, complaint = read_until_refused(file)
        assert complaint.startswith(f"{file}: damaged or truncated after line {number} ("), (
            f"{length} bytes: {complaint}"
        )


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_long_compressed_file_cut_in_half_is_refused(tmp_path: Path, suffix: str) -> None:
    whole = COMPRESS[suffix](letters(5000))
    file = tmp_path / f"cut.txt{suffix}"
    file.write_bytes(whole[: len(whole) // 2])
    number, complaint = read_until_refused(file)
    assert number < 5000
    assert complaint.startswith(f"{file}: damaged or truncated after line {number} (")


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_flipped_byte_in_a_compressed_file_is_found(tmp_path: Path, suffix: str) -> None:
    # zstd checks a frame's content only where it was written with a checksum, as the command line tool does.
    compress = zstandard.ZstdCompressor(write_checksum=True).compress if suffix == ".zst" else COMPRESS[suffix]
    damaged = bytearray(compress(letters(5000)))
    damaged[len(damaged) // 2] ^= 0xFF
    file = tmp_path / f"flipped.txt{suffix}"
    file.write_bytes(damaged)
    number, complaint = read_until_refused(file)
    # bz2 gives out what it has decompressed before it checks it.
    assert complaint.startswith((f"{file}: damaged or truncated after line {number} (", f"{file}:{number + 1}: NUL"))


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_plain_text_under_a_compressed_name_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"plain.txt{suffix}"
    file.write_bytes(b"these words were never compressed\n")
    assert read_until_refused(file)[1].startswith(f"{file}: damaged or truncated after line 0 (")


def test_zstd_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "words.txt.zst", b"a\n")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BadInputError, match=r"words\.txt\.zst.*pip install 'noisychannel\[zstd\]'"):
        list(read_lines(file))


def test_other_files_are_read_without_the_zstd_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = write(tmp_path / "whole.txt.gz", b"a\n"), tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(b"a\n")[:-1])
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert texts(whole) == ["a"]
    assert "damaged or truncated after line 1" in read_until_refused(cut)[1]


def test_a_plain_file_may_be_left_early_while_zstandard_is_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = read_lines(write(tmp_path / "plain.txt", b"a\nb\n"))
    assert next(lines).text == "a"
    # A generator may be closed by the garbage collector at any time: here while the module is but half there.
    monkeypatch.setitem(sys.modules, "zstandard", ModuleType("zstandard"))
    lines.close()  # type: ignore[attr-defined]


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", COMPRESS)
def test_what_is_not_utf8_is_named_by_file_and_line(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"latin1.txt{suffix}", "gut\nschön\n".encode("latin-1"))
    number, complaint = read_until_refused(file)
    assert number == 1
    assert complaint.startswith(f"{file}:2: not UTF-8 (byte 0xf6 at column 4)")


@pytest.mark.parametrize(
    "raw", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80"], ids=["never", "cut off", "surrogate", "overlong"]
)
def test_every_kind_of_bad_utf8_is_refused(tmp_path: Path, raw: bytes) -> None:
    file = write(tmp_path / "bad.txt", b"a\nb\n" + raw + b"\nd\n")
    assert read_until_refused(file)[1].startswith(f"{file}:3: not UTF-8")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_nul_byte_is_no_text(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"nul.txt{suffix}", b"a\nb\0c\nd\n")
    assert read_until_refused(file) == (
        1,
        f"{file}:2: NUL byte at column 2; not a text file: save a spreadsheet as text with "
        "tabs, convert UTF-16 to UTF-8",
    )
    with open_file(file) as stream:
        assert [type(line) for line in read_stream(stream, file)] == [Line, BadLine, Line]


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_16_is_named(tmp_path: Path, order: str) -> None:
    file = write(tmp_path / "wide.txt", "\ufeffschön\n".encode(f"utf-16-{order}"))
    assert read_until_refused(file)[1].startswith(f"{file}: UTF-16, not UTF-8; convert it: iconv -f UTF-16")
    unmarked = write(tmp_path / "unmarked.txt", "schön\n".encode(f"utf-16-{order}"))
    assert "NUL byte" in read_until_refused(unmarked)[1]


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    with Path("/dev/zero").open("rb") as stream, pytest.raises(BadInputError, match="zero:1: longer than 64 MiB"):
        next(read_stream(stream, Path("/dev/zero")))


def test_a_long_line_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 100_000)
    long = "x" * 99_999
    assert texts(write(tmp_path / "long.txt", f"{long}\nb\n".encode())) == [long, "b"]
    assert ":1: longer than" in read_until_refused(write(tmp_path / "longer.txt", f"{long}xx\nb\n".encode()))[1]


def test_a_byte_order_mark_is_removed_at_the_beginning_of_a_line_only(tmp_path: Path) -> None:
    joined = write(tmp_path / "bom.txt", "\ufeffa\n\ufeffb\nc\ufeff\n".encode())
    assert texts(joined) == ["a", "b", "c\ufeff"]


def test_windows_line_ends_are_removed(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "crlf.txt", b"a\tb\r\nc\r\n\r\nd")) == ["a\tb", "c", "", "d"]


@pytest.mark.parametrize("character", NOT_LINE_ENDS, ids=lambda c: f"U+{ord(c):04X}")
def test_only_a_line_feed_ends_a_line(tmp_path: Path, character: str) -> None:
    file = write(tmp_path / "one.txt", f"a{character}b\nc\n".encode())
    assert list(read_lines(file)) == [Line(f"a{character}b", file, 1), Line("c", file, 2)]


def test_spaces_around_a_line_are_kept(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "spaces.txt", b"  a \t\n \n")) == ["  a \t", " "]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff\0", exclude_categories=["Cs"])), max_size=6),
    end=st.sampled_from(["\n", "\r\n"]),
    suffix=st.sampled_from(list(COMPRESS)),
)
def test_lines_come_back_as_they_were_written(lines: list[str], end: str, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = write(Path(directory) / f"lines.txt{suffix}", "".join(line + end for line in lines).encode())
        assert texts(file) == lines


# --- finding files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """a.txt, b.txt and c.tsv, something hidden, and a directory with files of its own."""
    for name in ("c.tsv", "b.txt", ".hidden.txt", "a.txt", "sub/d.txt", "sub/deep/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["b.txt"], ["b.txt"]),
        (["."], ["a.txt", "b.txt", "c.tsv"]),
        (["*.txt"], ["a.txt", "b.txt"]),
        (["[ac].t*"], ["a.txt", "c.tsv"]),
        (["*"], ["a.txt", "b.txt", "c.tsv"]),
        (["**/*.txt"], ["a.txt", "b.txt", "sub/d.txt", "sub/deep/e.txt"]),
        (["sub", "c.tsv", "a.txt"], ["sub/d.txt", "c.tsv", "a.txt"]),
        (["b.txt", "*.txt"], ["b.txt", "a.txt", "b.txt"]),
        ([], []),
    ],
    ids=["file", "directory", "glob", "class", "glob passes over directories", "recursive", "order", "twice", "none"],
)
def test_files_directories_and_globs(tree: Path, patterns: list[str], expected: list[str]) -> None:
    assert find_files([str(tree / pattern) for pattern in patterns]) == [tree / name for name in expected]


def test_a_file_named_like_a_glob_is_itself(tmp_path: Path) -> None:
    for name in ("a[1].txt", "a1.txt"):
        (tmp_path / name).write_text("")
    assert find_files([str(tmp_path / "a[1].txt")]) == [tmp_path / "a[1].txt"]


def test_the_home_directory_is_understood(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    assert find_files(["~/a.txt", "~/s*/*.txt"]) == [tree / "a.txt", tree / "sub/d.txt"]


@pytest.mark.parametrize("pattern", ["nothing.txt", "*.csv", "nowhere/*", "empty", "["])
def test_a_pattern_that_names_nothing_is_refused(tree: Path, pattern: str) -> None:
    (tree / "empty").mkdir()
    (tree / "empty" / ".hidden").write_text("")
    with pytest.raises(BadInputError) as caught:
        find_files([str(tree / "a.txt"), str(tree / pattern)])
    reason = "the directory has no files" if pattern == "empty" else "no such file"
    assert str(caught.value).startswith(f"{tree / pattern}: {reason}")


def test_an_empty_name_is_refused_rather_than_read_as_this_directory() -> None:
    with pytest.raises(BadInputError, match="a file name is empty"):
        find_files([""])


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/x"])
def test_a_name_that_the_system_refuses_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match=f"^{name}: "):
        find_files([name])
