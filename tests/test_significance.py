"""Bootstrap intervals and paired tests against a loop over resampled sentences, and on data whose truth is known."""

from __future__ import annotations

import itertools
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noisychannel.evaluation.significance
from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import METRICS, FloatArray, Metric, make_metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap

driven = settings(max_examples=50, deadline=None, derandomize=True)

ACCURACY = make_metric("accuracy")

WORDS = ["the", "cat", "sat", "on", "a", "mat", "with", "two", "dogs", "and", "Häuser"]


def random_statistics(metric: Metric, n: int, errors: float, seed: int) -> FloatArray:
    """The statistics of ``n`` sentences of which a share ``errors`` of words is wrong; the references depend on n."""
    references, random = np.random.default_rng(n), np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        reference = list(references.choice(WORDS, size=references.integers(4, 9)))
        hypothesis = [word if random.random() > errors else "wrong" for word in reference]
        rows.append(metric.statistics(" ".join(hypothesis), [" ".join(reference)]))
    return np.stack(rows)


def resampled_rows(statistics_NS: FloatArray, groups: Sequence[Hashable] | None, random: np.random.Generator) -> Any:
    """Indices of the rows of one resample, drawn unit by unit."""
    groups = range(len(statistics_NS)) if groups is None else groups
    units: dict[Hashable, list[int]] = {}
    for n, group in enumerate(groups):
        units.setdefault(group, []).append(n)
    members = list(units.values())
    return [n for unit in random.integers(len(members), size=len(members)) for n in members[unit]]


