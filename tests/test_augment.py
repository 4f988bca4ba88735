"""Made-up pairs and copies: what stays of a real pair, what is replaced, and by what."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel.data.augment import AugmentConfig, Augmented, augment
from noisychannel.data.edits import Cell, align, stretches
from noisychannel.data.made_up import KEPT, Material, make_up
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.text import TextConfig

WORDS = ["stichelte", "krabbe", "Blumen", "trinkt", "wandern", "gelobt", "ofenrohr"]
PLAIN = TextConfig()


def row(input: str, output: str, tags: str = "", group: str = "") -> Row:
    return Row(input, output, tuple(tags.split(";")) if tags else (), group, "file:1")


def listed(words: Iterable[str], tags: str = "", group: str = "") -> list[Row]:
    return [row("", word, tags, group) for word in words]


def augmented(
    pairs: list[Row],
    words: list[Row],
    input: TextConfig = PLAIN,
    output: TextConfig = PLAIN,
    made_up: int = 40,
    copies: int = 0,
    seed: int = 1,
) -> Augmented:
    return augment(AugmentConfig(made_up=made_up, copies=copies, seed=seed), pairs, words, input, output)


def made(pair: tuple[str, str], words: Iterable[str] = WORDS, **more: int) -> list[tuple[str, str]]:
    return [(r.input, r.output) for r in augmented([row(*pair)], listed(words), **more).made_up]


# --- what stays of a pair


@pytest.mark.parametrize(
    ("pair", "shape"),
    [
        (("fodra", "fodrade"), r"(.+)\t\1de"),
        (("mutig", "unmutig"), r"(.+)\tun\1"),
        (("suchen", "gesucht"), r"(.+)en\tge\1t"),
        (("sulat", "sumulat"), r"(.+)u(.+)\t\1umu\2|(..)(.+)\t\3mu\4"),
        (("Garten", "Gärten"), r"(.)a(.+)\t\1ä\2"),
        (("Vater", "Väterchen"), r"(.)a(.+)\t\1ä\2chen"),
        (("kataba", "yaktubu"), r"(.)(.)(.)a(.)a\ty\2\1\3u\4u"),
        (("ablaufen", "lauft ab"), r"ab(.+)en\t\1t ab"),
        (("blau", "blau"), r"(.+)\t\1"),
    ],
    ids=["suffix", "prefix", "circumfix", "infix", "inside", "two changes", "pattern", "moved", "no change"],
)
def test_every_kind_of_change_stays(pair: tuple[str, str], shape: str) -> None:
    pairs = made(pair)
    assert len(pairs) == 40
    assert len(set(pairs)) > 10
    assert pair not in pairs
    for x, y in pairs:
        assert re.fullmatch(shape, f"{x}\t{y}"), (x, y)


def changes(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell[0] != cell[1]]


def cost(cells: Iterable[Cell]) -> float:
    return sum(1.1 if all(cell) else 1.0 for cell in changes(cells))


@settings(deadline=None)
@given(st.text("abc", max_size=9), st.text("abcd", max_size=9), st.lists(st.text("xyz", max_size=5)), st.integers(0))
def test_only_what_both_sides_share_is_replaced(x: str, y: str, words: list[str], seed: int) -> None:
    cells = align(x, y)
    new = make_up(cells, "", Material((word, "") for word in words), Random(seed))
    assert changes(new) == changes(cells)
    assert len(stretches(new)) == len(stretches(cells)), "none has vanished, none is new"
    left, right = ("".join(side) for side in zip(*new, strict=True)) if new else ("", "")
    assert cost(align(left, right)) <= cost(cells) + 1e-9, "the sides are as close as those of the real pair"


@settings(deadline=None)
@given(st.integers(3, 12), st.integers(0))
def test_a_long_stretch_keeps_at_most_three_symbols_beside_a_change(length: int, seed: int) -> None:
    """Of a stretch between two changes, with a list whose symbols it does not have."""
    cells = align("p" + "s" * length + "q", "r" + "s" * length + "t")
    new = make_up(cells, "", Material([("xyzxyzxyzxyzxyz", "")]), Random(seed))
    inside = "".join(a for a, b in new if a == b)
    shape = re.fullmatch(r"(s*)([xyz]+)(s*)", inside)
    assert shape is not None
    assert all(len(kept) <= max(KEPT) for kept in shape.group(1, 3))
    assert abs(len(inside) - length) <= 2


# --- what replaces it


def test_a_pair_gets_the_beginning_of_a_word_or_something_from_inside() -> None:
    beginnings = [x for x, _ in made(("laufen", "lauft"), ["Abcdefgh"])]
    assert all(x.startswith("A") for x in beginnings)
    inside = [x for x, _ in made(("zulaufen", "gelauft"), ["Abcdefgh"], made_up=200)]
    assert not any("A" in x for x in inside)
    assert len({x[2:3] for x in inside}) > 3


def test_words_of_the_same_first_tag_are_preferred() -> None:
    pairs = [row("laufen", "lauft", "V;3"), row("hauser", "haus", "N;SG"), row("blauer", "blau", "ADJ")]
    words = [*listed(["mmmmmm"], "V;PST"), *listed(["nnnnnn"], "N;PL")]
    letters = {"V": "m", "N": "n", "ADJ": "mn"}
    for r in augmented(pairs, words).made_up:
        assert set(r.input[:1]) <= set(letters[r.features[0]]), r
        assert r.features in {pair.features for pair in pairs}


def test_symbols_are_exchanged_for_symbols_of_their_kind() -> None:
    both = {(f"{a}{b}", f"{a}2{b}") for a in "acd" for b in "BEF"}
    assert set(made(("aB", "a2B"), ["cd34EF"], made_up=200)) == both - {("aB", "a2B")}
    short = made(("a1", "a1s"), ["cccc3"])
    assert set(short) == {("c1", "c1s"), ("a3", "a3s"), ("c3", "c3s")}


def test_frequent_symbols_are_drawn_more_often() -> None:
    letters = [x[0] for x, _ in made(("a", "as"), ["b" * 90 + "c" * 10], made_up=300)]
    assert 220 < letters.count("b") < 300


def test_without_a_list_the_pairs_themselves_serve() -> None:
    pairs = augmented([row("suchen", "gesucht"), row("kramen", "gekramt")], []).made_up
    assert len(pairs) == 40
    assert all(re.fullmatch(r"(.+)en\tge\1t", f"{r.input}\t{r.output}") for r in pairs)
    assert set("".join(r.input for r in pairs)) <= set("suchenkramengt")


def test_words_are_symbols_too() -> None:
    units = TextConfig(units="words")
    pairs = [row("we saw  the old house", "the old house was seen")]
    rows = augmented(pairs, listed(["a red car stopped", "my dog"]), units, units).made_up
    assert len(rows) == 40
    for r in rows:
        shape = re.fullmatch(r"we saw (.+)\t(.+) was seen", f"{r.input}\t{r.output}")
        assert shape is not None
        assert shape[1] == shape[2]
        assert set(shape[1].split()) <= {"the", "old", "house", "a", "red", "car", "stopped", "my", "dog"}


@pytest.mark.parametrize("lower", ["input", "output"])
def test_a_piece_is_normalised_like_both_sides(lower: str) -> None:
    sides = {"input": TextConfig(digits_to_hash=True), "output": TextConfig(digits_to_hash=True)}
    sides[lower].lowercase = True
    pairs = [row("suchen 1", "gesucht 1"), row("ABEND 2 ABEND", "xyz")]
    for words in (listed(["STICH2ELN"]), []):
        for r in augmented(pairs, words, **sides).made_up:
            assert re.fullmatch(r"(.+)en(.+)\tge\1t\2", f"{r.input}\t{r.output}")
            assert r.input.islower()
            assert not re.search(r"\d", r.input)


# --- what is never made


def test_no_pair_contradicts_a_real_one() -> None:
    pairs = [row("ab", "abs"), row("bb", "bbt"), row("ba", "bas"), row("bb", "bbs", "PL"), row("aa", "aa", "PL")]
    rows = augmented(pairs, listed(["ab"]), made_up=200).made_up
    real = {(r.input, r.features): r.output for r in pairs}
    assert rows
    assert all((r.input, r.features) not in real for r in rows)
    assert ("bb", "bbs") not in {(r.input, r.output) for r in rows if not r.features}


@pytest.mark.parametrize("pair", [("ab", "xy"), ("a", "b")])
def test_nothing_is_made_of_a_pair_that_shares_nothing(pair: tuple[str, str]) -> None:
    assert made(pair) == []


def test_fewer_are_made_if_there_is_nothing_new_to_make() -> None:
    assert made(("aa", "ab"), ["aaaa"]) == []


def test_no_side_is_empty() -> None:
    pairs = made(("abc", "abcd"), ["        x"], made_up=200)
    assert pairs
    assert all(x.strip() and y.strip() for x, y in pairs)


def test_long_pairs_are_left_alone() -> None:
    long = row("a" * 3000, "a" * 3000 + "b")
    assert augmented([long], listed(WORDS)).made_up == []
    short = TextConfig(max_length=6)
    pairs = [row("fodra", "fodras"), row("fodrat", "fodrats")]
    assert {r.output[-2:] for r in augmented(pairs, listed(["xx"]), short, short).made_up} <= {"as", "xs"}


# --- reproducible


def test_the_pairs_depend_on_seed_and_content_alone() -> None:
    pairs = [row("suchen", "gesucht", "V"), row("Haus", "Häuser", "N"), row("blau", "blau", "A")]
    words = [*listed(WORDS, "V"), *listed(["Garten", "Land"], "N")]
    first = augmented(pairs, words, copies=5)
    assert augmented(pairs[::-1], words[::-1], copies=5) == first
    assert augmented(pairs, words, copies=5, seed=2).made_up != first.made_up
    assert augmented(pairs, words, made_up=4).made_up == first.made_up[:4]
    # As on every machine, and in every process, whatever the order of its sets.
    assert [(r.input, r.output) for r in first.made_up[:3]] == EXPECTED


EXPECTED = [("Haua", "Häuaer"), ("waau", "waau"), ("snchen", "gesncht")]


def test_the_pairs_of_a_group_depend_on_that_group_alone() -> None:
    german = [row("suchen", "gesucht", group="de"), *listed(WORDS, group="de")]
    swedish = [row("fodra", "fodrade", group="sv"), *listed(["flicka", "pojke"], group="sv")]
    both = augmented([german[0], swedish[0]], [*german[1:], *swedish[1:], *listed(["perro"], group="es")])
    alone = augmented(swedish[:1], swedish[1:])
    assert [r for r in both.made_up if r.group == "sv"] == alone.made_up
    assert len(alone.made_up) == len([r for r in both.made_up if r.group == "de"]) == 40
    assert {r.group for r in both.made_up} == {"de", "sv"}


# --- copies


def test_copies_are_listed_words_each_at_most_once() -> None:
    rows = augmented([row("stichelte", "stichelt")], listed(WORDS), made_up=0, copies=100).copies
    assert sorted(r.output for r in rows) == sorted(set(WORDS) - {"stichelte"}), "not against a real pair"
    assert all(r.input == r.output and r.features == () for r in rows)
    assert len(augmented([row("a", "b")], listed(WORDS), made_up=0, copies=3).copies) == 3


def test_copies_have_the_features_of_pairs_that_are_copies() -> None:
    pairs = [row("blau", "blau", "A;SG"), row("Blau", "blau", "A;PL"), row("rot", "rote", "A;DU")]
    rows = augmented(pairs, listed(WORDS, "N"), made_up=0, copies=7).copies
    assert {r.features for r in rows} == {("A", "SG")}
    lower = augmented(pairs, listed(WORDS), TextConfig(lowercase=True), made_up=0, copies=7).copies
    assert {r.features for r in lower} == {("A", "SG"), ("A", "PL")}
    assert augmented(pairs[1:], listed(WORDS), made_up=0, copies=7).copies == []


# --- bad input


@pytest.mark.parametrize(
    ("input", "output", "config", "complaint"),
    [
        ("subwords", "subwords", {"made_up": 1}, "data.augment.made_up: needs characters or words on both sides"),
        ("words", "characters", {"made_up": 1}, "data.augment.made_up: needs characters or words on both sides"),
        ("characters", "characters", {"copies": 1}, "data.augment.copies: copies are made of unpaired outputs, but"),
    ],
)
def test_what_cannot_work_is_refused(input: str, output: str, config: dict[str, int], complaint: str) -> None:
    sides = TextConfig(units=input), TextConfig(units=output)  # type: ignore[arg-type]
    with pytest.raises(BadInputError) as caught:
        AugmentConfig(**config).check(*sides, unpaired=[])
    assert str(caught.value).startswith(complaint)
    AugmentConfig(repeat=3).check(*sides, unpaired=[])
