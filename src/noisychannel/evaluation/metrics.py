"""Metrics as functions of sums: a sentence gives a row of statistics, and a corpus is scored from the sum of its rows.

A corpus score, a bootstrap and a search over weights are therefore sums over rows, and each sentence is compared with
its references once. Shapes: N sentences, S statistics; ``totals`` and ``sentences`` may have leading dimensions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from noisychannel import __version__
from noisychannel.errors import BadInputError, did_you_mean, missing_extra
from noisychannel.text import TextConfig

FloatArray: TypeAlias = npt.NDArray[np.float64]

ROUGES: tuple[str, ...] = ("rouge1", "rouge2", "rougeL")
STEMMED = "_stem"
"""The end of the name of a rouge that compares stems of words: ``rouge1_stem``."""
METRICS: tuple[str, ...] = (
    *("accuracy", "edit_distance", "bleu", "chrf"),
    *ROUGES,
    *(name + STEMMED for name in ROUGES),
)
"""How good outputs are."""
REPORTED: tuple[str, ...] = ("length_ratio",)
"""How outputs are, neither better nor worse. ``make_metric`` knows both, and nothing is tuned on these."""


class Metric(Protocol):
    """A corpus score that depends on its sentences only through the sum of their statistics."""

    name: str
    higher_is_better: bool

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        """The statistics [S] of one sentence."""
        ...

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        """The scores [...] of corpora whose statistics sum to ``totals`` [..., S], each over ``sentences`` rows."""
        ...

    @property
    def signature(self) -> str:
        """What makes the number reproducible, in sacrebleu's manner, but for what belongs to the data (``nrefs``)."""
        ...


def make_metric(name: str, tokenize: str | None = None, text: TextConfig | None = None) -> Metric:
    """The metric of that name; ``tokenize`` is one of sacrebleu's tokenizers (default 13a), and for bleu alone.

    ``text`` is how outputs and references were normalised before they get here, which the signature has to say.
    """
    if name not in (*METRICS, *REPORTED):
        raise BadInputError(f"unknown metric {name!r}{did_you_mean(name, (*METRICS, *REPORTED))}")
    if tokenize is not None and name != "bleu":
        raise BadInputError(f"tokenize: {tokenize!r} is an option of bleu; {name} has none")
    text = text or TextConfig()
    match name:
        case "accuracy":
            return Accuracy(text)
        case "edit_distance":
            return EditDistance(text)
        case "bleu":
            return Bleu(tokenize or "13a", text)
        case "chrf":
            return Chrf(text)
        case "length_ratio":
            return LengthRatio(text)
        case _:
            return Rouge(name, text)


class Accuracy:
    """The percentage of sentences equal to one of their references."""

    name = "accuracy"
    higher_is_better = True

    def __init__(self, text: TextConfig) -> None:
        self._text = text

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        return np.array([hypothesis in _checked(references)], dtype=np.float64)

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        return _mean(100 * totals, sentences)

    @property
    def signature(self) -> str:
        return f"match:exact|{_normalised(self._text)}|version:{__version__}"


class EditDistance:
    """The mean Levenshtein distance to the nearest reference, in characters (code points)."""

    name = "edit_distance"
    higher_is_better = False

    def __init__(self, text: TextConfig) -> None:
        self._text = text

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        nearest = min(levenshtein(hypothesis, reference) for reference in _checked(references))
        return np.array([nearest], dtype=np.float64)

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        return _mean(totals, sentences)

    @property
    def signature(self) -> str:
        return f"unit:character|average:sentences|{_normalised(self._text)}|version:{__version__}"


