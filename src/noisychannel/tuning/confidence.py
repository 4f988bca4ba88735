"""Fitting the confidence of a system on the n-best lists of dev.

    1  the temperature: the softmax over each list should find its right text, if it has one
    2  the logistic model: whether the best text is right

Both maximise the likelihood under a normal prior. Its centre is the temperature alone: intercept 0, slope 1, and no
other feature but unknown symbols of the input, which are taken to make an output wrong. A few dozen items hardly leave
it; some hundred decide for themselves. Neither the slope nor the coefficients of the margin and of unknown symbols are
ever negative: an output that wins more clearly never has a lower confidence for that.

How far to trust the result is measured by cross-validation over inputs: every item is judged by a model of the others.

Shapes: N lists, M outputs of a list, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noisychannel.confidence import (
    MARGIN,
    UNKNOWN,
    UNSEEN,
    BoolArray,
    Calibration,
    Confidence,
    Feature,
    FloatArray,
    Lists,
    sigmoid,
    standardised,
)
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.evaluation.calibration import brier, calibration_error, error_by_chance
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.noisy_channel import NoisyChannel

FEWEST = 10
"""Dev inputs without which no confidence is fitted."""
HARDLY_EVER, MANY = 0.01, 100
"""If of so many inputs a smaller share has a right output, no confidence is fitted: in tasks such as summarisation no
output is exactly right, and there is nothing to be confident of."""
FOLDS = 5
USUAL_TEMPERATURE = 0.5
"""The centre of its prior, for each unit of the weights of models."""
LOG_TEMPERATURE_SPREAD = 1.0
INTERCEPT_SPREAD, SLOPE_SPREAD, FEATURE_SPREAD, UNKNOWN_SPREAD = 1.5, 0.5, 0.3, 2.0
"""Standard deviations of the priors; features are standardised."""
STEPS = 50
"""Most steps of Newton's method; about ten are usual."""


@dataclass(frozen=True)
class JudgedList:
    """What a system made of a dev input."""

    input: str
    texts: Sequence[str]
    """Best first."""
    hypotheses: Sequence[Hypothesis]
    references: Sequence[str]
    unknown: int = 0
    """Symbols of the input that count as unknown."""


def judged_lists(
    dev: Sequence[HeldOut],
    models: Sequence[NoisyChannel],
    texts: Sequence[Mapping[tuple[int, ...], str]],
    lists: Sequence[Sequence[Hypothesis]],
) -> list[JudgedList]:
    """The n-best lists of all dev items. ``models``: those that decoded each part of dev. ``texts``: for each item the
    texts of outputs, by their ids."""
    inputs = [text for part in dev for text in part.inputs]
    references = [right for part in dev for right in part.references]
    unknown = [
        model.unknown_symbols(text, tags)
        for part, model in zip(dev, models, strict=True)
        for text, tags in zip(part.inputs, part.features, strict=True)
    ]
    return [
        JudgedList(text, [known[hypothesis.tokens] for hypothesis in best], best, right, number)
        for text, known, best, right, number in zip(inputs, texts, lists, references, unknown, strict=True)
    ]


def fit_confidence(lists: Sequence[JudgedList], weights: Weights, n_best: int, seed: int = 1) -> Confidence | None:
    """The confidence of the outputs that these weights choose; None if there are too few inputs with an output, or
    hardly any right ones."""
    whole = [one for one in lists if one.hypotheses and one.hypotheses[0].complete]
    if len({one.input for one in whole}) < FEWEST:
        return None
    if len(lists) >= MANY and sum(one.texts[0] in one.references for one in whole) < HARDLY_EVER * len(lists):
        return None
    dev = _Dev.of(whole, weights)
    fold_N = _folds([one.input for one in whole], seed)
    confidence_N = np.zeros(len(whole))
    for fold in range(FOLDS):
        held_out = fold_N == fold
        if held_out.any():
            confidence_N[held_out] = dev.some(~held_out).fit(n_best).of_best(dev.some(held_out).lists)
    # An output without an end has confidence 0, and is hardly ever right.
    rest = [float(one.texts[0] in one.references) for one in lists if one.hypotheses and not one.hypotheses[0].complete]
    confidence_N, right_N = np.append(confidence_N, np.zeros(len(rest))), np.append(dev.right, rest)
    share = float(right_N.mean())
    calibration = Calibration(
        items=len(right_N),
        accuracy=share,
        ece=calibration_error(confidence_N, right_N),
        ece_by_chance=error_by_chance(confidence_N),
        brier=brier(confidence_N, right_N),
        brier_of_share=share * (1 - share),
    )
    return replace(dev.fit(n_best), calibration=calibration)


