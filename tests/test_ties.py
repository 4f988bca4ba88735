"""Exact ties: broken by the rank of the proposal, as in the reference, by every decoder.

The models here say whole numbers, the same after every prefix, so sums are exact in any order and ties are everywhere.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from decoder_oracles import Models, assert_same, pairs, random_input, random_models
from noisychannel import NoisyChannelDecoder, Weights
from noisychannel.decode import proposals
from noisychannel.decode.online import OnlineDecoder
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.ids import EOS

FAR = 64
"""exp(-64) does not change a sum that begins with 1: log-probabilities are whole numbers."""


def whole_numbers(rng: random.Random, V: int) -> Models:
    """One symbol, perhaps one that may not be proposed, has probability 1; the others 64 or 128 nats less."""
    models = random_models(0, V)
    emit = rng.choice([-800.0, 800.0])
    with torch.no_grad():
        for model, bias in (
            (models.direct, models.direct.output_word.bias),
            (models.channel, models.channel.output_word.bias),
            (models.lm, models.lm.word.bias),
        ):
            for parameter in model.parameters():
                parameter.zero_()
            bias.copy_(torch.tensor(rng.choices([-FAR, -FAR, -2 * FAR], k=len(bias))))
            bias[rng.randrange(len(bias))] = 0.0
        models.direct.emit.bias.fill_(emit)
    return models


def settings(seed: int) -> tuple[list[int], dict[str, Any]]:
    rng = random.Random(seed)
    direct, channel, lm = rng.choice([0.0, 0.5, 1.0]), rng.choice([0.0, 0.0, 0.5]), rng.choice([0.0, 1.0])
    weights = Weights(direct if channel or lm else 0.5, channel, lm, length=rng.choice([-16.0, 0.0, 64.0]))
    k1 = rng.choice([1, 2, 3, 5, 9, 40])
    models = whole_numbers(rng, rng.choice([6, 7, 9]))
    return random_input(rng), {
        **models.for_weights(weights),
        "weights": weights,
        "k1": k1,
        "k2": rng.randint(1, min(k1, 6)),
        "max_length": rng.randint(2, 4),
    }


# One block of the proposals holds one prefix of one cell, or everything; or symbols come from lists, of one each.
@pytest.mark.parametrize(
    ("room", "listed"), [pytest.param(1, 256, marks=pytest.mark.long), (1 << 24, 256), (1 << 24, 1)]
)
def test_ties_are_broken_as_in_the_reference(room: int, listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", room)
    monkeypatch.setattr(proposals, "LISTED", listed)
    monkeypatch.setattr(proposals, "LARGE", 8 * listed)
    ties = 0
    for seed in range(60):
        x, setting = settings(seed)
        expected = pairs(ReferenceDecoder(**setting).decode(x))
        ties += len(expected) - len({score for _, score in expected})
        for n_best in (1, 3, 1000):
            (found,) = NoisyChannelDecoder(**setting).decode([x], n_best)
            if expected:
                assert_same(found, expected[:n_best])
            else:
                assert [hypothesis.complete for hypothesis in found] == [False]
    assert ties > 50


def test_ties_are_broken_alike_online_and_in_any_batch() -> None:
    for seed in range(40):
        x, setting = settings(seed)
        (expected,) = NoisyChannelDecoder(**setting).decode([x], 1000)
        online = OnlineDecoder(NoisyChannelDecoder(**setting))
        for symbol in x[:-1]:
            online.read(symbol)
        assert [h.tokens for h in online.finish(1000)] == [h.tokens for h in expected]
        among = NoisyChannelDecoder(**setting).decode([[EOS], x, [4, 5, 6, 3, 4, EOS]], 1000)[1]
        assert pairs(among) == pairs(expected)