class Bleu:
    """sacrebleu's corpus BLEU. Statistics: hypothesis and reference length, then matched and all n-grams, n = 1..4."""

    name = "bleu"
    higher_is_better = True

    def __init__(self, tokenize: str, text: TextConfig) -> None:
        self._text = text
        sacrebleu = _library("sacrebleu", "sacrebleu", self.name)
        if tokenize not in sacrebleu.BLEU.TOKENIZERS:
            suggestion = did_you_mean(tokenize, sacrebleu.BLEU.TOKENIZERS)
            raise BadInputError(f"bleu: unknown tokenizer {tokenize!r}{suggestion}")
        try:
            self._bleu = sacrebleu.BLEU(tokenize=tokenize)
        except (ImportError, RuntimeError, OSError) as error:
            reason = re.sub(r"\s+", " ", str(error)).strip()
            raise BadInputError(f"bleu: tokenizer {tokenize!r} cannot be used: {reason}") from error

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        return _sacrebleu_statistics(self._bleu, hypothesis, references)

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        del sentences
        hypothesis_length, reference_length = totals[..., 0], totals[..., 1]
        matched, all_ngrams = np.split(totals[..., 2:], 2, axis=-1)
        # sacrebleu's smoothing "exp": the k-th order without a match counts as 1/2^k of an n-gram matched.
        smoothed = 0.5 ** np.cumsum(matched == 0, axis=-1)
        numerator = np.where(matched > 0, 100.0 * matched, 100.0 * smoothed)
        precisions = numerator / np.maximum(all_ngrams, 1)
        brevity_exponent = np.minimum(0.0, 1 - reference_length / np.maximum(hypothesis_length, 1))
        scores = _bleu_of(brevity_exponent, *np.moveaxis(precisions, -1, 0))
        defined = (all_ngrams > 0).all(axis=-1) & (matched > 0).any(axis=-1)
        return np.where(defined, scores, 0.0).astype(np.float64)

    @property
    def signature(self) -> str:
        return _sacrebleu_signature(self._bleu, self._text)


class Chrf:
    """sacrebleu's corpus chrF. Statistics: hypothesis, reference and matched n-grams of characters, n = 1..6."""

    name = "chrf"
    higher_is_better = True

    def __init__(self, text: TextConfig) -> None:
        self._text = text
        self._chrf = _library("sacrebleu", "sacrebleu", self.name).CHRF()

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        return _sacrebleu_statistics(self._chrf, hypothesis, references)

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        del sentences
        in_hypothesis, in_reference, matched = totals[..., 0::3], totals[..., 1::3], totals[..., 2::3]
        # An order longer than every hypothesis or every reference is left out of the averages.
        effective = (in_hypothesis > 0) & (in_reference > 0)
        orders = np.maximum(effective.sum(axis=-1), 1)
        precision = np.where(effective, matched / np.maximum(in_hypothesis, 1), 0.0).sum(axis=-1) / orders
        recall = np.where(effective, matched / np.maximum(in_reference, 1), 0.0).sum(axis=-1) / orders
        factor = self._chrf.beta**2
        denominator = factor * precision + recall
        f_score = (1 + factor) * precision * recall / np.where(denominator > 0, denominator, 1.0)
        return np.asarray(100 * f_score, dtype=np.float64)

    @property
    def signature(self) -> str:
        return _sacrebleu_signature(self._chrf, self._text)


class Rouge:
    """The mean F1 of rouge_score, best reference, in percent; its tokenizer lowercases and keeps only a-z and 0-9.

    ``rouge1_stem`` and the like compare Porter stems: the option ``use_stemmer`` of rouge_score.
    """

    higher_is_better = True

    def __init__(self, name: str, text: TextConfig) -> None:
        self.name, self._text = name, text
        self._kind, self._stems = name.removesuffix(STEMMED), name.endswith(STEMMED)
        scorer = _library("rouge_score.rouge_scorer", "rouge-score", name)
        self._scorer = scorer.RougeScorer([self._kind], tokenizer=_RougeTokens(self._stems))

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        best = self._scorer.score_multi(_checked(references), hypothesis)[self._kind]
        return np.array([best.fmeasure], dtype=np.float64)

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        return _mean(100 * totals, sentences)

    @property
    def signature(self) -> str:
        normalised, stems = _normalised(replace(self._text, lowercase=True)), "yes" if self._stems else "no"
        return (
            f"stem:{stems}|tok:default|{normalised}|reference:best|average:sentences|version:{version('rouge-score')}"
        )


class _RougeTokens:
    """The tokenizer of rouge_score, which remembers: a reference is compared with many outputs."""

    def __init__(self, stems: bool) -> None:
        self.stems = stems

    def tokenize(self, text: str) -> list[str]:
        return _rouge_tokens(text, self.stems)


