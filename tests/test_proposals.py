"""The best K1 extensions of each cell, against all extensions in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from noisychannel.decode import proposals
from noisychannel.decode.proposals import Proposals, RankedScores, propose, slack_of


class Problem(NamedTuple):
    """The arguments of ``propose``, and which symbols may be proposed where."""

    reach_BPI: Tensor
    input_scores_BIV: Tensor
    output_scores_BPV: Tensor
    normaliser_BIP: Tensor
    allowed_BIV: Tensor
    k1: int


def random_problem(seed: int, B: int = 2, P: int = 5, I: int = 3, V: int = 6, k1: int = 4, gap: float = 4.0) -> Problem:
    """``gap``: how far the prefixes lie apart, against word scores of some nats."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    input_scores, output_scores = 2 * normal(B, I, V), 2 * normal(B, P, V)
    normaliser = (input_scores[:, :, None] + output_scores[:, None]).logsumexp(-1)
    everything = torch.ones(B, I, V, dtype=torch.bool)
    return Problem(gap * normal(B, P, I), input_scores, output_scores, normaliser, everything, k1)


def everything_sorted(problem: Problem) -> list[list[list[tuple[float, int, int]]]]:
    """For each sentence and cell all possible (score, prefix, symbol), best first, cut at K1."""
    reach, a, c, _, allowed, k1 = problem
    B, P, I = reach.shape
    V = a.shape[2]
    allowed = allowed.expand(B, I, V)
    cells = []
    for b in range(B):
        row = []
        for i in range(I):
            every = []
            for u in range(P):
                log_q = (a[b, i] + c[b, u]).log_softmax(0).tolist()
                if reach[b, u, i] > -torch.inf:
                    every += [(float(reach[b, u, i]) + log_q[w], u, w) for w in range(V) if allowed[b, i, w]]
            row.append(sorted(every, reverse=True)[:k1])
        cells.append(row)
    return cells


def solve(problem: Problem) -> Proposals:
    reach, a, c, norm, allowed, k1 = problem
    return propose(reach, RankedScores.of(a.masked_fill(~allowed, -torch.inf)), RankedScores.of(c), norm, k1)


def assert_exact(found: Proposals, problem: Problem) -> None:
    B, P, I = problem.reach_BPI.shape
    places = min(problem.k1, P * problem.input_scores_BIV.shape[2])
    assert found.score.shape == found.prefix.shape == found.symbol.shape == (B, I, places)
    expected = everything_sorted(problem)
    for b in range(B):
        for i in range(I):
            n = len(expected[b][i])
            got = zip(found.score[b, i].tolist(), found.prefix[b, i].tolist(), found.symbol[b, i].tolist(), strict=True)
            for (score, prefix, symbol), (best, u, w) in zip(list(got)[:n], expected[b][i], strict=True):
                assert (prefix, symbol) == (u, w)
                assert score == pytest.approx(best, abs=1e-9)
            assert found.score[b, i, n:].tolist() == [-torch.inf] * (places - n)


class SymbolsRanked(TorchDispatchMode):
    """Counts the extensions that were multiplied out and ranked, in rounds and in numbers."""

    def __init__(self, V: int) -> None:
        super().__init__()
        self.V, self.rounds, self.ranked = V, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten.topk:
            self.rounds += 1
            self.ranked += args[0].numel()
        return func(*args, **(kwargs or {}))


# One block holds one prefix of one row, two of two, a few, everything.
ROOMS = [1, 12, 60, 1 << 24]


