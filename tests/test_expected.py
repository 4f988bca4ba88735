"""The expected metric: against a slow sum, and what it does with few and with many items."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisychannel.decode.objective import Weights
from noisychannel.evaluation.metrics import FloatArray, make_metric
from noisychannel.systems import CHANNEL, LENGTH, SYSTEMS, FreeWeight
from noisychannel.tuning import CandidateArrays, optimise
from noisychannel.tuning.expected import SHARPNESS, ExpectedScore
from noisychannel.tuning.search import coordinate_ascent

FULL = SYSTEMS["direct+channel+lm"]
RATIO = FreeWeight("ratio", start=-0.25, spread=0.8, floor=-math.inf, ceiling=0.0)


def noisy_lists(sentences: int, seed: int, truth: Weights, noise: float = 1.5, size: int = 8) -> CandidateArrays:
    """Lists whose right candidate is what the true weights choose but for noise: no weights are always right."""
    random = np.random.default_rng(seed)
    terms_NCT = -random.gamma(3.0, 1.5, (sentences, size, 4))
    terms_NCT[..., 3] = random.integers(3, 8, (sentences, size))
    objective_NC = terms_NCT @ FULL.vector(truth) + random.normal(0.0, noise, (sentences, size))
    right_NC = objective_NC == objective_NC.max(axis=1, keepdims=True)
    return CandidateArrays(
        make_metric("accuracy"),
        terms_NCT.reshape(-1, 4),
        right_NC.reshape(-1, 1).astype(np.float64),
        np.arange(sentences) * size,
        np.repeat(np.arange(sentences), size),
    )


def accuracy(candidates: CandidateArrays, weights: Weights) -> float:
    return float(candidates.scores(FULL.vector(weights)[None])[0])


def slow_expected(candidates: CandidateArrays, weights_T: FloatArray) -> float:
    """The expected accuracy, one candidate at a time."""
    lists = [np.flatnonzero(candidates.sentence_F == n) for n in range(len(candidates.starts_N))]
    objective_F = candidates.terms_FT @ weights_T
    scale = SHARPNESS * (len(lists) / 100) ** (1 / 3) / float(weights_T[:3].sum())
    total = 0.0
    for own in lists:
        shares = [math.exp(scale * float(objective_F[f] - objective_F[own].max())) for f in own]
        right = candidates.statistics_FS[own, 0]
        total += sum(share * r for share, r in zip(shares, right, strict=True)) / sum(shares)
    return 100 * total / len(lists)


def test_the_expected_metric_is_the_mean_over_choices_and_only_ratios_matter() -> None:
    candidates = noisy_lists(20, 1, FULL.start)
    expected = ExpectedScore(candidates, FULL, FULL.start)
    many_WT = np.array([[1.0, 0.5, 0.5, 0.0], [1.0, 2.0, 0.1, -1.0], [2.0, 4.0, 0.2, -2.0]])
    found_W = expected.expected(many_WT)
    assert found_W.tolist() == pytest.approx([slow_expected(candidates, weights_T) for weights_T in many_WT])
    assert found_W[1] == pytest.approx(found_W[2])


def test_one_item_of_accuracy_and_the_price_of_a_step() -> None:
    expected = ExpectedScore(noisy_lists(50, 1, FULL.start), FULL, FULL.start)
    assert expected.item == pytest.approx(100 / 50)
    start_T = FULL.vector(FULL.start)
    steps_WK = expected.steps(start_T[None]) + np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, -1.0, 2.0]])
    assert expected.price(expected.weights(steps_WK)).tolist() == pytest.approx([0.0, 1.0, 5.0])


@pytest.mark.parametrize("free", [CHANNEL, LENGTH, RATIO])
def test_steps_and_weights_are_inverse_within_the_bounds(free: FreeWeight) -> None:
    bounds = max(free.floor, -4.0), min(free.ceiling, 4.0)
    weights = np.linspace(*bounds, 9)
    assert free.value(free.steps(weights)).tolist() == pytest.approx(weights.tolist(), abs=1e-9)
    far = free.value(np.array([-1e9, 1e9]))
    assert np.all((far >= free.floor) & (far <= free.ceiling))


def test_few_items_do_not_lead_away_from_good_weights_as_they_did() -> None:
    """The mean over draws of 50 items of the accuracy on others: better than line searches, near that of the truth."""
    truth = FULL.weights({"channel": 0.6, "lm": 1.6, "length": 0.5})
    others = noisy_lists(2000, 99, truth)
    smooth, lines = [], []
    for seed in range(6):
        few = noisy_lists(50, seed, truth)
        smooth.append(accuracy(others, optimise(few, FULL, [FULL.start], seed=1).weights))
        lines.append(accuracy(others, coordinate_ascent(few, FULL, FULL.start).weights))
    assert np.mean(smooth) > np.mean(lines) + 0.5
    assert np.mean(smooth) > accuracy(others, truth) - 2.0
    assert min(smooth) > accuracy(others, FULL.start) - 2.0


def test_one_item_more_by_a_hair_does_not_switch_the_channel_off() -> None:
    """With the channel five items are clearly right; without it, six others are right by a twentieth of a nat."""
    clear = [[-2.0, -1.0, 0.0, 5.0], [-1.0, -8.0, 0.0, 5.0]]
    by_a_hair = [[-1.0, -3.0, 0.0, 5.0], [-1.05, -1.5, 0.0, 5.0]]
    candidates = CandidateArrays(
        make_metric("accuracy"),
        np.array(clear * 5 + by_a_hair * 6),
        np.array([[1.0], [0.0]] * 11),
        np.arange(11) * 2,
        np.repeat(np.arange(11), 2),
    )
    assert coordinate_ascent(candidates, FULL, FULL.start).weights.channel < 0.05
    assert optimise(candidates, FULL, [FULL.start], seed=1).weights.channel > 0.4


def test_many_items_lead_anywhere() -> None:
    """Weights far from the start are found if the items say so, as well as by exact line searches."""
    truth = FULL.weights({"channel": 5.0, "lm": 0.0, "length": -4.0})
    many, others = noisy_lists(500, 1, truth), noisy_lists(2000, 99, truth)
    found = optimise(many, FULL, [FULL.start], seed=1)
    assert found.score > coordinate_ascent(many, FULL, FULL.start).score - 1.5
    assert accuracy(others, found.weights) > accuracy(others, truth) - 1.0
    assert accuracy(others, FULL.start) < accuracy(others, truth) - 20


def test_items_that_cannot_tell_leave_the_weights_as_they_are() -> None:
    candidates = noisy_lists(30, 1, FULL.start)
    nothing = CandidateArrays(
        candidates.metric,
        candidates.terms_FT,
        np.zeros_like(candidates.statistics_FS),
        candidates.starts_N,
        candidates.sentence_F,
    )
    previous = Weights(1.0, 0.3, 2.7, -0.4)
    assert optimise(nothing, FULL, [previous, Weights()], seed=1).weights == previous


def test_the_seed_decides() -> None:
    candidates = noisy_lists(60, 3, FULL.start)
    found = [optimise(candidates, FULL, [FULL.start], seed) for seed in (1, 1, 2)]
    assert found[0] == found[1]
    assert found[0].weights.lm == pytest.approx(found[2].weights.lm, rel=0.1)
