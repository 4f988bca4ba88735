"""The memory of a search: what is counted, what is refused, and that a wide search finds what a narrower one cannot."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch

from allocations import Allocations
from decoder_oracles import every_output, random_models
from noisychannel import NoisyChannelDecoder, Weights
from noisychannel.decode import lattices
from noisychannel.decode.beam import beam_search
from noisychannel.decode.memory import (
    DOUBLE,
    Budget,
    ModelSizes,
    SearchTooLargeError,
    Width,
    pair_bytes,
    parts,
    parts_of_pairs,
    widest_layer,
)
from noisychannel.decode.online import OnlineDecoder
from noisychannel.decode.scorers import ConditionalScorer
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import EOS
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.models.ssnt import GATES_IN_CACHE, SSNT

ALL = Weights(direct=0.8, channel=0.6, lm=0.5, length=0.4)
INPUTS = [[4, 5, EOS], [6, EOS], [5, 5, 4, 6, EOS]]


def decoder(seed: int = 3, V: int = 8, **settings: Any) -> NoisyChannelDecoder:
    return NoisyChannelDecoder(**random_models(seed, V).for_weights(ALL), weights=ALL, **settings)


def test_widths_beyond_what_exists_cost_nothing_and_change_nothing() -> None:
    wide = decoder(k1=10**9, k2=40, lm_proposals=10**9, max_length=4)
    enough = decoder(k1=40 * 5 * 8, k2=40, lm_proposals=40 * 5 * 8, max_length=4)
    assert wide.decode(INPUTS, n_best=10**9) == enough.decode(INPUTS, n_best=1000)
    # Everything that exists is found.
    unlimited = decoder(k1=10**9, k2=8**3, max_length=4)
    found = unlimited.decode(INPUTS[:1], n_best=10**9)[0]
    assert {h.tokens for h in found} == set(every_output(range(4, 8), 4))


def test_an_input_that_does_not_fit_is_refused_with_the_largest_width_that_fits() -> None:
    large = {"k1": 10**9, "k2": 10**9, "max_growth": 0, "memory_gib": 0.002}
    with pytest.raises(
        SearchTooLargeError, match=r"^an input of 4 symbols with k1 1000000000, k2 1000000000 needs about"
    ):
        decoder(**large).decode(INPUTS)
    refused: dict[int, SearchTooLargeError] = {}
    found = decoder(**large).decode(INPUTS, refuse=refused.__setitem__)
    assert list(refused) == [2]
    assert [len(best) for best in found] == [1, 1, 0]
    # What the message says can be done.
    said = re.search(
        r"more than memory 0.002 GiB; the largest k2 that fits is (\d+), or set memory to (\S+)$", str(refused[2])
    )
    assert said is not None
    assert len(decoder(**{**large, "k2": int(said[1])}).decode(INPUTS)[2]) == 1
    assert len(decoder(**{**large, "memory_gib": float(said[2])}).decode(INPUTS)[2]) == 1


def test_more_answers_than_fit_are_refused_with_the_number_that_fits() -> None:
    wide = decoder(k1=500, k2=500, max_length=12, memory_gib=0.003)
    with pytest.raises(SearchTooLargeError, match=r"the largest n_best that fits is") as caught:
        wide.decode([INPUTS[2]], n_best=10**9)
    most = int(str(caught.value).split("fits is ")[1].split(",")[0])
    assert 100 < most < 3000


def test_an_answer_that_does_not_fit_alone_is_no_question_of_n_best() -> None:
    for settings, remedy in (
        ({"max_length": 2**40, "memory_gib": 1.0}, "; lower max_length, or set memory to"),
        ({"memory_gib": 1e-300}, "GiB; set memory to"),
    ):
        with pytest.raises(SearchTooLargeError, match=remedy):
            decoder(**settings).decode(INPUTS)
    model = Seq2Seq(8, 8, 4)
    with pytest.raises(SearchTooLargeError, match="; lower max_length, or set memory to"):
        beam_search(model, INPUTS, SearchSettings(max_length=2**40, memory=1.0))


def test_a_search_takes_about_as_much_memory_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    models, weights = (SSNT(40, 40, 16).double(), SSNT(40, 40, 16).double()), Weights(1.0, 0.5, 0.0, 1.0)
    counted = [0]
    whole = Width.bytes

    def counting(width: Width, sizes: ModelSizes) -> int:
        counted.append(whole(width, sizes))
        return counted[-1]

    monkeypatch.setattr(lattices, "EMISSIONS_IN_CACHE", 1 << 12)
    for k1, k2, symbols in ((300, 100, 12), (10**6, 10, 5), (20, 10, 60)):
        wide = NoisyChannelDecoder(*models, weights=weights, k1=k1, k2=k2, max_length=3)
        sentence = [*random.Random(1).choices(range(4, 40), k=symbols), EOS]
        needed = wide._budget(1).needed(len(sentence))
        with monkeypatch.context() as patch:
            patch.setattr(Width, "most", staticmethod(lambda *_: Width(1, 1, 1, 1)))
            patch.setattr(Width, "bytes", counting)
            patch.setattr(Budget, "always_fits", lambda *_: False)
            with Allocations() as allocations:
                wide.decode([sentence], align=False)
        peak = DOUBLE * allocations.peak
        assert 0.8 * peak < max(counted) < 2.5 * peak
        assert max(counted) < needed
        counted.clear()


def test_beam_search_is_refused_or_split_too() -> None:
    torch.manual_seed(2)
    model = Seq2Seq(9, 9, 8).double().eval()
    rng = random.Random(2)
    inputs = [[*rng.choices([4, 5, 6], k=n), EOS] for n in (2, 40, 3, 5)]
    expected = beam_search(model, inputs, SearchSettings(k2=20, k1=20), n_best=3)
    small = SearchSettings(k2=20, k1=20, memory=0.0006)
    refused: dict[int, SearchTooLargeError] = {}
    found = beam_search(model, inputs, small, n_best=3, refuse=refused.__setitem__)
    assert list(refused) == [1]
    assert [found[n] for n in (0, 2, 3)] == [expected[n] for n in (0, 2, 3)]
    with pytest.raises(SearchTooLargeError, match=r"the largest k2 that fits is [1-9]"):
        beam_search(model, inputs, small, n_best=3)
    assert len(beam_search(model, inputs[:1], SearchSettings(k2=20, k1=20), n_best=10**9)[0]) > 20


def test_online_decoding_stops_before_the_tables_are_too_large() -> None:
    online = OnlineDecoder(decoder(k1=50, k2=50, max_length=30, memory_gib=0.003))
    with pytest.raises(SearchTooLargeError, match=r"^reading symbol [1-9][0-9]* with k2 50, margin inf needs about"):
        list(map(online.read, [4, 5, 6] * 20))


def test_pairs_are_scored_in_parts_that_fit() -> None:
    models = random_models(4)
    rng = random.Random(3)
    xs, ys = ([rng.choices([4, 5], k=rng.randrange(1, 30)) for _ in range(50)] for _ in range(2))
    xs = [[*x, EOS] for x in xs]
    settings = SearchSettings(memory=0.0005)
    sizes = [s.stop - s.start for s in parts_of_pairs(models.direct, (xs, ys), settings, torch.device("cpu"))]
    assert len(sizes) > 5
    assert sum(sizes) == 50
    whole = ConditionalScorer(models.direct)(xs, ys)
    assert ConditionalScorer(models.direct, settings)(xs, ys) == pytest.approx(whole, abs=1e-9)
    with pytest.raises(SearchTooLargeError, match=r"^scoring 5001 symbols given 5001 needs about"):
        ConditionalScorer(models.direct, settings)([[4] * 5000 + [EOS]], [[4] * 5000])


def test_a_text_with_an_output_that_does_not_fit_is_refused_and_others_are_scored() -> None:
    small, outputs = decoder(memory_gib=0.0005), [[[4], [5, 4]], [[6], [4] * 5000], [[5]]]
    with pytest.raises(SearchTooLargeError):
        small.score(INPUTS, outputs)
    refused: dict[int, str] = {}
    scored = small.score(INPUTS, outputs, refuse=lambda n, reason: refused.update({n: str(reason)}))
    assert list(refused) == [1]
    assert refused[1].startswith("scoring 5001 symbols given 2 needs about")
    outputs[1] = []
    assert [[y.tokens for y in of_input] for of_input in scored] == [[tuple(y) for y in ys] for ys in outputs]
    for found, whole in zip(scored, decoder().score(INPUTS, outputs), strict=True):
        assert [y.score for y in found] == pytest.approx([y.score for y in whole], abs=1e-9)


def test_parts_are_consecutive_and_padded_sizes_fit() -> None:
    rng = random.Random(4)
    for _ in range(50):
        sizes = rng.choices(range(1, 30), k=rng.randrange(0, 20))
        found = list(parts(sizes, 40))
        assert [n for part in found for n in range(part.start, part.stop)] == list(range(len(sizes)))
        assert all(len(sizes[p]) * max(sizes[p]) <= 40 or len(sizes[p]) == 1 for p in found)


def test_a_long_pair_is_aligned_without_a_number_for_each_cell_and_gate() -> None:
    model, ids = SSNT(8, 8, 512), torch.tensor([[4] * 99 + [EOS]])
    with torch.no_grad(), Allocations() as allocations:
        model.viterbi(ids, torch.tensor([100]), ids, torch.tensor([100]))
    assert allocations.largest <= GATES_IN_CACHE < 100 * 100 * 512
    assert DOUBLE // 2 * allocations.peak < pair_bytes(widest_layer(model), 100, 100) + 2 * 4 * GATES_IN_CACHE
