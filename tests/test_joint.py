"""The factored joint softmax against the materialised one, most of all where a product of exponentials underflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from allocations import Allocations
from noisychannel import joint
from noisychannel.joint import log_normaliser, word_log_probs

exhaustive = settings(max_examples=60, deadline=None, derandomize=True)

EPSILON = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}

Joint = Callable[[Tensor, Tensor, Tensor], Tensor]


def value_and_gradients(log_probs: Joint, a: Tensor, c: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The value, and the gradients of a fixed uneven weighting of it."""
    a, c = a.detach().requires_grad_(), c.detach().requires_grad_()
    value = log_probs(a, c, targets)
    # Weights of both signs and several sizes, no two rows or columns alike.
    weights = torch.linspace(-2, 3, value.numel(), dtype=value.dtype).reshape(value.shape)
    (value * weights).sum().backward()
    assert a.grad is not None
    assert c.grad is not None
    return value.detach(), a.grad, c.grad


def assert_is_naive(a: Tensor, c: Tensor, targets: Tensor, tolerance: float) -> None:
    """Values, gradients and normaliser, within ``tolerance`` relative to the size of what is added up."""
    actual = value_and_gradients(word_log_probs, a, c, targets)
    expected = value_and_gradients(oracles.joint_word_log_probs, a.double(), c.double(), targets)
    assert all(x.dtype == a.dtype for x in actual)
    scale = max(1.0, a.abs().max().item(), c.abs().max().item())
    torch.testing.assert_close(actual[0].double(), expected[0], rtol=tolerance, atol=tolerance * scale)
    for gradient, wanted in zip(actual[1:], expected[1:], strict=True):
        assert gradient.isfinite().all()
        torch.testing.assert_close(gradient.double(), wanted, rtol=tolerance, atol=tolerance * scale)
    normaliser = log_normaliser(a, c)
    assert normaliser.dtype == a.dtype
    exact = oracles.joint_log_normaliser(a, c)
    torch.testing.assert_close(normaliser.double(), exact, rtol=tolerance, atol=tolerance * scale)


def random_scores(
    seed: int, B: int, I: int, J: int, V: int, scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    a = scale * torch.randn(B, I, V, generator=rng, dtype=torch.float64)
    c = scale * torch.randn(B, J, V, generator=rng, dtype=torch.float64)
    return a.to(dtype), c.to(dtype), torch.randint(V, (B, J), generator=rng)


# --- against the materialised softmax --------------------------------------------------------------------------------


@exhaustive
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 12)),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.0, 0.1, 1.0, 10.0, 50.0, 300.0]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_value_and_gradient_are_those_of_the_materialised_softmax(
    shape: tuple[int, int, int, int], seed: int, scale: float, dtype: torch.dtype
) -> None:
    a, c, targets = random_scores(seed, *shape, scale, dtype)
    assert_is_naive(a, c, targets, 1e-9 if dtype == torch.float64 else 3e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("V", [1, 2, 100, 5000])
def test_vocabularies_of_every_size(V: int, scale: float, dtype: torch.dtype) -> None:
    a, c, targets = random_scores(V, 2, 4, 3, V, scale, dtype)
    assert_is_naive(a, c, targets, 1e-9 if dtype == torch.float64 else 3e-6)


def test_one_word_is_certain() -> None:
    a, c, targets = random_scores(0, 2, 3, 4, 1, 100.0, torch.float32)
    assert (word_log_probs(a, c, targets).abs() < 1e-4).all()


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_gradcheck(scale: float) -> None:
    a, c, targets = random_scores(1, 2, 3, 2, 4, scale, torch.float64)
    leaves = a.requires_grad_(), c.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: word_log_probs(x, y, targets), leaves)


