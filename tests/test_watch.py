"""Watching a search: the events alone reproduce the answers, and the survivors are those of Algorithm 1."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
import torch

from decoder_oracles import Models, PartialScores, random_input, random_models, random_weights, reluctant
from noisychannel import Hypothesis, NoisyChannelDecoder, Weights
from noisychannel.decode import parts
from noisychannel.decode.reference import Entry, ReferenceDecoder
from noisychannel.decode.watch import SearchStep
from noisychannel.ids import EOS
from noisychannel.models.word_list import WordList
from test_word_list import by_definition, listed

SEARCHES = ["viterbi", "marginal"]
WORDS = [(4,), (4, 5), (5, 5, 4)]


def watched(decoder: NoisyChannelDecoder, xs: list[list[int]], n_best: int, **keywords: Any) -> Any:
    """The result of a search, and its steps by sentence and length; a later step replaces an earlier one."""
    steps: dict[int, dict[int, SearchStep]] = defaultdict(dict)

    def watch(step: SearchStep) -> None:
        steps[step.sentence][step.length] = step

    return decoder.decode(xs, n_best, watch=watch, **keywords), steps


def random_setting(rng: random.Random, seed: int) -> tuple[Models, dict[str, Any]]:
    models = random_models(100 + seed, rng.choice([6, 7]), bidirectional=seed % 2 == 0)
    models = reluctant(models) if seed % 3 else models
    weights = random_weights(rng)
    weights = Weights(weights.direct, weights.channel, weights.lm, weights.length, extra={"word_list": 0.8})
    k1 = rng.choice([2, 4, 7])
    return models, {
        **models.for_weights(weights),
        "weights": weights,
        "extra": {"word_list": WordList(listed(WORDS, models.lm.word.out_features))},
        "k1": k1,
        "k2": rng.randint(1, k1),
        "max_length": rng.randint(1, 5),
        "search": SEARCHES[seed // 2 % 2],
    }


def same(a: Hypothesis, b: Hypothesis) -> bool:
    return (a.tokens, a.score, a.terms(), a.complete) == (b.tokens, b.score, b.terms(), b.complete)


def test_the_answers_of_all_steps_are_the_n_best() -> None:
    rng = random.Random(1)
    compared = 0
    for seed in range(16):
        _, setting = random_setting(rng, seed)
        xs, n_best = [random_input(rng) for _ in range(4)], rng.choice([1, 3, 50])
        found, steps = watched(NoisyChannelDecoder(**setting), xs, n_best)
        for n, best in enumerate(found):
            assert sorted(steps[n]) == list(range(1, len(steps[n]) + 1))
            ended = [answer for length in sorted(steps[n]) for answer in steps[n][length].answers()]
            ended.sort(key=lambda answer: -answer.score)
            if not best[0].complete:
                assert ended == []
                continue
            compared += 1
            assert len(best) == min(n_best, len(ended))
            assert all(same(mine, theirs) for mine, theirs in zip(best, ended, strict=False))
    assert compared > 20


def test_survivors_and_proposals_are_those_of_the_reference() -> None:
    rng = random.Random(2)
    survived = 0
    for seed in range(16):
        _, setting = random_setting(rng, seed)
        x = random_input(rng)
        charts: dict[int, list[list[Entry]]] = {}
        ReferenceDecoder(**setting).decode(x, watch=charts.__setitem__)
        # So many answers are asked for that the search never stops early.
        _, steps = watched(NoisyChannelDecoder(**setting), [x], 10_000)
        for length, step in steps[0].items():
            cells: list[list[Any]] = [[] for _ in x]
            for survivor in step.survivors():
                cells[survivor.position].append(survivor)
            assert (step.sentence, step.length) == (0, length)
            for cell, expected in zip(cells, charts[length], strict=True):
                assert [survivor.tokens for survivor in cell] == [entry.prefix for entry in expected]
                assert [survivor.objective for survivor in cell] == pytest.approx(
                    [entry.objective for entry in expected], abs=1e-9
                )
                survived += len(cell)
            proposed = {(p.position, (*p.prefix, p.symbol)) for p in step.proposals()}
            before = {(): 0} if length == 1 else {entry.prefix for cell in charts[length - 1] for entry in cell}
            assert {prefix for _, (*prefix, _) in proposed for prefix in [tuple(prefix)]} <= set(before)
            assert {(s.position, s.tokens) for s in step.survivors()} <= proposed
            assert {(len(x) - 1, (*a.tokens, EOS)) for a in step.answers()} == {p for p in proposed if p[1][-1] == EOS}
            for i in range(len(x)):
                ranks = [p.score for p in step.proposals() if p.position == i]
                assert len(ranks) <= setting["k1"]
                assert ranks == sorted(ranks, reverse=True)
    assert survived > 100


def test_every_term_of_a_survivor_is_exact() -> None:
    rng = random.Random(3)
    checked = 0
    for seed in range(8):
        models, setting = random_setting(rng, seed)
        weights, x = setting["weights"], random_input(rng, longest=4)
        scores = PartialScores(models, x, setting["search"] == "marginal")
        _, steps = watched(NoisyChannelDecoder(**setting), [x], 3)
        for step in steps[0].values():
            for survivor in step.survivors():
                checked += 1
                at = survivor.position - (survivor.position == len(x) - 1)
                expected = {
                    "direct": scores.direct(survivor.tokens, survivor.position),
                    "length": step.length,
                    "word_list": by_definition(WORDS, survivor.tokens),
                }
                if weights.channel:
                    expected["channel"] = 0.0 if at < 0 else scores.channel(survivor.tokens, at)
                if weights.lm:
                    expected["lm"] = scores.lm(survivor.tokens)
                assert survivor.terms == pytest.approx(expected, abs=1e-9)
                total = sum(weights.by_name()[name] * term for name, term in survivor.terms.items())
                assert survivor.objective == pytest.approx(total, abs=1e-9)
    assert checked > 60


def seen(steps: dict[int, dict[int, SearchStep]]) -> dict[tuple[int, int], Any]:
    """Everything that was watched, as plain Python."""
    return {
        (sentence, length): (
            step.goes_on,
            [(p.position, p.prefix, p.symbol, p.proposer, round(p.score, 6)) for p in step.proposals()],
            [(s.position, s.tokens, round(s.objective, 6)) for s in step.survivors()],
            [(a.tokens, round(a.score, 6)) for a in step.answers()],
        )
        for sentence, lengths in steps.items()
        for length, step in lengths.items()
    }


def test_batches_parts_and_halves_are_watched_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    models = reluctant(random_models(5, 12))
    weights = Weights(1.0, 0.5, 0.3, 0.2)
    rng = random.Random(4)
    xs = [random_input(rng, longest=7) for _ in range(9)]
    contexts = [(4,) * rng.randrange(3) for _ in xs]
    setting: dict[str, Any] = {**models.for_weights(weights), "weights": weights, "k1": 4, "k2": 2}
    decoder = NoisyChannelDecoder(**setting, lm_proposals=2)
    expected: dict[tuple[int, int], Any] = {}
    for n, (x, context) in enumerate(zip(xs, contexts, strict=True)):
        _, steps = watched(decoder, [x], 2, contexts=[context])
        expected |= {(n, length): step for (_, length), step in seen(steps).items()}
    assert {proposal[3] for _, proposals, _, _ in expected.values() for proposal in proposals} == {"direct", "lm"}
    assert len({max(length for m, length in expected if m == n) for n in range(len(xs))}) > 1, "the batch must shrink"

    # The first proposals of the direct model do not depend on those of the language model.
    _, steps = watched(NoisyChannelDecoder(**setting), xs, 2, contexts=contexts)
    for n in range(len(xs)):
        by_direct = [proposal for proposal in expected[n, 1][1] if proposal[3] == "direct"]
        assert by_direct == seen(steps)[n, 1][1]

    found, steps = watched(decoder, xs, 2, contexts=contexts)
    assert seen(steps) == expected
    small = NoisyChannelDecoder(**setting, lm_proposals=2, memory_gib=1e-4)
    assert seen(watched(small, xs, 2, contexts=contexts)[1]) == expected

    whole, most = parts.search, 2

    def search(models: Any, plan: Any, sentences: Any, n_best: int, watch: Any) -> Any:
        result = whole(models, plan, sentences, n_best, watch)
        if len(sentences.inputs) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return result

    monkeypatch.setattr(parts, "search", search)
    again, steps = watched(decoder, xs, 2, contexts=contexts)
    assert seen(steps) == expected
    assert [[h.tokens for h in best] for best in again] == [[h.tokens for h in best] for best in found]


def test_a_hook_changes_nothing() -> None:
    models, weights = random_models(6), Weights(1.0, 0.5, 0.3, 0.2)
    decoder = NoisyChannelDecoder(**models.for_weights(weights), weights=weights, k1=4, k2=2)
    xs = [[4, 5, EOS], [EOS], [6, EOS]]
    asked: list[int] = []
    assert decoder.decode(xs, 3, watch=lambda step: asked.append(len(step.survivors()))) == decoder.decode(xs, 3)
    assert len(asked) > 3


def test_the_last_step_says_that_the_search_ends() -> None:
    models = random_models(6)
    _, steps = watched(NoisyChannelDecoder(models.direct, k1=4, k2=2, max_length=3), [[4, 5, EOS], [EOS]], 1)
    for lengths in steps.values():
        assert [step.goes_on for step in lengths.values()] == [True] * (len(lengths) - 1) + [False]


def test_survivors_without_terms_are_the_same() -> None:
    _, setting = random_setting(random.Random(3), 3)
    _, steps = watched(NoisyChannelDecoder(**setting), [[4, 5, 4, EOS], [5, EOS]], 2)
    compared = 0
    for of_sentence in steps.values():
        for step in of_sentence.values():
            plain = step.survivors(with_terms=False)
            assert plain == [one._replace(terms={}) for one in step.survivors()]
            compared += len(plain)
    assert compared > 5
