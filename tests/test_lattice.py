"""The lattice against the enumeration of every alignment, and what must hold where enumeration cannot go."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from allocations import Allocations
from noisychannel import lattice
from noisychannel.lattice import entropy, log_marginal, posteriors, sample, viterbi
from noisychannel.semirings import Max

exhaustive = settings(max_examples=50, deadline=None, derandomize=True)

FUNCTIONS = {"log_marginal": log_marginal, "viterbi": viterbi, "posteriors": posteriors, "entropy": entropy}


@dataclass
class Lattices:
    """A padded batch, and the same lattices one by one."""

    word_logp: Tensor
    emit_logit: Tensor
    input_lengths: Tensor
    output_lengths: Tensor

    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.word_logp, self.emit_logit, self.input_lengths, self.output_lengths

    def each(self) -> list[tuple[Tensor, Tensor]]:
        lengths = zip(self.input_lengths.tolist(), self.output_lengths.tolist(), strict=True)
        return [(self.word_logp[b, :I, :J], self.emit_logit[b, :I, :J]) for b, (I, J) in enumerate(lengths)]

    def to(self, dtype: torch.dtype) -> Lattices:
        return Lattices(self.word_logp.to(dtype), self.emit_logit.to(dtype), self.input_lengths, self.output_lengths)

    def inside(self) -> Tensor:
        """True at the cells that are not padding, [B,I,J]."""
        _, I, J = self.word_logp.shape
        rows = torch.arange(I)[:, None] < self.input_lengths[:, None, None]
        return rows & (torch.arange(J) < self.output_lengths[:, None, None])

    def padded_with(self, value: float) -> Lattices:
        word_logp, emit_logit = (torch.where(self.inside(), x, value) for x in (self.word_logp, self.emit_logit))
        return Lattices(word_logp, emit_logit, self.input_lengths, self.output_lengths)


def random_lattices(seed: int, lengths: list[tuple[int, int]], size: tuple[int, int], values: str) -> Lattices:
    """``values``: "moderate" normal numbers, "flat" ones close to ties, or mixed sizes up to ±50 or ±500."""
    rng = torch.Generator().manual_seed(seed)
    shape = (len(lengths), *size)

    def normal() -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    if values == "moderate":
        word_logp, emit_logit = -3 * normal().abs(), 2 * normal()
    elif values == "flat":
        word_logp, emit_logit = -2 + 1e-3 * normal(), 1e-3 * normal()
    else:
        top = float(values)
        levels = torch.tensor([-top, -top / 10, -1.0, 0.0, 1.0, top / 10, top], dtype=torch.float64)
        emit_logit = levels[torch.randint(len(levels), shape, generator=rng)] + normal()
        word_logp = -levels[torch.randint(len(levels), shape, generator=rng)].abs() - normal().abs()
    input_lengths, output_lengths = (torch.tensor(column) for column in zip(*lengths, strict=True))
    return Lattices(word_logp, emit_logit, input_lengths, output_lengths)


@st.composite
def lattices(draw: st.DrawFn, longest: int = 5) -> Lattices:
    length = st.integers(1, longest)
    lengths = draw(st.lists(st.tuples(length, length), min_size=1, max_size=4))
    size = (max(I for I, _ in lengths) + draw(st.integers(0, 1)), max(J for _, J in lengths) + draw(st.integers(0, 1)))
    values = draw(st.sampled_from(["moderate", "flat", "50", "500"]))
    return random_lattices(draw(st.integers(0, 2**31)), lengths, size, values)


def gradients(batch: Lattices, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """log_marginal and the gradients of its (weighted) sum by word_logp and emit_logit."""
    word_logp, emit_logit = batch.word_logp.detach().requires_grad_(), batch.emit_logit.detach().requires_grad_()
    value = log_marginal(word_logp, emit_logit, batch.input_lengths, batch.output_lengths)
    (value if weights is None else value * weights).sum().backward()
    assert word_logp.grad is not None
    assert emit_logit.grad is not None
    return value.detach(), word_logp.grad, emit_logit.grad


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def is_alignment(z: list[int], I: int, J: int) -> bool:
    """Monotone, inside the input, at its end at the last symbol, and -1 past it."""
    inside, outside = z[:J], z[J:]
    monotone = all(before <= after for before, after in zip([0, *inside], inside, strict=False))
    return monotone and inside[-1] == I - 1 and all(i == -1 for i in outside)


MIXED = random_lattices(7, [(4, 3), (1, 4), (5, 1), (2, 5), (1, 1)], (6, 6), "moderate")
"""Every kind of raggedness: a row alone, a column alone, one cell, and padding past the longest on both sides."""


# --- brute force -----------------------------------------------------------------------------------------------------


@exhaustive
@given(lattices())
def test_log_marginal_and_its_gradient_are_those_of_the_enumeration(batch: Lattices) -> None:
    weights = torch.linspace(-1, 2, len(batch.input_lengths), dtype=torch.float64)
    value, word_grad, emit_grad = gradients(batch, weights)
    expected_word, expected_emit = batch.word_logp.clone().requires_grad_(), batch.emit_logit.clone().requires_grad_()
    leaves = Lattices(expected_word, expected_emit, batch.input_lengths, batch.output_lengths)
    expected = torch.stack([oracles.log_marginal(*pair) for pair in leaves.each()])
    (expected * weights).sum().backward()
    assert_close(value, expected.detach())
    assert_close(word_grad, expected_word.grad)
    assert_close(emit_grad, expected_emit.grad)


@exhaustive
@given(lattices())
def test_viterbi_is_the_best_of_the_enumeration(batch: Lattices) -> None:
    score, alignment = viterbi(*batch.arguments())
    assert alignment.shape == (batch.word_logp.shape[0], batch.word_logp.shape[2])
    assert not alignment.is_floating_point()
    for b, pair in enumerate(batch.each()):
        best, best_set = oracles.best_alignments(*pair)
        I, J = pair[0].shape
        assert score[b].item() == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert tuple(alignment[b, :J].tolist()) in best_set
        assert is_alignment(alignment[b].tolist(), I, J)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("none", [0.0, 0.3, 1.0], ids=["all arcs", "some arcs", "no arcs"])
def test_the_best_path_on_a_cpu_is_that_of_other_devices(none: float, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    for size in ((1, 1), (1, 5), (6, 1), (4, 7), (7, 4), (5, 5)):
        # Whole numbers, so that there are ties; of lattices without a path, too, both do the same.
        emitting, shifting = torch.randint(-3, 0, (2, 4, *size), generator=rng).to(dtype)
        emitting = emitting.masked_fill(torch.rand(emitting.shape, generator=rng) < none, -torch.inf)
        lengths = [torch.randint(1, most + 1, (4,), generator=rng) for most in size]
        frame = lattice._Frame.of(emitting, *lengths)
        ascent = lattice._ascend(Max(), frame, emitting, shifting)
        expected = lattice._descend(frame, Max().share(ascent.by_shift, ascent.by_emit))
        for found, right in zip(lattice._best_flow_on_cpu(frame, emitting, shifting), expected, strict=True):
            assert torch.equal(found, right)


@exhaustive
@given(lattices())
def test_viterbi_gradient_is_the_best_alignment(batch: Lattices) -> None:
    word_logp = batch.word_logp.clone().requires_grad_()
    emit_logit = batch.emit_logit.clone().requires_grad_()
    score, alignment = viterbi(word_logp, emit_logit, batch.input_lengths, batch.output_lengths)
    score.sum().backward()
    expected_word, expected_emit = batch.word_logp.clone().requires_grad_(), batch.emit_logit.clone().requires_grad_()
    leaves = Lattices(expected_word, expected_emit, batch.input_lengths, batch.output_lengths)
    for b, pair in enumerate(leaves.each()):
        if len(oracles.best_alignments(*(x.detach() for x in pair))[1]) > 1:
            return  # tied: any mixture of the winners is a subgradient
        I, J = pair[0].shape
        winner = oracles.alignments(I, J).index(tuple(alignment[b, :J].tolist()))
        oracles.alignment_scores(*pair)[winner].backward()
    assert_close(word_logp.grad, expected_word.grad)
    assert_close(emit_logit.grad, expected_emit.grad)


@exhaustive
@given(lattices())
def test_posteriors_are_those_of_the_enumeration(batch: Lattices) -> None:
    actual = posteriors(*batch.arguments())
    expected = torch.zeros_like(batch.word_logp)
    for b, pair in enumerate(batch.each()):
        I, J = pair[0].shape
        expected[b, :I, :J] = oracles.posteriors(*pair)
    assert_close(actual, expected)
    assert (actual[~batch.inside()] == 0).all()
    columns = (torch.arange(actual.shape[2]) < batch.output_lengths[:, None]).double()
    assert_close(actual.sum(1), columns)


@exhaustive
@given(lattices())
def test_posteriors_are_the_gradient_of_the_log_marginal(batch: Lattices) -> None:
    _, word_grad, _ = gradients(batch)
    assert_close(posteriors(*batch.arguments()), word_grad)


@exhaustive
@given(lattices())
def test_entropy_is_that_of_the_enumeration(batch: Lattices) -> None:
    expected = torch.tensor([oracles.entropy(*pair) for pair in batch.each()], dtype=torch.float64)
    assert_close(entropy(*batch.arguments()), expected)


def test_entropy_of_equal_alignments_counts_them() -> None:
    # Every alignment makes I - 1 shifts and J emissions: with even gates all are equally likely.
    I, J = 4, 4
    emit_logit = torch.zeros(1, I, J, dtype=torch.float64)
    word_logp = torch.full_like(emit_logit, -1.0)
    lengths = torch.tensor([I]), torch.tensor([J])
    expected = math.log(math.comb(I - 1 + J - 1, J - 1))
    assert entropy(word_logp, emit_logit, *lengths).item() == pytest.approx(expected, abs=1e-12)


@exhaustive
@given(lattices())
def test_the_two_oracles_agree(batch: Lattices) -> None:
    # The loop is what the large cases below are compared with, so it must itself be right.
    for word_logp, emit_logit in batch.each():
        word_leaf, emit_leaf = word_logp.clone().requires_grad_(), emit_logit.clone().requires_grad_()
        expected = oracles.log_marginal(word_leaf, emit_leaf)
        expected.backward()
        value, word_grad, emit_grad = oracles.lattice_loop(word_logp, emit_logit)
        assert value == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)
        assert_close(word_grad, word_leaf.grad)
        assert_close(emit_grad, emit_leaf.grad)


def test_gradcheck() -> None:
    batch = random_lattices(3, [(4, 3), (2, 4)], (4, 4), "moderate")
    lengths = batch.input_lengths, batch.output_lengths
    leaves = batch.word_logp.requires_grad_(), batch.emit_logit.requires_grad_()
    assert torch.autograd.gradcheck(lambda word, emit: log_marginal(word, emit, *lengths), leaves)


def test_second_derivatives_are_right_or_refused() -> None:
    batch = random_lattices(3, [(4, 3)], (4, 3), "moderate")
    leaf = batch.emit_logit.requires_grad_()
    try:
        (gradient,) = torch.autograd.grad(log_marginal(*batch.arguments()).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((gradient * gradient.detach()).sum(), leaf)
    except RuntimeError:
        return
    (exact,) = torch.autograd.grad(oracles.log_marginal(*batch.each()[0]), leaf, create_graph=True)
    (exact_second,) = torch.autograd.grad((exact * exact.detach()).sum(), leaf)
    assert_close(second, exact_second)


def test_impossible_words_leave_the_other_alignments() -> None:
    batch = random_lattices(6, [(4, 4)], (4, 4), "moderate")
    batch.word_logp[0, 1] = -math.inf  # nothing can be said at input position 1
    possible = {
        z: p
        for z, p in oracles.alignment_distribution(batch.each()[0][0].clamp(min=-1e4), batch.each()[0][1]).items()
        if 1 not in z
    }
    value, word_grad, emit_grad = gradients(batch)
    expected = oracles.log_marginal(batch.each()[0][0].clamp(min=-1e4), batch.each()[0][1])
    assert_close(value[0], expected)
    assert (word_grad[0, 1] == 0).all()
    assert emit_grad.isfinite().all()
    best = tuple(viterbi(*batch.arguments())[1][0].tolist())
    assert possible[best] == pytest.approx(max(possible.values()))
    assert entropy(*batch.arguments()).item() == pytest.approx(-sum(p * math.log(p) for p in possible.values()))
    drawn = sample(*batch.arguments(), num_samples=200, generator=torch.Generator().manual_seed(0))
    assert not (drawn == 1).any()


# --- samples ---------------------------------------------------------------------------------------------------------


def assert_distributed(samples: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Pearson's χ² against six standard deviations; outcomes expected fewer than five times are pooled."""
    counts = Counter(samples)
    assert set(counts) <= set(expected)
    total = len(samples)
    common = [z for z, p in expected.items() if p * total >= 5]
    cells = [(counts[z], expected[z] * total) for z in common]
    rare = total - sum(seen for seen, _ in cells), total - sum(wanted for _, wanted in cells)
    if rare[1] >= 5:
        cells.append(rare)
    else:
        assert rare[0] <= 5 + 6 * math.sqrt(5)
    freedom = max(len(cells) - 1, 1)
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    assert statistic < freedom + 6 * math.sqrt(2 * freedom), f"χ² {statistic:.1f} with {freedom} degrees of freedom"


