"""Alignments drawn as text: drawings made by hand, and straight columns on a terminal."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from noisychannel.alignment import draw_alignment

SYMBOLS = [
    "a",
    "é",
    "e\u0301",
    "a\u0323\u0302",
    "日",
    "ｱ",
    "Ａ",
    "か\u3099",
    "▁the",
    "<V>",
    " ",
    "ß",
    "\u0301",
    "\u0e31",
]
"""Narrow, wide, half-width and full-width characters, with and without combining marks, and marks that stand alone."""


def drawing(text: str) -> str:
    """A drawing between two lines; a bar ends a line that ends in spaces."""
    return dedent(text).strip("\n")


def test_a_small_alignment() -> None:
    assert draw_alignment("abc", "xy", [0, 2, 3]) == drawing("""
           x y ␄
        a  ● · ·
        b  · · ·
        c  · ● ·
        ␄  · · ●
    """)


def test_several_outputs_at_one_input() -> None:
    assert draw_alignment("ab", "xyz", [1, 1, 1, 2]) == drawing("""
           x y z ␄
        a  · · · ·
        b  ● ● ● ·
        ␄  · · · ●
    """)


def test_nothing_but_ends() -> None:
    assert draw_alignment("", "", [0]) == drawing("""
           ␄
        ␄  ●
    """)


def test_words_make_wide_columns() -> None:
    assert draw_alignment(["<PST>", "go"], ["wen", "t"], [1, 2, 2]) == drawing("""
               wen t ␄
        <PST>  ·   · ·
        go     ●   · ·
        ␄      ·   ● ●
    """)


def test_spaces_are_made_visible() -> None:
    assert draw_alignment("a b", " c", [1, 2, 3]) == drawing("""
           ␣ c ␄
        a  · · ·
        ␣  ● · ·
        b  · ● ·
        ␄  · · ●
    """)


def test_wide_characters_take_two_columns() -> None:
    assert draw_alignment("日a", "本語x", [0, 0, 1, 2]) == drawing("""
            本 語 x ␄
        日  ●  ●  · ·
        a   ·  ·  ● ·
        ␄   ·  ·  · ●
    """)


def test_combining_marks_take_none() -> None:
    assert draw_alignment(["e\u0301", "ab"], ["o\u0308\u0304", "x"], [0, 1, 2]) == drawing("""
            o\u0308\u0304 x ␄
        e\u0301   ● · ·
        ab  · ● ·
        ␄   · · ●
    """)


@pytest.mark.parametrize("positions", [[0, 1], [0, 1, 1, 1]], ids=["too few", "too many"])
def test_every_output_and_the_end_need_a_position(positions: list[int]) -> None:
    with pytest.raises(ValueError, match="zip"):
        draw_alignment("a", "xy", positions)


@pytest.mark.parametrize("positions", [[0, 1, 2], [-1, 0, 1]])
def test_positions_outside_the_input_are_refused(positions: list[int]) -> None:
    with pytest.raises(ValueError, match=r"positions must lie in 0\.\.1"):
        draw_alignment("a", "xy", positions)


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_columns_are_straight_whatever_stands_above_them(symbol: str) -> None:
    lines = draw_alignment(["a"], [symbol, "x"], [0, 0, 1]).split("\n")
    # Every line ends in the last column, so straight columns are lines of one width.
    assert {cell_len(line) for line in lines} == {cell_len(lines[-1])}


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_columns_are_straight_whatever_stands_beside_them(symbol: str) -> None:
    lines = draw_alignment([symbol, "abc"], ["x"], [0, 1]).split("\n")
    assert {cell_len(line) for line in lines} == {cell_len(lines[-1])}


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    inputs=st.lists(st.sampled_from(SYMBOLS[:12]), max_size=5),
    outputs=st.lists(st.sampled_from(SYMBOLS[:12]), max_size=5),
    data=st.data(),
)
def test_every_column_has_one_point_in_the_right_row(
    inputs: list[str], outputs: list[str], data: st.DataObject
) -> None:
    positions = data.draw(
        st.lists(st.integers(0, len(inputs)), min_size=len(outputs) + 1, max_size=len(outputs) + 1).map(sorted)
    )
    lines = draw_alignment(inputs, outputs, positions).split("\n")
    assert len(lines) == len(inputs) + 2
    assert len({cell_len(line) for line in lines}) == 1
    marks = [[character for character in line if character in "●·"] for line in lines[1:]]
    expected = [["●" if z == i else "·" for z in positions] for i in range(len(inputs) + 1)]
    assert marks == expected
