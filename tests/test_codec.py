"""Text to ids and back: characters, words and subwords, their vocabularies, and what is kept of them with a run."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel.atomic import write_text
from noisychannel.data.codec import Codec
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.ids import EOS, UNK
from noisychannel.text import (
    Characters,
    Splitter,
    Subwords,
    TextConfig,
    Units,
    Words,
    make_splitter,
    normalise,
)

SENTENCES = [
    "the cat sat on the mat",
    "a dog ate the hat",
    "the rat and the bat and the cat",
    "that hat sat on a dog",
    "on and on and on",
]


def codec_of(text: str, features: tuple[str, ...] = (), **settings: Any) -> Codec:
    """The codec whose training data is one text; cut into words where ``units`` says so."""
    config = TextConfig(**settings)
    splitter: Splitter = Words() if config.units == "words" else Characters()
    return Codec.build(config, splitter, Counter(splitter.split(normalise(text, config))), features)


def train_model(sentences: list[str], size: int) -> bytes:
    """A sentencepiece model, trained by the package itself."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=size, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    return Subwords.train(SENTENCES * 10, 40, "data.output")


def codec_of_subwords(splitter: Subwords) -> Codec:
    counts = Counter(piece for text in SENTENCES for piece in splitter.split(text))
    return Codec.build(TextConfig(units="subwords", max_size=40), splitter, counts, ["V"])


# --- the vocabulary


def test_ids_begin_with_special_symbols_then_features_then_the_most_frequent() -> None:
    codec = codec_of("abracadabra", features=("V", "N", "V"))
    assert codec.names == ("<pad>", "<bos>", "<eos>", "<unk>", "<N>", "<V>", "a", "b", "r", "c", "d")
    assert len(codec) == 11
    assert codec.encode("bad") == [7, 6, 10, 2]
    assert codec.encode("bad", ["V", "N"]) == [5, 4, 7, 6, 10, 2]
    assert codec.ids([], ["N"]) == [4, 2]


@pytest.mark.parametrize("order", ["zyxzyxw", "xyzxyzw", "wzxyyxz"])
def test_ties_are_broken_by_the_symbol_and_not_by_the_order_of_the_text(order: str) -> None:
    assert codec_of(order).symbols == ("x", "y", "z", "w")


def test_the_vocabulary_does_not_depend_on_the_order_of_a_set() -> None:
    letters = "abcdefghijklmnopqrst"
    codec = Codec.build(TextConfig(), Characters(), Counter(set(letters)), set(letters.upper()))
    assert "".join(codec.symbols) == letters
    assert "".join(codec.features) == letters.upper()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("a", "b", "r", "c", "d")),
        ({"min_count": 2}, ("a", "b", "r")),
        ({"min_count": 3}, ("a",)),
        ({"min_count": 6}, ()),
        ({"max_size": 4}, ("a", "b", "r", "c")),
        ({"max_size": 2}, ("a", "b")),
        ({"max_size": 99}, ("a", "b", "r", "c", "d")),
        ({"min_count": 2, "max_size": 2}, ("a", "b")),
    ],
)
def test_rare_symbols_are_left_out(settings: dict[str, int], expected: tuple[str, ...]) -> None:
    codec = codec_of("abracadabra", features=("V",), **settings)
    assert codec.symbols == expected
    assert codec.features == ("V",)
    known = {symbol: 5 + n for n, symbol in enumerate(expected)}
    assert codec.encode("abracadabra") == [*(known.get(s, UNK) for s in "abracadabra"), EOS]


def test_what_was_never_seen_is_unknown() -> None:
    codec = codec_of("ab", features=("V",))
    assert codec.encode("axb", ["V", "W"]) == [4, UNK, 5, UNK, 6, EOS]
    assert codec.split("axb") == ["a", "x", "b"]


def test_what_is_unknown_is_listed_as_often_as_it_occurs() -> None:
    codec = Codec(TextConfig(lowercase=True), Characters(), ["a", "b"], ["V"])
    assert codec.unknown("aXbxA", ("V", "PST")) == (["x", "x"], ["PST"])
    assert codec.unknown("Ab") == ([], [])


def test_words_that_look_like_special_symbols_are_words() -> None:
    codec = codec_of("<eos> <pad> <V> a a <eos> <bos>", features=("V",), units="words")
    text = "<pad> <V> <eos> <bos>"
    ids = codec.encode(text, ["V"])
    assert ids[0] == 4
    assert min(ids[1:-1]) >= 5
    assert ids[-1] == EOS
    assert codec.decode(ids) == text


