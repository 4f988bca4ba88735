"""Columns carried from prefix to prefix, against the same lattice computed as a whole, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import oracles
from noisychannel.decode.columns import ChannelColumn, Transitions, advance_channel, cumulative, scan, scan_sum
from noisychannel.semirings import Log, Max, Semiring

Join = Callable[[list[float]], float]


def log_sum(values: list[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(value - top) for value in values))


SEMIRINGS = [pytest.param(Log(), log_sum, id="sum"), pytest.param(Max(), max, id="max")]


def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def random_lattice(seed: int, J: int, I: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Emit logits and word log-probabilities, [J,I] each."""
    generator = torch.Generator().manual_seed(seed)
    emit, word = (scale * torch.randn(J, I, generator=generator, dtype=torch.float64) for _ in range(2))
    return emit, -word.abs()


def whole_lattice(emit_JI: Tensor, word_JI: Tensor, join: Join) -> tuple[list[list[float]], list[list[float]]]:
    """log leave(j, i) and log arrive(j, i)·shift(j, i) of a channel that reads J symbols and writes I."""
    J, I = emit_JI.shape
    emit, word = emit_JI.tolist(), word_JI.tolist()
    leave = [[-math.inf] * I for _ in range(J)]
    onward = [[-math.inf] * I for _ in range(J)]
    for j in range(J):
        for i in range(I):
            wrote_here = (0.0 if j == 0 else -math.inf) if i == 0 else leave[j][i - 1]
            read_on = -math.inf if j == 0 else onward[j - 1][i]
            arrive = join([wrote_here, read_on])
            leave[j][i] = arrive + log_sigmoid(emit[j][i]) + word[j][i]
            onward[j][i] = arrive + log_sigmoid(-emit[j][i])
    return leave, onward


def assert_channel(emit_JI: Tensor, word_JI: Tensor, semiring: Semiring, join: Join, tolerance: float) -> None:
    leave, onward = whole_lattice(emit_JI, word_JI, join)
    column = ChannelColumn.empty(emit_JI[0])
    for j in range(len(emit_JI)):
        column, left = advance_channel(column, emit_JI[j], word_JI[j], semiring)
        written = [join([leave[row][i] for row in range(j + 1)]) for i in range(emit_JI.shape[1])]
        assert left.tolist() == pytest.approx(leave[j], rel=tolerance, abs=tolerance)
        assert column.onward.tolist() == pytest.approx(onward[j], rel=tolerance, abs=tolerance)
        assert column.written.tolist() == pytest.approx(written, rel=tolerance, abs=tolerance)


# --- the channel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("semiring", "join"), SEMIRINGS)
def test_channel_column_is_the_whole_lattice(semiring: Semiring, join: Join) -> None:
    for seed in range(30):
        J, I = 1 + seed % 6, 1 + seed // 5
        assert_channel(*random_lattice(seed, J, I), semiring, join, 1e-10)


@pytest.mark.parametrize(("semiring", "join"), SEMIRINGS)
def test_channel_column_with_extreme_logits(semiring: Semiring, join: Join) -> None:
    for seed in range(20):
        emit, word = random_lattice(seed, 5, 6)
        generator = torch.Generator().manual_seed(1000 + seed)
        extreme = torch.tensor([-500.0, 500.0, 0.0])[torch.randint(3, emit.shape, generator=generator)]
        assert_channel(emit + extreme, word * (1 if seed % 2 else 100), semiring, join, 1e-10)


@pytest.mark.parametrize(("semiring", "join"), SEMIRINGS)
def test_channel_column_over_long_inputs(semiring: Semiring, join: Join) -> None:
    emit, word = random_lattice(5, 8, 300, scale=20.0)
    assert_channel(emit, word, semiring, join, 1e-10)


@pytest.mark.parametrize(
    ("semiring", "total"),
    [
        pytest.param(Log(), lambda scores: scores.logsumexp(0), id="sum"),
        pytest.param(Max(), lambda scores: scores.max(), id="max"),
    ],
)
def test_channel_column_is_the_sum_over_alignments(semiring: Semiring, total: Callable[[Tensor], Tensor]) -> None:
    for seed in range(8):
        J, I = 1 + seed % 4, 1 + seed // 2
        emit_JI, word_JI = random_lattice(seed, J, I)
        column = ChannelColumn.empty(emit_JI[0])
        for j in range(J):
            column, leave = advance_channel(column, emit_JI[j], word_JI[j], semiring)
        for i in range(I):
            ways = [
                total(oracles.alignment_scores(word_JI[: j + 1, : i + 1], emit_JI[: j + 1, : i + 1])) for j in range(J)
            ]
            assert leave[i] == pytest.approx(float(ways[-1]), abs=1e-9)
            assert column.written[i] == pytest.approx(float(total(torch.stack(ways))), abs=1e-9)


def test_channel_column_leading_dimensions_are_free() -> None:
    emit, word = (torch.stack([random_lattice(seed, 3, 4)[part] for seed in range(6)]) for part in (0, 1))
    many = ChannelColumn.empty(emit[:, 0].view(2, 3, 4))
    one = [ChannelColumn.empty(emit[n, 0]) for n in range(6)]
    for j in range(3):
        many, leave = advance_channel(many, emit[:, j].view(2, 3, 4), word[:, j].view(2, 3, 4), Log())
        for n in range(6):
            one[n], alone = advance_channel(one[n], emit[n, j], word[n, j], Log())
            torch.testing.assert_close(leave.view(6, 4)[n], alone)
            torch.testing.assert_close(many.onward.view(6, 4)[n], one[n].onward)
            torch.testing.assert_close(many.written.view(6, 4)[n], one[n].written)