@pytest.mark.parametrize("values", ["moderate", "flat"])
def test_samples_are_distributed_as_the_enumeration(values: str) -> None:
    batch = random_lattices(11, [(4, 4), (3, 5), (5, 2), (1, 3), (3, 1)], (5, 5), values)
    drawn = sample(*batch.arguments(), num_samples=20_000, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 5, 5)
    for b, pair in enumerate(batch.each()):
        J = pair[0].shape[1]
        assert_distributed([tuple(z) for z in drawn[:, b, :J].tolist()], oracles.alignment_distribution(*pair))


def test_samples_of_equal_rows_of_a_batch_are_independent() -> None:
    rows = 5000
    one = random_lattices(5, [(4, 3)], (4, 3), "moderate")
    batch = Lattices(*(x.expand(rows, *x.shape[1:]) for x in one.arguments()))
    drawn = sample(*batch.arguments(), generator=torch.Generator().manual_seed(1))
    assert drawn.shape == (rows, 3)
    exact = oracles.alignment_distribution(*one.each()[0])
    assert_distributed([tuple(z) for z in drawn.tolist()], exact)
    neighbours = [(*z, *z_next) for z, z_next in zip(drawn[::2].tolist(), drawn[1::2].tolist(), strict=True)]
    assert_distributed(neighbours, {(*z, *y): p * q for z, p in exact.items() for y, q in exact.items()})


