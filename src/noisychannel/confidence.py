"""The probability that an output is right, from the list of outputs that a search found.

    odds        log-odds of the best text among those of the list: softmax of O(x, y_k) / T, T fitted on dev
    confidence  σ(intercept + slope·odds + Σ_f coefficient_f·f)         f: margin, terms for each symbol, listed or not,
                                                                       unknown symbols of the input

The features f are standardised. Dev seldom has an input with a symbol that the models have never seen, so what such
symbols do is known beforehand: no output shows them, and each divides the odds by e^5, unless dev says otherwise. Texts
count once: all segmentations of one text are one answer, and have one confidence. What is not given to the best text
goes to the others in the ratio of the softmax. From text to text, confidences fall with the rank, and they sum to at
most 1. Only the first outputs of a list count, as many as the lists of dev had: what is asked for beyond them changes
none of their confidences. The model belongs to the weights and the search of a system, and is fitted by
``tuning/confidence.py``.

Shapes: N lists, M outputs of a list, F features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.schemas import ClosedRecord

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

WHOLE = ("word_list", "seen")
"""Terms of whole outputs; others are sums over symbols, and are divided by the length."""
MARGIN = "margin"
FARTHEST = 4.0
"""No standardised feature counts as further from the mean: dev knows nothing about such outputs."""
UNKNOWN = "unknown symbols"
"""A feature of the input: minus the number of its symbols that the models do not know and no output can copy."""
NO_RIVAL = 50.0
"""The margin, in nats, of an output without a rival, and the largest one."""


@dataclass(frozen=True)
class Feature(ClosedRecord):
    """A feature of the best output of a list."""

    mean: float
    scale: float
    coefficient: float


UNSEEN = Feature(0.0, 1.0, 5.0)
"""What ``UNKNOWN`` does before dev has said anything, and in files of earlier versions. The models of the package get
none of 400 German nouns with an unknown symbol right, and are 55 % sure without it: benchmarks/unknown_symbols.py."""


@dataclass(frozen=True)
class Calibration(ClosedRecord):
    """How well confidences agree with what is right: on dev, by cross-validation over inputs."""

    items: int
    accuracy: float
    """The share of right outputs."""
    ece: float
    """Expected calibration error: the mean distance between confidence and share of right outputs, over ten bins."""
    ece_by_chance: float
    """What perfect confidences would show on so many items."""
    brier: float
    """The mean squared distance between confidence and 1 (right) or 0 (wrong)."""
    brier_of_share: float
    """The same if every output had the share of right outputs as its confidence."""

    def __str__(self) -> str:
        return (
            f"off by {100 * self.ece:.1f} points on average ({100 * self.ece_by_chance:.1f} by chance alone), "
            f"Brier score {self.brier:.3f} ({self.brier_of_share:.3f} if all outputs had the same confidence)"
        )


@dataclass(frozen=True, kw_only=True)
class Confidence(ClosedRecord):
    """What turns the n-best lists of a system into confidences."""

    n_best: int
    """Length of the lists that it was fitted on."""
    temperature: float
    most_odds: float
    """The largest odds of dev; larger ones, and those of an output without a rival, count as these."""
    intercept: float
    slope: float
    features: Mapping[str, Feature] = field(default_factory=dict)
    """By name: ``margin``, ``unknown symbols``, or a term."""
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise ValueError(f"n_best: must be at least 1, but is {self.n_best}")
        for name, value in (("temperature", self.temperature), *((n, f.scale) for n, f in self.features.items())):
            if not value > 0:
                raise ValueError(f"{name}: must be greater than 0, but is {value}")

    def of_lists(
        self,
        texts: Sequence[Sequence[str]],
        found: Sequence[Sequence[Hypothesis]],
        unknown: Sequence[int],
        most: int | None = None,
    ) -> list[list[float]]:
        """For each output of each list, best first, the probability that it is right; 0 if it has no end.

        ``unknown``: how many symbols of each input the models do not know, see ``UNKNOWN``. ``most``: how many outputs
        of a list count, if they are fewer than ``n_best``.
        """
        whole = [n for n, best in enumerate(found) if best and best[0].complete]
        confidences = [[0.0] * len(best) for best in found]
        if not whole:
            return confidences
        most = self.n_best if most is None else min(most, self.n_best)
        lists = Lists.of(
            [texts[n][:most] for n in whole], [found[n][:most] for n in whole], [unknown[n] for n in whole]
        )
        best_N = self.of_best(lists)
        share_NM = lists.shares(self.temperature)
        for n, best, share_M in zip(whole, best_N.tolist(), share_NM.tolist(), strict=True):
            of_text = self._of_texts(best, share_M, texts[n], found[n])
            confidences[n] = [
                of_text[text] if hypothesis.complete else 0.0
                for text, hypothesis in zip(texts[n], found[n], strict=True)
            ]
        return confidences

    def _of_texts(
        self, best: float, share_M: Sequence[float], texts: Sequence[str], found: Sequence[Hypothesis]
    ) -> dict[str, float]:
        """The confidence of each text of a list. ``best``: that of the first; ``share_M``: of the outputs that count.

        Texts that come later share what those have left.
        """
        shares, later = dict[str, float](), dict[str, float]()
        for m, (text, hypothesis) in enumerate(zip(texts, found, strict=True)):
            if not hypothesis.complete:
                continue
            if m < len(share_M):
                shares[text] = shares.get(text, 0.0) + share_M[m]
            elif text not in shares:
                share = share_M[0] * math.exp(_gap(hypothesis, found[0]) / self.temperature)
                later[text] = later.get(text, 0.0) + share
        own = shares.pop(texts[0])
        scale = best / own if own >= 1 else min(best / own, (1 - best) / (1 - own))
        confidences, lowest = {texts[0]: best}, best
        for text, share in shares.items():
            confidences[text] = lowest = min(share * scale, lowest)
        left = max(0.0, 1 - sum(confidences.values()))
        total = sum(later.values())
        scale = min(best / own, left / total) if total else 0.0
        for text, share in later.items():
            confidences[text] = lowest = min(share * scale, lowest)
        return confidences

    def of_best(self, lists: Lists) -> FloatArray:
        """The probability that the best text of each list is right: [N]."""
        logit_N = self.intercept + self.slope * np.minimum(lists.odds(self.temperature), self.most_odds)
        for name, feature in {UNKNOWN: UNSEEN, **self.features}.items():
            logit_N = logit_N + feature.coefficient * standardised(lists.feature(name), feature.mean, feature.scale)
        return sigmoid(logit_N)


@dataclass(frozen=True)
class Lists:
    """Lists of outputs as arrays."""

    best: Sequence[Hypothesis]
    gap_NM: FloatArray
    """The objective less that of the best; -inf for places without an output, and for outputs without an end."""
    same_NM: BoolArray
    """Whether an output has the text of the best."""
    unknown_N: FloatArray
    """Symbols of the input that count as unknown."""

    @staticmethod
    def of(texts: Sequence[Sequence[str]], found: Sequence[Sequence[Hypothesis]], unknown: Sequence[int]) -> Lists:
        """Of lists with at least one output, best first; the best must have an end."""
        most = max(len(best) for best in found)
        gap_NM = np.full((len(found), most), -np.inf)
        same_NM = np.zeros((len(found), most), np.bool_)
        for n, (names, best) in enumerate(zip(texts, found, strict=True)):
            for m, (text, hypothesis) in enumerate(zip(names, best, strict=True)):
                gap_NM[n, m] = _gap(hypothesis, best[0]) if m else 0.0
                same_NM[n, m] = text == names[0]
        return Lists([best[0] for best in found], gap_NM, same_NM, np.array(unknown, np.float64))

    def shares(self, temperature: float) -> FloatArray:
        """The softmax of the objective: [N,M]."""
        share_NM = np.exp(self.gap_NM / temperature)
        return np.asarray(share_NM / share_NM.sum(axis=1, keepdims=True), np.float64)

    def odds(self, temperature: float) -> FloatArray:
        """The log-odds of the best text; infinite without a rival: [N]."""
        share_NM = np.exp(self.gap_NM / temperature)
        own_N = np.where(self.same_NM, share_NM, 0.0).sum(axis=1)
        rest_N = np.where(self.same_NM, 0.0, share_NM).sum(axis=1)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(own_N) - np.log(rest_N), np.float64)

    def feature(self, name: str) -> FloatArray:
        """A feature of the best output or the input: [N]; NaN if a term was not computed."""
        if name == UNKNOWN:
            return -self.unknown_N
        if name == MARGIN:
            second_N = np.where(self.same_NM, -np.inf, self.gap_NM).max(axis=1)
            return np.asarray(np.log1p(np.minimum(-second_N, NO_RIVAL)), np.float64)
        values = [hypothesis.terms().get(name) for hypothesis in self.best]
        lengths = [1 if name in WHOLE else hypothesis.length for hypothesis in self.best]
        return np.array(
            [math.nan if value is None else value / length for value, length in zip(values, lengths, strict=True)]
        )


def _gap(hypothesis: Hypothesis, best: Hypothesis) -> float:
    """The objective less that of the best; -inf for an output without an end."""
    gap = hypothesis.score - best.score
    return min(gap, 0.0) if hypothesis.complete and math.isfinite(gap) else -math.inf


def standardised(values_N: FloatArray, mean: float, scale: float) -> FloatArray:
    """Within ``FARTHEST`` of the mean; a value that is not known is the mean."""
    steps_N = np.clip((values_N - mean) / scale, -FARTHEST, FARTHEST)
    return np.asarray(np.where(np.isnan(steps_N), 0.0, steps_N), np.float64)


def sigmoid(logit_N: FloatArray) -> FloatArray:
    """1 / (1 + e^-logit), without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logit_N)), np.float64)