@pytest.mark.parametrize("room", ROOMS)
def test_proposals_are_the_best_of_everything(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", room)
    for seed in range(40):
        problem = random_problem(
            seed,
            B=1 + seed % 3,
            P=1 + seed % 7,
            I=1 + seed % 4,
            k1=[1, 2, 4, 9][seed % 4],
            gap=[0.1, 2.0, 8.0][seed % 3],
        )
        assert_exact(solve(problem), problem)


@pytest.mark.parametrize("room", ROOMS)
def test_prefixes_that_do_not_reach_a_cell_propose_nothing(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", room)
    for seed in range(30):
        problem = random_problem(seed, P=6, k1=5, gap=2.0)
        absent = torch.rand(problem.reach_BPI.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
        problem = problem._replace(reach_BPI=problem.reach_BPI.masked_fill(absent, -torch.inf))
        assert_exact(solve(problem), problem)
    nowhere = problem._replace(reach_BPI=torch.full_like(problem.reach_BPI, -torch.inf))
    assert_exact(solve(nowhere), nowhere)


@pytest.mark.parametrize("room", ROOMS)
def test_fewer_extensions_than_places(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", room)
    for P in (1, 2, 3):
        problem = random_problem(P, P=P, V=5, k1=40)
        assert_exact(solve(problem), problem)


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("shape", [(6,), (1, 3, 6), (2, 1, 6), (2, 3, 6)], ids=str)
def test_symbols_that_are_not_allowed(shape: tuple[int, ...], room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", room)
    for seed in range(15):
        allowed = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < [0.5, 0.15, 0.9][seed % 3]
        problem = random_problem(seed, k1=[3, 8, 20][seed % 3], gap=1.0)
        full = torch.broadcast_to(allowed, (2, 3, 6))
        assert_exact(solve(problem._replace(allowed_BIV=full)), problem._replace(allowed_BIV=full))


def test_float32_scores() -> None:
    for seed in range(10):
        problem = random_problem(seed)
        reach, a, c, norm, _, k1 = problem
        found = propose(reach, RankedScores.of(a.float()), RankedScores.of(c.float()), norm.float(), k1)
        exact = solve(problem)
        assert found.score.dtype == torch.float64
        torch.testing.assert_close(found.score, exact.score, atol=1e-5, rtol=0)


def test_prefixes_out_of_reach_are_never_multiplied_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes 1000 nats apart: in every cell the first has all K1 proposals, and no other is looked at."""
    B, P, I, V, k1 = 2, 50, 3, 6, 4
    problem = random_problem(0, B, P, I, V, k1)
    problem = problem._replace(reach_BPI=-1000.0 * torch.arange(P, dtype=torch.float64)[None, :, None].expand(B, P, I))
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", B * I * V)
    with SymbolsRanked(V) as counted:
        found = solve(problem)
    assert_exact(found, problem)
    assert counted.rounds <= 4
    assert counted.ranked < 4 * B * I * (V + 2 * k1) < B * I * P * V / 4


def test_scores_so_large_that_rounding_is_larger_than_any_word_score() -> None:
    problem = random_problem(seed=4, P=4, k1=7)
    found = solve(problem._replace(reach_BPI=torch.full_like(problem.reach_BPI, -1e30)))
    assert found.prefix[0, 0].tolist() == [0] * 6 + [1], "all extensions are equal, so they come in order"
    assert found.symbol[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 0]


def test_cells_stop_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one cell all prefixes are close and must all be looked at; the other cells cost nothing for that."""
    B, P, I, V, k1 = 1, 40, 10, 6, 4
    problem = random_problem(0, B, P, I, V, k1)
    reach = -1000.0 * torch.arange(P, dtype=torch.float64)[None, :, None].expand(B, P, I).clone()
    reach[0, :, 7] = torch.linspace(0.0, 0.01, P, dtype=torch.float64)
    problem = problem._replace(reach_BPI=reach)
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", 1)
    with SymbolsRanked(V) as counted:
        found = solve(problem)
    assert_exact(found, problem)
    assert counted.rounds >= P
    assert counted.ranked < 0.5 * (I * P) * (V + 2 * k1)


@pytest.mark.parametrize("room", [1, 600, 1 << 24])
@pytest.mark.parametrize("listed", [1, 3, 6])
def test_lists_of_a_large_vocabulary_miss_nothing(listed: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaked scores, whose best are on the lists, and flat ones, whose best are not."""
    monkeypatch.setattr(proposals, "LISTED", listed)
    monkeypatch.setattr(proposals, "LARGE", 8 * listed)
    monkeypatch.setattr(proposals, "LOGITS_AT_ONCE", room)
    everything, whole = proposals._Block.everything, []
    monkeypatch.setattr(
        proposals._Block, "everything", lambda block, k1: whole.append(len(block.rows)) or everything(block, k1)
    )
    cells = 0
    for seed in range(30):
        problem = random_problem(
            seed, B=2, P=1 + seed % 6, I=3, V=50, k1=[1, 4, 12][seed % 3], gap=[0.1, 4.0][seed % 2]
        )
        peaks = problem.input_scores_BIV.exp() if seed % 3 else 0.01 * problem.input_scores_BIV
        normaliser = (peaks[:, :, None] + problem.output_scores_BPV[:, None]).logsumexp(-1)
        problem = problem._replace(input_scores_BIV=peaks, normaliser_BIP=normaliser)
        if seed % 4 == 0:
            allowed = torch.rand(2, 3, 50, generator=torch.Generator().manual_seed(seed)) < [0.05, 0.7][seed % 8 == 0]
            problem = problem._replace(allowed_BIV=allowed)
        assert_exact(solve(problem), problem)
        cells += 6
    assert whole, "some cells must be looked at whole"
    if room > 1 and listed > 1:
        assert sum(whole) < 0.7 * cells, "and some must not"


@pytest.mark.parametrize("kept", [4, 1 << 20])
@pytest.mark.parametrize("rows", [1, 7])
def test_a_known_threshold_finds_the_same_as_lists(rows: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores in float32, many of them equal; thresholds from just below the K1-th best to none at all."""
    monkeypatch.setattr(proposals, "LARGE", 24)
    monkeypatch.setattr(proposals, "LISTED", 16)
    monkeypatch.setattr(proposals.on_cpu, "AT_ONCE", rows)
    monkeypatch.setattr(proposals.on_cpu, "KEPT", kept)
    filtered, above_least = 0, proposals.on_cpu.above_least
    for seed in range(40):
        k1 = [1, 4, 16, 20][seed % 4]
        problem = random_problem(seed, B=2, P=1 + seed % 6, I=3, V=30, k1=k1, gap=[0.1, 4.0][seed % 2])
        inputs, outputs = problem.input_scores_BIV.float(), problem.output_scores_BPV.float()
        reach = problem.reach_BPI.clone()
        if seed % 3 == 0:
            inputs, outputs, reach = inputs.round(), outputs.round(), reach.round()
        normaliser = (inputs[:, :, None] + outputs[:, None]).logsumexp(-1).round(decimals=seed % 2)
        generator = torch.Generator().manual_seed(seed)
        inputs = inputs.masked_fill(torch.rand(2, 3, 30, generator=generator) < 0.2, -torch.inf)
        reach = reach.masked_fill(torch.rand(reach.shape, generator=generator) < 0.3, -torch.inf)
        slack = slack_of(reach, "ieee") + 1.0
        expected = propose(reach, RankedScores.of(inputs), RankedScores.of(outputs), normaliser, k1, slack=slack)
        least = expected.score[..., -1] - [0.0, 0.5, 50.0][seed % 3]
        calls = []
        monkeypatch.setattr(proposals.on_cpu, "above_least", lambda *a: calls.append(1) or above_least(*a))  # noqa: B023
        of_outputs = RankedScores.of_outputs(outputs)
        assert of_outputs.symbols is None
        found = propose(reach, RankedScores.of(inputs), of_outputs, normaliser, k1, slack=slack, least_BI=least)
        assert bool(calls) == (k1 <= 16), "more than a list has: no threshold is known"
        filtered += len(calls)
        assert found.score.tolist() == expected.score.tolist()
        there = expected.score > -torch.inf
        assert found.prefix[there].tolist() == expected.prefix[there].tolist()
        assert found.symbol[there].tolist() == expected.symbol[there].tolist()
    assert filtered


def test_a_normaliser_that_is_a_little_too_small() -> None:
    """In TF32 it may be, and log q is then above 0: more than any bound. Ties are ranked all the same."""
    inputs, outputs = torch.zeros(1, 1, 60), torch.full((1, 3, 60), -40.0)
    outputs[:, :, 7] = 0.0
    normaliser = (inputs[:, :, None] + outputs[:, None]).logsumexp(-1) - 4e-4
    reach = torch.zeros(1, 3, 1, dtype=torch.float64)
    for large in (2048, 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proposals, "LARGE", large)
            patch.setattr(proposals, "LISTED", 2)
            ranked = RankedScores.of(inputs.bfloat16()), RankedScores.of(outputs.bfloat16())
            found = propose(reach, *ranked, normaliser, 2, slack=slack_of(reach, "tf32"))
            assert found.prefix.flatten().tolist() == [0, 1]
            assert found.symbol.flatten().tolist() == [7, 7]


def test_equal_scores_on_the_edge_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many symbols share the L-th score, so that a list holds some of them and not others; none is lost or doubled."""
    monkeypatch.setattr(proposals, "LISTED", 3)
    monkeypatch.setattr(proposals, "LARGE", 24)
    for seed in range(30):
        problem = random_problem(seed, V=30, k1=25, gap=0.5)
        a, c = problem.input_scores_BIV.round(), problem.output_scores_BPV.round()
        problem = problem._replace(
            input_scores_BIV=a, output_scores_BPV=c, normaliser_BIP=(a[:, :, None] + c[:, None]).logsumexp(-1)
        )
        found, expected = solve(problem), everything_sorted(problem)
        for b in range(2):
            for i in range(3):
                extensions = list(zip(found.prefix[b, i].tolist(), found.symbol[b, i].tolist(), strict=True))
                assert len(set(extensions)) == 25
                assert found.score[b, i].tolist() == pytest.approx([score for score, _, _ in expected[b][i]], abs=1e-9)