# --- text


def test_lower_casing() -> None:
    codec = codec_of("Ab ÄẞЖ", lowercase=True)
    assert set(codec.symbols) == set("ab äßж")
    assert codec.split("AB Ä") == list("ab ä")
    assert codec.decode(codec.encode("AB")) == "ab"
    assert codec_of("Ab").encode("aB") == [UNK, UNK, EOS]


def test_digits_become_hash_signs() -> None:
    codec = codec_of("in 1984", units="words", digits_to_hash=True)
    assert codec.symbols == ("####", "in")
    assert codec.encode("in 2001") == codec.encode("in 1984") == [5, 4, EOS]
    # Every digit counts, also those of other scripts; fractions and superscripts are no digits.
    assert codec.split("x7 ٣ 12³½") == ["x#", "#", "##³½"]
    assert codec_of("12").split("12") == ["1", "2"]


def test_words_are_cut_at_any_white_space() -> None:
    assert codec_of("b", units="words").split("  a\u3000b \tc\u2028d ") == ["a", "b", "c", "d"]


def test_characters_are_code_points() -> None:
    assert codec_of("e").split("e\u0301 日\U0001f600") == ["e", "\u0301", " ", "日", "\U0001f600"]


# --- there and back


@settings(deadline=None, derandomize=True, max_examples=80)
@given(text=st.text(max_size=30), features=st.lists(st.text(max_size=3), max_size=3))
def test_characters_come_back(text: str, features: list[str]) -> None:
    codec = codec_of(text, tuple(features))
    ids = codec.encode(text, features)
    assert len(ids) == len(features) + len(text) + 1
    assert ids[-1] == EOS
    assert min(ids[:-1], default=4) >= 4
    assert codec.decode(ids) == text


@settings(deadline=None, derandomize=True, max_examples=80)
@given(text=st.text("ab \u3000<é", max_size=20))
def test_words_come_back_with_single_spaces(text: str) -> None:
    codec = codec_of(text, ("V",), units="words")
    assert codec.decode(codec.encode(text, ["V"])) == " ".join(text.split())


@settings(deadline=None, derandomize=True, max_examples=80)
@given(known=st.text(max_size=10), text=st.text("abcdeé ", max_size=20))
def test_unknown_characters_are_all_that_is_lost(known: str, text: str) -> None:
    codec = codec_of(known)
    ids = codec.encode(text)
    assert [i == UNK for i in ids] == [*(c not in known for c in text), False]
    assert codec.decode(ids) == "".join(c for c in text if c in known)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(words=st.lists(st.text("abcdehmnorst", min_size=1, max_size=6), max_size=5))
def test_subwords_come_back(subwords: Subwords, words: list[str]) -> None:
    text = " ".join(words)
    pieces = subwords.split(text)
    assert "".join(pieces).replace("▁", " ").strip() == text
    codec = Codec.build(TextConfig(units="subwords"), subwords, Counter(pieces), ["V"])
    assert codec.decode(codec.encode(text, ["V"])) == text


def test_special_symbols_and_features_are_not_text() -> None:
    codec = codec_of("ab", features=("V",))
    assert codec.decode([0, 1, 4, 5, 3, 6, 2, 0, 0]) == "ab"
    assert codec.decode([]) == ""


# --- subwords


def test_subwords_are_longer_than_characters_and_fewer_than_words(subwords: Subwords) -> None:
    pieces = subwords.split("the cat and the dog")
    assert 5 <= len(pieces) < len("the cat and the dog")
    assert "▁the" in pieces


def test_training_subwords_is_reproducible() -> None:
    first, second = (Subwords.train(SENTENCES * 10, 40, "data.output") for _ in range(2))
    assert first.model == second.model


def test_subwords_are_trained_on_what_is_given_and_as_many_as_asked() -> None:
    config = TextConfig(units="subwords", max_size=24)
    splitter = make_splitter(config, iter(SENTENCES * 10), "data.input")
    assert isinstance(splitter, Subwords)
    processor = sentencepiece.SentencePieceProcessor(model_proto=splitter.model)
    assert processor.get_piece_size() == 24
    assert splitter.split("the hat") == processor.encode("the hat", out_type=str)
    # Neither begin nor end of sentence: the codec has its own.
    assert processor.bos_id() == processor.eos_id() == -1


