"""The tuner, against scans over all intervals, and in worlds whose right weights are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import FloatArray, make_metric
from noisychannel.systems import CHANNEL, LENGTH, LM, FreeWeight, make_system
from noisychannel.tuning import SYSTEMS, CandidateArrays, CandidatePool, line_search, optimise, tune
from noisychannel.tuning.search import coordinate_ascent

FULL = SYSTEMS["direct+channel+lm"]
DIRECT_ONLY = Weights(direct=1.0)
LISTED = FreeWeight("word_list", start=1.0, spread=1.0)
RATIO = FreeWeight("ratio", start=-0.25, spread=0.8, floor=-math.inf, ceiling=0.0)
OPEN = make_system("direct+channel+lm+word_list+ratio", {"word_list": LISTED, "ratio": RATIO})
"""Five terms are free, one of them not above zero."""


def numbers(weights: Weights) -> list[float]:
    return list(weights.by_name().values())


class Totals:
    """A metric that is any function of the totals; its statistics come ready made."""

    name, signature = "totals", "totals|fake"

    def __init__(self, function: Callable[[FloatArray], FloatArray], higher_is_better: bool = True) -> None:
        self.function, self.higher_is_better = function, higher_is_better

    def statistics(self, hypothesis: str, references: Sequence[str]) -> FloatArray:
        raise AssertionError("not asked for")

    def score(self, totals: FloatArray, sentences: int | FloatArray) -> FloatArray:
        return self.function(totals)


def bleu_like(totals: FloatArray) -> FloatArray:
    """A precision with a brevity penalty against ten words: not a sum over sentences."""
    matched, words = totals[..., 0], np.maximum(totals[..., 1], 1.0)
    return matched / words * np.exp(np.minimum(0.0, 1 - 10 / words))


METRICS = {
    "sum": Totals(lambda totals: totals[..., 0]),
    "ratio": Totals(bleu_like),
    "error": Totals(lambda totals: totals[..., 0] / np.maximum(totals[..., 1], 1.0), higher_is_better=False),
}


def make_candidates(metric: Totals, sentences: list[list[tuple[list[float], list[float]]]]) -> CandidateArrays:
    """Candidates from the terms and statistics of each sentence's."""
    sizes = [len(sentence) for sentence in sentences]
    flat = [candidate for sentence in sentences for candidate in sentence]
    return CandidateArrays(
        metric,
        np.array([terms for terms, _ in flat], float),
        np.array([statistics for _, statistics in flat], float),
        np.cumsum([0, *sizes[:-1]]),
        np.repeat(np.arange(len(sizes)), sizes),
    )


def slow_score(candidates: CandidateArrays, weights: Sequence[float]) -> float:
    """The metric of what some weights choose, one candidate at a time; of equals, whatever rounding says, the first."""
    chosen: dict[int, tuple[float, int]] = {}
    for f, sentence in enumerate(candidates.sentence_F.tolist()):
        objective = sum(weight * term for weight, term in zip(weights, candidates.terms_FT[f].tolist(), strict=True))
        if sentence not in chosen or objective > chosen[sentence][0] + 1e-9:
            chosen[sentence] = objective, f
    total = sum(candidates.statistics_FS[f] for _, f in chosen.values())
    return float(candidates.metric.score(np.asarray(total), len(chosen)))


def left_to_rounding(candidates: CandidateArrays, weights: Sequence[float]) -> bool:
    """Whether candidates that the metric tells apart are equal in the objective, so that either may be chosen."""
    objective_F = candidates.terms_FT @ np.array(weights)
    for sentence in range(len(candidates.starts_N)):
        own = candidates.sentence_F == sentence
        top = own & (objective_F > objective_F[own].max() - 1e-9)
        if len(np.unique(candidates.statistics_FS[top], axis=0)) > 1:
            return True
    return False