def test_gradcheck_where_everything_underflows() -> None:
    a = torch.tensor([[[500.0, -500.0, 0.0], [450.0, -450.0, -1.0]]], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([[[-500.0, 499.5, -700.0], [-450.0, 450.5, -800.0]]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[0, 1]])
    assert torch.autograd.gradcheck(lambda x, y: word_log_probs(x, y, targets), (a, c))


def test_one_gradient_is_right_without_the_other() -> None:
    a, c, targets = random_scores(2, 2, 3, 4, 7, 40.0, torch.float64)
    _, both_a, both_c = value_and_gradients(word_log_probs, a, c, targets)
    weights = torch.linspace(-2, 3, 24, dtype=torch.float64).reshape(2, 3, 4)
    (only_a,) = torch.autograd.grad((word_log_probs(a.requires_grad_(), c, targets) * weights).sum(), a)
    (only_c,) = torch.autograd.grad((word_log_probs(a.detach(), c.requires_grad_(), targets) * weights).sum(), c)
    torch.testing.assert_close(only_a, both_a, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(only_c, both_c, rtol=1e-12, atol=1e-12)


# --- where the maxima disagree ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("height", [20.0, 50.0, 100.0, 200.0, 500.0, 900.0])
def test_maxima_that_disagree(height: float, dtype: torch.dtype) -> None:
    a = torch.tensor([[[height, -height], [0.0, 0.0], [height, height]]], dtype=dtype)
    c = torch.tensor([[[-height, height], [height + 0.5, -height], [-height, height - 1.0]]], dtype=dtype)
    for targets in ([[0, 1, 0]], [[1, 0, 1]]):
        assert_is_naive(a, c, torch.tensor(targets), 1e-9 if dtype == torch.float64 else 1e-6)


def test_equal_halves_are_log_two() -> None:
    a = torch.tensor([[[500.0, -500.0]]])
    c = torch.tensor([[[-500.0, 500.0]]])
    value, a_grad, c_grad = value_and_gradients(word_log_probs, a, c, torch.tensor([[0]]))
    assert value.item() == pytest.approx(-math.log(2), rel=1e-6)
    # The weight of the only entry is -2; the gradient of log softmax at one half is ± 1/2.
    for gradient in (a_grad, c_grad):
        torch.testing.assert_close(gradient, torch.tensor([[[-1.0, 1.0]]]))
    assert log_normaliser(a, c).item() == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batches_where_only_some_entries_underflow(dtype: torch.dtype) -> None:
    B, I, J, V = 3, 6, 5, 9
    a, c, targets = random_scores(3, B, I, J, V, 1.0, dtype)
    a[0, 2, 3] += 800  # one row against
    c[0, 1, 4] += 800  # one column: exactly one entry of the first sentence is lost
    a[1, :, 0] += 400
    c[1, :, 1] += 400  # the second sentence altogether
    underflows = (a[:, :, None].amax(-1) + c[:, None].amax(-1) - oracles.joint_log_normaliser(a, c)) > 90
    assert underflows.sum((1, 2)).tolist() == [1, I * J, 0]
    assert_is_naive(a, c, targets, 1e-9 if dtype == torch.float64 else 1e-6)


@pytest.mark.parametrize("at_once", [1, 9, 28, 10_000])
def test_recomputing_piece_by_piece_is_recomputing_at_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces of less than one entry, one, three, and all of them.
    monkeypatch.setattr(joint, "RECOMPUTED_AT_ONCE", at_once)
    a, c, targets = random_scores(4, 2, 5, 4, 9, 400.0, torch.float32)
    assert_is_naive(a, c, targets, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_words_far_below_both_maxima_are_not_lost(dtype: torch.dtype) -> None:
    # What counts is a sum over many words, each small under both maxima; the two peaks themselves are negligible.
    V = 1000
    rng = torch.Generator().manual_seed(0)
    for depth in torch.arange(8.0, 400.0, 7.0).tolist():
        a = torch.randn(1, 3, V, generator=rng, dtype=torch.float64).to(dtype)
        c = torch.randn(1, 2, V, generator=rng, dtype=torch.float64).to(dtype)
        a[..., 0] += depth
        a[..., 1] -= 3 * depth
        c[..., 0] -= 3 * depth
        c[..., 1] += depth
        assert_is_naive(a, c, torch.tensor([[5, 0]]), 1e-9 if dtype == torch.float64 else 2e-6)


@pytest.fixture(params=["kept", "flushed"])
def subnormals(request: pytest.FixtureRequest) -> Iterator[None]:
    """Numbers below the smallest normal one: kept, as by most CPUs, or taken for zero, as by most matrix units."""
    if not torch.set_flush_denormal(request.param == "flushed"):
        pytest.skip("this CPU cannot flush subnormal numbers")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize(("dtype", "low", "high"), [(torch.float32, 37.0, 110.0), (torch.float64, 645.0, 745.0)])
@pytest.mark.parametrize("split", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("V", [2, 3, 600])
@pytest.mark.usefixtures("subnormals")
def test_the_gradual_zone(V: int, split: float, dtype: torch.dtype, low: float, high: float) -> None:
    """Through the subnormal numbers, where a product is not yet zero and no longer exact.

    The products run finely from exp(-low) to exp(-high); of each product's smallness ``split`` comes from a.
    The peak of a is at word 0, that of c at word 1, and each is unlikely under the other.
    """
    steps = 400
    gap = torch.linspace(low, high, steps, dtype=torch.float64)
    rng = torch.Generator().manual_seed(V)
    a = torch.zeros(steps, 1, V, dtype=torch.float64)
    c = torch.zeros(steps, 1, V, dtype=torch.float64)
    if V == 2:
        # Two products of the size of the gap, in unequal parts.
        a[:, 0, 1], c[:, 0, 0] = -gap, -gap + 0.7
    else:
        noise = torch.rand(steps, V - 2, generator=rng, dtype=torch.float64)
        a[:, 0, 1], c[:, 0, 0] = -4 * gap, -4 * gap
        a[:, 0, 2:] = -split * gap[:, None] - noise
        c[:, 0, 2:] = -(1 - split) * gap[:, None] - noise.flip(0)
    a, c = a.to(dtype), c.to(dtype)
    targets = torch.full((steps, 1), V - 1)
    exact = value_and_gradients(oracles.joint_word_log_probs, a.double(), c.double(), targets)
    actual = value_and_gradients(word_log_probs, a, c, targets)
    # Rounding a_i[w] + c_j[w], of the size of the gap, is all the error there may be; gradients are weighted by ≤ 3.
    rounding = EPSILON[dtype] * high
    assert ((actual[0].double() - exact[0]).abs() < 2 * rounding).all()
    for gradient, wanted in zip(actual[1:], exact[1:], strict=True):
        assert ((gradient.double() - wanted).abs() < 3 * rounding).all()
    normaliser, exact_normaliser = log_normaliser(a, c), oracles.joint_log_normaliser(a, c)
    torch.testing.assert_close(normaliser.double(), exact_normaliser, rtol=4 * EPSILON[dtype], atol=0)


def test_large_incoming_gradients_do_not_overflow() -> None:
    # A scaled loss multiplies the gradient; dividing it by a small normaliser first must still fit into float32.
    steps = 200
    gap = torch.linspace(20, 110, steps)
    a, c = torch.zeros(steps, 1, 3), torch.zeros(steps, 1, 3)
    a[:, 0, 1], c[:, 0, 0], a[:, 0, 2], c[:, 0, 2] = -gap, -gap, -gap, -5.0
    a, c = a.requires_grad_(), c.requires_grad_()
    targets = torch.zeros(steps, 1, dtype=torch.long)
    (word_log_probs(a, c, targets) * 2.0**16).sum().backward()
    a_exact, c_exact = a.detach().double().requires_grad_(), c.detach().double().requires_grad_()
    (oracles.joint_word_log_probs(a_exact, c_exact, targets) * 2.0**16).sum().backward()
    torch.testing.assert_close(a.grad.double(), a_exact.grad, rtol=1e-5, atol=2.0**16 * 1e-5)
    torch.testing.assert_close(c.grad.double(), c_exact.grad, rtol=1e-5, atol=2.0**16 * 1e-5)


# --- invariants ------------------------------------------------------------------------------------------------------


@exhaustive
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1.0, 50.0, 300.0]))
def test_words_sum_to_one(seed: int, scale: float) -> None:
    B, I, J, V = 2, 3, 2, 6
    a, c, _ = random_scores(seed, B, I, J, V, scale, torch.float64)
    total = sum(word_log_probs(a, c, torch.full((B, J), w)).exp() for w in range(V))
    torch.testing.assert_close(total, torch.ones(B, I, J, dtype=torch.float64), rtol=1e-10, atol=0)


def test_a_constant_added_to_a_side_changes_nothing() -> None:
    a, c, targets = random_scores(5, 2, 3, 4, 6, 3.0, torch.float64)
    expected = word_log_probs(a, c, targets)
    shifted = word_log_probs(a + 700.0, c - 1300.0, targets)
    torch.testing.assert_close(shifted, expected, rtol=0, atol=1e-11)
    raised = log_normaliser(a + 700.0, c - 1300.0)
    torch.testing.assert_close(raised, log_normaliser(a, c) - 600.0, rtol=0, atol=1e-11)


def test_a_batch_is_its_rows_and_its_cells() -> None:
    a, c, targets = random_scores(6, 3, 4, 5, 7, 60.0, torch.float64)
    whole = word_log_probs(a, c, targets)
    for b in range(3):
        for i in range(4):
            for j in range(5):
                cell = word_log_probs(a[b, i][None, None], c[b, j][None, None], targets[b, j][None, None])
                torch.testing.assert_close(whole[b, i, j], cell[0, 0, 0], rtol=1e-12, atol=1e-12)


def test_the_normaliser_has_no_gradient_and_arguments_stay() -> None:
    a, c, targets = random_scores(7, 2, 3, 4, 6, 200.0, torch.float32)
    kept = a.clone(), c.clone(), targets.clone()
    assert not log_normaliser(a.requires_grad_(), c.requires_grad_()).requires_grad
    word_log_probs(a, c, targets).sum().backward()
    assert all(torch.equal(x, y) for x, y in zip(kept, (a, c, targets), strict=True))


def test_memory_layout_does_not_matter() -> None:
    a, c, targets = random_scores(8, 2, 3, 4, 6, 30.0, torch.float64)
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (a, c)]
    torch.testing.assert_close(word_log_probs(*strided, targets), word_log_probs(a, c, targets), rtol=0, atol=1e-12)
    one_for_all = word_log_probs(a[:1].expand(2, -1, -1), c, targets)
    torch.testing.assert_close(one_for_all, oracles.joint_word_log_probs(a[:1].expand(2, -1, -1), c, targets))


