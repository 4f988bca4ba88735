"""Dropped content and copying: counts by hand, alignments to words, and the table of an experiment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from noisychannel import SSNT, NoisyChannel
from noisychannel.data.codec import Codec
from noisychannel.evaluation.content import ContentCounts, aligned_words, function_words, word_numbers
from noisychannel.experiments.content import ContentTable, content_lines
from noisychannel.experiments.items import Item
from noisychannel.ids import EOS
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.text import Characters, Subwords, TextConfig, Words

INPUT = "the old king of spain , ## , abdicates in favour of his son"
FUNCTION = frozenset({"the", "of", "in", "his", ","})


def test_function_words_are_frequent_types_and_punctuation() -> None:
    texts = ["the king of spain ,", "the queen of spain", "the ## --"]
    assert function_words(texts, 2) == {"the", "of", ",", "--"}, "of and spain occur twice: the first by its letters"
    assert function_words(texts, 0) == {",", "--"}, "digits are content"


def test_counts_of_one_output() -> None:
    """The content words are old, king, spain, ##, abdicates, favour and son: places 2, 3, 5, 7, 9, 11 and 14."""
    counts = ContentCounts.of(INPUT, "king of spain resigns", FUNCTION, aligned=(3, 4, 5, 9))
    assert asdict(counts) == {
        "outputs": 1,
        "words": 4,
        "copied_words": 3,
        "bigrams": 3,
        "copied_bigrams": 2,
        "extracts": 0,
        "content": 7,
        "missing": 5,
        "aligned_content": 7,
        "dropped": 4,  # old, ##, favour, son; abdicates is paraphrased
    }
    assert counts.shares()["dropped content"] == pytest.approx(100 * 4 / 7)


@pytest.mark.parametrize(
    ("output", "extract"),
    [("king of spain", 1), (INPUT, 1), ("son", 1), ("king spain", 0), ("of king", 0), ("", 0), (INPUT + " x", 0)],
)
def test_extracts_are_one_piece_of_the_input(output: str, extract: int) -> None:
    assert ContentCounts.of(INPUT, output, FUNCTION).extracts == extract


def test_an_empty_output_drops_everything_and_one_without_alignment_nothing_is_known_of() -> None:
    empty, unaligned = ContentCounts.of(INPUT, "", FUNCTION, ()), ContentCounts.of(INPUT, "king", FUNCTION)
    assert (empty.dropped, empty.aligned_content, empty.missing) == (7, 7, 7)
    assert empty.shares()["copied words"] is None
    assert unaligned.shares()["dropped content"] is None
    both = empty + unaligned.times(3)
    assert (both.outputs, both.content, both.aligned_content, both.dropped) == (4, 28, 7, 7)


def test_the_word_of_each_symbol() -> None:
    words = Codec(TextConfig(units="words"), Words(), ["a"], ["F"])
    assert word_numbers(words, " a  b c", ("F", "G")) == [0, 0, 1, 2, 3, 0]
    letters = Codec(TextConfig(), Characters(), list("ab "), ())
    assert word_numbers(letters, "ab  b") == [1, 1, 1, 1, 2, 0]
    assert word_numbers(letters, "") == [0]
    pieces = object.__new__(Subwords)
    pieces.split = lambda text: ["▁sp", "ain", "▁", "ab", "▁x"]  # type: ignore[method-assign]
    assert word_numbers(Codec(TextConfig(units="subwords"), pieces, ["x"], ()), "") == [1, 1, 2, 2, 3, 0]


def test_outputs_are_aligned_to_words_as_the_direct_model_aligns_them() -> None:
    """Whatever their order, with features before the words."""
    torch.manual_seed(0)
    codec = Codec(TextConfig(units="words"), Words(), ["a", "b", "c"], ["F"])
    model = NoisyChannel(codec, codec, {"direct": SSNT(len(codec), len(codec), 6)})
    texts, tags = ["a b c a b", "c", "b x"], [("F",), (), ("F",)]
    outputs = [codec.ids("abc")[:-1], codec.ids("ab")[:-1], []]
    found = aligned_words(model, texts, tags, outputs)
    for text, tag, output, aligned in zip(texts, tags, outputs, found, strict=True):
        (hypothesis,) = model.score_ids([text], [[output]], [tag], align=True)[0]
        last = len(text.split())
        numbers = [i - len(tag) + 1 for i in (hypothesis.alignment or ())[:-1]]
        assert aligned == tuple(n if 0 < n <= last else 0 for n in numbers)
    attention = NoisyChannel(codec, codec, {"attention": Seq2Seq(len(codec), len(codec), 6, attention=True)})
    assert aligned_words(attention, texts, tags, outputs) == [None] * 3
    assert codec.encode("a")[-1] == EOS


def test_the_table_of_an_experiment() -> None:
    items = {
        ("news", 0): Item("The King of Spain", ("king of spain", "spain 's king"), count=2),
        ("news", 1): Item("the rain", ("rain",)),
        ("wire", 0): Item("the rain", ()),
    }
    table = ContentTable(items, 1, TextConfig(lowercase=True))
    assert table.function == {"the"}
    keys = list(items)
    row = table.row(
        keys,
        {1: ["king", "rain", "the"], 2: ["the king", "snow", ""]},
        {1: [(2,), (2,), (0,)], 2: [None, (2,), ()]},
    )
    news, wire = row["news"], row["wire"]
    # Twice king and the king; content king, of and spain, of which an output has one.
    assert news["counts"]["words"] == 2 * (1 + 2) + 2
    assert news["copied words"] == pytest.approx(100 * 7 / 8)
    assert news["missing content"] == pytest.approx(100 * (2 * (2 + 2) + 1) / (2 * 6 + 2))
    assert news["dropped content"] == pytest.approx(100 * (2 * 2) / (2 * 3 + 2)), "one output has no alignment"
    assert wire["dropped content"] == 100
    references = table.references()
    assert references.keys() == {"news"}
    assert references["news"]["counts"]["outputs"] == 5
    results: dict[str, Any] = {
        "parts": {"news": 3, "wire": 1},
        "content": {"function words": 1, "references": references, "rows": {"full": row}},
    }
    lines = list(content_lines(results))
    assert [line for line in lines if line.startswith("**")] == ["**news**", "**wire**"]
    full = [line.split(" | ") for line in lines if line.startswith("| full")]
    assert full[0][1:] == ["87.5", "100.0", "83.3", "64.3", "50.0 |"]
    assert full[1][-1] == "100.0 |"
    (reference,) = [line for line in lines if line.startswith("| references")]
    assert reference.endswith("|  |"), "references are not aligned"
    assert list(content_lines({})) == []


def test_characters_of_a_text_without_its_spaces_belong_to_its_words() -> None:
    config = TextConfig(units="characters", remove_spaces=True)
    codec = Codec(config, Characters(), ["我", "们", "喝", "茶"], ["T"])
    assert word_numbers(codec, "我们 喝茶 茶", ("T",)) == [0, 1, 1, 2, 2, 3, 0]
    assert len(word_numbers(codec, "我们 喝茶 茶", ("T",))) == len(codec.encode("我们 喝茶 茶", ("T",)))
