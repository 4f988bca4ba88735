"""Reranking: any scorers on texts and ids, and the objective of given outputs against the models themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from decoder_oracles import Models, Terms, every_output, random_models, terms
from noisychannel import NoisyChannelDecoder, Weights
from noisychannel.decode import memory
from noisychannel.decode.beam_decoder import BeamDecoder
from noisychannel.decode.rerank import Reranker, weighted_sum
from noisychannel.decode.scorers import (
    ChannelScorer,
    ConditionalScorer,
    SourceScorer,
    TextScorer,
    ViterbiScorer,
    model_scorers,
    output_length,
)
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import EOS
from noisychannel.models.seq2seq import Seq2Seq

INPUTS = [[EOS], [4, EOS], [6, 5, EOS], [3, 4, 5, 6, EOS]]
OUTPUTS = every_output([4, 5], 4)


def words(inputs: Sequence[str], outputs: Sequence[str]) -> list[float]:
    return [float(len(text.split())) for text in outputs]


def shared(inputs: Sequence[str], outputs: Sequence[str]) -> list[float]:
    return [float(len(set(x.split()) & set(y.split()))) for x, y in zip(inputs, outputs, strict=True)]


# --- 1. texts --------------------------------------------------------------------------------------------------------


def test_texts_are_ranked_by_a_weighted_sum() -> None:
    reranker = Reranker({"shared": shared, "length": words}, {"shared": 1.0, "length": -0.4})
    found = reranker.rerank(["a b c", "d"], [["a x y z", "a b", "c"], ["x", "d d"]])
    assert [[ranked.output for ranked in of_input] for of_input in found] == [["a b", "c", "a x y z"], ["d d", "x"]]
    assert found[0][0].score == pytest.approx(2.0 - 0.8)
    assert found[0][0].terms == {"shared": 2.0, "length": 2.0}


def test_equal_outputs_keep_their_order_and_empty_lists_stay_empty() -> None:
    reranker = Reranker({"shared": shared}, {"shared": 1.0})
    found = reranker.rerank(["a", "b", "c"], [["x", "y", "z"], [], ["y", "c"]])
    assert [[ranked.output for ranked in of_input] for of_input in found] == [["x", "y", "z"], [], ["c", "y"]]
    scored = reranker.score(["c"], [["y", "c"]])
    assert [ranked.output for ranked in scored[0]] == ["y", "c"]


def test_scorers_without_a_weight_are_reported_only() -> None:
    ((best, _),) = Reranker({"shared": shared, "words": words}, {"words": 1.0}).rerank(["a"], [["a", "b b"]])
    assert (best.output, best.score, best.terms) == ("b b", 2.0, {"shared": 0.0, "words": 2.0})


def test_weights_and_scores_are_checked() -> None:
    with pytest.raises(ValueError, match=r"the weight lm is 0\.5, but there is no scorer lm \(there are: shared\)"):
        Reranker({"shared": shared}, {"lm": 0.5})
    Reranker({"shared": shared}, {"lm": 0.0, "shared": 1.0})
    broken = Reranker({"shared": lambda inputs, outputs: [1.0]}, {"shared": 1.0})
    with pytest.raises(ValueError, match="the scorer shared gave 1 scores for 2 outputs"):
        broken.rerank(["a"], [["a", "b"]])


class InContext:
    """Counts how often its context stands in the output."""

    reads_contexts = True

    def __call__(self, inputs: Sequence[str], outputs: Sequence[str], contexts: Sequence[str] | None) -> list[float]:
        return [float(y.count(c)) for y, c in zip(outputs, contexts or [""] * len(outputs), strict=True)]


def test_contexts_go_to_the_scorers_that_read_them() -> None:
    reranker = Reranker({"context": InContext(), "length": words}, {"context": 1.0, "length": 0.0})
    found = reranker.rerank(["x", "x"], [["a", "b b"], ["b", "a"]], contexts=["b", "a"])
    assert [ranked.output for of_input in found for ranked in of_input] == ["b b", "a", "a", "b"]


def test_a_text_scorer_is_asked_about_ids() -> None:
    names = {4: "a", 5: "b", 6: "c"}

    def text(ids: Sequence[int]) -> str:
        return " ".join(names[i] for i in ids if i != EOS)

    scorer = TextScorer(shared, text, text)
    assert scorer([[4, 5, EOS], [6, EOS]], [(4, 4), (4,)]) == [1.0, 0.0]


def test_the_sum_is_that_of_the_search() -> None:
    """Bit by bit: terms in the order direct, channel, lm, further ones, length."""
    rng = random.Random(0)
    for _ in range(200):
        values = {name: rng.uniform(-30, 0) for name in ("direct", "channel", "lm", "length", "news")}
        weights = Weights(*(rng.uniform(-1, 2) for _ in range(4)), extra={"news": rng.uniform(-1, 2)})
        tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        combined = weights.combine(tensors["direct"], tensors, int(values["length"]))
        assert weighted_sum(weights, {**values, "length": float(int(values["length"]))}) == float(combined)


# --- 2. models -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[3, 128])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PAIRS_AT_ONCE", request.param)


def asked(models: Models) -> tuple[list[list[int]], list[tuple[int, ...]], list[Terms]]:
    rows = [(x, y, term) for x in INPUTS for y, term in zip(OUTPUTS, terms(models, x, OUTPUTS), strict=True)]
    random.Random(0).shuffle(rows)
    inputs, outputs, expected = zip(*rows, strict=True)
    return list(inputs), list(outputs), list(expected)


@pytest.mark.usefixtures("small_parts")
def test_scorers_of_models_are_what_the_models_say() -> None:
    models = random_models(3)
    inputs, outputs, expected = asked(models)
    for scorer, name in (
        (ConditionalScorer(models.direct), "marginal"),
        (ViterbiScorer(models.direct), "viterbi"),
        (output_length, "length"),
    ):
        assert scorer(inputs, outputs) == pytest.approx([getattr(term, name) for term in expected], abs=1e-9)
    for with_context, name in (
        (ChannelScorer(ConditionalScorer(models.channel)), "channel"),
        (ChannelScorer(ViterbiScorer(models.channel)), "channel_viterbi"),
        (SourceScorer(models.lm), "lm"),
    ):
        exact = [getattr(term, name) for term in expected]
        assert with_context(inputs, outputs, None) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("reads", [True, False])
def test_contexts_stand_before_the_output(reads: bool) -> None:
    models, context = random_models(4), (5, 4)
    models.lm.reads_features = reads
    x = INPUTS[3]
    plain, read = terms(models, x, OUTPUTS), terms(models, x, [(*context, *y) for y in OUTPUTS])
    arguments = [x] * len(OUTPUTS), OUTPUTS, [context] * len(OUTPUTS)
    channel = ChannelScorer(ConditionalScorer(models.channel))(*arguments)
    assert channel == pytest.approx([term.channel for term in read], abs=1e-9)
    lm = SourceScorer(models.lm)(*arguments)
    assert lm == pytest.approx([term.lm for term in (read if reads else plain)], abs=1e-9)


@pytest.mark.parametrize("search", ["viterbi", "marginal"])
@pytest.mark.parametrize("channel_alignment", ["viterbi", "marginal"])
def test_the_objective_of_given_outputs(search: str, channel_alignment: str) -> None:
    models, weights = random_models(5), Weights(0.8, 0.6, 0.5, 0.4)
    settings = SearchSettings(search=search, channel_alignment=channel_alignment)  # type: ignore[arg-type]
    reranker = Reranker(model_scorers(models.direct, models.channel, models.lm, settings=settings), weights)
    decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, weights, settings=settings)
    given = [OUTPUTS] * len(INPUTS)
    for x, ranked, hypotheses in zip(
        INPUTS, reranker.rerank(INPUTS, given), decoder.rerank(INPUTS, given), strict=True
    ):
        exact = {
            y: t.score(weights, search, channel_alignment)
            for y, t in zip(OUTPUTS, terms(models, x, OUTPUTS), strict=True)
        }
        assert [output.output for output in ranked] == sorted(OUTPUTS, key=lambda y: -exact[y])
        assert [output.score for output in ranked] == pytest.approx([exact[o.output] for o in ranked], abs=1e-9)
        assert [(h.tokens, h.score) for h in hypotheses] == [(o.output, o.score) for o in ranked]
        assert all(h.terms() == {**o.terms} for h, o in zip(hypotheses, ranked, strict=True))


# --- 3. a sequence-to-sequence model ---------------------------------------------------------------------------------


def random_attention() -> Seq2Seq:
    torch.manual_seed(1)
    model = Seq2Seq(7, 6, 5).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()


@torch.no_grad()
def by_attention(model: Seq2Seq, x: Sequence[int], y: Sequence[int]) -> float:
    ids = torch.tensor([[*y, EOS]])
    return float(model.log_prob(torch.tensor([x]), torch.tensor([len(x)]), ids, torch.tensor([len(y) + 1])))


WEIGHTS = Weights(0.8, 0.6, 0.5, 0.4, extra={"vowels": 0.3})


def vowels(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> list[float]:
    return [float(list(y).count(5)) for y in outputs]


def exact_scores(model: Seq2Seq, models: Models, x: Sequence[int]) -> dict[tuple[int, ...], float]:
    return {
        y: 0.8 * by_attention(model, x, y) + 0.6 * t.channel + 0.5 * t.lm + 0.4 * t.length + 0.3 * vowels([x], [y])[0]
        for y, t in zip(OUTPUTS, terms(models, x, OUTPUTS), strict=True)
    }


def test_a_sequence_to_sequence_model_can_rerank() -> None:
    models, model = random_models(6), random_attention()
    reranker = Reranker(model_scorers(model, models.channel, models.lm, {"vowels": vowels}), WEIGHTS)
    for x, ranked in zip(INPUTS, reranker.rerank(INPUTS, [OUTPUTS] * len(INPUTS)), strict=True):
        exact = exact_scores(model, models, x)
        assert [output.output for output in ranked] == sorted(OUTPUTS, key=lambda y: -exact[y])
        assert ranked[0].score == pytest.approx(exact[ranked[0].output], abs=1e-9)


def test_a_beam_decoder_ranks_what_the_beam_finds() -> None:
    """A beam that holds everything finds the argmax over all outputs."""
    models, model = random_models(6), random_attention()
    decoder = BeamDecoder(
        model, models.channel, models.lm, WEIGHTS, extra={"vowels": vowels}, k1=64, k2=64, max_length=4
    )
    for x, found in zip(INPUTS, decoder.decode(INPUTS, n_best=5), strict=True):
        exact = exact_scores(model, models, x)
        assert [h.tokens for h in found] == sorted(OUTPUTS, key=lambda y: -exact[y])[:5]
        for h in found:
            assert h.score == pytest.approx(exact[h.tokens], abs=1e-9)
            assert h.direct == pytest.approx(by_attention(model, x, h.tokens), abs=1e-9)
            assert (h.alignment, len(h.channel_alignment or ())) == (None, len(x))
        (again,) = decoder.score([x], [[h.tokens for h in found]])
        for h, scored in zip(found, again, strict=True):
            assert scored.terms() == pytest.approx(h.terms(), abs=1e-9)


@pytest.mark.parametrize("length", [0.0, 0.9])
def test_a_beam_decoder_alone_is_the_beam_search(length: float) -> None:
    model = random_attention()
    decoder = BeamDecoder(model, weights=Weights(2.0, length=length), k1=64, k2=64, max_length=4)
    for x, found in zip(INPUTS, decoder.decode(INPUTS, n_best=4), strict=True):
        exact = {y: 2.0 * by_attention(model, x, y) + length * (len(y) + 1) for y in OUTPUTS}
        assert [h.tokens for h in found] == sorted(OUTPUTS, key=lambda y: -exact[y])[:4]
        assert [h.score for h in found] == pytest.approx([exact[h.tokens] for h in found], abs=1e-9)
        assert found[0].channel is found[0].lm is None


def test_a_beam_decoder_has_the_interface_of_the_other() -> None:
    models, model = random_models(6), random_attention()
    decoder = BeamDecoder(model, models.channel, models.lm, barred=[5])
    assert all(5 not in h.tokens for best in decoder.decode(INPUTS, 3) for h in best)
    assert any(5 in h.tokens for best in BeamDecoder(model).decode(INPUTS, 3) for h in best)
    other = decoder.reweighted(Weights(1.0, lm=0.5), SearchSettings(k2=3, max_length=5))
    assert (other.weights.lm, other.settings.k2, decoder.weights.lm) == (0.5, 3, 0.0)
    assert other.decode([]) == []
    for arguments, message in (({"n_best": 0}, "n_best"), ({"watch": print}, "no chart to watch")):
        with pytest.raises(ValueError, match=message):
            other.decode(INPUTS, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"inputs\[0\] must end in its only EOS"):
        other.decode([[4]])


def test_a_partial_output_of_a_beam_keeps_its_score() -> None:
    model, lm = random_attention(), random_models(2).lm
    decoder = BeamDecoder(model, None, lm, Weights(1.0, lm=0.5, length=0.2), max_length=3, barred=[EOS])
    ((found,),) = decoder.decode([[4, EOS]], n_best=3)
    assert (found.complete, found.lm) == (False, None)
    assert found.score == pytest.approx(found.direct + 0.2 * found.length)