def test_a_sentencepiece_file_is_used_as_it_is(tmp_path: Path) -> None:
    model = train_model(SENTENCES * 10, 30)
    (tmp_path / "given.model").write_bytes(model)
    config = TextConfig(units="subwords", sentencepiece=str(tmp_path / "given.model"))
    texts = iter(SENTENCES)
    splitter = make_splitter(config, texts, "data.input")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert splitter.split("a bat and a mat") == processor.encode("a bat and a mat", out_type=str)
    assert list(texts) == SENTENCES, "nothing is to be trained, so no text is to be read"


@pytest.mark.parametrize("content", [b"not a model", b""], ids=["text", "empty"])
def test_a_file_that_is_no_sentencepiece_model_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.model"
    file.write_bytes(content)
    with pytest.raises(BadInputError, match=r"bad\.model: not a sentencepiece model"):
        make_splitter(TextConfig(units="subwords", sentencepiece=str(file)), iter([]), "data.input")


def test_a_missing_sentencepiece_model_is_named(tmp_path: Path) -> None:
    config = TextConfig(units="subwords", sentencepiece=str(tmp_path / "none.model"))
    with pytest.raises(BadInputError, match=r"data\.input\.sentencepiece: .*none\.model: No such file"):
        make_splitter(config, iter([]), "data.input")


def test_too_few_subwords_are_refused_in_one_line() -> None:
    with pytest.raises(BadInputError, match=r"^data\.output: sentencepiece could not train 3 subwords \(.*\)$"):
        Subwords.train(SENTENCES, 3, "data.output")


def test_subwords_without_the_package_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(BadInputError, match=r"sentencepiece: pip install 'noisychannel\[subwords\]'"):
        Subwords.train(SENTENCES, 40, "data.output")


# --- fingerprints


def variants() -> dict[str, Codec]:
    words = TextConfig(units="words")
    return {
        "words": Codec(words, Words(), ["a", "b"], ["V"]),
        "other order": Codec(words, Words(), ["b", "a"], ["V"]),
        "one more": Codec(words, Words(), ["a", "b", "c"], ["V"]),
        "joined": Codec(words, Words(), ["ab"], ["V"]),
        "other feature": Codec(words, Words(), ["a", "b"], ["N"]),
        "no feature": Codec(words, Words(), ["a", "b"], []),
        "a word like the feature": Codec(words, Words(), ["<V>", "a", "b"], []),
        "characters": Codec(TextConfig(), Characters(), ["a", "b"], ["V"]),
        "without spaces": Codec(TextConfig(remove_spaces=True), Characters(), ["a", "b"], ["V"]),
    }


def test_a_fingerprint_tells_vocabularies_apart() -> None:
    fingerprints = {name: codec.fingerprint for name, codec in variants().items()}
    clashes = [name for name, value in fingerprints.items() if list(fingerprints.values()).count(value) > 1]
    assert clashes == []


def test_a_fingerprint_does_not_depend_on_how_the_vocabulary_came_about() -> None:
    assert codec_of("abab").fingerprint == codec_of("bbaa", min_count=2, max_length=7).fingerprint


# --- kept with a run


@pytest.mark.parametrize("units", ["characters", "words", "subwords"])
def test_a_saved_codec_is_the_same_codec(tmp_path: Path, units: Units, subwords: Subwords) -> None:
    if units == "subwords":
        codec = codec_of_subwords(subwords)
    else:
        codec = codec_of(
            "The cat\u2028 sät 12 'on' \"the\" mat\\", ("N;PL", "<V>"), units=units, lowercase=True, max_length=9
        )
    codec.save(tmp_path, "input")
    loaded = Codec.load(tmp_path, "input")
    assert loaded.names == codec.names
    assert loaded.features == codec.features
    assert loaded.config == codec.config
    assert loaded.fingerprint == codec.fingerprint
    text = "The hat sät on the dog"
    assert loaded.split(text) == codec.split(text)
    assert loaded.encode(text, codec.features) == codec.encode(text, codec.features)
    assert loaded.decode(codec.encode(text)) == codec.decode(codec.encode(text))


def test_a_run_keeps_the_sentencepiece_model_it_was_given(tmp_path: Path) -> None:
    given_model = tmp_path / "given.model"
    given_model.write_bytes(train_model(SENTENCES * 10, 30))
    config = TextConfig(units="subwords", sentencepiece=str(given_model))
    splitter = make_splitter(config, iter([]), "data.output")
    codec = Codec.build(config, splitter, Counter(splitter.split("the cat")), [])
    codec.save(tmp_path, "output")
    given_model.unlink()
    assert Codec.load(tmp_path, "output").encode("the cat") == codec.encode("the cat")