@exhaustive
@given(lattices(), st.integers(0, 1000))
def test_every_sample_is_an_alignment_and_the_generator_decides_it(batch: Lattices, seed: int) -> None:
    drawn = sample(*batch.arguments(), num_samples=20, generator=torch.Generator().manual_seed(seed))
    assert not drawn.is_floating_point()
    lengths = list(zip(batch.input_lengths.tolist(), batch.output_lengths.tolist(), strict=True))
    for rows in drawn.tolist():
        for z, (I, J) in zip(rows, lengths, strict=True):
            assert is_alignment(z, I, J)
    again = sample(*batch.arguments(), num_samples=20, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(drawn, again)


def test_another_seed_gives_other_samples_and_the_global_one_is_left_alone() -> None:
    batch = random_lattices(2, [(5, 5)], (5, 5), "flat")
    first, second = (
        sample(*batch.arguments(), num_samples=50, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    assert not torch.equal(first, second)
    before = torch.random.get_rng_state()
    sample(*batch.arguments(), num_samples=50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.random.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(3)
        unseeded = sample(*batch.arguments(), num_samples=50)
        torch.manual_seed(3)
        assert torch.equal(unseeded, sample(*batch.arguments(), num_samples=50))


def test_a_certain_alignment_is_the_only_sample() -> None:
    # The best alignment of these logits outweighs all others by e^300.
    emit_logit = torch.full((1, 4, 4), -500.0, dtype=torch.float64)
    for i, j in enumerate([0, 1, 1, 3]):
        emit_logit[0, j, i] = 500.0
    arguments = torch.zeros_like(emit_logit), emit_logit, torch.tensor([4]), torch.tensor([4])
    drawn = sample(*arguments, num_samples=200, generator=torch.Generator().manual_seed(0))
    assert {tuple(z) for z in drawn[:, 0].tolist()} == {(0, 1, 1, 3)}
    assert entropy(*arguments).item() == pytest.approx(0, abs=1e-12)


# --- padding, batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0])
def test_padding_changes_nothing_and_gets_no_gradient(filler: float) -> None:
    padded = MIXED.padded_with(filler)
    for name, function in FUNCTIONS.items():
        expected, actual = function(*MIXED.arguments()), function(*padded.arguments())
        pairs = zip(expected, actual, strict=True) if isinstance(expected, tuple) else [(expected, actual)]
        assert all(torch.equal(e, a) for e, a in pairs), name
    drawn = [sample(*x.arguments(), 30, torch.Generator().manual_seed(0)) for x in (MIXED, padded)]
    assert torch.equal(*drawn)

    _, word_grad, emit_grad = gradients(MIXED)
    _, padded_word_grad, padded_emit_grad = gradients(padded)
    assert torch.equal(word_grad, padded_word_grad)
    assert torch.equal(emit_grad, padded_emit_grad)
    assert (padded_word_grad[~MIXED.inside()] == 0).all()
    assert (padded_emit_grad[~MIXED.inside()] == 0).all()


@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf])
def test_padding_gets_no_gradient_from_viterbi(filler: float) -> None:
    padded = MIXED.padded_with(filler)
    word_logp, emit_logit = padded.word_logp.requires_grad_(), padded.emit_logit.requires_grad_()
    viterbi(word_logp, emit_logit, padded.input_lengths, padded.output_lengths)[0].sum().backward()
    for gradient in (word_logp.grad, emit_logit.grad):
        assert gradient.isfinite().all()
        assert (gradient[~MIXED.inside()] == 0).all()


@exhaustive
@given(lattices())
def test_a_batch_is_its_rows(batch: Lattices) -> None:
    value, word_grad, emit_grad = gradients(batch)
    score, alignment = viterbi(*batch.arguments())
    for b, (word_logp, emit_logit) in enumerate(batch.each()):
        I, J = word_logp.shape
        single = Lattices(word_logp[None], emit_logit[None], torch.tensor([I]), torch.tensor([J]))
        value_1, word_grad_1, emit_grad_1 = gradients(single)
        assert_close(value[b : b + 1], value_1, 1e-12)
        assert_close(word_grad[b : b + 1, :I, :J], word_grad_1, 1e-12)
        assert_close(emit_grad[b : b + 1, :I, :J], emit_grad_1, 1e-12)
        score_1, alignment_1 = viterbi(*single.arguments())
        assert_close(score[b : b + 1], score_1, 1e-12)
        assert torch.equal(alignment[b : b + 1, :J], alignment_1)
        assert_close(entropy(*batch.arguments())[b : b + 1], entropy(*single.arguments()), 1e-10)


def test_rows_may_be_permuted() -> None:
    order = torch.tensor([3, 0, 4, 2, 1])
    permuted = Lattices(*(x[order] for x in MIXED.arguments()))
    for name, function in FUNCTIONS.items():
        expected, actual = function(*MIXED.arguments()), function(*permuted.arguments())
        pairs = zip(expected, actual, strict=True) if isinstance(expected, tuple) else [(expected, actual)]
        assert all(torch.equal(e[order], a) for e, a in pairs), name


def test_arguments_are_left_as_they_were() -> None:
    before = [x.clone() for x in MIXED.arguments()]
    for function in [*FUNCTIONS.values(), sample]:
        function(*MIXED.arguments())
    assert all(torch.equal(x, y) for x, y in zip(before, MIXED.arguments(), strict=True))


def test_memory_layout_and_the_type_of_lengths_do_not_matter() -> None:
    expected = log_marginal(*MIXED.arguments())
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in MIXED.arguments()[:2]]
    lengths = [x.to(torch.int32) for x in MIXED.arguments()[2:]]
    assert torch.equal(log_marginal(*strided, *lengths), expected)


def test_an_empty_batch() -> None:
    batch = Lattices(*(x[:0] for x in MIXED.arguments()))
    value, word_grad, _ = gradients(batch)
    assert value.shape == entropy(*batch.arguments()).shape == (0,)
    assert word_grad.shape == posteriors(*batch.arguments()).shape == (0, 6, 6)
    assert viterbi(*batch.arguments())[1].shape == sample(*batch.arguments()).shape == (0, 6)
    assert sample(*batch.arguments(), num_samples=3).shape == (3, 0, 6)


@pytest.mark.parametrize(("I", "J"), [(400, 8), (8, 400), (60, 60)])
def test_memory_grows_with_the_cells(I: int, J: int) -> None:
    # O(I·J), whichever side is the longer.
    batch = random_lattices(0, [(I, J)], (I, J), "moderate")
    with Allocations() as seen:
        gradients(batch)
    assert seen.peak < 40 * I * J


# --- precision -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_lattice() -> tuple[Lattices, float, Tensor, Tensor]:
    """600 × 1500 cells exactly representable in float32, with the oracle's value and gradients."""
    batch = random_lattices(1, [(600, 1500)], (600, 1500), "moderate").to(torch.float32)
    return batch, *oracles.lattice_loop(*batch.each()[0])


@pytest.mark.parametrize(
    ("dtype", "value_tolerance", "gradient_tolerance"), [(torch.float64, 1e-9, 1e-9), (torch.float32, 1e-5, 1e-3)]
)
def test_a_long_lattice(
    long_lattice: tuple[Lattices, float, Tensor, Tensor],
    dtype: torch.dtype,
    value_tolerance: float,
    gradient_tolerance: float,
) -> None:
    batch, expected, expected_word_grad, expected_emit_grad = long_lattice
    value, word_grad, emit_grad = gradients(batch.to(dtype))
    assert value.dtype == word_grad.dtype == emit_grad.dtype == dtype
    assert value.item() == pytest.approx(expected, rel=value_tolerance)
    for actual, wanted in ((word_grad, expected_word_grad), (emit_grad, expected_emit_grad)):
        assert (actual[0].double() - wanted).abs().max() < gradient_tolerance
    # One symbol is emitted in every column, whatever the rounding.
    assert (word_grad.sum(1) - 1).abs().max() < gradient_tolerance


@pytest.mark.parametrize("values", ["moderate", "flat"])
def test_entropy_of_a_long_lattice_in_float32(values: str) -> None:
    batch = random_lattices(1, [(600, 1500)], (600, 1500), values).to(torch.float32)
    exact = entropy(*batch.to(torch.float64).arguments()).item()
    assert entropy(*batch.arguments()).item() == pytest.approx(exact, rel=1e-4)


def test_entropy_of_a_lattice_too_large_to_enumerate() -> None:
    # H = log p(v | u) - E[log p(v, z | u)], and the expectation is linear in the decisions' posteriors.
    batch = random_lattices(8, [(60, 90)], (60, 90), "moderate")
    (word_logp, emit_logit), *_ = batch.each()
    total, emitted, emit_grad = oracles.lattice_loop(word_logp, emit_logit)
    shifted = (emitted * (-emit_logit).sigmoid() - emit_grad) / emit_logit.sigmoid()
    log_emit, log_shift = torch.nn.functional.logsigmoid(emit_logit), torch.nn.functional.logsigmoid(-emit_logit)
    expectation = (emitted * (word_logp + log_emit) + shifted * log_shift).sum().item()
    assert entropy(*batch.arguments()).item() == pytest.approx(total - expectation, rel=1e-8)


def test_long_rows_of_a_batch_in_float32() -> None:
    lengths = [(600, 1500), (1, 1500), (600, 1), (37, 90)]
    batch = random_lattices(2, lengths, (600, 1500), "moderate").to(torch.float32)
    value, word_grad, emit_grad = gradients(batch.padded_with(math.nan))
    exact, exact_word_grad, exact_emit_grad = gradients(batch.to(torch.float64))
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=0)
    assert (word_grad - exact_word_grad).abs().max() < 1e-3
    assert (emit_grad - exact_emit_grad).abs().max() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logit", [-1e30, -1e6, -500.0, -50.0, 50.0, 500.0, 1e6, 1e30])
