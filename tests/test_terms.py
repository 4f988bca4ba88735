"""Further terms of the objective: in the search and after it, against all outputs one by one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from decoder_oracles import (
    Models,
    Tokens,
    assert_same,
    every_output,
    pairs,
    random_input,
    random_models,
    reluctant,
    terms,
)
from noisychannel import Hypothesis, LanguageModel, NoisyChannelDecoder, OnlineDecoder, Weights
from noisychannel.decode import chart
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.ids import BOS, EOS, PAD
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.models.word_list import WordList
from test_word_list import by_definition, listed

INPUTS = [[EOS], [4, EOS], [6, 5, EOS], [3, 4, 5, 6, EOS], [5, 5, 4, EOS]]
SEARCHES = ["viterbi", "marginal"]
UNBOUNDED = {"k1": 400, "k2": 400}
WORDS = [(4,), (4, 5), (5, 5, 4)]


def second_lm(seed: int, V: int = 6) -> LanguageModel:
    return random_models(seed, V).lm


class Position(NamedTuple):
    symbol: Tensor

    def select(self, indices: Tensor) -> Position:
        return Position(self.symbol[indices])

    def put(self, rows: Tensor, new: Position) -> Position:
        return Position(self.symbol.index_copy(0, rows, new.symbol))

    def concat(self, other: Position) -> Position:
        return Position(torch.cat([self.symbol, other.symbol]))


class Bigrams(nn.Module):
    """Σ_j table[y_{j-1}, y_j]: scores proposed symbols only, or all of them."""

    reads_features = False

    def __init__(self, seed: int, V: int = 6, rises: bool = False, distribution: bool = False) -> None:
        super().__init__()
        table = torch.randn(V, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.register_buffer("table", table if rises else -table.abs())
        self.may_rise, self.distribution = rises, distribution

    def term(self, tokens: Tokens) -> float:
        said = (BOS, *tokens, EOS)
        return sum(float(self.table[a, b]) for a, b in itertools.pairwise(said))

    def log_prob(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        rows = zip(outputs.tolist(), output_lengths.tolist(), strict=True)
        return torch.tensor([self.term(tuple(ids[: n - 1])) for ids, n in rows], dtype=torch.float64)

    def start(self, n: int) -> Position:
        return Position(torch.full((n,), PAD))

    def step(
        self, symbols_N: Tensor, state: Position, parents_N: Tensor | None = None
    ) -> tuple[Tensor | None, Position]:
        assert len(symbols_N) == len(state.symbol if parents_N is None else parents_N)
        return self.table[symbols_N] if self.distribution else None, Position(symbols_N)

    def score(self, state: Position, symbols_N: Tensor) -> Tensor:
        return self.table[state.symbol, symbols_N]


def vowels(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> list[float]:
    """A scorer of whole outputs: it likes those that hold as many 5 as the input."""
    return [-abs(list(x).count(5) - list(y).count(5)) + 0.1 * len(y) for x, y in zip(inputs, outputs, strict=True)]


Value = Callable[[Sequence[int], Tokens], float]
"""A further term of an input and an output, from its definition."""


def of_lm(lm: LanguageModel) -> Value:
    def value(x: Sequence[int], tokens: Tokens) -> float:
        ids = torch.tensor([[*tokens, EOS]])
        with torch.no_grad():
            return float(lm.log_prob(ids, torch.tensor([ids.shape[1]])))

    return value


def further_terms(seed: int, V: int = 6) -> tuple[dict[str, Any], dict[str, Value]]:
    """Terms that score prefixes, and their definitions."""
    lm, bigrams = second_lm(seed + 1000, V), Bigrams(seed, V)
    return {"news": lm, "bigrams": bigrams, "word_list": WordList(listed(WORDS, V))}, {
        "news": of_lm(lm),
        "bigrams": lambda x, tokens: bigrams.term(tokens),
        "word_list": lambda x, tokens: by_definition(WORDS, (*tokens, EOS)),
    }


def ranked(
    models: Models, x: Sequence[int], V: int, weights: Weights, longest: int, search: str, values: dict[str, Value]
) -> list[tuple[Tokens, float]]:
    """All outputs, best first."""
    outputs = every_output(range(4, V), longest)
    found = []
    for tokens, term in zip(outputs, terms(models, x, outputs), strict=True):
        extra = sum(weight * values[name](x, tokens) for name, weight in weights.extra.items() if weight)
        found.append((tokens, term.score(weights, search) + extra))
    return sorted(found, key=lambda pair: -pair[1])


def random_extra(rng: random.Random, names: Sequence[str], low: float = -1.5) -> dict[str, float]:
    return {name: rng.choice([0.0, rng.uniform(low, 2.0), rng.uniform(0.1, 2.0)]) for name in names}


def check_values(x: Sequence[int], found: Sequence[Hypothesis], weights: Weights, values: dict[str, Value]) -> None:
    """The reported terms are those from scratch; a term of weight zero is absent."""
    used = [name for name, weight in weights.extra.items() if weight]
    for hypothesis in found:
        assert list(hypothesis.extra) == used
        for name in used:
            assert hypothesis.extra[name] == pytest.approx(values[name](x, hypothesis.tokens), abs=1e-9)
        total = sum(
            weights.by_name()[name] * term for name, term in hypothesis.terms().items() if weights.by_name()[name]
        )
        assert hypothesis.score == pytest.approx(total, abs=1e-9)


def everyone(models: Models, weights: Weights, further: dict[str, Any], **setting: Any) -> dict[str, Any]:
    return {**models.for_weights(weights), "weights": weights, "extra": further, **setting}


def online(arguments: dict[str, Any], x: Sequence[int], n_best: int) -> list[Hypothesis]:
    decoder = OnlineDecoder(NoisyChannelDecoder(**arguments))
    for symbol in x[:-1]:
        decoder.read(symbol)
    return decoder.finish(n_best)


# --- 1. terms that score prefixes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_unbounded_beams_find_the_exact_n_best(search: str) -> None:
    rng = random.Random(search)
    changed = 0
    for seed in range(6):
        V = rng.choice([6, 7])
        models, (further, values) = reluctant(random_models(seed, V)), further_terms(seed, V)
        weights = Weights(0.8, rng.choice([0.0, 0.6]), rng.choice([0.0, 0.5]), 0.4, extra=random_extra(rng, [*further]))
        arguments = everyone(models, weights, further, **UNBOUNDED, max_length=4, search=search)
        for x, found in zip(INPUTS, NoisyChannelDecoder(**arguments).decode(INPUTS, n_best=6), strict=True):
            expected = ranked(models, x, V, weights, 4, search, values)[:6]
            assert_same(found, expected)
            check_values(x, found, weights, values)
            assert_same(online(arguments, x, 6), expected)
            plain = Weights(weights.direct, weights.channel, weights.lm, weights.length)
            changed += expected[0][0] != ranked(models, x, V, plain, 4, search, {})[0][0]
    assert changed > 8, "terms that change nothing test nothing"


def test_equals_the_reference_with_narrow_beams() -> None:
    rng = random.Random(3)
    compared = 0
    for seed in range(24):
        V = rng.choice([6, 7])
        models, (further, values) = random_models(40 + seed, V, bidirectional=seed % 4 == 0), further_terms(seed, V)
        models = reluctant(models) if seed % 3 else models
        weights = Weights(
            rng.choice([0.0, 1.0]), rng.choice([0.0, 0.7]), 0.4, rng.uniform(-1, 1), extra=random_extra(rng, [*further])
        )
        k1 = rng.choice([2, 4, 7])
        arguments = everyone(
            models,
            weights,
            further,
            k1=k1,
            k2=rng.randint(1, k1),
            max_length=rng.randint(2, 5),
            search=SEARCHES[seed % 2],
            channel_alignment=SEARCHES[seed // 2 % 2],
        )
        x = random_input(rng)
        expected = ReferenceDecoder(**arguments).decode(x)
        for n_best in (1, 3, 1000):
            (found,) = NoisyChannelDecoder(**arguments).decode([x], n_best)
            if not expected:
                assert [hypothesis.complete for hypothesis in found] == [False]
                continue
            compared += 1
            assert_same(found, pairs(expected[:n_best]))
            check_values(x, found, weights, values)
            if seed % 4:
                assert_same(online(arguments, x, n_best), pairs(expected[:n_best]))
        for hypothesis in expected:
            check_values(x, [hypothesis], weights, values)
    assert compared > 30


def test_the_batch_does_not_matter() -> None:
    models, (further, values) = random_models(7), further_terms(7)
    weights = Weights(1.0, 0.5, 0.3, 0.6, extra={"news": 0.4, "bigrams": -0.2, "word_list": 1.5})
    decoder = NoisyChannelDecoder(**everyone(models, weights, further, k1=4, k2=2))
    together = decoder.decode(INPUTS, n_best=3)
    for x, found in zip(INPUTS, together, strict=True):
        (alone,) = decoder.decode([x], n_best=3)
        assert_same(found, pairs(alone))
        check_values(x, [h for h in found if h.complete], weights, values)
        (again,) = decoder.score([x], [[h.tokens for h in found if h.complete]])
        assert_same(again, pairs(h for h in found if h.complete))
        check_values(x, again, weights, values)


def test_a_batch_that_shrinks_keeps_the_terms_of_each_sentence() -> None:
    """Outputs may be as long as their input is, so the sentences end one after the other, in any order."""
    models, (further, values) = random_models(12), further_terms(12)
    weights = Weights(0.3, 0.0, 0.8, 2.0, extra={"news": 0.7, "bigrams": 0.5})
    decoder = NoisyChannelDecoder(**everyone(models, weights, further, k1=6, k2=3, max_growth=0))
    rng = random.Random(0)
    xs = [[*rng.choices(range(3, 7), k=n), EOS] for n in (1, 7, 2, 6, 1, 8, 3, 2)]
    for order in (xs, xs[::-1]):
        for x, found in zip(order, decoder.decode(order, n_best=40), strict=True):
            (alone,) = decoder.decode([x], n_best=40)
            assert_same(found, pairs(alone))
            check_values(x, found, weights, values)


def test_a_partial_output_has_its_terms() -> None:
    models, (further, _) = random_models(8), further_terms(8)
    weights = Weights(1.0, 0.5, 0.3, 0.6, extra={"bigrams": 0.7, "word_list": 1.5})
    arguments = everyone(models, weights, further, k1=4, k2=2, max_length=4, barred=[EOS])
    for x in INPUTS:
        ((found,),) = NoisyChannelDecoder(**arguments).decode([x])
        assert not found.complete
        said = (BOS, *found.tokens)
        bigrams = sum(float(further["bigrams"].table[a, b]) for a, b in itertools.pairwise(said))
        assert found.extra["bigrams"] == pytest.approx(bigrams)
        assert found.extra["word_list"] == by_definition(WORDS, found.tokens)
        assert found.score == pytest.approx(sum(weights.by_name()[n] * t for n, t in found.terms().items()))
        (same,) = online(arguments, x, 1)
        assert (same.tokens, dict(same.extra)) == (found.tokens, pytest.approx(dict(found.extra)))


@pytest.mark.parametrize("reads", [True, False])
def test_contexts_are_read_by_the_terms_that_read_features(reads: bool) -> None:
    models, news = random_models(9), second_lm(3)
    news.reads_features = reads
    words = WordList(listed([(5, 4), (5, 4, 4), (4, 5)]), reads_features=reads)
    weights = Weights(0.8, 0.6, 0.5, 0.4, extra={"news": 0.7, "word_list": 2.0})
    decoder = NoisyChannelDecoder(
        **everyone(models, weights, {"news": news, "word_list": words}, **UNBOUNDED, max_length=3)
    )
    xs, contexts = INPUTS[:4], [(4,), (), (5, 4), (5,)]
    outputs = every_output([4, 5], 3)
    for x, context, found in zip(xs, contexts, decoder.decode(xs, 50, contexts), strict=True):
        expected = []
        rows = zip(outputs, terms(models, x, outputs), terms(models, x, [(*context, *y) for y in outputs]), strict=True)
        for tokens, plain, with_context in rows:
            read = (*context, *tokens) if reads else tokens
            score = 0.8 * plain.viterbi + 0.6 * with_context.channel + 0.5 * plain.lm + 0.4 * plain.length
            listed_score = by_definition([(5, 4), (5, 4, 4), (4, 5)], (*read, EOS))
            expected.append((tokens, score + 0.7 * of_lm(news)(x, read) + 2.0 * listed_score))
        expected.sort(key=lambda pair: -pair[1])
        assert_same(found, expected)
        (reranked,) = decoder.rerank([x], [outputs], [context])
        assert_same(reranked, expected)


@pytest.mark.parametrize("distribution", [True, False])
def test_a_language_model_may_score_proposed_symbols_only(distribution: bool) -> None:
    models, bigrams = random_models(2), Bigrams(5, distribution=distribution)
    weights = Weights(0.8, 0.6, 0.9, 0.4)
    arguments = {**models.for_weights(weights), "lm": bigrams, "weights": weights, "k1": 5, "k2": 3, "max_length": 5}
    for x in INPUTS:
        expected = ReferenceDecoder(**arguments).decode(x)
        (found,) = NoisyChannelDecoder(**arguments).decode([x], 4)
        assert_same(found, pairs(expected[:4]))
        assert_same(online(arguments, x, 4), pairs(expected[:4]))
        assert [h.lm for h in found] == pytest.approx([bigrams.term(h.tokens) for h in found])


def test_proposals_by_the_language_model_need_a_distribution() -> None:
    direct, weights = random_models(2).direct, Weights(1.0, lm=0.5)
    NoisyChannelDecoder(direct, None, Bigrams(5, distribution=True), weights, lm_proposals=3).decode(INPUTS)
    with pytest.raises(ValueError, match=r"^lm_proposals is 3, but Bigrams has no distribution[^\n]*$"):
        NoisyChannelDecoder(direct, None, Bigrams(5), weights, lm_proposals=3)


# --- 2. stopping early -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rises", [False, True])
def test_stopping_early_changes_no_answer(rises: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for terms that may grow, and for negative weights: then nothing stops early."""
    rng = random.Random(11)
    steps: list[str] = []
    judge = chart.still_open

    def counted(*args: Any) -> Tensor:
        steps.append("early")
        return judge(*args)

    def everything_open(*args: Any) -> Tensor:
        steps.append("late")
        return torch.ones_like(args[2].lengths, dtype=torch.bool)

    for seed in range(16):
        models = reluctant(random_models(60 + seed), rng.uniform(4, 12))
        further = {"bigrams": Bigrams(seed, rises=rises), "word_list": WordList(listed(WORDS))}
        weights = Weights(0.8, 0.4, 0.3, 0.1, extra={"bigrams": rng.uniform(0.1, 2), "word_list": rng.uniform(0, 3)})
        decoder = NoisyChannelDecoder(**everyone(models, weights, further, k1=4, k2=2, max_length=9))
        xs, n_best = [random_input(rng) for _ in range(4)], rng.choice([1, 3])
        monkeypatch.setattr(chart, "still_open", counted)
        early = decoder.decode(xs, n_best)
        monkeypatch.setattr(chart, "still_open", everything_open)
        for found, expected in zip(early, decoder.decode(xs, n_best), strict=True):
            assert_same(found, pairs(expected))
    assert (steps.count("early") < steps.count("late")) is not rises