def test_both_sides_live_in_one_directory(tmp_path: Path) -> None:
    codec_of("ab").save(tmp_path, "input")
    codec_of("cd").save(tmp_path, "output")
    assert Codec.load(tmp_path, "input").symbols == ("a", "b")
    assert Codec.load(tmp_path, "output").symbols == ("c", "d")


GOOD = {"text": {"units": "characters"}, "features": ["V"], "symbols": ["a", "b"]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        json.dumps(GOOD).encode()[:-20],
        b"[]",
        b"null",
        b"7",
        json.dumps({**GOOD, "text": {"unit": "characters"}}).encode(),
        json.dumps({**GOOD, "text": None}).encode(),
        json.dumps({**GOOD, "text": {"units": "syllables"}}).encode(),
        json.dumps({**GOOD, "symbols": None}).encode(),
        json.dumps({**GOOD, "features": 3}).encode(),
        json.dumps({key: GOOD[key] for key in ("text", "features")}).encode(),
        json.dumps({key: GOOD[key] for key in ("text", "symbols")}).encode(),
        json.dumps({key: GOOD[key] for key in ("features", "symbols")}).encode(),
    ],
    ids=[
        "empty", "not UTF-8", "cut off", "list", "null", "number", "unknown setting", "no settings", "unknown units",
        "symbols null", "features a number", "no symbols", "no features", "no text",
    ],
)  # fmt: skip
def test_a_damaged_vocabulary_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "input.vocabulary.json").write_bytes(json.dumps(GOOD).encode())
    assert Codec.load(tmp_path, "input").encode("ab", ["V"]) == [4, 5, 6, EOS]
    (tmp_path / "input.vocabulary.json").write_bytes(content)
    with pytest.raises(NoisyChannelError) as caught:
        Codec.load(tmp_path, "input")
    assert str(caught.value).startswith(f"{tmp_path / 'input.vocabulary.json'}: damaged (")
    assert caught.value.exit_code == 1


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoisyChannelError, match=r"input\.vocabulary\.json: missing"):
        Codec.load(tmp_path, "input")


def test_a_missing_or_damaged_subword_model_is_named(tmp_path: Path, subwords: Subwords) -> None:
    codec_of_subwords(subwords).save(tmp_path, "output")
    (tmp_path / "output.sentencepiece").write_bytes(b"damaged")
    with pytest.raises(NoisyChannelError, match=r"output\.sentencepiece: not a sentencepiece model"):
        Codec.load(tmp_path, "output")
    (tmp_path / "output.sentencepiece").unlink()
    with pytest.raises(NoisyChannelError, match=r"output\.sentencepiece: missing"):
        Codec.load(tmp_path, "output")


# --- whole files or none


def test_saving_replaces_the_old_vocabulary_and_leaves_nothing_else(tmp_path: Path) -> None:
    codec_of("abc").save(tmp_path, "input")
    codec_of("xy").save(tmp_path, "input")
    assert Codec.load(tmp_path, "input").symbols == ("x", "y")
    assert [file.name for file in tmp_path.iterdir()] == ["input.vocabulary.json"]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    codec_of("abc").save(tmp_path, "input")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*{"fsync": (os, "fsync", full), "replace": (Path, "replace", full)}[fails])
    with pytest.raises(NoisyChannelError, match=r"input\.vocabulary\.json: cannot be written \(No space left"):
        codec_of("xy").save(tmp_path, "input")
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == ["input.vocabulary.json"]
    assert Codec.load(tmp_path, "input").symbols == ("a", "b", "c")


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoisyChannelError, match=r"nowhere.note\.txt: cannot be written \(No such file or directory\)"):
        write_text(tmp_path / "nowhere" / "note.txt", "a")


def test_segmented_text_without_its_spaces() -> None:
    """The segmentation of Chinese then does not matter, and its vocabulary is not that of text with spaces."""
    removed, plain = (codec_of("我们 喝茶", remove_spaces=remove) for remove in (True, False))
    assert removed.split("我 们\u3000喝 茶") == ["我", "们", "喝", "茶"]
    assert removed.encode("我们 喝茶") == removed.encode("我 们 喝 茶")
    assert " " in plain.symbols
    assert " " not in removed.symbols
    same = codec_of("我们喝茶"), codec_of("我们喝茶", remove_spaces=True)
    assert same[0].symbols == same[1].symbols
    assert same[0].fingerprint != same[1].fingerprint