def test_autocast_does_not_lower_the_precision() -> None:
    a, c, targets = random_scores(9, 2, 6, 5, 50, 8.0, torch.float32)
    expected = value_and_gradients(word_log_probs, a, c, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = value_and_gradients(word_log_probs, a, c, targets)
        normaliser = log_normaliser(a, c)
    for x, y in zip(actual, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(normaliser, log_normaliser(a, c), rtol=1e-5, atol=1e-5)


def test_half_precision_scores_are_computed_in_float32() -> None:
    a, c, targets = random_scores(10, 2, 6, 5, 50, 8.0, torch.bfloat16)
    expected = word_log_probs(a.float(), c.float(), targets)
    torch.testing.assert_close(word_log_probs(a, c, targets).float(), expected, rtol=1e-5, atol=1e-5)


def test_an_empty_batch() -> None:
    a, c = torch.zeros(0, 3, 5, requires_grad=True), torch.zeros(0, 4, 5, requires_grad=True)
    value = word_log_probs(a, c, torch.zeros(0, 4, dtype=torch.long))
    value.sum().backward()
    assert value.shape == log_normaliser(a, c).shape == (0, 3, 4)


def test_second_derivatives_are_right_or_refused() -> None:
    a, c, targets = random_scores(11, 1, 2, 3, 4, 1.0, torch.float64)
    leaves = a.requires_grad_(), c.requires_grad_()
    try:
        (gradient,) = torch.autograd.grad(word_log_probs(*leaves, targets).sum(), a, create_graph=True)
        (second,) = torch.autograd.grad((gradient * gradient.detach()).sum(), a)
    except RuntimeError:
        return
    (exact,) = torch.autograd.grad(oracles.joint_word_log_probs(*leaves, targets).sum(), a, create_graph=True)
    (exact_second,) = torch.autograd.grad((exact * exact.detach()).sum(), a)
    torch.testing.assert_close(second, exact_second)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "c", "targets"),
    [
        pytest.param((2, 3, 5), (2, 4, 6), (2, 4), id="different-vocabularies"),
        pytest.param((1, 3, 5), (2, 4, 5), (2, 4), id="one-input-for-two-outputs"),
        pytest.param((2, 3, 5), (1, 4, 5), (1, 4), id="one-output-for-two-inputs"),
        pytest.param((3, 5), (4, 5), (4,), id="no-batch"),
        pytest.param((2, 3, 5), (2, 4, 5), (2, 3), id="targets-of-another-length"),
    ],
)
def test_bad_shapes_are_refused(a: tuple[int, ...], c: tuple[int, ...], targets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\[B,I,V\]|\[B,J\] = \[2, 4\]"):
        word_log_probs(torch.zeros(a), torch.zeros(c), torch.zeros(targets, dtype=torch.long))


@pytest.mark.parametrize("height", [0.0, 300.0])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 3), (3, 1)])
def test_the_normaliser_broadcasts_rightly_or_not_at_all(inputs: int, outputs: int, height: float) -> None:
    # Whether it works must not depend on whether some entry happens to underflow.
    a, c = torch.zeros(inputs, 2, 5), torch.zeros(outputs, 4, 5)
    a[..., 0] += height
    c[..., 1] += height
    try:
        actual = log_normaliser(a, c)
    except ValueError:
        return
    exact = oracles.joint_log_normaliser(a, c)
    torch.testing.assert_close(actual.double(), exact, rtol=1e-6, atol=1e-6)