def test_a_negative_weight_keeps_a_search_open() -> None:
    """Density ratio: what the language model of the pairs finds improbable wins later, and must be waited for."""
    late = 0
    for seed in range(12):
        models, ratio = random_models(80 + seed, scale=2.0), second_lm(seed)
        weights = Weights(1.0, extra={"ratio": -0.8})
        decoder = NoisyChannelDecoder(models.direct, weights=weights, extra={"ratio": ratio}, **UNBOUNDED, max_length=5)
        for x, found in zip(INPUTS, decoder.decode(INPUTS), strict=True):
            assert_same(found, ranked(models, x, 6, weights, 5, "viterbi", {"ratio": of_lm(ratio)})[:1])
            late += found[0].length > 2
    assert late > 10


# --- 3. terms that score whole outputs -------------------------------------------------------------------------------


def test_terms_of_whole_outputs_join_after_the_search() -> None:
    """The search keeps at least k2 answers; with all of them the argmax is exact."""
    changed = 0
    for seed in range(5):
        models, (further, values) = reluctant(random_models(seed)), further_terms(seed)
        further["vowels"], values["vowels"] = vowels, lambda x, y: vowels([x], [y])[0]
        weights = Weights(0.8, 0.6, 0.5, 0.4, extra={"word_list": 0.7, "vowels": 9.0, "news": 0.2})
        arguments = everyone(models, weights, further, **UNBOUNDED, max_length=4)
        for x, found in zip(INPUTS, NoisyChannelDecoder(**arguments).decode(INPUTS), strict=True):
            expected = ranked(models, x, 6, weights, 4, "viterbi", values)[:1]
            assert_same(found, expected)
            check_values(x, found, weights, values)
            assert_same(online(arguments, x, 1), expected)
            if seed == 0:
                assert_same(ReferenceDecoder(**arguments).decode(x)[:1], expected)
            without = Weights(0.8, 0.6, 0.5, 0.4, extra={"word_list": 0.7, "news": 0.2})
            changed += expected[0][0] != ranked(models, x, 6, without, 4, "viterbi", values)[0][0]
    assert changed > 5


