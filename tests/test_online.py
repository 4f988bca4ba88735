"""Decoding while the input arrives: against the batch decoder, and against the same search from its definition."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.functional import logsigmoid
from torch.nn.utils.rnn import pad_sequence

from decoder_oracles import (
    INPUT_SYMBOLS,
    Models,
    PartialScores,
    Tokens,
    assert_same,
    every_output,
    log_sum,
    objective,
    random_models,
    random_weights,
    reluctant,
)
from noisychannel import SSNT, Hypothesis, LanguageModel, NoisyChannelDecoder, Weights
from noisychannel.decode.online import OnlineDecoder, Progress
from noisychannel.ids import BOS, EOS, PAD

SEARCHES = ["viterbi", "marginal"]
ALL = Weights(direct=0.8, channel=0.6, lm=0.5, length=0.4)
UNBOUNDED = {"k1": 400, "k2": 400}
SUBSETS = [
    Weights(*(weight if used else 0.0 for weight, used in zip((0.9, 0.7, 0.4, length), uses, strict=True)))
    for uses, length in zip(itertools.product([True, False], repeat=4), itertools.cycle([0.6, -0.5, 1.4]), strict=False)
    if any(uses[:3])
]


def online(decoder: OnlineDecoder, x: Sequence[int], n_best: int = 1) -> tuple[list[Progress], list[Hypothesis]]:
    """``x`` without EOS."""
    return [decoder.read(symbol) for symbol in x], decoder.finish(n_best)


def online_decoder(*models: Any, margin: float = math.inf, **setting: Any) -> OnlineDecoder:
    return OnlineDecoder(NoisyChannelDecoder(*models, **setting), margin)


def random_symbols(rng: random.Random, shortest: int, longest: int) -> list[int]:
    return rng.choices(range(3, INPUT_SYMBOLS), k=rng.randint(shortest, longest))


def same(found: list[Hypothesis], expected: list[Hypothesis], tolerance: float = 1e-9) -> None:
    """All that a hypothesis says."""
    assert len(found) == len(expected)
    for mine, yours in zip(found, expected, strict=True):
        for name in ("tokens", "length", "alignment", "channel_alignment", "complete"):
            assert getattr(mine, name) == getattr(yours, name)
        for name in ("score", "direct", "channel", "lm"):
            a, b = getattr(mine, name), getattr(yours, name)
            assert (a is None) == (b is None)
            assert a is None or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def ties(weights: Weights, channel_alignment: str, x: Sequence[int]) -> bool:
    """Whether partial outputs may tie: to the channel alone, what comes after the symbols that explain x best is free.

    And where x is EOS alone, there is nothing that a partial output has to explain.
    """
    return not (weights.direct or weights.lm) and (channel_alignment == "viterbi" or not x)


def talkative_weights(rng: random.Random, channel_alignment: str = "marginal") -> Weights:
    """Random, but outputs are mostly paid for their length: something is said before the end. Any weight may be < 0."""
    weights = replace(random_weights(rng), length=rng.uniform(-0.5, 4.0))
    if rng.random() < 0.2:
        weights = replace(weights, direct=-0.2 * weights.direct, channel=-0.2 * weights.channel)
    return talkative_weights(rng, channel_alignment) if ties(weights, channel_alignment, [4]) else weights


def said_by(decoder: OnlineDecoder) -> int:
    """How many prefixes the tables hold."""
    return sum(len(table.objective) for table in decoder._tables)


# --- 1. without a margin: the batch search ---------------------------------------------------------------------------


@pytest.mark.parametrize("channel_alignment", SEARCHES)
@pytest.mark.parametrize("search", SEARCHES)
def test_finish_returns_what_the_batch_decoder_returns(search: str, channel_alignment: str) -> None:
    rng = random.Random(f"{search} {channel_alignment}")
    beams = [(1, 1), (2, 1), (3, 2), (5, 5), (9, 3), (30, 12), (400, 400)]
    complete = 0
    for seed, weights in enumerate(SUBSETS + [random_weights(rng) for _ in range(4)]):
        models = random_models(seed, rng.choice([6, 7, 8]))
        if seed % 3:
            models = reluctant(models)
        x, n_best = random_symbols(rng, 0, 6), rng.choice([1, 3, 50])
        k1, k2 = beams[-1] if ties(weights, channel_alignment, x) else beams[seed % len(beams)]
        setting: dict[str, Any] = {
            **models.for_weights(weights),
            "weights": weights,
            "k1": k1,
            "k2": k2,
            "max_length": rng.randint(1, 3 if k1 > 100 else 6),
            "search": search,
            "channel_alignment": channel_alignment,
            "look_ahead": seed % 2 == 1,
        }
        (expected,) = NoisyChannelDecoder(**setting).decode([[*x, EOS]], n_best)
        progress, found = online(online_decoder(**setting), x, n_best)
        same(found, expected)
        assert [p.stable for p in progress] == [0] * len(x)
        if seed % 3 == 0:
            same(online(online_decoder(**setting, margin=1e9), x, n_best)[1], expected)
        complete += expected[0].complete
    assert 9 <= complete < 18


@pytest.mark.parametrize("x", [[], [4], [3, 6], [5, 4, 4, 6, 5, 3]], ids=str)
def test_inputs_of_every_length_with_every_option(x: list[int]) -> None:
    models = reluctant(random_models(31, 8))
    weights = Weights(0.6, -0.3, 0.9, 0.5)
    setting: dict[str, Any] = {
        **models.for_weights(weights),
        "weights": weights,
        "k1": 6,
        "k2": 4,
        "max_length": 6,
        "barred": [5],
        "allow_unk": True,
        "look_ahead": len(x) > 1,
    }
    found = online(online_decoder(**setting), x, 20)[1]
    same(found, NoisyChannelDecoder(**setting).decode([[*x, EOS]], 20)[0])
    assert len(found) >= 3
    assert not any(5 in hypothesis.tokens for hypothesis in found)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("max_length", [1, 4])
def test_without_a_completion_the_best_partial_output_is_returned(max_length: int, search: str) -> None:
    for seed, x in enumerate([[], [4], [6, 3, 5]]):
        models = random_models(50 + seed)
        setting: dict[str, Any] = {
            **models.for_weights(ALL),
            "weights": ALL,
            "k1": 5,
            "k2": 3,
            "max_length": max_length,
            "search": search,
            "barred": [EOS],
        }
        (expected,) = NoisyChannelDecoder(**setting).decode([[*x, EOS]])
        assert [h.complete for h in expected] == [False]
        same(online(online_decoder(**setting), x, 5)[1], expected)


def test_float32_models_agree() -> None:
    for seed, search in enumerate(SEARCHES):
        models = reluctant(random_models(60 + seed, 7)).to(torch.float32)
        setting: dict[str, Any] = {**models.for_weights(ALL), "weights": ALL, "k1": 4, "k2": 3, "search": search}
        x = [4, 6, 3, 5]
        found = online(online_decoder(**setting, max_length=6), x, 3)[1]
        same(found, NoisyChannelDecoder(**setting, max_length=6).decode([[*x, EOS]], 3)[0], tolerance=1e-4)


def test_where_no_max_length_is_given_outputs_grow_with_what_was_read() -> None:
    models = random_models(2)
    decoder = online_decoder(models.direct, weights=Weights(length=1000.0), k1=40, k2=2)
    progress, (best,) = online(decoder, [4, 5, 6])
    # The last symbol of the longest output is EOS, which comes at the end only.
    assert [len(p.tokens) + 1 for p in progress] == [12, 14, 16]
    assert best.length == 18


def test_scores_come_from_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    models = reluctant(random_models(4, 7))
    setting: dict[str, Any] = {**models.for_weights(ALL), "weights": ALL, "k1": 5, "k2": 3, "max_length": 5}
    (expected,) = NoisyChannelDecoder(**setting).decode([[4, 6, 5, EOS]], 4)
    for model in (models.direct, models.channel, models.lm):
        monkeypatch.setattr(model, "log_prob", lambda *ids: torch.full((len(ids[0]),), math.nan))
    for model in (models.direct, models.channel):
        whole = model.viterbi
        monkeypatch.setattr(model, "viterbi", lambda *ids, whole=whole: (whole(*ids)[0] * math.nan, whole(*ids)[1]))
    same(online(online_decoder(**setting), [4, 6, 5], 4)[1], expected)


def test_each_prefix_goes_through_the_language_model_when_it_proposes_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    models = random_models(5, 8)
    run = 0
    whole = models.lm.step

    def step(symbols_N: torch.Tensor, *args: Any) -> Any:
        nonlocal run
        run += len(symbols_N)
        return whole(symbols_N, *args)

    decoder = online_decoder(**models.for_weights(ALL), weights=ALL, k1=6, k2=6, max_length=6)
    monkeypatch.setattr(models.lm, "step", step)
    for symbol in [4, 6, 5, 3]:
        decoder.read(symbol)
    assert run == sum(int(table.sources_run.sum()) for table in decoder._tables)
    assert run < 0.7 * said_by(decoder)


# --- 2. the same search, from its definition -------------------------------------------------------------------------


class Online(NamedTuple):
    progress: list[Progress]
    answers: list[tuple[Tokens, float]]
    partial: tuple[Tokens, float]
    """The best of the longest prefixes."""
    again: int
    """How many prefixes survived in a cell after they had been dropped."""


class Search:
    """Column by column over dictionaries; scores of partial outputs come from enumerated alignments."""

    def __init__(self, models: Models, x: Sequence[int], weights: Weights, search: str, channel_alignment: str) -> None:
        self.weights, self.x = weights, [*x, EOS]
        self.marginal = search == "marginal"
        self.scores = PartialScores(models, self.x, self.marginal, channel_alignment == "viterbi")

    def join(self, ways: list[float]) -> float:
        return log_sum(ways) if self.marginal else max(ways)

    def shifts(self, prefix: Tokens, k: int, i: int) -> float:
        """Σ_{k ≤ i' < i} log shift."""
        return float(logsigmoid(-self.scores.next(prefix)[1][k:i]).sum())

    def terms(self, prefix: Tokens, direct: float, channel: float) -> float:
        lm = self.scores.lm(prefix) if self.weights.lm and prefix else 0.0
        return objective(self.weights, direct, channel if self.weights.channel else 0.0, lm, len(prefix))

    def now(self, prefix: Tokens, i: int) -> float:
        """What a prefix is worth when x_i (from 0) has been passed."""
        if not prefix:
            return -math.inf if self.weights.channel else self.terms((), self.shifts((), 0, i + 1), 0.0)
        ways = [self.scores.direct(prefix, k) + self.shifts(prefix, k, i + 1) for k in range(i + 1)]
        return self.terms(prefix, self.join(ways), self.scores.channel(prefix, i) if self.weights.channel else 0.0)

    def run(self, symbols: Sequence[int], k1: int, k2: int, max_length: int, margin: float) -> Online:
        last, cells, progress, answers = len(self.x) - 1, {}, [], []
        dropped: set[Tokens] = set()
        again = 0
        for i in range(last + 1):
            cells[i, 0] = {(): 0.0} if i == 0 else {}
            for length in range(1, max_length + 1):
                ranks: dict[Tokens, list[float]] = {}
                for k in range(i + 1):
                    for prefix, parent in cells[k, length - 1].items():
                        word, emit = self.scores.next(prefix)
                        here = parent + self.shifts(prefix, k, i) + float(logsigmoid(emit[i]))
                        for symbol in symbols if i == last else [s for s in symbols if s != EOS]:
                            ranks.setdefault((*prefix, symbol), []).append(here + float(word[i, symbol]))
                ranked = sorted(ranks, key=lambda prefix: -self.join(ranks[prefix]))[:k1]
                at, cell = i - 1 if i == last else i, {}
                for prefix in ranked:
                    direct, channel = self.scores.direct(prefix, i), 0.0
                    if prefix[-1] == EOS:
                        channel = self.scores.channel(prefix, last, whole=True)
                        answers.append((prefix[:-1], self.terms(prefix, direct, channel)))
                    elif length < max_length:
                        channel = self.scores.channel(prefix, at) if at >= 0 else 0.0
                        cell[prefix] = self.terms(prefix, direct, channel)
                cells[i, length] = dict(sorted(cell.items(), key=lambda item: -item[1])[:k2])
                again += len(dropped & set(cells[i, length]))
            if i < last:
                before = set().union(*cells.values())
                progress.append(self.drop(cells, i, margin))
                dropped |= before - set().union(*cells.values())
        longest = max(length for (_, length), cell in cells.items() if cell)
        rest = (item for (_, length), cell in cells.items() if length == longest for item in cell.items())
        partial = max(rest, key=lambda item: item[1])
        return Online(progress, sorted(answers, key=lambda answer: -answer[1]), partial, again)

    def drop(self, cells: dict[tuple[int, int], dict[Tokens, float]], i: int, margin: float) -> Progress:
        worth = {prefix: self.now(prefix, i) for cell in cells.values() for prefix in cell}
        best = max(worth, key=lambda prefix: worth[prefix])
        live = {prefix for prefix in worth if worth[prefix] >= worth[best] - margin}
        if self.weights.channel and () in worth and any(len(prefix) == 1 for prefix in live):
            live.add(())
        for place, cell in cells.items():
            cells[place] = {prefix: score for prefix, score in cell.items() if prefix in live}
        alike = (len(set(symbols)) == 1 for symbols in zip(*live, strict=False))
        return Progress(best, sum(1 for _ in itertools.takewhile(bool, alike)), worth[best])


def assert_progress(found: Sequence[Progress], expected: Sequence[Progress]) -> None:
    assert [(p.tokens, p.stable) for p in found] == [(p.tokens, p.stable) for p in expected]
    assert [p.score for p in found] == pytest.approx([p.score for p in expected], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("channel_alignment", SEARCHES)
@pytest.mark.parametrize("search", SEARCHES)
def test_equals_the_search_by_definition(search: str, channel_alignment: str) -> None:
    rng = random.Random(f"definition {search} {channel_alignment}")
    stable = again = 0
    for seed in range(13):
        V, k1 = rng.choice([6, 7]), rng.choice([2, 3, 5])
        models = random_models(300 + seed, V)
        if seed % 3:
            models = reluctant(models)
        weights = talkative_weights(rng, channel_alignment)
        x, beams = random_symbols(rng, 2, 4), {"k1": k1, "k2": rng.randint(1, k1), "max_length": rng.randint(2, 5)}
        margin = rng.choice([0.0, 0.0, 0.3, 1.0, 3.0, 8.0])
        symbols = [*range(4, V), *([] if seed % 4 == 0 else [EOS])]
        expected = Search(models, x, weights, search, channel_alignment).run(symbols, **beams, margin=margin)
        decoder = online_decoder(
            **models.for_weights(weights),
            weights=weights,
            **beams,
            search=search,
            channel_alignment=channel_alignment,
            margin=margin,
            barred={*range(4, V), EOS} - set(symbols),
        )
        progress, found = online(decoder, x, 1000)
        assert_progress(progress, expected.progress)
        assert_same(found, expected.answers or [expected.partial])
        assert [hypothesis.complete for hypothesis in found] == ([True] * len(expected.answers) or [False])
        stable, again = stable + any(p.stable for p in progress), again + expected.again
    assert min(stable, again) >= 2, "a margin that drops nothing tests nothing"


@pytest.mark.parametrize("channel_alignment", SEARCHES)
@pytest.mark.parametrize("search", SEARCHES)
def test_the_best_prefix_is_the_best_of_all(search: str, channel_alignment: str) -> None:
    lengths = set()
    for seed, weights in enumerate(SUBSETS):
        models = random_models(400 + seed, scale=5.0)
        decoder = online_decoder(
            **models.for_weights(weights),
            weights=weights,
            **UNBOUNDED,
            max_length=4,
            search=search,
            channel_alignment=channel_alignment,
        )
        x = random_symbols(random.Random(seed), 1, 4)
        scores = Search(models, x, weights, search, channel_alignment)
        every = every_output([4, 5], 4)
        for i, symbol in enumerate(x):
            progress = decoder.read(symbol)
            worth = {prefix: scores.now(prefix, i) for prefix in every}
            best = max(worth, key=lambda prefix: worth[prefix])
            assert progress.stable == 0
            # Without another term than the channel's best alignment, prefixes tie.
            assert progress.tokens == best or ties(weights, channel_alignment, x)
            assert progress.score == pytest.approx(worth[best], abs=1e-9)
            assert progress.score == pytest.approx(worth[progress.tokens], abs=1e-9)
            lengths.add(len(best))
    assert lengths >= {0, 1, 3}


# --- 3. what is stable stays -----------------------------------------------------------------------------------------


def assert_kept(progress: Sequence[Progress], found: Sequence[Hypothesis]) -> None:
    """The first tokens that were stable once are first in all that came later."""
    later = [p.tokens for p in progress] + [hypothesis.tokens for hypothesis in found]
    for i, p in enumerate(progress):
        assert p.stable <= len(p.tokens)
        assert all(tokens[: p.stable] == p.tokens[: p.stable] for tokens in later[i:])
    assert [p.stable for p in progress] == sorted(p.stable for p in progress)


def test_stable_tokens_stay_in_random_models() -> None:
    rng = random.Random(17)
    stable = 0
    for seed in range(24):
        models = random_models(500 + seed, rng.choice([6, 8]), scale=rng.uniform(2.0, 6.0))
        weights = talkative_weights(rng)
        k1 = rng.choice([1, 4, 10])
        decoder = online_decoder(
            **models.for_weights(weights),
            weights=weights,
            k1=k1,
            k2=rng.randint(1, k1),
            max_length=rng.choice([3, 5]),
            search=SEARCHES[seed % 2],
            margin=rng.choice([0.0, 0.3, 1.0, 3.0]),
        )
        progress, found = online(decoder, random_symbols(rng, 3, 6), 20)
        assert_kept(progress, found)
        stable += any(p.stable for p in progress)
    assert stable >= 8


def random_walk(rng: random.Random, length: int) -> list[int]:
    """An input of the trained models: no symbol follows itself."""
    x = [rng.randrange(4, 8)]
    while len(x) < length:
        x.append(rng.choice([symbol for symbol in range(4, 8) if symbol != x[-1]]))
    return x


def doubled(x: Sequence[int]) -> list[int]:
    """Its output: symbol 4 is said twice."""
    return [symbol for symbol in x for _ in range(2 if symbol == 4 else 1)]


@pytest.fixture(scope="module")
def trained() -> Models:
    """Models that know their task."""
    rng = random.Random(0)
    torch.manual_seed(0)
    models = Models(SSNT(8, 8, 24), SSNT(8, 8, 24), LanguageModel(8, 24, num_layers=1))
    modules = (models.direct, models.channel, models.lm)
    optimizer = torch.optim.Adam([p for module in modules for p in module.parameters()], lr=0.03)

    def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        ids = pad_sequence([torch.tensor([*row, EOS]) for row in rows], batch_first=True, padding_value=PAD)
        return ids, torch.tensor([len(row) + 1 for row in rows])

    for _ in range(120):
        xs = [random_walk(rng, rng.randint(1, 7)) for _ in range(24)]
        x, y = padded(xs), padded([doubled(row) for row in xs])
        score = models.direct.log_prob(*x, *y) + models.channel.log_prob(*y, *x) + models.lm.log_prob(*y)
        optimizer.zero_grad()
        (-score.mean()).backward()
        optimizer.step()
    return models.to(torch.float64)


@pytest.mark.parametrize(
    "weights",
    [Weights(), Weights(1.0, 0.7, 0.5, 0.3), Weights(0.0, 1.0, 0.6, 0.5)],
    ids=["direct", "all", "channel+lm"],
)
def test_trained_models_settle_on_tokens_while_they_read(trained: Models, weights: Weights) -> None:
    rng = random.Random(5)
    settled = []
    for _ in range(3):
        x = random_walk(rng, 6)
        setting: dict[str, Any] = {
            **trained.for_weights(weights),
            "weights": weights,
            "k1": 8,
            "k2": 4,
            "max_length": 12,
        }
        decoder, free = online_decoder(**setting, margin=4.0), online_decoder(**setting)
        progress = [decoder.read(symbol) for symbol in x]
        for symbol in x:
            free.read(symbol)
        assert said_by(decoder) < 0.5 * said_by(free), "what was dropped must not be kept"
        found = decoder.finish(3)
        assert_kept(progress, found)
        if weights.direct:
            assert found[0].tokens == free.finish()[0].tokens == tuple(doubled(x))
        settled.append(progress[-1].stable / len(found[0].tokens))
    assert sum(settled) / len(settled) > (0.4 if weights.direct else 0.1)


# --- 4. bad input ----------------------------------------------------------------------------------------------------


def test_a_bidirectional_direct_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^online decoding needs a unidirectional direct model[^\n]*$"):
        online_decoder(random_models(0, bidirectional=True).direct)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margin": -1.0}, "margin.*-1"),
        ({"margin": math.nan}, "margin.*nan"),
        ({"k1": 2, "k2": 3}, "k2"),
        ({"max_length": 0}, "max_length"),
        ({"search": "beam"}, "search.*beam"),
        ({"weights": Weights(1.0, channel=0.5)}, "channel.*0.5"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        online_decoder(random_models(0).direct, **arguments)


@pytest.mark.parametrize("symbol", [PAD, BOS, EOS])
def test_only_symbols_of_the_input_can_be_read(symbol: int) -> None:
    decoder = online_decoder(random_models(0).direct)
    with pytest.raises(ValueError, match=f"EOS.*id {symbol}"):
        decoder.read(symbol)
    assert decoder.read(4) == online_decoder(random_models(0).direct).read(4), "nothing was read"


def test_nothing_follows_the_end() -> None:
    decoder = online_decoder(random_models(0).direct)
    decoder.finish()
    for again in (lambda: decoder.read(4), decoder.finish):
        with pytest.raises(ValueError, match="ended"):
            again()


def test_barred_symbols_and_n_best_are_checked() -> None:
    with pytest.raises(ValueError, match=r"barred.*99"):
        online_decoder(random_models(0).direct, barred=[99]).read(4)
    with pytest.raises(ValueError, match="n_best"):
        online_decoder(random_models(0).direct).finish(n_best=0)


def test_a_language_model_that_reads_features_is_refused() -> None:
    models = random_models(1)
    models.lm.reads_features = True
    online_decoder(models.direct, models.channel, models.lm, weights=Weights(1.0, 1.0, 0.0))
    with pytest.raises(ValueError, match="reads features before an output, and online decoding has none"):
        online_decoder(models.direct, models.channel, models.lm, weights=ALL)