@dataclass(frozen=True)
class _Dev:
    """The lists of dev as arrays."""

    lists: Lists
    right_NM: BoolArray
    names: tuple[str, ...]
    """Of the features."""
    size: float
    """The sum of the weights of models."""

    @staticmethod
    def of(judged: Sequence[JudgedList], weights: Weights) -> _Dev:
        lists = Lists.of(
            [one.texts for one in judged], [one.hypotheses for one in judged], [one.unknown for one in judged]
        )
        right_NM = np.zeros_like(lists.same_NM)
        for n, one in enumerate(judged):
            right_NM[n, : len(one.texts)] = [text in one.references for text in one.texts]
        used = {name: weight for name, weight in weights.by_name().items() if weight and name != "length"}
        names = (MARGIN, *dict.fromkeys(["direct", *used]))
        return _Dev(lists, right_NM, names, sum(map(abs, used.values())))

    @property
    def right(self) -> FloatArray:
        """Whether the best output of each list is: [N]."""
        return self.right_NM[:, 0].astype(np.float64)

    def some(self, chosen_N: BoolArray) -> _Dev:
        """The chosen lists."""
        lists = self.lists
        best = [hypothesis for hypothesis, own in zip(lists.best, chosen_N, strict=True) if own]
        some = Lists(best, lists.gap_NM[chosen_N], lists.same_NM[chosen_N], lists.unknown_N[chosen_N])
        return replace(self, lists=some, right_NM=self.right_NM[chosen_N])

    def fit(self, n_best: int) -> Confidence:
        temperature = self._temperature()
        odds_N = self.lists.odds(temperature)
        most_odds = float(odds_N[np.isfinite(odds_N)].max(initial=0.0))
        unknown_N = standardised(self.lists.feature(UNKNOWN), UNSEEN.mean, UNSEEN.scale)
        features = {UNKNOWN: UNSEEN}
        columns = [np.ones(len(odds_N)), np.minimum(odds_N, most_odds), unknown_N]
        for name in self.names:
            values_N = self.lists.feature(name)
            known_N = values_N[np.isfinite(values_N)]
            if len(known_N) and known_N.std() > 1e-6:  # the same everywhere: it tells nothing
                feature = Feature(float(known_N.mean()), float(known_N.std()), 0.0)
                features[name] = feature
                columns.append(standardised(values_N, feature.mean, feature.scale))
        centre_P = np.array([0.0, 1.0, *(feature.coefficient for feature in features.values())])
        spreads = (UNKNOWN_SPREAD if name == UNKNOWN else FEATURE_SPREAD for name in features)
        spread_P = np.array([INTERCEPT_SPREAD, SLOPE_SPREAD, *spreads])
        not_negative = [1, *(2 + n for n, name in enumerate(features) if name in (MARGIN, UNKNOWN))]
        found_P = logistic(np.stack(columns, axis=1), self.right, centre_P, spread_P, not_negative)
        intercept, slope, *coefficients = (float(value) for value in found_P)
        return Confidence(
            n_best=n_best,
            temperature=temperature,
            most_odds=most_odds,
            intercept=intercept,
            slope=slope,
            features={
                name: replace(feature, coefficient=value)
                for (name, feature), value in zip(features.items(), coefficients, strict=True)
            },
        )

    def _temperature(self) -> float:
        """The most probable one of a fine grid over three orders of magnitude: there is no wrong hill to climb."""
        usual = USUAL_TEMPERATURE * max(self.size, 1e-3)
        has_right_N = self.right_NM.any(axis=1) & ~self.right_NM.all(axis=1, where=np.isfinite(self.lists.gap_NM))
        if not has_right_N.any():
            return usual
        right_NM, gap_NM = self.right_NM[has_right_N], self.lists.gap_NM[has_right_N]
        best, found = -np.inf, usual
        for step in np.linspace(-4.0, 4.0, 161).tolist():
            share_NM = np.exp(gap_NM / (usual * np.exp(step)))
            right_share_N = np.where(right_NM, share_NM, 0.0).sum(axis=1) / share_NM.sum(axis=1)
            value = float(np.log(np.maximum(right_share_N, 1e-30)).sum()) - (step / LOG_TEMPERATURE_SPREAD) ** 2 / 2
            if value > best:
                best, found = value, usual * float(np.exp(step))
        return found


def logistic(
    x_NP: FloatArray, right_N: FloatArray, centre_P: FloatArray, spread_P: FloatArray, not_negative: Sequence[int] = ()
) -> FloatArray:
    """The most probable parameters of a logistic model under independent normal priors: [P].

    Of the parameters ``not_negative``, one that would be negative is zero.
    """
    found_P = _newton(x_NP, right_N, centre_P, spread_P)
    free = [p for p in range(len(centre_P)) if p not in not_negative or found_P[p] >= 0]
    if len(free) == len(centre_P):
        return found_P
    kept = [free.index(p) for p in not_negative if p in free]
    inside_P = np.zeros_like(centre_P)
    inside_P[free] = logistic(x_NP[:, free], right_N, centre_P[free], spread_P[free], kept)
    return inside_P


def _newton(x_NP: FloatArray, right_N: FloatArray, centre_P: FloatArray, spread_P: FloatArray) -> FloatArray:
    """The objective is strictly concave, so the result does not depend on where the search begins."""

    def value(parameters_P: FloatArray) -> float:
        logit_N = x_NP @ parameters_P
        prior = (((parameters_P - centre_P) / spread_P) ** 2).sum() / 2
        return float((right_N * logit_N - np.logaddexp(0.0, logit_N)).sum() - prior)

    parameters_P, precision_P = centre_P.copy(), 1 / spread_P**2
    now = value(parameters_P)
    for _ in range(STEPS):
        expected_N = sigmoid(x_NP @ parameters_P)
        gradient_P = x_NP.T @ (right_N - expected_N) - precision_P * (parameters_P - centre_P)
        hessian_PP = (x_NP.T * (expected_N * (1 - expected_N))) @ x_NP + np.diag(precision_P)
        step_P = np.linalg.solve(hessian_PP, gradient_P)
        share = 1.0
        while (new := value(parameters_P + share * step_P)) < now and share > 1e-6:
            share /= 2
        if new <= now:
            break
        parameters_P, gain, now = parameters_P + share * step_P, new - now, new
        if gain < 1e-12:
            break
    return np.asarray(parameters_P, np.float64)


def _folds(inputs: Sequence[str], seed: int) -> FloatArray:
    """A fold for each item; items with one input are in one fold: [N]."""
    distinct = list(dict.fromkeys(inputs))
    order = np.random.default_rng(seed).permutation(len(distinct))
    fold_of = {text: int(place) % FOLDS for text, place in zip(distinct, order, strict=True)}
    return np.array([fold_of[text] for text in inputs])