def test_at_least_k2_answers_are_ranked_again() -> None:
    models = reluctant(random_models(4))
    weights = Weights(1.0, extra={"vowels": 3.0})
    decoder = NoisyChannelDecoder(models.direct, weights=weights, extra={"vowels": vowels}, k1=9, k2=6, max_length=5)
    plain = NoisyChannelDecoder(models.direct, k1=9, k2=6, max_length=5)
    for x, found, before in zip(INPUTS, decoder.decode(INPUTS, 2), plain.decode(INPUTS, 6), strict=True):
        again = sorted(before, key=lambda h: -(h.score + 3.0 * vowels([x], [h.tokens])[0]))
        assert [h.tokens for h in found] == [h.tokens for h in again[:2]]


def test_a_conditional_model_can_be_a_term() -> None:
    torch.manual_seed(0)
    models, attention = random_models(3), Seq2Seq(7, 6, 5).double().eval()

    def value(x: Sequence[int], tokens: Tokens) -> float:
        y = torch.tensor([[*tokens, EOS]])
        with torch.no_grad():
            return float(attention.log_prob(torch.tensor([x]), torch.tensor([len(x)]), y, torch.tensor([y.shape[1]])))

    weights = Weights(0.5, extra={"attention": 1.0})
    decoder = NoisyChannelDecoder(
        models.direct, weights=weights, extra={"attention": attention}, **UNBOUNDED, max_length=3
    )
    for x, found in zip(INPUTS, decoder.decode(INPUTS), strict=True):
        assert_same(found, ranked(models, x, 6, weights, 3, "viterbi", {"attention": value})[:1])


