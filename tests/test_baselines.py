"""The simplest baselines, against what they must do, and the rules against the figures of the shared task's own."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.evaluation.baselines import BASELINES, SuffixRules, split
from noisychannel.experiments.inflection.data import TaggedPair, read_sigmorphon

WORD = st.text("abc", max_size=7)
SENTENCE = st.lists(st.sampled_from("abcd"), max_size=5).map(" ".join)


@given(WORD, WORD)
def test_prefix_stem_and_suffix_spell_both_words(lemma: str, form: str) -> None:
    for word, (before, stem, ending) in zip((lemma, form), split(lemma, form), strict=True):
        assert before + "".join(stem) + ending == word


def test_identity_knows_nothing_and_memorised_what_it_has_seen() -> None:
    pairs = [
        ("a", "x", "PL"),
        ("a", "y", "PL"),
        ("a", "y", "PL"),
        ("a", "z", "SG"),
        ("b", "zz", "PL"),
        ("b", "z", "PL"),
    ]
    identity, memorised = BASELINES["identity"](pairs), BASELINES["memorised"](pairs)
    asked = [("a", "PL"), ("a", "SG"), ("b", "PL"), ("b", "SG"), ("c", "PL")]
    assert [identity(*item) for item in asked] == ["a", "a", "b", "b", "c"]
    assert [memorised(*item) for item in asked] == ["y", "z", "z", "b", "c"]


def test_the_nearest_known_input_shares_the_rarest_words() -> None:
    pairs = [
        ("the cat sleeps", "A", ()),
        ("the dog sleeps", "B", ()),
        ("the dog", "C", ()),
        ("the dog", "D", ()),
        ("the dog", "D", ()),
        ("zebra", "E", "PL"),
    ]
    nearest = BASELINES["nearest"](pairs)
    assert nearest("the dog", ()) == "D", "a known input"
    assert nearest("dog", ()) == "D", "the word that is not shared counts, too"
    assert nearest("a cat", ()) == "A"
    assert nearest("sleeps dog", ()) == "B"
    assert nearest("sleeps", ()) == "B", "what it has beside is frequent"
    assert nearest("zebra", ()) == "zebra", "nothing of it is known"
    assert (nearest("a zebra", "PL"), nearest("zebra", "SG")) == ("E", "zebra"), "tags are never mixed"
    assert BASELINES["nearest"]([])("the dog", ()) == "the dog"


@given(st.lists(st.tuples(SENTENCE, WORD), min_size=1, max_size=8), SENTENCE)
def test_the_nearest_known_input_by_definition(pairs: list[tuple[str, str]], text: str) -> None:
    known = dict(reversed(pairs))
    found = BASELINES["nearest"]([(given, output, ()) for given, output in known.items()])(text, ())
    words = {given: set(given.split()) for given in known}
    inputs_with = Counter(word for of in words.values() for word in of)
    weight = {word: math.log(1 + len(known) / n) ** 2 for word, n in inputs_with.items()}
    asked = set(text.split()) & weight.keys()
    if not asked:
        assert found == known.get(text, text)
        return
    size = {given: math.sqrt(sum(weight[w] for w in of)) or 1.0 for given, of in words.items()}
    score = {given: sum(weight[w] for w in sorted(of & asked)) / size[given] for given, of in words.items()}
    best = max(score.values())
    assert found in {known[text]} if text in known else found in {known[x] for x in score if score[x] > best - 1e-9}


def test_a_circumfix() -> None:
    assert split("suchen", "gesucht") == (("", ["s", "u", "c", "h"], "en"), ("ge", ["s", "u", "c", "h"], "t"))
    rules = SuffixRules([TaggedPair("suchen", "gesucht", "PTCP"), TaggedPair("machen", "gemacht", "PTCP")])
    assert rules.inflect("kochen", "PTCP") == "gekocht"
    assert rules.inflect("kochen", "PRS") == "kochen", "nothing is known of these tags"


def test_the_longest_ending_decides_before_the_most_frequent() -> None:
    pairs = [("Hand", "Hände"), ("Band", "Bände"), ("Hund", "Hunde"), ("Wald", "Wälder"), ("Bild", "Bilder")]
    rules = SuffixRules(TaggedPair(*pair, "PL") for pair in pairs)
    assert rules.inflect("Wand", "PL") == "Wände"
    assert rules.inflect("Schild", "PL") == "Schilder"
    assert rules.inflect("Bund", "PL") == "Bunde"


@given(st.dictionaries(WORD, WORD, max_size=6))
def test_known_lemmas_that_end_like_no_other_have_their_forms(table: dict[str, str]) -> None:
    pairs = [TaggedPair(f"{n}{lemma}", f"{n}{form}", "T") for n, (lemma, form) in enumerate(table.items())]
    rules = SuffixRules(pairs)
    assert all(rules.inflect(pair.lemma, "T") == pair.form for pair in pairs)


DATA = Path(os.environ.get("NOISYCHANNEL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "morphology"


@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not here: set NOISYCHANNEL_DATA")
def test_as_good_as_the_shared_task_s_own() -> None:
    splits = read_sigmorphon(DATA, 2017)
    rules = SuffixRules(splits.train)
    right = sum(rules.inflect(pair.lemma, pair.tags) == pair.form for pair in splits.test)
    assert right / len(splits.test) == pytest.approx(0.721, abs=0.01)


def test_prefix_baselines_put_out_the_first_words() -> None:
    text = " ".join(map(str, range(20)))
    assert BASELINES["first_8"]([])(text, ()) == "0 1 2 3 4 5 6 7"
    assert BASELINES["first_15"]([])("a  b", ()) == "a b"
