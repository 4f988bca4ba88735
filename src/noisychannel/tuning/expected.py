"""The metric that weights can be expected to reach: smooth, and with a price for leaving good weights.

On a few hundred dev items the metric of the best candidates is a noisy step function: which weights happen to win
tells little about other inputs. Two things make it reliable.

**The expected metric.** Each sentence chooses candidate c of its list with the probability

    p_w(c) = exp(κ·O_w(x, y_c) / |w|) / Σ_c' exp(κ·O_w(x, y_c') / |w|)      κ = 3·(N / 100)^(1/3)

|w| is the sum of the weights of the direct model, the channel and the language model, so only the ratios of the weights
matter, as for the best candidate. With more items N there is less noise to smooth: κ grows.
The statistics of the metric are averaged under p_w, summed over sentences, and scored. So a candidate counts for more
if it wins clearly than if it wins by a hair, and close losers count too.

**The price.** Weights s steps away from known good ones (``FreeWeight.steps``) pay s²/2 times what one dev item can
change in the metric. With few items, weights move only as far as the items can justify; with many, the price vanishes.

Shapes: N sentences, F candidates, W weight vectors, S statistics of the metric, T terms, K free weights.
"""

from __future__ import annotations

import numpy as np

from noisychannel.decode.objective import TERMS, Weights
from noisychannel.evaluation.metrics import FloatArray
from noisychannel.systems import System
from noisychannel.tuning.lines import EQUAL
from noisychannel.tuning.pool import SCORES_AT_ONCE, CandidateArrays

SHARPNESS = 3.0
"""κ for 100 sentences."""
PRICE = 1.0
"""Dev items that half a squared step costs."""


class ExpectedScore:
    """What weights of a system are worth on some candidates, near the weights ``centre``."""

    def __init__(
        self,
        candidates: CandidateArrays,
        system: System,
        centre: Weights,
        sharpness: float = SHARPNESS,
        price: float = PRICE,
    ) -> None:
        self._candidates, self._system, self._price = candidates, system, price
        self._sharpness = sharpness * (len(candidates.starts_N) / 100) ** (1 / 3)
        self._models = [system.terms.index(name) for name in TERMS if name != "length"]
        self._sign = 1.0 if candidates.metric.higher_is_better else -1.0
        self._centre_K = self.steps(system.vector(centre)[None])[0]
        self.item = _change_of_one_item(candidates, system.vector(centre))
        """What the choice of one sentence can change in the metric."""

    def value(self, weights_WT: FloatArray) -> FloatArray:
        """What to maximise: the expected metric (negative if lower is better) less the price. [W, T] -> [W]"""
        return self._sign * self.expected(weights_WT) - self.price(weights_WT)

    def price(self, weights_WT: FloatArray) -> FloatArray:
        """The price of the distance to the centre, in units of the metric: [W, T] -> [W]."""
        squared_W = ((self.steps(weights_WT) - self._centre_K) ** 2).sum(axis=-1)
        return np.asarray(self._price * self.item * squared_W / 2, dtype=np.float64)

    def expected(self, weights_WT: FloatArray) -> FloatArray:
        """The metric of the expected statistics: [W, T] -> [W]."""
        candidates = self._candidates
        rows = max(1, SCORES_AT_ONCE // len(candidates.terms_FT))
        totals_WS = [self._totals(weights_WT[row : row + rows]) for row in range(0, len(weights_WT), rows)]
        return candidates.metric.score(np.concatenate(totals_WS), len(candidates.starts_N))

    def luck(self, weights_T: FloatArray) -> float:
        """How much better the metric of the best candidates is than the expected one, counted as a gain."""
        weights_WT = weights_T[None]
        return float((self._sign * (self._candidates.scores(weights_WT) - self.expected(weights_WT)))[0])

    def steps(self, weights_WT: FloatArray) -> FloatArray:
        """Free weights on the scale of distances: [W, T] -> [W, K]."""
        terms = self._system.terms
        columns = [free.steps(weights_WT[:, terms.index(free.name)]) for free in self._system.free]
        return np.stack(columns, axis=1) if columns else np.zeros((len(weights_WT), 0))

    def weights(self, steps_WK: FloatArray) -> FloatArray:
        """The inverse of ``steps``, within the bounds of the weights: [W, K] -> [W, T]."""
        terms = self._system.terms
        weights_WT = np.repeat(self._system.vector(self._system.fixed)[None], len(steps_WK), axis=0)
        for k, free in enumerate(self._system.free):
            weights_WT[:, terms.index(free.name)] = free.value(steps_WK[:, k])
        return weights_WT

    def _totals(self, weights_WT: FloatArray) -> FloatArray:
        """The expected statistics, summed over sentences: [W, T] -> [W, S]."""
        starts_N, sentence_F = self._candidates.starts_N, self._candidates.sentence_F
        size_W = np.abs(weights_WT[:, self._models]).sum(axis=1)
        scale_W = self._sharpness / np.maximum(size_W, EQUAL)
        # One row for each candidate: the sums over lists then run over whole rows.
        share_FW = self._candidates.terms_FT @ (weights_WT * scale_W[:, None]).T
        share_FW -= np.maximum.reduceat(share_FW, starts_N)[sentence_F]
        np.exp(share_FW, out=share_FW)
        share_FW /= np.add.reduceat(share_FW, starts_N)[sentence_F]
        return np.asarray(share_FW.T @ self._candidates.statistics_FS, dtype=np.float64)


def _change_of_one_item(candidates: CandidateArrays, weights_T: FloatArray) -> float:
    """How much of the metric lies between the best and the worst candidate of one sentence, the others staying.

    The mean over the sentences whose candidates differ; 0 if there is none. For accuracy it is 100 / N.
    """
    statistics_FS, starts_N = candidates.statistics_FS, candidates.starts_N
    best_N = candidates.best(weights_T[None])[0]
    totals_S = statistics_FS[best_N].sum(axis=0)
    changed_FS = totals_S - statistics_FS[best_N][candidates.sentence_F] + statistics_FS
    score_F = candidates.metric.score(changed_FS, len(starts_N))
    change_N = np.maximum.reduceat(score_F, starts_N) - np.minimum.reduceat(score_F, starts_N)
    different_N = change_N > EQUAL
    return float(change_N[different_N].mean()) if different_N.any() else 0.0