def test_a_partial_output_is_not_a_whole_one() -> None:
    weights = Weights(1.0, extra={"vowels": 3.0})
    decoder = NoisyChannelDecoder(
        random_models(1).direct, weights=weights, extra={"vowels": vowels}, max_length=3, barred=[EOS]
    )
    ((found,),) = decoder.decode([[4, EOS]])
    assert (found.complete, dict(found.extra)) == (False, {})


# --- 4. what is asked of terms ---------------------------------------------------------------------------------------


def test_terms_of_weight_zero_are_not_asked() -> None:
    models, weights = random_models(1), Weights(1.0, extra={"broken": 0.0})
    decoder = NoisyChannelDecoder(models.direct, weights=weights, extra={"broken": object()})  # type: ignore[dict-item]
    assert decoder.decode([[4, EOS]])[0][0].extra == {}
    with pytest.raises(ValueError, match="object is neither a source model, nor a model with log_prob, nor a scorer"):
        decoder.reweighted(Weights(1.0, extra={"broken": 1.0}))
    with pytest.raises(ValueError, match=r"the weight other is 0\.5, but no other model is given"):
        decoder.reweighted(Weights(1.0, extra={"other": 0.5}))


def test_nan_in_a_term_is_one_clear_line() -> None:
    lm = second_lm(0)
    with torch.no_grad():
        next(lm.parameters())[0, 0] = math.nan
    with pytest.raises(ValueError, match="the news model has NaN or infinite weights"):
        NoisyChannelDecoder(random_models(1).direct, weights=Weights(1.0, extra={"news": 1.0}), extra={"news": lm})