def scan(candidates: CandidateArrays, weights: Weights, free: FreeWeight) -> list[float]:
    """The metric in every interval between the crossings of *any* two lines of a sentence, and beyond the outermost."""
    term, floor, ceiling = list(weights.by_name()).index(free.name), free.floor, free.ceiling
    others = [0.0 if i == term else weight for i, weight in enumerate(numbers(weights))]
    lines = [(float(terms @ np.array(others)), float(terms[term])) for terms in candidates.terms_FT]
    crossings = [
        (lines[f][0] - lines[g][0]) / (lines[g][1] - lines[f][1])
        for f, g in combinations(range(len(lines)), 2)
        if candidates.sentence_F[f] == candidates.sentence_F[g] and lines[f][1] != lines[g][1]
    ]
    limits = [limit for limit in (floor, ceiling) if math.isfinite(limit)]
    points = sorted([crossing for crossing in crossings if floor < crossing < ceiling] + limits)
    middles = [(a + b) / 2 for a, b in pairwise(points) if b - a > 1e-8]
    ends = [points[0] - 1.0] * (floor == -math.inf) + [points[-1] + 1.0] * (ceiling == math.inf) if points else []
    return [
        slow_score(candidates, [value if i == term else weight for i, weight in enumerate(others)])
        for value in [*middles, *ends, weights.by_name()[free.name]]
    ]


# Few distinct values make parallel, equal and concurrent lines common.
whole = st.integers(-4, 4).map(float)
statistics = st.lists(st.integers(0, 6), min_size=2, max_size=2)


def pools_of(terms: int) -> st.SearchStrategy[list[list[tuple[list[float], list[int]]]]]:
    candidate = st.tuples(st.lists(whole, min_size=terms, max_size=terms), statistics)
    return st.lists(st.lists(candidate, min_size=1, max_size=6), min_size=1, max_size=5)


pools, open_pools = pools_of(4), pools_of(6)
weights_of_full = st.builds(Weights, st.just(1.0), *[st.integers(0, 3).map(float)] * 2, st.integers(-3, 3).map(float))
open_weights = st.builds(
    lambda weights, listed, ratio: replace(weights, extra={"word_list": float(listed), "ratio": float(ratio)}),
    weights_of_full,
    st.integers(0, 3),
    st.integers(-3, 0),
)


@settings(max_examples=150, deadline=None)
@given(
    open_pools, open_weights, st.sampled_from([CHANNEL, LM, LENGTH, LISTED, RATIO]), st.sampled_from(sorted(METRICS))
)
def test_line_search_is_as_good_as_any_interval(sentences, weights, free, metric_name) -> None:
    candidates = make_candidates(METRICS[metric_name], sentences)
    found = line_search(candidates, OPEN, weights, free)
    if not left_to_rounding(candidates, numbers(found.weights)):
        best = max if METRICS[metric_name].higher_is_better else min
        assert found.score == pytest.approx(best(scan(candidates, weights, free)), abs=1e-9)
        assert found.score == pytest.approx(slow_score(candidates, numbers(found.weights)), abs=1e-9)
    assert free.floor <= found.weights.by_name()[free.name] <= free.ceiling
    assert Weights.of({**found.weights.by_name(), free.name: weights.by_name()[free.name]}) == weights