def test_the_normaliser_refuses_different_vocabularies() -> None:
    with pytest.raises(ValueError, match=r"."):
        log_normaliser(torch.zeros(2, 3, 5), torch.zeros(2, 4, 6))


# --- memory ----------------------------------------------------------------------------------------------------------


def test_the_recorder_sees_the_materialised_softmax_and_what_is_freed() -> None:
    a, c, targets = random_scores(0, 1, 8, 9, 10, 1.0, torch.float64)
    with Allocations() as seen:
        oracles.joint_word_log_probs(a, c, targets)
    assert seen.largest == 8 * 9 * 10
    with Allocations() as seen:
        for _ in range(10):
            a.exp()
    assert seen.largest == 8 * 10
    assert seen.peak <= 2 * 8 * 10


@pytest.mark.parametrize("underflow", ["no entry", "every entry"])
def test_no_tensor_has_room_for_every_input_output_and_word(underflow: str) -> None:
    B, I, J, V = 2, 160, 150, 1000
    a, c, targets = random_scores(0, B, I, J, V, 1.0, torch.float32)
    if underflow == "every entry":
        a[..., 0] += 300
        c[..., 1] += 300
    a, c = a.requires_grad_(), c.requires_grad_()
    with Allocations() as seen:
        word_log_probs(a, c, targets).sum().backward()
        log_normaliser(a, c)
    sides = B * (I + J) * V
    # Underflowed entries are recomputed a piece of fixed size at a time.
    piece = 0 if underflow == "no entry" else 2**22
    assert seen.largest <= max(2 * sides, piece)
    assert seen.largest < I * J * V / 5
    # Nor may many small pieces be kept until the gradient is taken.
    assert seen.peak < 8 * sides + 6 * piece < B * I * J * V
    assert a.grad.isfinite().all()
    assert c.grad.isfinite().all()
