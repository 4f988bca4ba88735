"""Metrics against the libraries they stand for, and against slow code where there is no library."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import METRICS, FloatArray, Metric, levenshtein, make_metric
from noisychannel.text import TextConfig

driven = settings(max_examples=60, deadline=None, derandomize=True)

Corpus = list[tuple[str, list[str]]]

words = st.sampled_from(["the", "cat", "cats", "sat", "on", "mat.", "Häuser", "Straße", "naïve", "猫", "3,5", "—", "ß"])
sentences = st.lists(words, max_size=9).map(" ".join) | st.text(max_size=12)
corpora = st.lists(st.tuples(sentences, st.lists(sentences, min_size=1, max_size=3)), min_size=1, max_size=6)

CORPUS: Corpus = [
    ("the cat sat on the mat .", ["the cat sat on a mat .", "there is a cat on the mat ."]),
    ("", ["nothing was said here"]),
    ("Die Häuser stehen an der Straße.", ["Die Häuser stehen in der Straße.", "Häuser säumen die Straße."]),
    ("猫がマットの上に座った", ["猫はマットの上に座っている", "猫がマットの上に座った"]),
    ("the quick brown fox jumped over the dog", ["the quick brown fox jumps over the lazy dog", "", "a fox"]),
]


def matrix(metric: Metric, corpus: Corpus) -> FloatArray:
    return np.stack([metric.statistics(hypothesis, references) for hypothesis, references in corpus])


def corpus_score(metric: Metric, corpus: Corpus) -> float:
    return float(metric.score(matrix(metric, corpus).sum(axis=0), len(corpus)))


def columns(corpus: Corpus) -> tuple[list[str], list[list[str | None]]]:
    """The corpus as sacrebleu wants it: hypotheses, and one list a reference with None where there is none."""
    most = max(len(references) for _, references in corpus)
    padded = [[*references, *[None] * (most - len(references))] for _, references in corpus]
    return [hypothesis for hypothesis, _ in corpus], [list(column) for column in zip(*padded, strict=True)]


def levenshtein_by_definition(a: str, b: str) -> int:
    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        substitution = distance(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(substitution, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(a), len(b))


def variants(corpus: Corpus) -> list[Corpus]:
    """Corpora of the same sentences whose scores differ: each sentence alone, every prefix, the whole twice."""
    return [*([row] for row in corpus), *(corpus[: n + 1] for n in range(len(corpus))), corpus * 2]


# --- accuracy and edit distance -------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text("abä", max_size=12), st.text("abä", max_size=12))
def test_levenshtein_is_its_definition(a: str, b: str) -> None:
    assert levenshtein(a, b) == levenshtein_by_definition(a, b)


@driven
@given(st.text(max_size=8), st.text(max_size=8))
def test_levenshtein_is_its_definition_for_any_characters(a: str, b: str) -> None:
    assert levenshtein(a, b) == levenshtein_by_definition(a, b)


def test_levenshtein_of_strings_longer_than_a_machine_word() -> None:
    random = np.random.default_rng(3)
    for length_a, length_b in [(63, 70), (64, 64), (65, 40), (150, 200)]:
        a, b = ("".join(random.choice(list("abcd"), size=length)) for length in (length_a, length_b))
        assert levenshtein(a, b) == levenshtein_by_definition(a, b)


@driven
@given(corpora)
def test_accuracy_and_edit_distance_of_any_corpus(corpus: Corpus) -> None:
    right = sum(any(hypothesis == reference for reference in references) for hypothesis, references in corpus)
    assert corpus_score(make_metric("accuracy"), corpus) == pytest.approx(100 * right / len(corpus))
    edits = sum(min(levenshtein_by_definition(h, reference) for reference in references) for h, references in corpus)
    assert corpus_score(make_metric("edit_distance"), corpus) == pytest.approx(edits / len(corpus))


def test_accuracy_and_edit_distance_by_hand() -> None:
    corpus = [("Häuser", ["Haus", "Häuser"]), ("Hauser", ["Häuser"]), ("", ["Bus", "Busse"]), ("", [""])]
    assert corpus_score(make_metric("accuracy"), corpus) == 50.0
    assert corpus_score(make_metric("edit_distance"), corpus) == 1.0  # (0 + 1 + 3 + 0) / 4


# --- sacrebleu and rouge_score --------------------------------------------------------------------------------------


@driven
@given(corpora)
def test_bleu_and_chrf_are_exactly_sacrebleus(corpus: Corpus) -> None:
    hypotheses, references = columns(corpus)
    assert corpus_score(make_metric("bleu"), corpus) == sacrebleu.corpus_bleu(hypotheses, references).score  # type: ignore[arg-type]
    assert corpus_score(make_metric("chrf"), corpus) == sacrebleu.corpus_chrf(hypotheses, references).score  # type: ignore[arg-type]


@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "char", "zh"])
def test_bleu_with_each_tokenizer_is_exactly_sacrebleus(tokenize: str) -> None:
    metric = make_metric("bleu", tokenize=tokenize)
    scores = []
    for corpus in variants(CORPUS):
        hypotheses, references = columns(corpus)
        expected = sacrebleu.corpus_bleu(hypotheses, references, tokenize=tokenize).score  # type: ignore[arg-type]
        assert corpus_score(metric, corpus) == expected
        scores.append(expected)
    assert len(set(scores)) > 4  # The corpora must tell a right score from a wrong one.


def test_bleu_over_many_random_totals_is_exactly_sacrebleus() -> None:
    """Every branch: a brevity penalty or none, orders without a match, orders without an n-gram, nothing at all."""
    random = np.random.default_rng(5)
    metric = make_metric("bleu")
    totals = []
    for _ in range(2000):
        length = int(random.integers(0, 8) if random.random() < 0.5 else random.integers(0, 100_000))
        ngrams = np.maximum(length - np.arange(4), 0)
        matched = random.integers(0, ngrams + 1) * (random.random(4) < 0.7)
        totals.append([length, random.integers(0, 2 * length + 2), *matched, *ngrams])
    array = np.array(totals, dtype=np.float64)
    expected = [
        sacrebleu.BLEU.compute_bleu(list(row[2:6]), list(row[6:]), row[0], row[1], smooth_method="exp").score
        for row in ([int(x) for x in row] for row in totals)
    ]
    assert metric.score(array, 1).tolist() == expected
    assert len(set(expected)) > 1000
    assert expected.count(0.0) > 50


def test_chrf_over_many_random_totals_is_exactly_sacrebleus() -> None:
    random = np.random.default_rng(6)
    totals = random.integers(0, 50, size=(2000, 6, 3)) * (random.random((2000, 6, 3)) < 0.8)
    totals[..., 2] = np.minimum(totals[..., 2], totals[..., :2].min(axis=-1))
    rows = totals.reshape(2000, 18)
    expected = [sacrebleu.CHRF()._compute_f_score([int(x) for x in row]) for row in rows]
    assert make_metric("chrf").score(rows.astype(np.float64), 1).tolist() == expected
    assert len(set(expected)) > 1000


@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL", "rouge1_stem", "rouge2_stem", "rougeL_stem"])
def test_rouge_is_the_mean_f1_of_the_best_reference(name: str) -> None:
    kind = name.removesuffix("_stem")
    scorer = RougeScorer([kind], use_stemmer=kind != name)
    scores = []
    for corpus in variants(CORPUS):
        best = [max(scorer.score(reference, h)[kind].fmeasure for reference in references) for h, references in corpus]
        assert corpus_score(make_metric(name), corpus) == pytest.approx(100 * sum(best) / len(corpus), abs=1e-12)
        scores.append(round(100 * sum(best) / len(corpus), 6))
    assert len(set(scores)) > 4


def test_rouge_by_hand() -> None:
    corpus = [("the cats sat", ["the cat sat", "a dog"]), ("", ["the cat"])]
    assert corpus_score(make_metric("rouge1"), corpus) == pytest.approx(100 * (2 / 3) / 2)  # cats is not stemmed
    assert corpus_score(make_metric("rouge2"), corpus) == 0.0
    assert corpus_score(make_metric("rougeL"), corpus) == pytest.approx(100 * (2 / 3) / 2)
    assert corpus_score(make_metric("rouge1_stem"), [("cats sitting", ["cat sits"])]) == 100.0
    assert "stem:yes" in make_metric("rouge1_stem").signature


def test_length_ratio_by_hand() -> None:
    corpus = [("a b c", ["a b", "a b c d"]), ("", ["a b c"])]
    assert corpus_score(make_metric("length_ratio"), corpus) == pytest.approx(3 / (3 + 3))


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_scores_of_many_totals_are_the_scores_of_each(name: str) -> None:
    metric = make_metric(name)
    counts = np.random.default_rng(7).integers(0, 3, size=(4, 5, len(CORPUS)))
    counts[..., 0] += 1
    totals, rows = counts @ matrix(metric, CORPUS), counts.sum(axis=-1).astype(np.float64)
    together = metric.score(totals, rows)
    assert together.shape == (4, 5)
    assert together.dtype == np.float64
    assert len(np.unique(together)) > 5
    for i in range(4):
        for j in range(5):
            assert together[i, j] == metric.score(totals[i, j], int(rows[i, j]))


@pytest.mark.parametrize("name", METRICS)
def test_score_of_a_corpus_does_not_depend_on_the_order_of_sentences_or_references(name: str) -> None:
    metric = make_metric(name)
    turned = [(hypothesis, references[::-1]) for hypothesis, references in CORPUS[::-1]]
    assert corpus_score(metric, turned) == pytest.approx(corpus_score(metric, CORPUS), abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_better_is_the_direction_a_metric_says(name: str) -> None:
    metric = make_metric(name)
    right = [("the cat sat on the mat", ["the cat sat on the mat", "a dog ate"])]
    wrong = [("five dogs", ["the cat sat on the mat", "a dog ate"])]
    assert (corpus_score(metric, right) > corpus_score(metric, wrong)) == metric.higher_is_better
    assert corpus_score(metric, right) == pytest.approx(100.0 if metric.higher_is_better else 0.0)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_has_the_name_it_was_made_by(name: str) -> None:
    assert make_metric(name).name == name


@pytest.mark.parametrize("name", METRICS)
def test_a_thousand_resamples_take_well_under_a_second(name: str) -> None:
    metric = make_metric(name)
    statistics = np.tile(matrix(metric, CORPUS), (400, 1))
    random = np.random.default_rng(1)
    start = time.process_time()
    counts = random.multinomial(2000, np.full(2000, 1 / 2000), size=1000).astype(np.float64)
    scores = metric.score(counts @ statistics, 2000)
    assert time.process_time() - start < 1.0
    assert scores.shape == (1000,)


def test_signatures_are_sacrebleus_but_for_the_number_of_references() -> None:
    for ours, theirs in [
        (make_metric("bleu"), sacrebleu.BLEU()),
        (make_metric("bleu", tokenize="none"), sacrebleu.BLEU(tokenize="none")),
        (make_metric("chrf"), sacrebleu.CHRF()),
    ]:
        theirs.corpus_score(["a b"], [["a c"], ["a d"]])
        assert f"nrefs:2|{ours.signature}" == str(theirs.get_signature())


def test_every_signature_is_of_keys_and_values_and_names_a_version() -> None:
    for name in METRICS:
        fields = dict(field.split(":") for field in make_metric(name).signature.split("|"))
        assert fields["version"][0].isdigit()


@pytest.mark.parametrize("name", METRICS)
def test_a_signature_says_what_became_of_the_text(name: str) -> None:
    def fields(**text: bool) -> dict[str, str]:
        signature = make_metric(name, text=TextConfig(**text)).signature  # type: ignore[arg-type]
        return dict(field.split(":") for field in signature.split("|"))

    rouge = name.startswith("rouge")  # whose tokenizer lowercases in any case
    as_given, changed = fields(), fields(lowercase=True, digits_to_hash=True)
    assert (as_given["case"], as_given.get("digits")) == ("lc" if rouge else "mixed", None)
    assert (changed["case"], changed["digits"]) == ("lc", "#")
    assert fields(digits_to_hash=True) == as_given | {"digits": "#"}
    assert changed == as_given | {"case": "lc", "digits": "#"}


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("acuracy", "accuracy"),
        ("BLEU", "bleu"),
        ("rouge-l", "rougeL"),
        ("chrf++", "chrf"),
        ("editdistance", "edit_dis"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(name: str, near: str) -> None:
    with pytest.raises(BadInputError, match=f"unknown metric '.*'; did you mean {near}"):
        make_metric(name)


def test_an_unknown_tokenizer_is_told_the_nearest() -> None:
    with pytest.raises(BadInputError, match="unknown tokenizer '13b'; did you mean 13a"):
        make_metric("bleu", tokenize="13b")


def test_a_tokenizer_is_for_bleu_alone() -> None:
    with pytest.raises(BadInputError, match="tokenize: 'none' is an option of bleu"):
        make_metric("chrf", tokenize="none")


def test_a_tokenizer_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**options: object) -> None:
        raise RuntimeError("\nJapanese needs more.\nInstall it.\n")

    fails.TOKENIZERS = ["ja-mecab"]  # type: ignore[attr-defined]
    monkeypatch.setattr(sacrebleu, "BLEU", fails)
    with pytest.raises(BadInputError, match=r"'ja-mecab' cannot be used: Japanese needs more\. Install it\.$"):
        make_metric("bleu", tokenize="ja-mecab")


@pytest.mark.parametrize("name", METRICS)
def test_a_sentence_needs_references(name: str) -> None:
    with pytest.raises(BadInputError, match="no reference"):
        make_metric(name).statistics("a", [])
    with pytest.raises(TypeError, match="not one string"):
        make_metric(name).statistics("a", "abc")


def test_a_mean_of_no_sentences_is_refused() -> None:
    with pytest.raises(BadInputError, match="no sentences"):
        make_metric("accuracy").score(np.zeros(1), 0)


@pytest.mark.parametrize(
    ("name", "package", "modules"),
    [
        ("bleu", "sacrebleu", ("sacrebleu",)),
        ("chrf", "sacrebleu", ("sacrebleu",)),
        ("rougeL", "rouge-score", ("rouge_score", "rouge_score.rouge_scorer")),
    ],
)
def test_a_library_that_is_missing_is_named(
    name: str, package: str, modules: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInputError, match=rf"{name} needs the package {package}: pip install 'noisychannel\[metrics"):
        make_metric(name)
    assert corpus_score(make_metric("accuracy"), [("a", ["a"])]) == 100.0
    assert corpus_score(make_metric("edit_distance"), [("a", ["b"])]) == 1.0