def test_channel_column_of_float32_models_is_kept_in_float64() -> None:
    emit, word = random_lattice(0, 4, 5)
    column = ChannelColumn.empty(emit[0].float())
    for j in range(4):
        column, leave = advance_channel(column, emit[j].float(), word[j].float(), Log())
        assert leave.dtype == column.onward.dtype == column.written.dtype == torch.float64
    assert leave.tolist() == pytest.approx(whole_lattice(emit, word, log_sum)[0][-1], abs=1e-5)


# --- the direct model ------------------------------------------------------------------------------------------------


def reach_by_definition(emit_logit: list[float], score: list[float], join: Join) -> list[float]:
    return [
        join(
            [
                score[k]
                + sum(log_sigmoid(-emit_logit[shifted]) for shifted in range(k, i))
                + log_sigmoid(emit_logit[i])
                for k in range(i + 1)
            ]
        )
        for i in range(len(score))
    ]


@pytest.mark.parametrize("extreme", [0.0, 500.0])
@pytest.mark.parametrize(("semiring", "join"), SEMIRINGS)
def test_reach_is_its_definition(semiring: Semiring, join: Join, extreme: float) -> None:
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        I = 1 + seed % 7
        emit = 3 * torch.randn(2, 3, I, generator=generator, dtype=torch.float64)
        emit += extreme * torch.randint(-1, 2, emit.shape, generator=generator)
        score = 5 * torch.randn(2, 3, I, generator=generator, dtype=torch.float64)
        score[torch.rand(score.shape, generator=generator) < 0.4] = -torch.inf
        found = Transitions.of(emit).reach(score, semiring)
        for b in range(2):
            for p in range(3):
                expected = reach_by_definition(emit[b, p].tolist(), score[b, p].tolist(), join)
                assert found[b, p].tolist() == pytest.approx(expected, rel=1e-11, abs=1e-9)


@pytest.mark.parametrize(("semiring", "join"), SEMIRINGS)
def test_reach_over_long_inputs(semiring: Semiring, join: Join) -> None:
    """Telescoped over thousands of nats, from the middle, with float32 logits."""
    generator = torch.Generator().manual_seed(0)
    emit = 30 * torch.randn(200, generator=generator)
    score = torch.full((200,), -torch.inf, dtype=torch.float64)
    score[60:150:30] = torch.tensor([-3.0, -1.0, 0.0], dtype=torch.float64)
    found = Transitions.of(emit).reach(score, semiring)
    assert found.dtype == torch.float64
    expected = reach_by_definition(emit.tolist(), score.tolist(), join)
    assert found.tolist() == pytest.approx(expected, rel=1e-11, abs=1e-9)


def test_transitions_fields() -> None:
    logits = torch.tensor([0.3, -2.0, 500.0, -500.0], dtype=torch.float64)
    transitions = Transitions.of(logits)
    shifts = [log_sigmoid(-logit) for logit in logits.tolist()]
    assert transitions.shifted.tolist() == pytest.approx([sum(shifts[:i]) for i in range(4)], abs=1e-12)
    assert transitions.emit.tolist() == pytest.approx([log_sigmoid(logit) for logit in logits.tolist()], abs=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 100])
def test_cumulative_is_one_after_the_other(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(5, 2, length, dtype=torch.float64, generator=generator) * 50
    torch.testing.assert_close(cumulative(x, torch.add), x.cumsum(-1), rtol=1e-12, atol=1e-9)
    x[torch.rand(x.shape, generator=generator) < 0.4] = -torch.inf
    x[0] = -torch.inf
    torch.testing.assert_close(cumulative(x, Log().plus), x.logcumsumexp(-1), rtol=1e-12, atol=0)
    assert torch.equal(cumulative(x, Max().plus), x.cummax(-1).values)


# --- scans on a CPU --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("semiring", "join"), SEMIRINGS)
def test_a_scan_is_exact_however_far_its_elements_are_apart(semiring: Semiring, join: Join) -> None:
    generator = torch.Generator().manual_seed(7)
    scale = torch.tensor([1.0, 50.0, 300.0, 1e4, 1e150], dtype=torch.float64)[:, None, None]
    x = scale * torch.randn(5, 40, 9, generator=generator, dtype=torch.float64)
    x[torch.rand(x.shape, generator=generator) < 0.2] = -math.inf
    x[:, :3] = -math.inf
    for row, scanned in zip(x.flatten(0, 1), scan(x, semiring).flatten(0, 1), strict=True):
        expected = [join(row[: i + 1].tolist()) for i in range(len(row))]
        assert scanned.tolist() == pytest.approx(expected, rel=1e-13, abs=1e-13)
        # Whatever the other rows are, to the last bit.
        assert torch.equal(scan(row[None], semiring)[0], scanned)


def test_a_scan_sum_is_the_sum() -> None:
    x = torch.randn(4, 7, dtype=torch.float64)
    torch.testing.assert_close(scan_sum(x), cumulative(x, torch.add))