def test_finite_logits_never_give_infinity(logit: float, dtype: torch.dtype) -> None:
    emit_logit = torch.full((2, 30, 20), logit, dtype=dtype)
    emit_logit[1, ::2, ::3] *= -1
    word_logp = torch.full_like(emit_logit, -5.0)
    batch = Lattices(word_logp, emit_logit, torch.tensor([30, 25]), torch.tensor([20, 13]))
    value, word_grad, emit_grad = gradients(batch)
    assert value.isfinite().all()
    assert word_grad.isfinite().all()
    assert emit_grad.isfinite().all()
    assert (word_grad.sum(1) - (torch.arange(20) < batch.output_lengths[:, None]).to(dtype)).abs().max() < 1e-4
    score, alignment = viterbi(*batch.arguments())
    assert score.isfinite().all()
    assert (score <= value + 1e-3 * value.abs()).all()
    assert entropy(*batch.arguments()).isfinite().all()
    drawn = sample(*batch.arguments(), generator=torch.Generator().manual_seed(0)).tolist()
    for z, viterbi_z, I, J in zip(drawn, alignment.tolist(), (30, 25), (20, 13), strict=True):
        assert is_alignment(z, I, J)
        assert is_alignment(viterbi_z, I, J)


@exhaustive
@given(lattices())
def test_float32_is_close_to_the_enumeration(batch: Lattices) -> None:
    batch = batch.to(torch.float32)
    value, word_grad, _ = gradients(batch)
    assert value.dtype == torch.float32
    expected = torch.stack([oracles.log_marginal(*pair) for pair in batch.each()])
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)
    for b, pair in enumerate(batch.each()):
        I, J = pair[0].shape
        # A sum near -2500 is itself rounded to 2e-4, and so is the odds ratio of two alignments.
        torch.testing.assert_close(word_grad[b, :I, :J].double(), oracles.posteriors(*pair), rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    batch = random_lattices(4, [(40, 60), (9, 25)], (40, 60), "moderate").to(dtype)
    value, word_grad, emit_grad = gradients(batch)
    exact, exact_word_grad, exact_emit_grad = gradients(batch.to(torch.float32))
    assert value.dtype == torch.float32
    assert torch.equal(value, exact)
    assert torch.equal(word_grad, exact_word_grad.to(dtype))
    assert torch.equal(emit_grad, exact_emit_grad.to(dtype))
    assert torch.equal(posteriors(*batch.arguments()), posteriors(*batch.to(torch.float32).arguments()))
    assert torch.equal(entropy(*batch.arguments()), entropy(*batch.to(torch.float32).arguments()))
    half, single = viterbi(*batch.arguments()), viterbi(*batch.to(torch.float32).arguments())
    assert torch.equal(half[0], single[0])
    assert torch.equal(half[1], single[1])


def test_each_side_keeps_its_own_precision() -> None:
    # Under autocast the words come in float32 and the gates in bfloat16.
    batch = random_lattices(4, [(7, 9), (3, 4)], (7, 9), "moderate").to(torch.float32)
    mixed = Lattices(batch.word_logp, batch.emit_logit.bfloat16(), batch.input_lengths, batch.output_lengths)
    value, word_grad, emit_grad = gradients(mixed)
    exact, exact_word_grad, exact_emit_grad = gradients(
        Lattices(batch.word_logp, mixed.emit_logit.float(), batch.input_lengths, batch.output_lengths)
    )
    assert torch.equal(value, exact)
    assert torch.equal(word_grad, exact_word_grad)
    assert torch.equal(emit_grad, exact_emit_grad.bfloat16())


def test_autocast_does_not_lower_the_precision() -> None:
    batch = random_lattices(4, [(7, 9), (3, 4)], (7, 9), "moderate").to(torch.float32)
    expected = gradients(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = gradients(batch)
    assert all(torch.equal(x, y) for x, y in zip(actual, expected, strict=True))


# --- mistakes --------------------------------------------------------------------------------------------------------

X = torch.zeros(2, 3, 4)
THREE, FOUR = torch.tensor([3, 3]), torch.tensor([4, 4])


@pytest.mark.parametrize("function", [*FUNCTIONS.values(), sample])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((X, X[:, :, :3], THREE, FOUR), id="different-shapes"),
        pytest.param((X, X[:1], THREE, FOUR), id="broadcastable-shapes"),
        pytest.param((X[0], X[0], THREE, FOUR), id="no-batch"),
        pytest.param((X, X, THREE[:1], FOUR), id="one-input-length-for-two"),
        pytest.param((X, X, THREE, FOUR[:1]), id="one-output-length-for-two"),
        pytest.param((X, X, torch.tensor(3), FOUR), id="scalar-length"),
        pytest.param((X, X, torch.tensor([3, 0]), FOUR), id="zero-input-length"),
        pytest.param((X, X, THREE, torch.tensor([0, 4])), id="zero-output-length"),
        pytest.param((X, X, torch.tensor([-1, 3]), FOUR), id="negative-length"),
        pytest.param((X, X, torch.tensor([3, 4]), FOUR), id="input-length-too-long"),
        pytest.param((X, X, THREE, torch.tensor([4, 5])), id="output-length-too-long"),
    ],
)
def test_bad_arguments_are_refused(function, arguments) -> None:
    with pytest.raises(ValueError, match=r"."):
        function(*arguments)
