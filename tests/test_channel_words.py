"""A channel whose softmax runs over some words: against sums over exactly these words, before and after rescoring."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from decoder_oracles import Models, random_models
from noisychannel import SSNT, NoisyChannelDecoder, OnlineDecoder, Weights
from noisychannel.bench.precision import AsSearched
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import EOS
from noisychannel.lattice import log_marginal, viterbi
from noisychannel.systems import check_used, unused_settings

X = 12
INPUTS = [[EOS], [4, EOS], [11, 5, 11, EOS], [3, 9, 5, 6, EOS], [10, 7, 8, 4, 9, EOS]]
WEIGHTS = Weights(1.0, channel=0.8, lm=0.6, length=0.3)


def models_of(seed: int, copies: bool = False) -> Models:
    """Random models with more input symbols than output symbols."""
    models = random_models(seed, 6)
    torch.manual_seed(seed)
    direct = SSNT(X, 6, 5, bidirectional=True).double().eval()
    channel = SSNT(6, X, 5, copies=[-1, -1, EOS, -1, 4, 9] if copies else None, copy_start=1.5).double().eval()
    with torch.no_grad():
        for parameter in (*direct.parameters(), *channel.parameters()):
            parameter.add_(0.4 * torch.randn_like(parameter))
    return replace(models, direct=direct, channel=channel)


@torch.no_grad()
def over_some_words(
    channel: SSNT, x: Sequence[int], tokens: Sequence[int], words: set[int], best: bool = False
) -> float:
    """log p(x | y) with every softmax over these words alone, written out."""
    columns = sorted(words)
    y, ids = torch.tensor([[*tokens, EOS]]), torch.tensor([list(x)])
    lengths = torch.tensor([y.shape[1]]), torch.tensor([ids.shape[1]])
    read, written = channel.read_inputs(y, lengths[0]), channel.read_outputs(ids)
    logits = (read.scores[:, :, None] + written.scores[:, None])[..., columns]
    places = torch.tensor([columns.index(symbol) for symbol in x])
    word = logits.log_softmax(-1).gather(3, places[None, None, :, None].expand(1, y.shape[1], -1, 1)).squeeze(3)
    function = viterbi if best else log_marginal
    found = function(word, channel.emit_logits(read, written), *lengths)
    return float(found[0] if best else found)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("most_frequent", [0, 2, 5])
def test_the_search_scores_by_sums_over_these_words(most_frequent: int, copies: bool) -> None:
    models = models_of(most_frequent, copies)
    settings = SearchSettings(k1=12, k2=8, max_length=4, channel_words=most_frequent)
    different = 0
    for alignment in ("marginal", "viterbi"):
        chosen = replace(settings, channel_alignment=alignment)
        searched = AsSearched(models.direct, models.channel, models.lm, WEIGHTS, settings=chosen)
        for x, found in zip(INPUTS, searched.decode(INPUTS, 5, align=False), strict=True):
            words = {*range(4 + most_frequent), *x}
            assert found
            for h in found:
                expected = over_some_words(models.channel, x, h.tokens, words, alignment == "viterbi")
                assert h.channel == pytest.approx(expected, abs=1e-9)
                whole = over_some_words(models.channel, x, h.tokens, set(range(X)), alignment == "viterbi")
                assert expected >= whole - 1e-12, "fewer words share the probability"
                different += expected > whole + 1e-3
            terms = [h.direct + 0.8 * h.channel + 0.6 * h.lm + 0.3 * h.length for h in found]  # type: ignore[operator]
            assert [h.score for h in found] == pytest.approx(terms)
    assert different > 20


@pytest.mark.parametrize("seed", range(4))
def test_with_all_words_nothing_changes(seed: int) -> None:
    models = models_of(seed, copies=seed % 2 == 1)
    settings = SearchSettings(k1=6, k2=4, max_length=5)
    whole = AsSearched(models.direct, models.channel, models.lm, WEIGHTS, settings=settings)
    every = whole.reweighted(WEIGHTS, settings.changed(channel_words=1000))
    for one, other in zip(whole.decode(INPUTS, 3), every.decode(INPUTS, 3), strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other])


def test_outputs_are_scored_again_with_the_whole_softmax() -> None:
    models = models_of(7)
    settings = SearchSettings(k1=6, k2=4, max_length=5, channel_words=1)
    decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, WEIGHTS, settings=settings)
    as_searched = AsSearched(models.direct, models.channel, models.lm, WEIGHTS, settings=settings)
    for x, found, rough in zip(INPUTS, decoder.decode(INPUTS, 4), as_searched.decode(INPUTS, 4), strict=True):
        assert {h.tokens for h in found} == {h.tokens for h in rough}
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        for h in found:
            assert h.channel == pytest.approx(over_some_words(models.channel, x, h.tokens, set(range(X))))


def test_the_batch_does_not_matter() -> None:
    rng, models = random.Random(0), models_of(8)
    inputs = [[*rng.choices(range(3, X), k=rng.randint(0, 7)), EOS] for _ in range(12)]
    settings = SearchSettings(k1=5, k2=3, max_length=6, channel_words=2)
    decoder = AsSearched(models.direct, models.channel, models.lm, WEIGHTS, settings=settings)
    for x, together in zip(inputs, decoder.decode(inputs, 3), strict=True):
        (alone,) = decoder.decode([x], 3)
        assert [h.tokens for h in together] == [h.tokens for h in alone]
        assert [h.score for h in together] == pytest.approx([h.score for h in alone], abs=1e-9)


def test_context_symbols_are_read_with_the_same_words() -> None:
    models = models_of(9)
    settings = SearchSettings(k1=6, k2=4, max_length=4, channel_words=1)
    decoder = AsSearched(models.direct, models.channel, models.lm, WEIGHTS, settings=settings)
    (found,) = decoder.decode([[9, 5, EOS]], 3, contexts=[[4, 5]])
    for h in found:
        expected = over_some_words(models.channel, [9, 5, EOS], [4, 5, *h.tokens], {*range(5), 9, 5})
        assert h.channel == pytest.approx(expected, abs=1e-9)


class WholeOnly:
    """A channel without the method that scores some words."""

    bidirectional = False

    def __init__(self, model: SSNT) -> None:
        for name in (
            "start_inputs",
            "step_inputs",
            "read_inputs",
            "read_outputs",
            "emit_logits",
            "log_prob",
            "viterbi",
        ):
            setattr(self, name, getattr(model, name))


def test_what_cannot_use_it_refuses_it() -> None:
    models, settings = models_of(1), SearchSettings(channel_words=3)
    with pytest.raises(ValueError, match="channel_words is 3, but WholeOnly scores whole vocabularies only"):
        NoisyChannelDecoder(models.direct, WholeOnly(models.channel), weights=WEIGHTS, lm=models.lm, settings=settings)  # type: ignore[arg-type]
    unidirectional = random_models(1, 6)
    with pytest.raises(ValueError, match="channel_words must not be set for online decoding"):
        OnlineDecoder(NoisyChannelDecoder(unidirectional.direct, settings=settings))
    with pytest.raises(ValueError, match="channel_words must be off"):
        ReferenceDecoder(models.direct, settings=settings)
    with pytest.raises(ValueError, match="channel_words"):
        SearchSettings(channel_words=-1)
    for proposers, with_channel in ((["attention"], True), (["direct"], False)):
        with pytest.raises(ValueError, match="--channel-words would be ignored"):
            check_used(["channel_words"], unused_settings(proposers, with_channel))
