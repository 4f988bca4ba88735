"""What ``fit`` asks a user about data that looks wrong, and what it says of lines that it leaves out."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel.fitting import fit as fitting
from noisychannel.fitting.doubts import NAMES_OF_COLUMNS, doubts_about
from noisychannel.fitting.options import FitOptions, UserData
from noisychannel.fitting.progress import Progress
from noisychannel.reporting import Silent
from toys import LETTERS, double_vowels


def texts(count: int, seed: int = 1) -> list[str]:
    """Different texts, each of which has a vowel."""
    rng = random.Random(seed)
    found = {f"a{''.join(rng.choices(LETTERS, k=5))}" for _ in range(2 * count)}
    return sorted(found)[:count]


def write(directory: Path, pairs: list[tuple[str, ...]], words: list[str], **options: str) -> FitOptions:
    (directory / "pairs.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    (directory / "words.txt").write_text("".join(f"{word}\n" for word in words))
    return FitOptions(
        pairs=str(directory / "pairs.tsv"),
        words=[str(directory / "words.txt")] if words else [],
        run_dir=str(directory / "run"),
        **options,  # type: ignore[arg-type]
    )


def doubts(options: FitOptions) -> list[str]:
    return list(doubts_about(UserData.read(options)))


def test_swapped_columns_are_asked_about(tmp_path: Path) -> None:
    some = texts(100)
    pairs = [(x, double_vowels(x)) for x in some]
    outputs = [y for _, y in pairs]
    # 80 outputs and 40 inputs are on the list: this order is right, the other one is asked about.
    right = write(tmp_path, pairs, outputs[:80] + some[:40])
    assert doubts(right) == []
    assert doubts(replace(right, columns="output,input")) == [
        "inputs are on the word list more often (80 %) than outputs (40 %): are the columns swapped? Then repeat with "
        "--columns input,output --overwrite"
    ]
    # Not if the difference is small, if there are no words, or if pairs have tags.
    assert doubts(replace(write(tmp_path, pairs, outputs[:59] + some[:40]), columns="output,input")) == []
    assert doubts(replace(write(tmp_path, pairs, []), columns="output,input")) == []
    tagged = write(tmp_path, [(*pair, "V;PST") for pair in pairs], outputs, columns="output,input,features")
    assert doubts(tagged) == []


def test_words_of_another_alphabet_are_asked_about(tmp_path: Path) -> None:
    pairs = [(x, double_vowels(x)) for x in texts(40)]
    others = ["дом", "год", "стол"]
    (doubt,) = doubts(write(tmp_path, pairs, [*others, pairs[0][1]]))
    assert doubt.startswith("of the characters of the words, only 4")
    assert doubts(write(tmp_path, pairs, [*others, *(y for _, y in pairs)])) == []


def test_few_pairs_that_differ_say_nothing_of_the_columns(tmp_path: Path) -> None:
    some = texts(60)
    for differing, asked in ((19, 0), (20, 1)):
        changed = [(double_vowels(x), x) for x in some[:differing]]
        pairs = [
            *changed,
            *changed,
            *((x, x) for x in some[differing:]),
        ]  # repeated pairs count once, equal sides never
        assert len(doubts(write(tmp_path, pairs, [x for x, _ in changed]))) == asked


@pytest.mark.parametrize(
    ("first", "asked"),
    [
        (("input", "output"), True),
        (("Historical", "Modern"), True),
        (("word", "word"), False),
        (("old", "olde"), False),
        (("vnto", "unto"), False),
    ],
)
def test_a_line_of_names_is_asked_about(first: tuple[str, str], asked: bool, tmp_path: Path) -> None:
    pairs = [(x, double_vowels(x)) for x in texts(30)]
    assert NAMES_OF_COLUMNS.isdisjoint(x for x, _ in pairs)
    found = doubts(write(tmp_path, [first, *pairs], []))
    assert len(found) == asked
    if asked:
        assert found[0].startswith(
            f"{tmp_path / 'pairs.tsv'}:1: {first[0]!r} and {first[1]!r} look like names of columns"
        )
    # Only the first line can be one.
    assert doubts(write(tmp_path, [*pairs, first], [])) == []


class StoppedError(Exception):
    """The plan is announced; nothing is trained."""


class Listener(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def progress(self, progress: Progress) -> None:
        raise StoppedError


def test_the_announcement_asks_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "make_parts", lambda *_: (_ for _ in ()).throw(StoppedError))
    some = texts(40)
    pairs = [("source", "target"), *((double_vowels(x), x) for x in some)]
    words = [*(x for x, _ in pairs), pairs[5][0], pairs[6][0], "a" * 500]
    listener = Listener()
    with pytest.raises(StoppedError):
        fitting.fit(write(tmp_path, pairs, words, device="cpu"), listener)
    assert len(listener.warnings) == 2
    assert "look like names" in listener.warnings[0]
    assert "columns swapped" in listener.warnings[1]
    assert "lines of the words that are left out: 2 repeated, 1 longer than 40 symbols" in listener.lines


def test_nothing_is_said_of_words_that_are_all_used(tmp_path: Path) -> None:
    some = texts(40)
    data = UserData.read(write(tmp_path, [(x, double_vowels(x)) for x in some], list(map(double_vowels, some))))
    assert data.words_left_out == ""
