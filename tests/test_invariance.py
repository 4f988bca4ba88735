"""Outputs and scores are the same to the last bit in any batch, in any order, and with any number of threads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain

import pytest
import torch

from noisychannel import SSNT, Hypothesis, LanguageModel, NoisyChannelDecoder, Weights
from noisychannel.decode.beam import beam_search
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import EOS
from noisychannel.joint import log_normaliser
from noisychannel.models.products import Linear
from noisychannel.models.seq2seq import Seq2Seq

WEIGHTS = Weights(1.0, 0.7, 0.6, 1.5)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def inputs(V: int, longest: int, count: int = 11) -> list[list[int]]:
    rng = random.Random(1)
    return [[*rng.choices(range(4, V), k=rng.randrange(longest)), EOS] for _ in range(count)]


def noisy_channel(V: int, hidden: int, **settings: int) -> NoisyChannelDecoder:
    """Models in float32 with opinions."""
    torch.manual_seed(3)
    models = SSNT(V, V, hidden, bidirectional=True), SSNT(V, V, hidden), LanguageModel(V, 2 * hidden, num_layers=1)
    with torch.no_grad():
        for model in models:
            for parameter in model.parameters():
                parameter.mul_(2.0)
    return NoisyChannelDecoder(*models, weights=WEIGHTS, **settings)


def in_batches(decoder: NoisyChannelDecoder, xs: list[list[int]], size: int) -> list[list[Hypothesis]]:
    return [best for n in range(0, len(xs), size) for best in decoder.decode(xs[n : n + size], n_best=5)]


@pytest.mark.parametrize(("V", "hidden", "longest"), [(30, 64, 9), (1100, 16, 4)])
def test_a_search_does_not_depend_on_batch_order_and_threads(V: int, hidden: int, longest: int, threads: None) -> None:
    decoder, xs = noisy_channel(V, hidden, k1=8, k2=4, max_length=6), inputs(V, longest)
    torch.set_num_threads(1)
    expected = in_batches(decoder, xs, 1)
    for size in (2, len(xs)):
        assert in_batches(decoder, xs, size) == expected
    order = random.Random(2).sample(range(len(xs)), len(xs))
    assert in_batches(decoder, [xs[n] for n in order], 7) == [expected[n] for n in order]
    torch.set_num_threads(2)
    assert in_batches(decoder, xs, len(xs)) == expected
    # Given outputs have the same scores, to the rounding of float32.
    outputs = [[h.tokens for h in best] for best in expected]
    for n, together in enumerate(decoder.score(xs, outputs)):
        for one, other in zip(decoder.score([xs[n]], [outputs[n]])[0], together, strict=True):
            assert one.score == pytest.approx(other.score, rel=2e-7)


def test_beam_search_does_not_depend_on_the_batch() -> None:
    torch.manual_seed(4)
    model, xs = Seq2Seq(30, 30, 64).eval(), inputs(30, 9)
    settings = SearchSettings(k1=4, k2=4)
    alone = [beam_search(model, [x], settings, n_best=3)[0] for x in xs]
    together = beam_search(model, xs, settings, n_best=3)
    assert [[h.tokens for h in best] for best in together] == [[h.tokens for h in best] for best in alone]
    for one, other in zip(chain(*together), chain(*alone), strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-7)


@pytest.mark.parametrize(("columns", "size"), [(1, 128), (60, 64), (512, 128), (300, 256), (128, 512)])
def test_rows_of_a_product_do_not_depend_on_their_number(columns: int, size: int) -> None:
    torch.manual_seed(5)
    layer, x = Linear(size, columns), torch.randn(300, size)
    with torch.no_grad():
        expected = layer(x)
        for rows in (0, 1, 2, 3, 5, 9, 15, 16, 17, 33, 299):
            assert torch.equal(layer(x[:rows]), expected[:rows])
            assert torch.equal(layer(x[:rows, None]), expected[:rows, None])


@pytest.mark.parametrize("V", [12, 60, 300, 1300])
def test_normalisers_do_not_depend_on_the_other_positions(V: int) -> None:
    torch.manual_seed(6)
    a, c = torch.randn(3, 40, V), torch.randn(3, 50, V)
    expected = log_normaliser(a, c)
    for B, I, J in ((1, 1, 1), (3, 1, 50), (1, 40, 1), (2, 5, 17), (1, 17, 49)):
        assert torch.equal(log_normaliser(a[:B, :I], c[:B, :J]), expected[:B, :I, :J])