@lru_cache(maxsize=50_000)
def _rouge_tokens(text: str, stems: bool) -> list[str]:
    tokens: list[str] = _rouge_tokenizer(stems).tokenize(text)
    return tokens


@lru_cache
def _rouge_tokenizer(stems: bool) -> Any:
    return import_module("rouge_score.tokenizers").DefaultTokenizer(stems)


class LengthRatio:
    """Words of the outputs for each word of the references, whose mean length counts if there are several.

    It says how long outputs are, not how good: weights cannot be tuned on it.
    """

    name = "length_ratio"
    higher_is_better = True
    tunable = False

    def __init__(self, text: TextConfig) -> None:
        self._text = text

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        lengths = [len(reference.split()) for reference in _checked(references)]
        return np.array([len(hypothesis.split()), np.mean(lengths)], dtype=np.float64)

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        del sentences
        written, expected = totals[..., 0], totals[..., 1]
        return np.asarray(np.where(expected > 0, written / np.maximum(expected, 1e-9), 0.0), dtype=np.float64)

    @property
    def signature(self) -> str:
        return f"unit:word|reference:mean|{_normalised(self._text)}|version:{__version__}"


def levenshtein(a: str, b: str) -> int:
    """The fewest insertions, deletions and substitutions of characters that turn ``a`` into ``b``.

    The bit-parallel recursion of Myers (1999) and Hyyrö (2003): a column of the table is held as its vertical
    differences, +1 in ``plus``, -1 in ``minus``, one bit a character of ``a``.
    """
    if not a:
        return len(b)
    positions: dict[str, int] = {}
    for i, character in enumerate(a):
        positions[character] = positions.get(character, 0) | 1 << i
    column, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    plus, minus, distance = column, 0, len(a)
    for character in b:
        equal = positions.get(character, 0)
        diagonal = (((equal & plus) + plus) ^ plus) | equal | minus
        right_plus = minus | ~(diagonal | plus)
        right_minus = plus & diagonal
        distance += bool(right_plus & last) - bool(right_minus & last)
        # The top row of the table is 0, 1, 2, ...: its horizontal difference is always +1.
        right_plus, right_minus = right_plus << 1 | 1, right_minus << 1
        plus, minus = (right_minus | ~(diagonal | right_plus)) & column, right_plus & diagonal & column
    return distance


def _checked(references: Sequence[str]) -> Sequence[str]:
    if isinstance(references, str):
        raise TypeError("references is a sequence of strings, not one string")
    if not references:
        raise BadInputError("a sentence has no reference; give each at least one")
    return references


def _mean(totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
    if np.any(np.asarray(sentences) <= 0):
        raise BadInputError("no sentences to score")
    return np.asarray(totals[..., 0] / sentences, dtype=np.float64)


def _bleu_at(brevity_exponent: float, *precisions: float) -> float:
    # Scalars of math and the built-in sum, as in sacrebleu: numpy's differ from them in the last bit.
    return math.exp(brevity_exponent) * math.exp(sum([math.log(p) for p in precisions]) / len(precisions))


_bleu_of = np.frompyfunc(_bleu_at, 5, 1)


def _sacrebleu_statistics(metric: Any, hypothesis: str, references: Sequence[str]) -> FloatArray:
    # chrF's statistics have no public name in sacrebleu; its own significance tests take them from here too.
    (row,) = metric._extract_corpus_statistics([hypothesis], [[reference] for reference in _checked(references)])
    return np.array(row, dtype=np.float64)


def _sacrebleu_signature(metric: Any, text: TextConfig) -> str:
    metric.num_refs = 1
    signature = metric.get_signature()
    signature.update("nrefs", None)
    return str(signature.format()).replace("case:mixed", _normalised(text))


def _normalised(text: TextConfig) -> str:
    """What became of the text, as fields of a signature."""
    spaces = "|spaces:removed" if text.remove_spaces else ""
    return ("case:lc" if text.lowercase else "case:mixed") + ("|digits:#" if text.digits_to_hash else "") + spaces


def _library(module: str, package: str, metric: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise missing_extra(package, "metrics", f"the metric {metric}") from None
