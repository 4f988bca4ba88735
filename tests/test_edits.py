"""The alignment of a pair, and the stretches that both of its sides share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.data.edits import align, stretches

WORD = st.text("abc", max_size=7)


@given(WORD, WORD)
def test_an_alignment_spells_both_words(lemma: str, form: str) -> None:
    pairs = align(lemma, form)
    assert "".join(a for a, _ in pairs) == lemma
    assert "".join(b for _, b in pairs) == form
    assert ("", "") not in pairs


@given(WORD, WORD)
def test_an_alignment_changes_as_little_as_can_be(lemma: str, form: str) -> None:
    """With a replacement at 1.1, against a table of the costs of all beginnings."""

    def cheapest(x: str, y: str) -> float:
        best = [[float(i + j) for j in range(len(y) + 1)] for i in range(len(x) + 1)]
        for i in range(1, len(x) + 1):
            for j in range(1, len(y) + 1):
                replaced = best[i - 1][j - 1] + (0.0 if x[i - 1] == y[j - 1] else 1.1)
                best[i][j] = min(replaced, best[i - 1][j] + 1, best[i][j - 1] + 1)
        return best[-1][-1]

    cost = sum(0.0 if a == b else 1.1 if a and b else 1.0 for a, b in align(lemma, form))
    assert cost == pytest.approx(cheapest(lemma, form))


def test_long_texts_are_aligned() -> None:
    """Longer than Python's recursion goes."""
    assert align("a" * 700 + "b", "a" * 700 + "c") == [("a", "a")] * 700 + [("b", "c")]


def test_symbols_may_be_words() -> None:
    assert align(["the", "old", "house"], ["the", "house"]) == [("the", "the"), ("old", ""), ("house", "house")]


@given(WORD, WORD)
def test_stretches_are_what_both_sides_share(lemma: str, form: str) -> None:
    cells = align(lemma, form)
    shared = {n for stretch in stretches(cells) for n in range(stretch.start, stretch.stop)}
    assert shared == {n for n, (a, b) in enumerate(cells) if a == b}
    ends = [end for stretch in stretches(cells) for end in (stretch.start, stretch.stop)]
    assert ends == sorted(set(ends)), "none is empty, and between two there is a change"


def test_the_stretches_of_a_circumfix() -> None:
    assert stretches(align("suchen", "gesucht")) == [slice(2, 6)]
    assert stretches(align("ab", "xy")) == stretches([]) == []
