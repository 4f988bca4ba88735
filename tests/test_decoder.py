"""The chart search, against all outputs one by one and against the same search from its definition."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from decoder_oracles import (
    Models,
    PartialScores,
    assert_same,
    best_outputs,
    chart_search,
    every_output,
    objective,
    pairs,
    random_input,
    random_models,
    random_weights,
    reluctant,
    terms,
)
from noisychannel import Hypothesis, NoisyChannelDecoder, Weights
from noisychannel.decode import chart, memory, parts
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.models.ssnt import SSNT, Side

INPUTS = [[EOS], [4, EOS], [6, 5, EOS], [3, 4, 5, 6, EOS], [5, 5, 4, EOS], [4, 4, 4, 4, EOS], [6, EOS]]
SEARCHES = ["viterbi", "marginal"]
UNBOUNDED = {"k1": 400, "k2": 400}
ALL = Weights(direct=0.8, channel=0.6, lm=0.5, length=0.4)

SUBSETS = [
    Weights(*(weight if used else 0.0 for weight, used in zip((0.9, 0.7, 0.4, length), uses, strict=True)))
    for uses, length in zip(itertools.product([True, False], repeat=4), itertools.cycle([0.6, -0.5, 1.4]), strict=False)
    if any(uses[:3])
]


def decode_one(decoder: NoisyChannelDecoder, x: list[int], n_best: int = 1) -> list[Hypothesis]:
    (found,) = decoder.decode([x], n_best=n_best)
    return found


def never_ending(models: Models) -> Models:
    """The same, but the direct model proposes EOS after everything else."""
    with torch.no_grad():
        models.direct.output_word.bias[EOS] -= 1000.0
    return models


def close(a: float | None, b: float | None, tolerance: float = 1e-9) -> bool:
    return a is b if a is None or b is None else math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def same_batch(one: list[list[Hypothesis]], other: list[list[Hypothesis]], tolerance: float = 1e-9) -> None:
    assert len(one) == len(other)
    for mine, yours in zip(one, other, strict=True):
        assert_same(mine, pairs(yours), tolerance)
        for a, b in zip(mine, yours, strict=True):
            assert (a.length, a.alignment, a.channel_alignment, a.complete) == (
                b.length,
                b.alignment,
                b.channel_alignment,
                b.complete,
            )
            for term in ("direct", "channel", "lm"):
                assert close(getattr(a, term), getattr(b, term), tolerance)


# --- 1. nothing is lost where nothing is cut -------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("weights", SUBSETS, ids=str)
def test_unbounded_beams_find_the_exact_n_best(weights: Weights, search: str) -> None:
    for seed, (V, max_length) in enumerate([(6, 5), (8, 3)]):
        models = random_models(seed, V, bidirectional=seed == 1)
        if seed == 0:
            models = reluctant(models)
        decoder = NoisyChannelDecoder(
            **models.for_weights(weights), weights=weights, **UNBOUNDED, max_length=max_length, search=search
        )
        xs = INPUTS[:4] if seed == 0 else INPUTS[seed : seed + 2]
        for x, found in zip(xs, decoder.decode(xs, n_best=8), strict=True):
            assert_same(found, best_outputs(models, x, range(4, V), weights, max_length, search)[:8])
            assert all(hypothesis.complete for hypothesis in found)


@pytest.mark.parametrize("channel_alignment", SEARCHES)
@pytest.mark.parametrize("search", SEARCHES)
def test_unbounded_beams_find_every_output(search: str, channel_alignment: str) -> None:
    for seed, x in enumerate(INPUTS):
        models = random_models(seed, bidirectional=seed % 2 == 0)
        decoder = NoisyChannelDecoder(
            **models.for_weights(ALL),
            weights=ALL,
            **UNBOUNDED,
            max_length=4,
            search=search,
            channel_alignment=channel_alignment,
        )
        expected = best_outputs(models, x, range(4, 6), ALL, 4, search, channel_alignment)
        assert len(expected) == 15
        assert_same(decode_one(decoder, x, n_best=50), expected)


def test_the_two_alignments_of_the_channel_differ() -> None:
    models = random_models(0)
    viterbi, marginal = (
        sum(
            hypothesis.channel or 0.0
            for hypothesis in decode_one(
                NoisyChannelDecoder(
                    **models.for_weights(ALL), weights=ALL, **UNBOUNDED, max_length=4, channel_alignment=choice
                ),
                INPUTS[3],
                n_best=50,
            )
        )
        for choice in SEARCHES
    )
    assert viterbi < marginal - 0.1


@pytest.mark.parametrize("length", [0.0, 0.7, -0.7])
def test_if_no_model_weighs_anything_outputs_of_one_length_are_equal(length: float) -> None:
    models = random_models(0)
    weights = Weights(direct=1e-13, length=length)
    decoder = NoisyChannelDecoder(models.direct, weights=weights, **UNBOUNDED, max_length=4)
    for n_best in (3, 50):
        found = decode_one(decoder, INPUTS[3], n_best)
        every = every_output(range(4, 6), 4)
        expected = sorted((length * (len(tokens) + 1) for tokens in every), reverse=True)
        assert [hypothesis.score for hypothesis in found] == pytest.approx(expected[:n_best], abs=1e-9)
        assert len({hypothesis.tokens for hypothesis in found} & set(every)) == len(found)
        for hypothesis, term in zip(found, terms(models, INPUTS[3], [h.tokens for h in found]), strict=True):
            assert hypothesis.direct == pytest.approx(term.viterbi, abs=1e-9)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"k1": True}, "k1: must be a whole number, but is True"),
        ({"k1": 20.0}, r"k1: must be a whole number, but is 20\.0"),
        ({"k2": "5"}, "k2: must be a whole number, but is '5'"),
        ({"max_length": 3.5}, r"max_length: must be a whole number or null, but is 3\.5"),
        ({"lm_proposals": None}, "lm_proposals: must be a whole number, but is None"),
        ({"allow_unk": "no"}, "allow_unk must be true, false or None, but is 'no'"),
        ({"memory": math.nan}, "memory: must be a finite number, but is nan"),
        ({"memory": math.inf}, "memory: must be a finite number, but is inf"),
        ({"memory": "4"}, "memory: must be a number or null, but is '4'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchSettings(**keywords)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"direct": math.nan}, "the weight direct must be a finite number, but is nan"),
        ({"lm": "1"}, "the weight lm must be a finite number, but is '1'"),
        ({"channel": True}, "the weight channel must be a finite number, but is True"),
        ({"lm": 1e308}, r"the weight lm must be between -1e\+30 and 1e\+30, but is 1e\+308"),
        ({"direct": 0.0}, "all weights of models are zero: nothing to maximise"),
        ({"direct": 0.0, "length": 1.0}, "all weights of models are zero; only the length has a weight"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Weights(**weights)


@pytest.mark.parametrize("n_best", [0, -1, True, 2.0])
def test_a_number_of_outputs_that_makes_no_sense_is_refused(n_best: Any) -> None:
    decoder = NoisyChannelDecoder(random_models(0).direct)
    with pytest.raises(ValueError, match="n_best must be"):
        decoder.decode(INPUTS, n_best)


# --- 2. the scores of what is returned are exact ---------------------------------------------------------------------


@pytest.mark.parametrize("channel_alignment", SEARCHES)
@pytest.mark.parametrize("search", SEARCHES)
def test_scores_are_what_the_models_give_from_scratch(
    search: str, channel_alignment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    seen = 0
    for seed in range(14):
        V = rng.choice([6, 7, 8])
        models = random_models(seed, V, bidirectional=rng.random() < 0.5)
        if seed % 2:
            models = reluctant(models)
        weights = random_weights(rng)
        k1 = rng.choice([1, 2, 3, 5, 9])
        decoder = NoisyChannelDecoder(
            models.direct,
            models.channel,
            models.lm,
            weights,
            k1=k1,
            k2=rng.randint(1, k1),
            max_length=rng.randint(1, 7),
            search=search,
            channel_alignment=channel_alignment,
        )
        xs = [random_input(rng) for _ in range(3)]
        with monkeypatch.context() as patch:
            # The scores must come from the search: whole outputs may be aligned, but no more.
            for model in (models.direct, models.channel):
                whole = model.viterbi
                patch.setattr(model, "viterbi", lambda *args, whole=whole: (torch.tensor(math.nan), whole(*args)[1]))
            for model in (models.direct, models.channel, models.lm):
                patch.setattr(model, "log_prob", None)
                patch.setattr(model, "forward", None)
            results = decoder.decode(xs, n_best=rng.choice([1, 3, 6]))
        for x, found in zip(xs, results, strict=True):
            if not found[0].complete:
                continue
            for hypothesis, term in zip(found, terms(models, x, [h.tokens for h in found]), strict=True):
                seen += 1
                channel = term.channel_viterbi if channel_alignment == "viterbi" else term.channel
                assert hypothesis.length == term.length == len(hypothesis.tokens) + 1
                assert hypothesis.direct == pytest.approx(getattr(term, search), abs=1e-9)
                assert hypothesis.channel == (pytest.approx(channel, abs=1e-9) if weights.channel else None)
                assert hypothesis.lm == (pytest.approx(term.lm, abs=1e-9) if weights.lm else None)
                assert hypothesis.score == pytest.approx(term.score(weights, search, channel_alignment), abs=1e-9)
                assert hypothesis.alignment == term.alignment
                assert hypothesis.channel_alignment == (term.channel_alignment if weights.channel else None)
            assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
            assert len({h.tokens for h in found}) == len(found)
    assert seen > 40


# --- 3. the same search, from its definition -------------------------------------------------------------------------


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("search", SEARCHES)
def test_equals_the_reference(search: str, bidirectional: bool) -> None:
    rng = random.Random(f"{search} {bidirectional}")
    beams = [(1, 1), (2, 1), (3, 2), (4, 4), (7, 3), (12, 1), (12, 6), (400, 400)]
    for seed in range(16):
        models = random_models(100 + seed, rng.choice([6, 7, 8]), bidirectional)
        if seed % 4:
            models = reluctant(models)
        weights = random_weights(rng)
        k1, k2 = beams[seed % len(beams)]
        x, max_length = random_input(rng), rng.randint(1, 4 if k1 > 100 else 6)
        arguments: dict[str, Any] = {
            **models.for_weights(weights),
            "weights": weights,
            "k1": k1,
            "k2": k2,
            "max_length": max_length,
            "search": search,
            "look_ahead": seed % 3 > 0,
        }
        expected = ReferenceDecoder(**arguments, recombine=True).decode(x)
        for n_best in (1, 4, 1000):
            found = decode_one(NoisyChannelDecoder(**arguments), x, n_best)
            if expected:
                assert_same(found, pairs(expected[:n_best]))
            else:
                assert [hypothesis.complete for hypothesis in found] == [False]


@pytest.mark.parametrize("channel_alignment", SEARCHES)
@pytest.mark.parametrize("search", SEARCHES)
def test_equals_the_search_by_enumeration(search: str, channel_alignment: str) -> None:
    rng = random.Random(f"{search} {channel_alignment}")
    compared = 0
    for seed in range(30):
        V = rng.choice([6, 7])
        models = random_models(200 + seed, V, bidirectional=seed % 2 == 0)
        if seed % 4:
            models = reluctant(models)
        weights = random_weights(rng)
        k1 = rng.choice([1, 3, 5, 8])
        setting: dict[str, Any] = {
            "weights": weights,
            "k1": k1,
            "k2": rng.randint(1, k1),
            "max_length": rng.randint(2, 5),
            "search": search,
            "channel_alignment": channel_alignment,
            "look_ahead": seed % 3 == 1,
        }
        x = random_input(rng, longest=4)
        expected = chart_search(models, x, range(4, V), **setting)
        found = decode_one(NoisyChannelDecoder(**models.for_weights(weights), **setting), x, n_best=1000)
        if expected:
            compared += 1
            assert_same(found, [(answer.tokens, answer.score) for answer in expected])
        else:
            assert not found[0].complete
    assert compared >= 18


@pytest.mark.parametrize("lm_reads", [False, True])
def test_contexts_are_read_before_the_output(lm_reads: bool) -> None:
    """By the channel, and by a language model that is one of features and outputs."""
    models = random_models(9)
    models.lm.reads_features = lm_reads
    contexts = [(4,), (), (5, 4), (5,)]
    xs = INPUTS[:4]
    decoder = NoisyChannelDecoder(**models.for_weights(ALL), weights=ALL, **UNBOUNDED, max_length=3)
    outputs = every_output([4, 5], 3)
    for x, context, found in zip(xs, contexts, decoder.decode(xs, n_best=50, contexts=contexts), strict=True):
        direct = terms(models, x, outputs)
        after_context = terms(models, x, [(*context, *tokens) for tokens in outputs])
        expected = [
            (tokens, objective(ALL, a.viterbi, b.channel, (b if lm_reads else a).lm, a.length))
            for tokens, a, b in zip(outputs, direct, after_context, strict=True)
        ]
        expected.sort(key=lambda pair: -pair[1])
        assert_same(found, expected)
        (reranked,) = decoder.rerank([x], [outputs], [context])
        assert_same(reranked[: len(found)], expected)


@pytest.mark.parametrize("direct", [0.0, 1.0])
def test_looking_ahead_finds_better_outputs_of_long_inputs(direct: float) -> None:
    # With the proposals of the paper, prefixes that have read little of the input take the places of the others.
    weights = Weights(direct, 1.0, 1.0, 0.5)
    rng, gains = random.Random(5), []
    for seed in range(700, 712):
        models = reluctant(random_models(seed, 8, bidirectional=True, scale=1.0))
        inputs = [[*rng.choices(range(3, 7), k=14), EOS] for _ in range(3)]
        decoders = [
            NoisyChannelDecoder(
                **models.for_weights(weights), weights=weights, k1=6, k2=3, max_length=12, look_ahead=look_ahead
            )
            for look_ahead in (False, True)
        ]
        best = [[found[0].score for found in decoder.decode(inputs)] for decoder in decoders]
        gains += [ahead - literal for literal, ahead in zip(*best, strict=True)]
    better, worse = sum(gain > 1e-9 for gain in gains), sum(gain < -1e-9 for gain in gains)
    assert sum(gains) > 5.0
    assert better >= 3 * worse
    assert better >= 5


# --- 4. the batch ----------------------------------------------------------------------------------------------------


BATCH_SETTINGS = [
    {"search": "viterbi", "weights": ALL, "k1": 4, "k2": 2, "max_length": 6},
    {"search": "marginal", "weights": ALL, "k1": 3, "k2": 3, "max_length": 6},
    {
        "search": "marginal",
        "weights": Weights(0.0, 1.0, 1.0, 1.0),
        "k1": 5,
        "k2": 2,
        "max_length": 8,
        "look_ahead": True,
    },
    {"search": "viterbi", "weights": Weights(1.0, 0.0, 0.5, -0.5), "k1": 6, "k2": 3},
    {"search": "viterbi", "weights": Weights(1.0, 0.7, 0.0, 2.0), "k1": 2, "k2": 1, "max_length": 5}
    | {"channel_alignment": "viterbi", "look_ahead": True},
]


@pytest.mark.parametrize("setting", BATCH_SETTINGS, ids=range(len(BATCH_SETTINGS)))
@pytest.mark.parametrize("bidirectional", [False, True])
def test_batch_is_one_at_a_time_in_any_order(setting: dict[str, Any], bidirectional: bool) -> None:
    models = random_models(300, 8, bidirectional)
    decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, **setting)
    single = [decode_one(decoder, x, n_best=3) for x in INPUTS]
    same_batch(decoder.decode(INPUTS, n_best=3), single)
    order = random.Random(3).sample(range(len(INPUTS)), len(INPUTS))
    same_batch(decoder.decode([INPUTS[n] for n in order], n_best=3), [single[n] for n in order])


def test_longer_neighbours_and_duplicates_change_nothing() -> None:
    for seed, setting in enumerate(BATCH_SETTINGS):
        models = random_models(400 + seed, 7, bidirectional=seed % 2 == 0)
        decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, **setting)
        alone = decode_one(decoder, [5, 6, EOS], n_best=4)
        found = decoder.decode([[5, 6, EOS], [4, 5, 6, 3] * 4 + [EOS], [5, 6, EOS], [5, 6, EOS]], n_best=4)
        same_batch([found[0], found[2], found[3]], [alone] * 3)


def test_a_batch_that_does_not_fit_is_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    whole = parts.search

    def search(models: Any, plan: Any, sentences: Any, *rest: Any) -> Any:
        sizes.append(len(sentences.inputs))
        return whole(models, plan, sentences, *rest)

    monkeypatch.setattr(parts, "search", search)
    models = random_models(301, 8)
    found = []
    setting = {**models.for_weights(ALL), "weights": ALL, "k1": 4, "k2": 2}
    one = max(NoisyChannelDecoder(**setting)._budget(3).needed(len(x)) for x in INPUTS) * 5 / 4 / 2**30
    for memory_gib in (None, 1.001 * one, 3 * one):
        decoder = NoisyChannelDecoder(**setting, memory_gib=memory_gib)
        found.append(decoder.decode(INPUTS, n_best=3))
        same_batch(found[-1], found[0])
    assert sizes[0] == 7
    assert sizes[1:] == [2, 1, 1, 1, 1, 1, 4, 3]
    # Parts that turn out to be too large are halved, and nobody who watches sees a step twice.
    monkeypatch.setattr(memory, "USUAL_WIDTH", 0.01)
    sizes.clear()
    decoder = NoisyChannelDecoder(**setting, memory_gib=1.5 * one)
    same_batch(decoder.decode(INPUTS, n_best=3), found[0])
    assert sizes[0] > sizes[1]
    assert sum(sizes) > len(INPUTS)
    sizes.clear()
    same_batch(decoder.decode(INPUTS, n_best=3, watch=lambda step: None), found[0])
    assert sum(sizes) == len(INPUTS)
    with pytest.raises(ValueError, match=r"memory: must be greater than 0 and at most 1048576, but is 0\.0"):
        NoisyChannelDecoder(models.direct, memory_gib=0.0)


def test_a_search_that_runs_out_of_memory_is_done_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    models = random_models(301, 8)
    decoder = NoisyChannelDecoder(**models.for_weights(ALL), weights=ALL, k1=4, k2=2)
    expected = decoder.decode(INPUTS, n_best=3)
    whole, most = parts.search, 2

    def search(models: Any, plan: Any, sentences: Any, *rest: Any) -> Any:
        if len(sentences.inputs) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(models, plan, sentences, *rest)

    monkeypatch.setattr(parts, "search", search)
    same_batch(decoder.decode(INPUTS, n_best=3), expected)
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        decoder.decode(INPUTS, n_best=3)


def test_incomplete_hypotheses_do_not_depend_on_the_batch() -> None:
    models = random_models(5)
    for max_length in (3, None):
        decoder = NoisyChannelDecoder(
            **models.for_weights(ALL), weights=ALL, k1=3, k2=2, max_length=max_length, barred=[EOS]
        )
        together = decoder.decode(INPUTS[:4])
        same_batch(together, [decode_one(decoder, x) for x in INPUTS[:4]])
        assert not any(found[0].complete for found in together)


@pytest.mark.parametrize("search", SEARCHES)
def test_float32_models_agree(search: str) -> None:
    compared = 0
    for seed in range(2):
        double = random_models(500 + seed, 7, bidirectional=seed % 2 == 0)
        single = double.to(torch.float32)
        setting: dict[str, Any] = {"weights": ALL, "k1": 4, "k2": 2, "max_length": 6, "search": search}
        exact = NoisyChannelDecoder(**double.for_weights(ALL), **setting).decode(INPUTS, n_best=2)
        rounded = NoisyChannelDecoder(**single.for_weights(ALL), **setting)
        together = rounded.decode(INPUTS, n_best=2)
        for x, mine, yours in zip(INPUTS, together, exact, strict=True):
            assert [h.score for h in mine] == pytest.approx([h.score for h in yours], abs=1e-3)
            (alone,) = rounded.decode([x], n_best=2)
            assert [h.score for h in mine] == pytest.approx([h.score for h in alone], abs=1e-3)
            if yours[0].complete and len(yours) == 2 and yours[0].score - yours[1].score > 1e-2:
                assert mine[0].tokens == yours[0].tokens == alone[0].tokens
                (term,) = terms(single, x, [mine[0].tokens])
                assert mine[0].score == pytest.approx(term.score(ALL, search), abs=1e-3)
                compared += 1
    assert compared >= 6


# --- 7. the channel's score of a partial output in the last column ---------------------------------------------------


def test_partial_channel_score_leaves_eos_to_the_end() -> None:
    weights = Weights(0.0, 1.0, 0.7, 0.0)
    differ = 0
    for seed in range(12):
        models = random_models(600 + seed, scale=4.0)
        x = [[4, 5, EOS], [6, EOS], [EOS]][seed % 3]
        setting: dict[str, Any] = {"weights": weights, "k1": 2, "k2": 1, "max_length": 4, "search": "marginal"}
        decoder = NoisyChannelDecoder(**models.for_weights(weights), **setting)
        right = [answer[:2] for answer in chart_search(models, x, range(4, 6), **setting)]
        wrong = [answer[:2] for answer in chart_search(models, x, range(4, 6), **setting, eos_at_once=True)]
        if right:
            assert_same(decode_one(decoder, x, n_best=1000), right)
            differ += [tokens for tokens, _ in right] != [tokens for tokens, _ in wrong]
    assert differ >= 3


@pytest.mark.parametrize("channel_alignment", SEARCHES)
@pytest.mark.parametrize("x", [[EOS], [5, EOS], [6, 4, EOS]], ids=str)
def test_partial_channel_score_as_reported(x: list[int], channel_alignment: str) -> None:
    """A channel that hates to write EOS makes the last column the worst for all who are asked for it early."""
    models = random_models(8)
    with torch.no_grad():
        models.channel.output_word.bias[EOS] -= 50.0
        models.direct.emit.bias -= 6.0  # reads to the end before it says anything
    decoder = NoisyChannelDecoder(
        **models.for_weights(ALL),
        weights=ALL,
        **UNBOUNDED,
        max_length=3,
        barred=[EOS],
        channel_alignment=channel_alignment,
    )
    (hypothesis,) = decode_one(decoder, x)
    scores = PartialScores(models, x, marginal=False, channel_max=channel_alignment == "viterbi")
    if len(x) == 1:
        assert hypothesis.channel == 0.0
    else:
        assert hypothesis.channel == pytest.approx(scores.channel(hypothesis.tokens, len(x) - 2), abs=1e-9)
        assert hypothesis.channel > scores.channel(hypothesis.tokens, len(x) - 1) + 10


# --- 8. short and unfinished outputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_without_a_completion_the_best_partial_output_is_returned(search: str) -> None:
    rng = random.Random(11)
    for seed in range(12):
        models = random_models(700 + seed, bidirectional=seed % 2 == 0)
        weights, x, max_length = random_weights(rng), random_input(rng, 4), rng.randint(2, 4)
        decoder = NoisyChannelDecoder(
            **models.for_weights(weights),
            weights=weights,
            **UNBOUNDED,
            max_length=max_length,
            search=search,
            barred=[EOS],
        )
        (hypothesis,) = decode_one(decoder, x, n_best=5)
        assert not hypothesis.complete
        assert hypothesis.length == len(hypothesis.tokens)
        assert max_length - 1 <= hypothesis.length <= max_length
        scores = PartialScores(models, x, search == "marginal")
        expected = []
        for prefix in itertools.product([4, 5], repeat=hypothesis.length):
            for i in range(len(x)):
                at = min(i, len(x) - 2)
                direct = scores.direct(prefix, i)
                channel = 0.0 if at < 0 else scores.channel(prefix, at)
                lm = scores.lm(prefix)
                score = objective(weights, direct, channel, lm, len(prefix))
                expected.append((score, prefix, direct, channel, lm))
        score, prefix, direct, channel, lm = max(expected)
        # Two cells tie where the objective does not depend on the cell.
        ties = [row[1:] for row in expected if row[0] > score - 1e-9]
        assert hypothesis.score == pytest.approx(score, abs=1e-9)
        assert hypothesis.tokens in [row[0] for row in ties]
        if len(ties) == 1:
            assert hypothesis.tokens == prefix
            assert hypothesis.direct == pytest.approx(direct, abs=1e-9)
            assert hypothesis.channel == (pytest.approx(channel, abs=1e-9) if weights.channel else None)
            assert hypothesis.lm == (pytest.approx(lm, abs=1e-9) if weights.lm else None)


def test_narrow_beams_may_never_reach_eos() -> None:
    models = never_ending(random_models(1))
    found = NoisyChannelDecoder(models.direct, k1=2, k2=2, max_length=4).decode(INPUTS, n_best=3)
    assert [[hypothesis.complete for hypothesis in row] for row in found] == [[False]] * len(INPUTS)
    wide = NoisyChannelDecoder(models.direct, k1=5, k2=2, max_length=4).decode(INPUTS, n_best=3)
    assert all(hypothesis.complete for row in wide for hypothesis in row)


@pytest.mark.parametrize("search", SEARCHES)
def test_max_length_one_allows_the_empty_output_only(search: str) -> None:
    for seed, x in enumerate(INPUTS):
        models = random_models(seed)
        decoder = NoisyChannelDecoder(**models.for_weights(ALL), weights=ALL, **UNBOUNDED, max_length=1, search=search)
        (hypothesis,) = decode_one(decoder, x, n_best=5)
        (term,) = terms(models, x, [()])
        assert (hypothesis.tokens, hypothesis.length, hypothesis.complete) == ((), 1, True)
        assert hypothesis.score == pytest.approx(term.score(ALL, search), abs=1e-9)
        assert hypothesis.alignment == (len(x) - 1,)
        assert hypothesis.channel_alignment == (0,) * len(x)


def test_max_length_counts_eos() -> None:
    models = random_models(2)
    for max_length in range(1, 5):
        decoder = NoisyChannelDecoder(models.direct, weights=Weights(length=50.0), **UNBOUNDED, max_length=max_length)
        assert decode_one(decoder, [4, 5, EOS])[0].length == max_length


def test_max_length_depends_on_the_input_where_not_given() -> None:
    models = random_models(2)
    decoder = NoisyChannelDecoder(models.direct, weights=Weights(length=1000.0), k1=40, k2=2)
    xs = [[EOS], [4, EOS], [4, 5, 6, EOS]]
    expected = [2 * len(x) + 10 for x in xs]
    assert [row[0].length for row in decoder.decode(xs)] == expected
    assert [decode_one(decoder, x)[0].length for x in xs] == expected


# --- 9. stopping early -----------------------------------------------------------------------------------------------


def test_stopping_early_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(13)
    judge = chart.still_open
    steps = {"early": 0, "late": 0}
    seen = {True: 0, False: 0}

    def count_steps(*args: Any, **kwargs: Any) -> torch.Tensor:
        steps["early"] += 1
        return judge(*args, **kwargs)

    def everything_open(*args: Any, **kwargs: Any) -> torch.Tensor:
        steps["late"] += 1
        sentences = next(x for x in (*args, *kwargs.values()) if isinstance(x, chart.Sentences))
        return torch.ones_like(sentences.lengths, dtype=torch.bool)

    for seed in range(30):
        models = random_models(800 + seed, rng.choice([6, 8]), bidirectional=seed % 2 == 0)
        weights = random_weights(rng)
        if seed % 5 == 0:
            weights = Weights(*(-0.3 if rng.random() < 0.4 else 0.9 for _ in range(3)), length=rng.uniform(-1, 1))
        if seed % 3:
            models = reluctant(models, rng.uniform(4, 12))
        k1 = rng.choice([1, 3, 6])
        decoder = NoisyChannelDecoder(
            **models.for_weights(weights),
            weights=weights,
            k1=k1,
            k2=rng.randint(1, k1),
            max_length=rng.choice([4, 9]),
            search=SEARCHES[seed // 2 % 2],
            channel_alignment=SEARCHES[seed // 4 % 2],
        )
        xs, n_best = [random_input(rng) for _ in range(8)], rng.choice([1, 1, 2, 4])
        monkeypatch.setattr(chart, "still_open", count_steps)
        early = decoder.decode(xs, n_best)
        monkeypatch.setattr(chart, "still_open", everything_open)
        late = decoder.decode(xs, n_best)
        same_batch(early, late)
        seen[weights.length > 0] += sum(found[0].complete and found[0].length > 1 for found in early)
    assert steps["early"] < 0.9 * steps["late"]
    assert min(seen.values()) > 5


@pytest.mark.parametrize("length", [-1.5, -0.5, 0.5, 1.5])
def test_longer_outputs_overtake_shorter_ones(length: float) -> None:
    """Exact search for one output only: it stops as soon as it may, and not before."""
    weights = Weights(0.8, 0.4, 0.0, length)
    later = 0
    for seed in range(8):
        models = reluctant(random_models(850 + seed))
        decoder = NoisyChannelDecoder(**models.for_weights(weights), weights=weights, k1=50, k2=50, max_length=6)
        for x, found in zip(INPUTS, decoder.decode(INPUTS), strict=True):
            expected = best_outputs(models, x, [4, 5], weights, 6, "viterbi")[:1]
            assert_same(found, expected)
            later += found[0].length > 1
    assert later > 20


class Position(NamedTuple):
    """How many symbols were said."""

    said: torch.Tensor

    def select(self, indices: torch.Tensor) -> Position:
        return Position(self.said[indices])


class Chain(nn.Module):
    """q(y | x) = Π_j p(y_j | y_{j-1}, j) from a table, all said (but for 1e-9) after the whole of x was read."""

    bidirectional = False

    def __init__(self, probabilities: dict[tuple[int, int, int], float]) -> None:
        """(position, last symbol, symbol) -> probability; the rest of it is spread over PAD, which is never said."""
        super().__init__()
        table = torch.zeros(12, 6, 6, dtype=torch.float64)
        for place, probability in probabilities.items():
            table[place] = probability
        table[..., PAD] = 1 - table.sum(-1)
        self.logits = nn.Parameter(table.clamp(min=1e-12).log())

    def read_inputs(self, inputs: torch.Tensor, input_lengths: torch.Tensor) -> Side:
        last = torch.arange(inputs.shape[1]) == (input_lengths - 1)[:, None]
        zeros = torch.zeros(*inputs.shape, 6, dtype=torch.float64)
        return Side(zeros, torch.where(last, 20.0, -20.0).double()[..., None])

    def start_outputs(self, n: int) -> Position:
        return Position(torch.zeros(n, dtype=torch.long))

    def step_outputs(
        self, symbols_N: torch.Tensor, state: Position, parents_N: torch.Tensor | None = None
    ) -> tuple[Side, Position]:
        said = state.said if parents_N is None else state.said[parents_N]
        scores = self.logits[said, symbols_N]
        return Side(scores, torch.zeros(len(symbols_N), 1, dtype=torch.float64)), Position(said + 1)

    def emit_logits(self, input_side: Side, output_side: Side) -> torch.Tensor:
        return input_side.gate[..., :, None, 0] + output_side.gate[..., None, :, 0]

    def viterbi(self, *ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(len(ids[2])), torch.zeros_like(ids[2])


@pytest.mark.parametrize("x", [[EOS], [4, 5, EOS]], ids=str)
def test_the_bound_is_as_tight_as_the_models_allow(x: list[int]) -> None:
    """The empty output is found first; the winner is barely better, and loses nothing more on its way."""
    chain = Chain({(0, BOS, EOS): 0.45, (0, BOS, 4): 0.5} | {(1, 4, EOS): 1.0})
    (best,) = decode_one(NoisyChannelDecoder(chain, max_length=6), x)
    assert best.tokens == (4,)
    assert best.score == pytest.approx(math.log(0.5), abs=1e-6)


@pytest.mark.parametrize(("weight", "winner"), [(0.1, 9), (0.02, 1), (-0.02, 1)])
def test_a_positive_length_weight_keeps_long_outputs_in_the_race(weight: float, winner: int) -> None:
    """The short answer leads until the long one, paid by its length, overtakes it at the very end."""
    chain = Chain(
        {(0, BOS, EOS): 0.6, (0, BOS, 4): 0.4, (8, 4, EOS): 1.0} | {(position, 4, 4): 1.0 for position in range(1, 8)}
    )
    decoder = NoisyChannelDecoder(chain, weights=Weights(1.0, length=weight), k1=4, k2=2, max_length=9)
    (best,) = decode_one(decoder, [EOS])
    assert best.length == winner
    assert best.score == pytest.approx(math.log(0.4 if winner == 9 else 0.6) + weight * winner, abs=1e-6)


@pytest.mark.parametrize("channel_alignment", SEARCHES)
def test_the_channel_may_be_explained_later(channel_alignment: str) -> None:
    """What counts is what the channel can still gain by reading on, not what the output explains as it stands."""
    weights = Weights(0.1, 2.0, 0.0, 0.0)
    later = 0
    for seed in range(10):
        models = random_models(870 + seed, scale=4.0)
        decoder = NoisyChannelDecoder(
            **models.for_weights(weights),
            weights=weights,
            k1=50,
            k2=50,
            max_length=5,
            channel_alignment=channel_alignment,
        )
        for x, found in zip(INPUTS, decoder.decode(INPUTS), strict=True):
            assert_same(found, best_outputs(models, x, [4, 5], weights, 5, "viterbi", channel_alignment)[:1])
            later += found[0].length > 2
    assert later > 6


# --- 10. bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k1": 2, "k2": 3}, "k2"),
        ({"k1": 0, "k2": 0}, "k1"),
        ({"k1": -1, "k2": -1}, "k1"),
        ({"k2": 0}, "k2"),
        ({"max_length": 0}, "max_length"),
        ({"search": "beam"}, "search.*beam"),
        ({"channel_alignment": "best"}, "channel_alignment.*best"),
        ({"weights": Weights(1.0, channel=0.5)}, "channel.*0.5"),
        ({"weights": Weights(1.0, lm=-0.5)}, "lm.*-0.5"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoisyChannelDecoder(random_models(0).direct, **arguments)


def test_bidirectional_channel_is_refused() -> None:
    models = random_models(0)
    channel = random_models(0, V=7, bidirectional=True).direct
    with pytest.raises(ValueError, match="bidirectional"):
        NoisyChannelDecoder(models.direct, channel, weights=Weights(1.0, channel=1.0))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["direct", "channel", "lm", "length"])
def test_weights_must_be_finite(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Weights(**{name: value})


@pytest.mark.parametrize("x", [[4, 5], [EOS, 4, EOS], [4, EOS, EOS], [], [4, EOS, PAD]], ids=str)
def test_sequences_must_end_in_their_only_eos(x: list[int]) -> None:
    decoder = NoisyChannelDecoder(random_models(0).direct)
    with pytest.raises(ValueError, match=r"inputs\[1\].*EOS"):
        decoder.decode([[4, EOS], x])


@pytest.mark.parametrize("n_best", [0, -1])
def test_n_best_must_be_positive(n_best: int) -> None:
    with pytest.raises(ValueError, match="n_best"):
        NoisyChannelDecoder(random_models(0).direct).decode([[4, EOS]], n_best=n_best)


@pytest.mark.parametrize("role", ["direct", "channel", "lm"])
def test_nan_in_a_model_is_one_clear_line(role: str) -> None:
    models = random_models(0)
    with torch.no_grad():
        next(getattr(models, role).parameters())[0, 0] = math.nan
    with pytest.raises(ValueError, match=f"the {role} model has NaN or infinite weights .*; .*train it again"):
        NoisyChannelDecoder(**models.for_weights(ALL), weights=ALL)
    if role != "direct":
        NoisyChannelDecoder(models.direct, models.channel, models.lm), "a model of weight zero is not asked"


def test_empty_batch() -> None:
    assert NoisyChannelDecoder(random_models(0).direct).decode([]) == []


# --- 12. which symbols may be said -----------------------------------------------------------------------------------


def loud(models: Models, symbols: list[int], by: float = 30.0) -> Models:
    """The same, but direct and language model want to say ``symbols`` above all."""
    with torch.no_grad():
        models.direct.output_word.bias[symbols] += by
        models.lm.word.bias[symbols] += by
    return models


def said(decoder: NoisyChannelDecoder) -> set[int]:
    found = decoder.decode(INPUTS, n_best=6)
    assert all(hypothesis.complete for row in found for hypothesis in row)
    return {symbol for row in found for hypothesis in row for symbol in hypothesis.tokens}


def test_symbols_never_proposed() -> None:
    weights = Weights(1.0, 0.5, 1.0, 0.5)
    models = loud(random_models(4, 8), [PAD, BOS, UNK])
    setting: dict[str, Any] = {
        **models.for_weights(weights),
        "weights": weights,
        "k1": 12,
        "k2": 3,
        "max_length": 5,
        "search": "marginal",
    }
    assert said(NoisyChannelDecoder(**setting)) == {4, 5, 6, 7}
    assert UNK in said(NoisyChannelDecoder(**setting, allow_unk=True)) <= {UNK, 4, 5, 6, 7}
    assert said(NoisyChannelDecoder(**setting, barred=[4, 6])) == {5, 7}
    assert UNK in said(NoisyChannelDecoder(**setting, barred=[4], allow_unk=True)) <= {UNK, 5, 6, 7}
    assert said(NoisyChannelDecoder(**setting, barred=[4, 5, 6, 7])) == set()


def test_barred_symbols_are_absent_from_an_exact_search() -> None:
    for seed, (barred, allow_unk, symbols) in enumerate([([5], False, [4, 6]), ([], True, [3, 4, 5, 6])]):
        models = random_models(seed, 7)
        decoder = NoisyChannelDecoder(
            **models.for_weights(ALL), weights=ALL, **UNBOUNDED, max_length=4, barred=barred, allow_unk=allow_unk
        )
        for x in INPUTS[:4]:
            expected = best_outputs(models, x, symbols, ALL, 4, "viterbi")
            assert_same(decode_one(decoder, x, n_best=1000), expected)


@pytest.mark.parametrize(
    ("max_length", "max_growth", "longest"), [(None, None, 16), (5, None, 5), (None, 2, 5), (9, 2, 5), (4, 2, 4)]
)
def test_the_longest_output(max_length: int | None, max_growth: int | None, longest: int) -> None:
    """EOS is barred, so the search goes on as long as it may; the input has three symbols with EOS."""
    torch.manual_seed(1)
    decoder = NoisyChannelDecoder(SSNT(6, 6, 4), max_length=max_length, max_growth=max_growth, barred=[EOS])
    ((found,),) = decoder.decode([[4, 5, EOS]])
    assert not found.complete
    assert len(found.tokens) == longest - 1


def test_a_negative_growth_is_refused() -> None:
    with pytest.raises(ValueError, match="max_growth: must be at least 0, but is -1"):
        NoisyChannelDecoder(SSNT(6, 6, 4), max_growth=-1)