def test_nan_from_a_term_is_one_clear_line() -> None:
    models, weights = random_models(1), Weights(1.0, extra={"own": 1.0})

    def scorer(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], /) -> list[float]:
        return [math.nan] * len(outputs)

    with pytest.raises(ValueError, match="the scorer own gave NaN for the output"):
        NoisyChannelDecoder(models.direct, weights=weights, extra={"own": scorer}).decode(INPUTS)
    listed_words = WordList(listed(WORDS, 6))
    listed_words.score = lambda state, symbols_N: symbols_N * math.nan  # type: ignore[method-assign]
    decoder = NoisyChannelDecoder(models.direct, weights=weights, extra={"own": listed_words})
    with pytest.raises(ValueError, match="the term own gave NaN for a symbol"):
        decoder.decode(INPUTS)
    with pytest.raises(ValueError, match="the term own gave NaN for a symbol"):
        OnlineDecoder(decoder).read(4)


def test_a_term_of_another_vocabulary_is_refused() -> None:
    weights = Weights(1.0, extra={"news": 1.0})
    with pytest.raises(ValueError, match="the term news has 5 output symbols, but the direct model has 6"):
        NoisyChannelDecoder(random_models(1).direct, weights=weights, extra={"news": second_lm(0, V=5)})


def test_models_are_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from noisychannel.decode import base

    scanned: list[nn.Module] = []
    whole = base.non_finite_parameter
    monkeypatch.setattr(base, "non_finite_parameter", lambda model: scanned.append(model) or whole(model))
    models, news = random_models(1), second_lm(2)
    decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, extra={"news": news})
    weights = Weights(0.5, 0.4, 0.3, 0.2, extra={"news": 0.1})
    for _ in range(3):
        other = decoder.reweighted(weights)
        assert other.decode(INPUTS[:2]) == other.reweighted(weights).decode(INPUTS[:2])
    assert decoder.weights == Weights()
    assert sorted(map(id, scanned)) == sorted(map(id, (models.direct, models.channel, models.lm, news)))
    fresh = NoisyChannelDecoder(models.direct, models.channel, models.lm, weights, extra={"news": news})
    assert fresh.decode(INPUTS) == decoder.reweighted(weights).decode(INPUTS)


def test_online_decoding_needs_steps_on_both_sides() -> None:
    class OneSided:
        bidirectional = False

        def __init__(self) -> None:
            self.inner = random_models(0).direct

        def __getattr__(self, name: str) -> Any:
            if name == "step_inputs":
                raise AttributeError(name)
            return getattr(self.inner, name)

    with pytest.raises(ValueError, match="OneSided has no method step_inputs"):
        OnlineDecoder(NoisyChannelDecoder(OneSided()))
    news = second_lm(0)
    news.reads_features = True
    decoder = NoisyChannelDecoder(
        random_models(0).direct, weights=Weights(1.0, extra={"news": 1.0}), extra={"news": news}
    )
    with pytest.raises(ValueError, match="the term news reads features before an output"):
        OnlineDecoder(decoder)