@settings(max_examples=40, deadline=None)
@given(pools, weights_of_full, st.sampled_from(sorted(METRICS)))
def test_coordinate_ascent_never_lowers_the_score_and_ends_where_no_line_improves(
    sentences, start, metric_name
) -> None:
    metric = METRICS[metric_name]
    candidates = make_candidates(metric, sentences)
    found = coordinate_ascent(candidates, FULL, start)
    best = max if metric.higher_is_better else min
    assert found.score == best(found.score, slow_score(candidates, numbers(start)))
    for free in FULL.free:
        reachable = best(scan(candidates, found.weights, free))
        assert found.score == pytest.approx(best(found.score, reachable), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(pools, st.lists(weights_of_full, min_size=1, max_size=4))
def test_many_weights_at_once_score_as_one_by_one_and_ties_go_to_the_first(sentences, many) -> None:
    candidates = make_candidates(METRICS["ratio"], sentences)
    scores = candidates.scores(np.array([numbers(weights) for weights in many]))
    assert scores.tolist() == pytest.approx([slow_score(candidates, numbers(weights)) for weights in many], abs=1e-12)


def envelope(turns: Sequence[float], gains: Sequence[float]) -> list[tuple[list[float], list[float]]]:
    """A sentence whose choice changes at given length weights, and what each choice is worth."""
    lines, intercept = [], 0.0
    for slope, gain in enumerate(gains):
        lines.append(([intercept, 0.0, 0.0, float(slope)], [gain, 1.0]))
        if slope < len(turns):
            intercept -= turns[slope]
    return lines


@pytest.mark.parametrize(
    ("sentences", "before", "expected"),
    [
        ([envelope([2, 6], [0, 1, 0])], 0.0, 4.0),
        ([envelope([2, 5], [0, 1, 0])], 0, 3.5),  # weights given as whole numbers
        ([envelope([2, 6], [0, 1, 0])], 5.9, 5.9),  # as good as any: stays
        ([envelope([-9, -7, -3, -2], [0, 1, 0, 1, 0])], 0.0, -8.0),  # the wider, though further
        ([envelope([-4, -2, 3, 5], [0, 1, 0, 1, 0])], 1.0, 4.0),  # equally wide: the nearer
        ([envelope([-4, -2, 3, 5], [0, 1, 0, 1, 0])], 0.0, -3.0),
        ([envelope([1, 3, 4, 9], [0, 1, 0, 1, 0]), envelope([2], [1, 1])], 0.0, 6.5),
        ([envelope([1, 3, 6, 9], [0, 2, 2, 2, 0]), envelope([-2, -1], [0, 1, 0])], 0.0, 5.0),  # one plateau of three
        ([envelope([1, 5, 9], [0, 2, 2, 0])], 0.0, 4.0),  # its centre is a turn: the quarter beside it
        ([envelope([4], [0, 1])], 0.0, 4.5),  # a margin beyond the last turn
        ([envelope([-4], [1, 0])], 0.0, -4.5),
    ],
)
def test_the_rule_among_equal_scores(sentences, before, expected) -> None:
    candidates = make_candidates(METRICS["sum"], sentences)
    assert line_search(candidates, FULL, Weights(1, 0, 0, before), LENGTH).weights.length == pytest.approx(expected)


def test_a_line_search_goes_far_but_not_below_the_floor() -> None:
    far = [([0.0, 0.0, 0.0, 0.0], [0.0, 1.0]), ([-40.0, 0.0, 1.0, 0.0], [1.0, 1.0])]
    below = [([0.0, 0.0, 0.0, 0.0], [0.0, 1.0]), ([-1.0, 0.0, -1.0, 0.0], [1.0, 1.0])]
    assert line_search(make_candidates(METRICS["sum"], [far]), FULL, Weights(), LM).weights.lm > 40
    assert line_search(make_candidates(METRICS["sum"], [below]), FULL, Weights(1, 0, 2, 0), LM).weights.lm == 2


def test_among_weights_that_all_tie_the_previous_ones_stay() -> None:
    sentences = [envelope([1, 2, 3], [1, 1, 1, 1]), envelope([-1, 5], [1, 1, 1])]
    previous = Weights(1.0, 0.3, 2.7, -0.4)
    found = optimise(make_candidates(METRICS["ratio"], sentences), FULL, [previous, Weights()], seed=1)
    assert found.weights == previous


# The pool.


def hypothesis_of(tokens: Sequence[int], terms: Sequence[float | None], complete: bool = True) -> Hypothesis:
    direct, channel, lm, length = terms
    return Hypothesis(tuple(tokens), 0.0, direct, channel, lm, int(length), None, None, complete)


def words(tokens: tuple[int, ...]) -> str:
    return " ".join(map(str, tokens))


def accuracy_pool(*references: str) -> CandidatePool:
    return CandidatePool(make_metric("accuracy"), [[reference] for reference in references], [words] * len(references))


def test_nothing_is_tuned_on_the_length_of_outputs() -> None:
    with pytest.raises(BadInputError, match="length_ratio says how outputs are, not how good"):
        CandidatePool(make_metric("length_ratio"), [["a"]], [lambda tokens: "a"])


def test_a_pool_merges_by_tokens_and_keeps_the_order() -> None:
    pool = accuracy_pool("7", "8")
    assert pool.add(0, [hypothesis_of([5], [-1, -2, -3, 2]), hypothesis_of([7], [-1, -2, -3, 2])]) == 2
    assert pool.add(1, [hypothesis_of([5], [-4, -2, -3, 2])]) == 1
    assert pool.add(0, [hypothesis_of([7], [-9, -9, -9, 2]), hypothesis_of([6, 6], [-3, -2, -1, 3])]) == 1
    assert len(pool) == 4
    candidates = pool.under(FULL)
    assert candidates.terms_FT.tolist() == [[-1, -2, -3, 2], [-1, -2, -3, 2], [-3, -2, -1, 3], [-4, -2, -3, 2]]
    assert candidates.starts_N.tolist() == [0, 3]
    assert candidates.best(np.array([[1.0, 0, 0, 0], [0.0, 0, 1, 0]])).tolist() == [[0, 3], [2, 3]]


def test_a_term_that_was_not_computed_is_zero_only_where_its_weight_is_barred() -> None:
    pool = accuracy_pool("7")
    pool.add(0, [hypothesis_of([5], [-1, None, -3, 2]), hypothesis_of([6], [-2, -math.inf, -5, 2])])
    assert pool.under(SYSTEMS["direct+lm"]).terms_FT.tolist() == [[-1, 0, -3, 2], [-2, 0, -5, 2]]
    assert not pool.covers(FULL)
    with pytest.raises(ValueError, match=r"sentence 1: no output .* direct, channel, lm, length"):
        pool.under(FULL)
    assert pool.add(0, [hypothesis_of([5], [-1, -7, -3, 2])]) == 1
    assert pool.under(FULL).terms_FT.tolist() == [[-1, -7, -3, 2]]
    assert pool.under(SYSTEMS["channel+lm"]).terms_FT.tolist() == [[0, -7, -3, 2]]
    assert len(pool) == 2


def test_a_partial_output_stands_in_only_until_there_is_a_complete_one() -> None:
    pool = accuracy_pool("7")
    pool.add(0, [hypothesis_of([7], [-1, -1, -1, 1], complete=False)])
    assert pool.under(FULL).terms_FT.tolist() == [[-1, -1, -1, 1]]
    pool.add(0, [hypothesis_of([7], [-5, -5, -5, 2])])
    assert pool.under(FULL).terms_FT.tolist() == [[-5, -5, -5, 2]]


def test_sentences_may_have_vocabularies_of_their_own() -> None:
    pool = CandidatePool(
        make_metric("accuracy"), [["a"], ["b"]], [lambda ids: "xab"[ids[0]], lambda ids: "xba"[ids[0]]]
    )
    first = [hypothesis_of([1], [-1, -1, -1, 2])]
    second = [hypothesis_of([2], [-1, -1, -1, 2])]
    right = pool.metric.score(pool.one_best_statistics([first, first]), 1)
    half = pool.metric.score(pool.one_best_statistics([first, second]), 1)
    assert (right.tolist(), half.tolist()) == ([100.0, 100.0], [100.0, 0.0])
    with pytest.raises(ValueError, match="2 sentences, 1 functions"):
        CandidatePool(make_metric("accuracy"), [["a"], ["b"]], [words])


def test_a_further_term_is_merged_and_weighed_like_the_four() -> None:
    pool = accuracy_pool("7")
    with_list = replace(hypothesis_of([7], [-3, -2, -3, 2]), extra={"word_list": 0.0, "ratio": -4.0})
    assert pool.add(0, [replace(hypothesis_of([5], [-1, -2, -3, 2]), extra={"word_list": -1.0}), with_list]) == 2
    assert pool.under(OPEN).terms_FT.tolist() == [[-3, -2, -3, 2, 0, -4]]
    assert pool.add(0, [replace(hypothesis_of([5], [-1, -2, -3, 2]), extra={"ratio": -2.0})]) == 1
    candidates = pool.under(OPEN)
    assert candidates.terms_FT.tolist() == [[-1, -2, -3, 2, -1, -2], [-3, -2, -3, 2, 0, -4]]
    chosen = candidates.best(np.array([[1.0, 0, 0, 0, 1.5, 0], [1.0, 0, 0, 0, 2.5, 0], [1.0, 0, 0, 0, 0, -2]]))
    assert chosen.tolist() == [[0], [1], [1]]
    assert pool.under(FULL).terms_FT.tolist() == [[-1, -2, -3, 2], [-3, -2, -3, 2]]


@pytest.mark.parametrize(
    ("name", "roles", "free"),
    [
        ("direct", ("direct",), ()),
        ("direct+length", ("direct",), ("length",)),
        ("channel+lm", ("direct", "channel", "lm"), ("lm", "length")),
        ("direct+lm+word_list", ("direct", "lm"), ("lm", "word_list", "length")),
        ("direct+word_list", ("direct",), ("word_list", "length")),
        ("attention", ("attention",), ()),
        ("attention+channel+lm", ("attention", "channel", "lm"), ("channel", "lm", "length")),
        ("seq2seq+length", ("seq2seq",), ("length",)),
    ],
)
def test_a_system_is_named_by_its_terms(name: str, roles: tuple[str, ...], free: tuple[str, ...]) -> None:
    system = make_system(name, {"word_list": LISTED})
    assert system.roles == roles
    assert tuple(weight.name for weight in system.free) == free
    assert system.vector(system.start).tolist() == [system.start.by_name()[term] for term in system.terms]
    assert system.from_vector(system.vector(system.start)) == system.start
    system.check(system.start)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("direct+chanel", "no term 'chanel'; did you mean channel?"),
        ("direct+word_list", "no term 'word_list'"),
        ("direct+direct", "a term is repeated"),
        ("direct+attention", "exactly one of direct, attention, seq2seq"),
        ("lm+length", "or else the channel"),
    ],
)
def test_names_that_are_no_systems(name: str, complaint: str) -> None:
    with pytest.raises(BadInputError) as error:
        make_system(name)
    assert complaint in str(error.value)