def interval_by_loop(
    metric: Metric, statistics_NS: FloatArray, samples: int, groups: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    random = np.random.default_rng(99)
    scores = []
    for _ in range(samples):
        rows = resampled_rows(statistics_NS, groups, random)
        scores.append(float(metric.score(statistics_NS[rows].sum(axis=0), len(rows))))
    lower, upper = np.percentile(scores, [2.5, 97.5])
    return float(lower), float(upper)


def p_by_loop(
    metric: Metric, a_NS: FloatArray, b_NS: FloatArray, samples: int, groups: Sequence[Hashable] | None = None
) -> float:
    random = np.random.default_rng(99)

    def difference(rows: Sequence[int]) -> float:
        a, b = (float(metric.score(x_NS[rows].sum(axis=0), len(rows))) for x_NS in (a_NS, b_NS))
        return a - b

    observed = difference(range(len(a_NS)))
    extreme = 0
    for _ in range(samples):
        extreme += abs(difference(resampled_rows(a_NS, groups, random)) - observed) >= abs(observed) - 1e-9
    return (1 + extreme) / (1 + samples)


def coin_flips(n: int, chance: float, random: np.random.Generator) -> FloatArray:
    """Accuracy statistics of ``n`` independent sentences, each right with probability ``chance``."""
    return (random.random((n, 1)) < chance).astype(np.float64)


# --- against a loop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("grouped", [False, True])
def test_interval_is_that_of_a_loop(name: str, grouped: bool) -> None:
    metric = make_metric(name)
    statistics = random_statistics(metric, 80, errors=0.15, seed=2)
    groups = [n // 3 if n < 60 else n for n in range(80)] if grouped else None
    lower, upper = confidence_interval(metric, statistics, samples=4000, groups=groups)
    expected = interval_by_loop(metric, statistics, 1500, groups)
    width = expected[1] - expected[0]
    assert width > 0
    assert (lower, upper) == pytest.approx(expected, abs=0.12 * width)
    assert lower < metric.score(statistics.sum(axis=0), 80) < upper


def test_interval_of_all_right_or_none_is_exact() -> None:
    """Clopper and Pearson's limit p of n right answers of n: p**n = 0.025, so that as many have this chance."""
    accuracy, edits = make_metric("accuracy"), make_metric("edit_distance")
    right, none = np.ones((30, 1)), np.zeros((30, 1))
    low, high = confidence_interval(accuracy, right)
    assert high == 100
    assert (low / 100) ** 30 == pytest.approx(0.025)
    assert confidence_interval(accuracy, none) == pytest.approx((0, 100 - low))
    groups = [n // 3 for n in range(30)]  # ten that are independent
    assert (confidence_interval(accuracy, right, groups=groups)[0] / 100) ** 10 == pytest.approx(0.025)
    assert confidence_interval(edits, none) == (0, 0)  # no proportion: its statistics are counts of edits


@pytest.mark.parametrize("name", ["accuracy", "edit_distance", "bleu", "rougeL"])
@pytest.mark.parametrize("grouped", [False, True])
def test_p_is_that_of_a_loop(name: str, grouped: bool) -> None:
    metric = make_metric(name)
    a, b = (random_statistics(metric, 60, errors, seed) for errors, seed in [(0.15, 2), (0.2, 3)])
    groups = [n // 3 if n < 30 else n for n in range(60)] if grouped else None
    expected = p_by_loop(metric, a, b, 1000, groups)
    assert 0.02 < expected < 0.95  # Else any p-value would do.
    assert paired_bootstrap(metric, a, b, samples=4000, groups=groups) == pytest.approx(expected, abs=0.05)


def test_p_where_the_resampled_differences_are_known() -> None:
    """One of N sentences differs: d_r is 100/N times a Binomial(N, 1/N), and a tie with the observed 100/N counts."""
    for N in (7, 20, 30):
        right, wrong = np.ones((N, 1)), np.ones((N, 1))
        wrong[N // 2] = 0.0
        none, one = (1 - 1 / N) ** N, (1 - 1 / N) ** (N - 1)
        assert paired_bootstrap(ACCURACY, right, wrong, samples=5000) == pytest.approx(1 - one, abs=0.03)
        assert none > 0.3  # Lost if ties were not counted.


# --- what must hold -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_identical_systems_are_not_different(name: str) -> None:
    metric = make_metric(name)
    statistics = random_statistics(metric, 50, errors=0.2, seed=1)
    assert paired_bootstrap(metric, statistics, statistics.copy()) == 1.0


@pytest.mark.parametrize("name", METRICS)
def test_a_clearly_better_system_is_better(name: str) -> None:
    metric = make_metric(name)
    good, bad = (random_statistics(metric, 300, errors, seed) for errors, seed in [(0.05, 1), (0.3, 2)])
    assert paired_bootstrap(metric, good, bad) < 0.01


@driven
@given(st.integers(2, 40), st.integers(0, 1000), st.sampled_from([1, 5, 200]))
def test_p_is_a_probability_and_does_not_change_when_the_systems_are_swapped(n: int, seed: int, samples: int) -> None:
    random = np.random.default_rng(seed)
    a, b = coin_flips(n, 0.7, random), coin_flips(n, 0.5, random)
    p = paired_bootstrap(ACCURACY, a, b, samples=samples)
    assert 0 < p <= 1
    assert p == paired_bootstrap(ACCURACY, b, a, samples=samples)


def test_results_depend_on_the_seed_alone() -> None:
    bleu = make_metric("bleu")
    a, b = (random_statistics(bleu, 60, errors, seed) for errors, seed in [(0.15, 2), (0.2, 3)])
    assert confidence_interval(bleu, a, seed=5) == confidence_interval(bleu, a, seed=5)
    assert confidence_interval(bleu, a, seed=5) != confidence_interval(bleu, a, seed=6)
    assert paired_bootstrap(bleu, a, b, seed=5) == paired_bootstrap(bleu, a, b, seed=5)
    assert len({paired_bootstrap(bleu, a, b, seed=seed) for seed in range(5)}) > 1


def test_results_do_not_depend_on_how_many_counts_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chrf = make_metric("chrf")
    a, b = (random_statistics(chrf, 60, errors, seed) for errors, seed in [(0.15, 2), (0.2, 3)])
    interval, p = confidence_interval(chrf, a, samples=100), paired_bootstrap(chrf, a, b, samples=100)
    for counts in (1, 60 * 7, 60 * 100):
        monkeypatch.setattr(noisychannel.evaluation.significance, "COUNTS_AT_ONCE", counts)
        assert confidence_interval(chrf, a, samples=100) == interval
        assert paired_bootstrap(chrf, a, b, samples=100) == p


def test_a_higher_level_is_a_wider_interval() -> None:
    flips = coin_flips(200, 0.6, np.random.default_rng(1))
    intervals = [confidence_interval(ACCURACY, flips, level=level) for level in (0.5, 0.8, 0.95, 0.99)]
    for (inner_lower, inner_upper), (lower, upper) in itertools.pairwise(intervals):
        assert lower < inner_lower < inner_upper < upper


def test_a_thousand_resamples_of_two_thousand_sentences_take_well_under_a_second() -> None:
    bleu = make_metric("bleu")
    statistics = np.tile(random_statistics(bleu, 50, errors=0.2, seed=1), (40, 1))
    start = time.process_time()
    confidence_interval(bleu, statistics)
    assert time.process_time() - start < 1.0


# --- truth that is known --------------------------------------------------------------------------------------------


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(11)
    for level in (0.8, 0.95):
        covered = 0
        for trial in range(200):
            flips = coin_flips(150, 0.6, random)
            lower, upper = confidence_interval(ACCURACY, flips, samples=300, seed=trial, level=level)
            covered += lower <= 60 <= upper
        assert covered / 200 == pytest.approx(level, abs=0.07)


def test_equal_systems_are_called_different_as_often_as_the_level_says() -> None:
    random = np.random.default_rng(12)
    p = [
        paired_bootstrap(ACCURACY, coin_flips(150, 0.6, random), coin_flips(150, 0.6, random), samples=200, seed=trial)
        for trial in range(400)
    ]
    for level in (0.05, 0.2, 0.5):
        assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=0.06)


def test_intervals_of_dependent_sentences_cover_the_truth_only_when_grouped() -> None:
    """Forty lemmas of five types that are right or wrong together: forty facts, not two hundred."""
    random = np.random.default_rng(13)
    lemmas = [n // 5 for n in range(200)]
    covered = {True: 0, False: 0}
    for trial in range(200):
        flips = np.repeat(coin_flips(40, 0.6, random), 5, axis=0)
        for grouped in covered:
            groups = lemmas if grouped else None
            lower, upper = confidence_interval(ACCURACY, flips, samples=300, seed=trial, groups=groups)
            covered[grouped] += lower <= 60 <= upper
    assert covered[True] / 200 > 0.87
    assert covered[False] / 200 < 0.75


# --- groups ---------------------------------------------------------------------------------------------------------


def test_groups_of_one_sentence_are_no_groups() -> None:
    bleu = make_metric("bleu")
    a, b = (random_statistics(bleu, 40, errors, seed) for errors, seed in [(0.15, 2), (0.2, 3)])
    alone = [("lemma", n) for n in range(40)]
    assert confidence_interval(bleu, a, groups=alone) == confidence_interval(bleu, a)
    assert paired_bootstrap(bleu, a, b, groups=alone) == paired_bootstrap(bleu, a, b)


@driven
@given(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=30), st.integers(0, 1000))
def test_a_group_is_drawn_whole(groups: list[str], seed: int) -> None:
    """Half of every group is right: accuracy is 50 in every resample of whole groups, and of no others."""
    statistics = np.array([[1.0]] * len(groups) + [[0.0]] * len(groups))
    lower, upper = confidence_interval(ACCURACY, statistics, samples=50, seed=seed, groups=groups + groups)
    assert lower == upper == 50.0
    with_one_right = np.concatenate([statistics, [[1.0]]])
    lower, _ = confidence_interval(ACCURACY, with_one_right, samples=50, seed=seed, groups=[*groups, *groups, "alone"])
    assert lower >= 50.0


def test_groups_of_different_sizes_are_scored_by_the_sentences_they_hold() -> None:
    """A draw of a 9-sentence group (all right) and a 1-sentence group (wrong): accuracy 0, 90 or 100, never between."""
    statistics = np.array([[1.0]] * 9 + [[0.0]])
    groups = ["large"] * 9 + ["small"]
    quantiles = [confidence_interval(ACCURACY, statistics, groups=groups, level=level) for level in (0.2, 0.9)]
    assert quantiles == [(90.0, 90.0), (0.0, 100.0)]


def test_the_order_of_a_groups_sentences_does_not_matter() -> None:
    metric = make_metric("edit_distance")
    a, b = (random_statistics(metric, 30, errors, seed) for errors, seed in [(0.15, 2), (0.25, 3)])
    interleaved = [n % 10 for n in range(30)]
    together = sorted(range(30), key=lambda n: n % 10)
    arguments = [(a, b, interleaved), (a[together], b[together], [interleaved[n] for n in together])]
    assert len({paired_bootstrap(metric, x, y, groups=groups) for x, y, groups in arguments}) == 1
    assert len({confidence_interval(metric, x, groups=groups) for x, _, groups in arguments}) == 1


def test_one_unit_says_nothing_about_chance() -> None:
    assert paired_bootstrap(ACCURACY, np.ones((1, 1)), np.zeros((1, 1))) == 1.0
    assert paired_bootstrap(ACCURACY, np.ones((5, 1)), np.zeros((5, 1)), groups=["a"] * 5) == 1.0


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 95}, "level: 95 is not between 0 and 1"),
        ({"level": 0.0}, "level: 0.0 is not"),
        ({"samples": 0}, "samples: 0 is too few"),
        ({"groups": ["a", "b"]}, "2 groups for 3 sentences"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        confidence_interval(ACCURACY, np.ones((3, 1)), **options)


def test_no_sentences_are_refused() -> None:
    with pytest.raises(BadInputError, match="no sentences"):
        confidence_interval(ACCURACY, np.ones((0, 1)))


def test_systems_on_different_sentences_are_refused() -> None:
    with pytest.raises(BadInputError, match="differ in their sentences"):
        paired_bootstrap(ACCURACY, np.ones((3, 1)), np.ones((4, 1)))
