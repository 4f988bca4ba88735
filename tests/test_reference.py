"""Algorithm 1 as it stands in the paper, and with equal outputs joined, against the search by enumeration."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from decoder_oracles import (
    PartialScores,
    assert_same,
    best_outputs,
    chart_search,
    pairs,
    random_input,
    random_models,
    random_weights,
    terms,
)
from noisychannel import Weights
from noisychannel.decode.reference import ReferenceDecoder, _Scores
from noisychannel.ids import EOS

SEARCHES = ["viterbi", "marginal"]
ALL = Weights(direct=0.8, channel=0.6, lm=0.5, length=0.4)


def random_setting(rng: random.Random, seed: int, search: str) -> tuple[Any, list[int], dict[str, Any]]:
    models = random_models(900 + seed, rng.choice([6, 7]), bidirectional=seed % 2 == 0)
    k1 = rng.choice([1, 2, 4, 7])
    setting = {
        "weights": random_weights(rng),
        "k1": k1,
        "k2": rng.randint(1, k1),
        "max_length": rng.randint(1, 5),
        "search": search,
    }
    return models, random_input(rng, longest=4), setting


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("recombine", [False, True])
def test_reference_is_the_search_by_enumeration(recombine: bool, search: str) -> None:
    rng = random.Random(f"{recombine} {search}")
    found = 0
    for seed in range(12):
        models, x, setting = random_setting(rng, seed, search)
        V = models.lm.word.out_features
        expected = chart_search(models, x, range(4, V), **setting, recombine=recombine)
        answers = ReferenceDecoder(**models.for_weights(setting["weights"]), **setting, recombine=recombine).decode(x)
        assert_same(answers, [answer[:2] for answer in expected])
        assert [answer.direct for answer in answers] == pytest.approx([row.direct for row in expected], abs=1e-9)
        found += len(answers)
    assert found > 20


@pytest.mark.parametrize("recombine", [False, True])
def test_scores_of_the_reference(recombine: bool) -> None:
    """A path is never better than the best path; joined, the direct score is exact."""
    rng = random.Random(5)
    below = 0
    for seed in range(14):
        models, x, setting = random_setting(rng, seed, "viterbi")
        weights = setting["weights"]
        answers = ReferenceDecoder(**models.for_weights(weights), **setting, recombine=recombine).decode(x)
        if not answers:
            continue
        for answer, term in zip(answers, terms(models, x, [a.tokens for a in answers]), strict=True):
            assert answer.complete
            assert answer.length == term.length
            assert answer.direct <= term.viterbi + 1e-9
            assert recombine is False or answer.direct == pytest.approx(term.viterbi, abs=1e-9)
            below += answer.direct < term.viterbi - 1e-6
            assert answer.channel == (pytest.approx(term.channel, abs=1e-9) if weights.channel else None)
            assert answer.lm == (pytest.approx(term.lm, abs=1e-9) if weights.lm else None)
            expected = term.score(weights, "viterbi") + weights.direct * (answer.direct - term.viterbi)
            assert answer.score == pytest.approx(expected, abs=1e-9)
        if recombine:
            assert len({answer.tokens for answer in answers}) == len(answers)
    assert (below > 0) is not recombine


@pytest.mark.parametrize("recombine", [False, True])
def test_unbounded_beams_find_the_exhaustive_argmax(recombine: bool) -> None:
    for seed, x in enumerate([[EOS], [4, EOS], [5, 6, EOS], [4, 4, 3, EOS]]):
        models = random_models(seed, bidirectional=seed % 2 == 0)
        for weights in (ALL, Weights(0.0, 1.0, 1.0, -0.5)):
            decoder = ReferenceDecoder(
                **models.for_weights(weights), weights=weights, k1=10**6, k2=10**6, max_length=4, recombine=recombine
            )
            expected = best_outputs(models, x, [4, 5], weights, 4, "viterbi")
            answers = decoder.decode(x)
            if recombine:
                assert_same(answers, expected)
            elif weights.direct:
                assert_same(answers[:1], expected[:1])
            else:  # then all alignments of an output are equal
                assert answers[0].tokens == expected[0][0]
            assert {answer.tokens for answer in answers} == {tokens for tokens, _ in expected}


def test_unbounded_marginal_search_is_exact() -> None:
    for seed, x in enumerate([[EOS], [4, EOS], [5, 6, EOS]]):
        models = random_models(seed)
        decoder = ReferenceDecoder(
            **models.for_weights(ALL), weights=ALL, k1=10**6, k2=10**6, max_length=4, search="marginal"
        )
        assert_same(decoder.decode(x), best_outputs(models, x, [4, 5], ALL, 4, "marginal"))


def test_the_literal_search_fills_its_beam_with_copies() -> None:
    """Why outputs are joined: the same output by several alignments takes several of the K2 places."""
    models, x = random_models(3), [4, 5, 6, EOS]
    decoder = ReferenceDecoder(models.direct, k1=30, k2=10, max_length=4, recombine=False)
    tokens = [answer.tokens for answer in decoder.decode(x)]
    assert len(set(tokens)) < len(tokens)


def partial(decoder: ReferenceDecoder, x: list[int], prefix: tuple[int, ...], i: int) -> float:
    with torch.no_grad():
        return _Scores(decoder, tuple(x)).partial(prefix, i, 0.0)


def test_partial_channel_score_in_the_last_column() -> None:
    """x without its EOS, and nothing at all where x is EOS alone; elsewhere x as far as it was read."""
    models, weights = random_models(6), Weights(0.0, channel=1.0)
    for x in ([EOS], [4, EOS], [5, 6, EOS]):
        decoder = ReferenceDecoder(models.direct, models.channel, weights=weights)
        scores = PartialScores(models, x, marginal=False)
        for prefix in ((4,), (5, 4), (4, 4, 5)):
            for i in range(len(x)):
                at = i if i < len(x) - 1 else i - 1
                expected = 0.0 if at < 0 else scores.channel(prefix, at)
                assert partial(decoder, x, prefix, i) == pytest.approx(expected, abs=1e-9)


def test_answers_come_best_first() -> None:
    models = random_models(7)
    found = ReferenceDecoder(**models.for_weights(ALL), weights=ALL, k1=6, k2=3, max_length=5).decode([4, 5, EOS])
    scores = [score for _, score in pairs(found)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) > 1