# The loop, in worlds where decoding is exact over a fixed universe of outputs.

TRUTH = Weights(1.0, 0.7, 2.2, -1.5)


class World:
    """Sentences with all their outputs; the reference of each is what the true weights choose."""

    def __init__(self, truth: Weights, sentences: int = 40, outputs: int = 60, n_best: int = 2, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.terms_NC4 = -random.gamma(4.0, 2.0, (sentences, outputs, 4))
        self.terms_NC4[..., 3] = random.integers(2, 12, (sentences, outputs))
        self.extra_NC = {name: -random.gamma(4.0, 2.0, (sentences, outputs)) for name in truth.extra}
        self.n_best = n_best
        self.decoded: list[Weights] = []
        self.references = [[words(n_best[0].tokens)] for n_best in self.decode(truth)]
        self.decoded.clear()

    def decode(self, weights: Weights) -> list[list[Hypothesis]]:
        """The n-best lists; like the real decoder, a model of weight zero is not run."""
        self.decoded.append(weights)
        objective_NC = self.terms_NC4 @ np.array(numbers(weights)[:4])
        for name, weight in weights.extra.items():
            objective_NC = objective_NC + weight * self.extra_NC[name]
        order_NC = np.argsort(-objective_NC, axis=1, kind="stable")
        runs = [True, weights.channel != 0, weights.lm != 0, True]
        return [
            [
                replace(
                    hypothesis_of(
                        [4 + int(c), 4 + int(c) // 10],
                        [float(term) if run else None for term, run in zip(self.terms_NC4[n, c], runs, strict=True)],
                    ),
                    extra={name: float(self.extra_NC[name][n, c]) for name, weight in weights.extra.items() if weight},
                )
                for c in order_C[: self.n_best]
            ]
            for n, order_C in enumerate(order_NC)
        ]

    def pool(self, metric: str = "accuracy") -> CandidatePool:
        return CandidatePool(make_metric(metric), self.references, [words] * len(self.references))


def agreement(one: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> float:
    return float(np.mean([a[0].tokens == b[0].tokens for a, b in zip(one, other, strict=True)]))


def test_known_weights_are_recovered_by_decoding_again_and_merging() -> None:
    world = World(TRUTH)
    tuned = tune(FULL, world.decode, world.pool(), iterations=12)
    assert tuned.dev_score > tuned.history[0].decoded_score + 30
    assert tuned.dev_score >= 90
    assert tuned.weights.length < 0
    unseen = World(TRUTH, sentences=200, seed=99)
    assert agreement(unseen.decode(TRUTH), unseen.decode(tuned.weights)) > 0.85
    assert agreement(unseen.decode(TRUTH), unseen.decode(FULL.start)) < 0.5


def test_known_weights_of_further_terms_are_recovered_too() -> None:
    truth = replace(TRUTH, extra={"word_list": 1.5, "ratio": -0.8})
    world = World(truth, outputs=30)
    without = tune(FULL, world.decode, world.pool(), iterations=12)
    tuned = tune(OPEN, world.decode, world.pool(), iterations=12, known=[OPEN.weights(without.weights.by_name())])
    assert tuned.dev_score >= max(80.0, without.dev_score + 20)
    assert tuned.weights.extra["word_list"] > 0 > tuned.weights.extra["ratio"]


def test_the_history_tells_what_was_decoded_and_the_best_of_it_is_kept() -> None:
    world = World(TRUTH)
    tuned = tune(FULL, world.decode, world.pool(), iterations=2)
    assert [step.weights for step in tuned.history] == world.decoded
    assert world.decoded[:4] == [FULL.start, DIRECT_ONLY, *FULL.neighbours]
    assert [step.pool_score is None for step in tuned.history] == [True] * 4 + [False] * (len(tuned.history) - 4)
    assert 4 < len(tuned.history) <= 4 + 2
    sizes = [step.pool_size for step in tuned.history]
    assert sizes == sorted(sizes)
    assert (tuned.weights, tuned.dev_score) in [(step.weights, step.decoded_score) for step in tuned.history]
    for step in tuned.history:
        assert step.decoded_score == pytest.approx(100 * agreement(world.decode(step.weights), world.decode(TRUTH)))
    assert (tuned.system, tuned.metric) == ("direct+channel+lm", "accuracy")
    assert tuned.signature == make_metric("accuracy").signature


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_every_system_tunes_its_own_weights_and_no_other(name: str) -> None:
    system = SYSTEMS[name]
    truth = replace(system.fixed, **{free.name: getattr(TRUTH, free.name) for free in system.free})
    world = World(truth, outputs=20)
    tuned = tune(system, world.decode, world.pool(), iterations=8)
    assert tuned.dev_score >= 90
    for weights in world.decoded:
        system.check(weights)
    if name == "direct":
        assert len(world.decoded) == 1
    assert (DIRECT_ONLY in world.decoded) == (name != "channel+lm")


def test_lower_is_better_where_the_metric_says_so() -> None:
    world = World(TRUTH)
    tuned = tune(FULL, world.decode, world.pool("edit_distance"), iterations=12)
    assert tuned.dev_score < 0.2 * tuned.history[0].decoded_score


def test_weights_of_the_direct_model_alone_win_if_nothing_else_is_found() -> None:
    """A decoder that finds good outputs only with the direct model alone: what pools promise, it does not keep."""
    world = World(DIRECT_ONLY)

    def decode(weights: Weights) -> list[list[Hypothesis]]:
        n_best_lists = world.decode(weights)
        if weights == DIRECT_ONLY:
            return n_best_lists
        return [[hypothesis_of([99], [-99.0, -99.0, -99.0, 2]), *n_best] for n_best in n_best_lists]

    for name in ("direct+length", "direct+lm", "direct+channel+lm"):
        tuned = tune(SYSTEMS[name], decode, world.pool(), iterations=2)
        assert (tuned.weights, tuned.dev_score) == (DIRECT_ONLY, 100.0)


def test_the_start_counts_and_wins_what_ties() -> None:
    world = World(TRUTH)
    tuned = tune(FULL, world.decode, world.pool(), start=TRUTH)
    assert (tuned.weights, tuned.dev_score) == (TRUTH, 100.0)
    never = CandidatePool(make_metric("accuracy"), [["never said"]] * 40, [words] * 40)
    assert tune(FULL, world.decode, never, start=TRUTH).weights == TRUTH


def test_the_weights_of_a_smaller_system_win_if_nothing_else_is_found() -> None:
    """What the pool promises, this decoder does not keep; but the smaller system's weights are tried, too."""
    smaller = Weights(1.0, 0.0, 2.2, -1.5)
    world = World(smaller)

    def decode(weights: Weights) -> list[list[Hypothesis]]:
        worse = [] if weights == smaller else [hypothesis_of([99], [-99.0, -99.0, -99.0, 2])]
        return [[*worse, *n_best] for n_best in world.decode(weights)]

    assert tune(FULL, decode, world.pool(), iterations=2).dev_score < 100
    tuned = tune(FULL, decode, world.pool(), iterations=2, known=[smaller])
    assert (tuned.weights, tuned.dev_score) == (smaller, 100.0)
    contained = {name: [other for other in SYSTEMS if SYSTEMS[name].contains(SYSTEMS[other])] for name in SYSTEMS}
    assert contained["direct+channel+lm"] == ["direct", "direct+length", "direct+lm", "direct+channel+lm"]
    assert contained["channel+lm"] == ["channel+lm"]


def test_a_start_that_runs_no_model_is_helped_by_one_that_runs_all() -> None:
    world = World(TRUTH)
    tuned = tune(FULL, world.decode, world.pool(), iterations=2, start=DIRECT_ONLY)
    assert world.decoded[:2] == [DIRECT_ONLY, FULL.start]
    assert tuned.dev_score > tuned.history[0].decoded_score + 40


def test_a_result_says_whether_dev_can_tell_its_weights_from_the_start() -> None:
    world = World(TRUTH)
    tuned = tune(FULL, world.decode, world.pool(), iterations=3)
    assert tuned.p_start is not None
    assert tuned.p_start < 0.01
    assert tuned.remark == ""
    assert tuned.expected_score is not None
    kept = tune(FULL, world.decode, world.pool(), start=TRUTH)
    assert (kept.p_start, kept.remark) == (None, "start weights kept")
    assert "p=0.30" in replace(tuned, p_start=0.3).remark
    assert tune(SYSTEMS["direct"], world.decode, world.pool()).remark == ""


def test_the_same_seed_gives_the_same_result() -> None:
    world = World(TRUTH)
    one, other = (tune(FULL, world.decode, world.pool(), iterations=2, seed=5) for _ in range(2))
    assert one == other


def test_weights_and_lists_that_do_not_fit_are_refused() -> None:
    world = World(TRUTH)
    with pytest.raises(ValueError, match=r"weight channel of the system direct\+lm is 0.0, not 0.5"):
        tune(SYSTEMS["direct+lm"], world.decode, world.pool(), start=Weights(1, 0.5, 1, 0))
    with pytest.raises(ValueError, match=r"weight lm .* between 0.0 and inf, but is -1"):
        tune(SYSTEMS["direct+lm"], world.decode, world.pool(), start=Weights(1, 0, -1, 0))
    with pytest.raises(ValueError, match="every one of the 40 development sentences"):
        tune(FULL, lambda weights: world.decode(weights)[:-1], world.pool())
    with pytest.raises(ValueError, match="at least one development sentence"):
        CandidatePool(make_metric("accuracy"), [], [])


def test_a_step_that_leads_astray_is_followed_by_smaller_ones() -> None:
    """The pool promises everything for channel weights that the search cannot follow: it finds nothing beyond 4."""
    right, wrong = hypothesis_of([7], [-3, -1, -1, 2]), hypothesis_of([5], [-1, -2, -1, 2])  # right beyond 2
    later, earlier = hypothesis_of([8], [-7, -1, -1, 2]), hypothesis_of([6], [-1, -2, -1, 2])  # right beyond 6
    lost = hypothesis_of([9], [-30, -30, -30, 2])

    def decode(weights: Weights) -> list[list[Hypothesis]]:
        if weights.channel > 4:
            return [[lost]] * 100
        return [[right, wrong] if weights.channel > 2 else [wrong, right], [earlier, later]] * 50

    tuned = tune(FULL, decode, accuracy_pool(*["7", "8"] * 50), iterations=6)
    assert tuned.dev_score == 50
    assert 2 < tuned.weights.channel <= 4
    promised = [step for step in tuned.history if step.pool_score == 100]
    assert promised, "the pool promised both"
    assert promised[0].decoded_score == 0
