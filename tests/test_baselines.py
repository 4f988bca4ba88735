"""The simplest baselines, against what they must do, and the rules against the figures of the shared task's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.evaluation.baselines import BASELINES, SuffixRules, split
from noisychannel.experiments.inflection.data import TaggedPair, read_sigmorphon

WORD = st.text("abc", max_size=7)


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
