"""The joint softmax's kernels against the materialised one and the portable code: on the GPU, or else interpreted.

What Triton's interpreter cannot tell is whether a GPU's compiler takes the kernels: that is a test of its own.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import oracles
from allocations import Allocations
from interpreter import DEVICE, MARKS, interpreted, portable_is_portable  # noqa: F401 (used by every test)
from noisychannel import joint as portable
from noisychannel import kernels
from test_joint import random_scores
from test_kernels import assert_near

with interpreted():
    from noisychannel.kernels import joint as fused

pytestmark = MARKS

Joint = Callable[[Tensor, Tensor, Tensor], Tensor]
Scores = tuple[Tensor, Tensor, Tensor]


def scores(B: int, I: int, J: int, V: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Scores:
    return random_scores(V, B, I, J, V, scale, dtype)


def gradients(function: Joint, batch: Scores, weight: float = 1.0) -> list[Tensor]:
    """The value and the gradients of an uneven weighting of it, all on the CPU."""
    a, c = (x.detach().to(DEVICE).requires_grad_() for x in batch[:2])
    value = function(a, c, batch[2].to(DEVICE))
    # Weights of both signs and several sizes, no two rows or columns alike.
    weights = torch.linspace(-2, 3, value.numel(), dtype=value.dtype, device=DEVICE).reshape(value.shape)
    value.backward(weight * weights)
    return [x.detach().cpu() for x in (value, a.grad, c.grad)]


def assert_right(batch: Scores, tolerance: float = 3e-6, weight: float = 1.0) -> list[Tensor]:
    """Right to within ``tolerance`` of the size of what is compared, and as the portable code; returns it.

    Values are differences of scores, and gradients sums of upstream gradients of size ``weight``. An entry that is
    recomputed rounds its logits, so its probabilities and gradients have a relative error of eps times their size.
    """
    a, c, targets = batch
    actual = gradients(fused.word_log_probs, batch, weight)
    single = gradients(portable.word_log_probs, batch, weight)
    exact = gradients(oracles.joint_word_log_probs, (a.double(), c.double(), targets), weight)
    size = max(1.0, *(x[x.isfinite()].abs().max().item() for x in (a, c)))
    rounded = torch.finfo(torch.float32).eps * size if lost(batch).any() else 0.0
    limits = (tolerance, size), (tolerance + rounded, weight), (tolerance + rounded, weight)
    for x, y, z, (relative, summands) in zip(actual, single, exact, limits, strict=True):
        assert x.dtype == y.dtype
        assert_near(x, z, relative, summands)
        assert_near(x, y, relative, summands)
    normaliser = fused.log_normaliser(a.to(DEVICE), c.to(DEVICE)).cpu()
    assert_near(normaliser, oracles.joint_log_normaliser(a, c), tolerance, size)
    return actual


def lost(batch: Scores) -> Tensor:
    """Which entries the portable code recomputes, one after the other: [B,I,J]."""
    a, c = (portable.Scaled.of(x) for x in batch[:2])
    return a.exp @ c.exp.mT < portable._threshold(torch.float32, a.exp.shape[2])


def some_lost() -> Scores:
    a, c, targets = scores(3, 4, 3, 40)
    a[0, 2, 3] += 800  # one row against
    c[0, 1, 33] += 800  # one column: exactly one entry of the first sentence is lost
    a[1, :, 0] += 400
    c[1, :, 1] += 400  # the second sentence altogether
    return a, c, targets


# --- values and gradients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1.0, 40.0, 300.0])
@pytest.mark.parametrize(("B", "I", "J", "V"), [(2, 4, 3, 5), (1, 1, 1, 1), (1, 3, 5, 40)])
def test_the_materialised_softmax(B: int, I: int, J: int, V: int, scale: float) -> None:
    assert_right(scores(B, I, J, V, scale))


@pytest.mark.parametrize(("I", "J"), [(1, 7), (7, 1), (16, 17), (2, 34), (65, 1)])
def test_sizes_around_those_of_tiles(I: int, J: int) -> None:
    assert_right(scores(1, I, J, 20, 10.0))


def test_a_gradient_that_is_a_sum_over_many_positions() -> None:
    a, c, targets = scores(1, 1, 300, 20)
    targets[:] = 3
    assert assert_right((a, c, targets))[1].abs().max() > 100


@pytest.mark.parametrize("V", [2, 16, 17, 32, 33, 65, 1025])
def test_vocabularies_around_those_of_tiles_and_pieces(V: int) -> None:
    assert_right(scores(1, 1, 2, V))


@pytest.mark.parametrize("V", [40_000, 100_003])
def test_large_vocabularies(V: int) -> None:
    batch = scores(1, 2, 1, V)
    batch[0][0, 0, V - 1] += 14.0  # in the last piece, and the larger half of the sum
    value = fused.word_log_probs(*(x.to(DEVICE) for x in batch)).cpu()
    torch.testing.assert_close(value.double(), oracles.joint_word_log_probs(*batch), rtol=0, atol=3e-6)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter is too slow for large scores")
@pytest.mark.parametrize(("B", "I", "J", "V"), [(8, 50, 25, 20_000), (3, 130, 200, 3001), (1, 3, 2, 100_000)])
def test_large_scores(B: int, I: int, J: int, V: int) -> None:
    assert_right(scores(B, I, J, V))


def test_one_word_is_certain() -> None:
    assert all((x.abs() < 1e-4).all() for x in assert_right(scores(2, 3, 4, 1, 100.0)))


@pytest.mark.parametrize("weight", [1.0, 2.0**16])
def test_some_entries_are_lost(weight: float) -> None:
    batch = some_lost()
    assert lost(batch).sum((1, 2)).tolist() == [1, 12, 0]
    assert_right(batch, 1e-6, weight)


@pytest.mark.parametrize(("V", "first", "second"), [(2, 0, 1), (70, 69, 3), (1030, 1024, 1023)])
def test_every_entry_is_lost(V: int, first: int, second: int) -> None:
    a, c, targets = batch = scores(1, 1, 2, V)
    a[..., first] += 300
    c[..., second] += 300
    targets[0] = torch.tensor([first, second])
    assert lost(batch).all()
    assert_right(batch, 1e-6)


@pytest.fixture
def _flushed() -> Iterator[None]:
    """Numbers below the smallest normal one are taken for zero, as on a GPU."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormal numbers")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("split", [0.0, 0.3])
@pytest.mark.usefixtures("_flushed")
def test_from_no_underflow_to_all(split: float) -> None:
    """Products from exp(-37) to exp(-110); of each product's smallness ``split`` comes from a."""
    # Finely where some summands are still there and some are gone.
    gap = torch.tensor([37.0, 50.0, 65.0, 75.0, 84.0, 85.0, 86.0, 86.5, 87.0, 88.0, 90.0, 110.0])
    steps, V = len(gap), 35
    noise = torch.rand(steps, V, generator=torch.Generator().manual_seed(0))
    a, c = -split * gap[:, None] - noise, -(1 - split) * gap[:, None] - noise.flip(0)
    a[:, 0], a[:, 1], c[:, 0], c[:, 1] = 0.0, -4 * gap, -4 * gap, 0.0
    batch = a[:, None], c[:, None], torch.full((steps, 1), V - 1)
    assert lost(batch).flatten().tolist() == [x > 70 for x in gap.tolist()]
    # Rounding a_i[w] + c_j[w] is all the error there may be, relative to scores of up to 440.
    assert_right(batch, 1e-7)


def test_repeated_targets_add_up() -> None:
    a, c, targets = scores(2, 3, 18, 7)
    targets[0], targets[1, ::2] = 3, 6
    assert_right((a, c, targets))
    a[..., 0] += 200
    c[..., 3] += 200
    assert lost((a, c, targets)).all()
    assert_right((a, c, targets), 1e-6)


def test_huge_scores() -> None:
    a, c, targets = scores(1, 4, 5, 40)
    value, *grads = assert_right((1e4 * a.sign() + a, 1e4 * c.sign() + c, targets), 1e-6)
    assert value.min() < -1e4
    assert all(x.abs().max() > 0.1 for x in grads)


# --- what is not finite ----------------------------------------------------------------------------------------------


def assert_same(batch: Scores) -> list[Tensor]:
    """The kernels give what the portable code gives, nan for nan; returns it."""
    actual = gradients(fused.word_log_probs, batch)
    for x, y in zip(actual, gradients(portable.word_log_probs, batch), strict=True):
        assert_near(x, y, 1e-5, equal_nan=True)
    plain = [x.to(DEVICE) for x in batch[:2]]
    normaliser = fused.log_normaliser(*plain)
    assert_near(normaliser, portable.log_normaliser(*plain), 3e-6, equal_nan=True)
    return [*actual, normaliser.cpu()]


def test_impossible_symbols() -> None:
    a, c, targets = scores(2, 4, 3, 40)
    a[torch.rand(a.shape, generator=torch.Generator().manual_seed(0)) < 0.5] = -math.inf
    a[..., 0] = 0.0
    a[0, :, 1:33] = -math.inf  # to the end of a tile
    c[1, 2, 5:] = -math.inf
    targets[:] = 0
    targets[0, 1] = 5  # impossible in the first sentence
    value, *grads, _ = assert_same((a, c, targets))
    assert (value == -math.inf).nonzero().tolist() == [[0, i, 1] for i in range(4)]
    assert all(x.isfinite().all() for x in grads)


def test_a_piece_without_a_possible_symbol() -> None:
    a, c, targets = scores(1, 2, 2, 1030)
    a[0, 0, :1024] = c[0, 1, 10:] = -math.inf
    c[0, 1, 1029] = 0.0
    targets[:] = 1029
    assert all(x.isfinite().all() for x in assert_same((a, c, targets)))


def test_nothing_is_possible_on_both_sides() -> None:
    a, c, targets = scores(1, 3, 2, 6)
    a[0, 1, 3:], c[0, 0, :3] = -math.inf, -math.inf
    value, a_grad, c_grad, normaliser = assert_same((a, c, targets))
    assert normaliser.isinf().nonzero().tolist() == value.isnan().nonzero().tolist() == [[0, 1, 0]]
    assert a_grad.isnan().all(2).tolist() == [[False, True, False]]
    assert c_grad.isnan().all(2).tolist() == [[True, False]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_no_number_is_not_hidden(side: int, bad: float) -> None:
    batch = scores(2, 3, 4, 40)
    batch[side][1, 2, slice(None) if bad == -math.inf else 35] = bad
    value, *grads, normaliser = assert_same(batch)
    here = value.isnan()
    assert here.sum() == (4, 3)[side]
    assert here.any(2 - side)[1].nonzero().tolist() == [[2]]
    assert torch.equal(normaliser.isnan(), here)
    assert all(x[1].isnan().any() and not x[0].isnan().any() for x in grads)


@pytest.mark.parametrize("target", [-1, 7, 2**40])
def test_a_target_that_is_no_symbol_gives_nan(target: int) -> None:
    batch = scores(2, 3, 4, 7)
    expected = gradients(fused.word_log_probs, batch)[0]
    batch[2][1, 2] = target
    value = gradients(fused.word_log_probs, batch)[0]
    assert value[1, :, 2].isnan().all()
    value[1, :, 2] = expected[1, :, 2]
    assert torch.equal(value, expected)


# --- tensors as they come --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.float32, torch.bfloat16),
    ],
)
def test_types(one: torch.dtype, other: torch.dtype) -> None:
    a, c, targets = some_lost()
    value, a_grad, c_grad = assert_right((a.to(one), c.to(other), targets))
    assert (value.dtype, a_grad.dtype, c_grad.dtype) == (torch.float32, one, other)


def test_strides() -> None:
    a, c, targets = batch = some_lost()
    expected = gradients(fused.word_log_probs, batch)
    wide = torch.full((3, 9, 82), math.nan, device=DEVICE)
    wide[:, 1::2, 2::2] = a.to(DEVICE)
    turned = c.to(DEVICE).permute(2, 0, 1).contiguous().permute(1, 2, 0)
    for x in (wide, turned):
        x.requires_grad_()
    value = fused.word_log_probs(wide[:, 1::2, 2::2], turned, torch.stack([targets, targets], 2).to(DEVICE)[..., 0])
    upstream = torch.linspace(-2, 3, value.numel(), device=DEVICE).reshape(value.shape)
    value.backward(upstream.mT.contiguous().mT)
    for actual, e in zip((value, wide.grad[:, 1::2, 2::2], turned.grad), expected, strict=True):
        assert torch.equal(actual.cpu(), e)
    assert torch.equal(
        fused.log_normaliser(wide.detach()[:, 1::2, 2::2], turned), fused.log_normaliser(a.to(DEVICE), c.to(DEVICE))
    )


def test_one_sentence_and_one_gradient_expanded() -> None:
    a, c, targets = (x[:1].to(DEVICE) for x in some_lost())
    leaves = [x.expand(3, -1, -1).detach().requires_grad_() for x in (a, c)]
    fused.word_log_probs(*leaves, targets.expand(3, -1)).sum().backward()
    single = [x.detach().requires_grad_() for x in (a, c)]
    portable.word_log_probs(*single, targets).sum().backward()
    for x, y in zip(leaves, single, strict=True):
        assert_near(x.grad, y.grad.expand(3, -1, -1), 1e-5)


@pytest.mark.parametrize("side", [0, 1])
def test_one_gradient_without_the_other(side: int) -> None:
    batch = some_lost()
    expected = gradients(fused.word_log_probs, batch)
    sides = [x.to(DEVICE) for x in batch[:2]]
    sides[side].requires_grad_()
    value = fused.word_log_probs(*sides, batch[2].to(DEVICE))
    value.backward(torch.linspace(-2, 3, value.numel(), device=DEVICE).reshape(value.shape))
    assert torch.equal(sides[side].grad.cpu(), expected[1 + side])
    assert sides[1 - side].grad is None


def test_autocast_does_not_lower_the_precision() -> None:
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert_right(scores(1, 3, 4, 50, 8.0))


def test_second_derivatives_are_refused() -> None:
    a, c, targets = (x.to(DEVICE) for x in scores(1, 2, 3, 4))
    value = fused.word_log_probs(a.requires_grad_(), c, targets)
    (gradient,) = torch.autograd.grad(value.square().sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_nothing_of_the_size_of_the_vocabulary_is_kept() -> None:
    a, c, targets = (x.to(DEVICE) for x in scores(2, 3, 4, 100))
    value = fused.word_log_probs(a.requires_grad_(), c.requires_grad_(), targets)
    kept = [x for x in value.grad_fn.saved_tensors if x.data_ptr() not in (a.data_ptr(), c.data_ptr())]
    assert max(x.numel() for x in kept) == 2 * 3 * 4
    assert len(kept) == 5


@pytest.mark.parametrize("underflow", [False, True])
def test_no_tensor_has_room_for_every_input_output_and_word(underflow: bool) -> None:
    B, I, J, V = 1, 18, 20, 64
    a, c, targets = (x.to(DEVICE) for x in scores(B, I, J, V))
    if underflow:
        a[..., 0] += 300
        c[..., 1] += 300
    a, c = a.requires_grad_(), c.requires_grad_()
    with Allocations() as seen:
        fused.word_log_probs(a, c, targets).sum().backward()
    # The interpreter copies what it is given, byte by byte.
    assert B * J * V <= seen.largest <= 4 * B * J * V < B * I * J * V / 4


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU that computes while the host goes on")
@pytest.mark.parametrize("batch", [some_lost(), scores(2, 5, 4, 3000)], ids=["lost", "not lost"])
def test_the_host_never_waits_and_twice_is_the_same(batch: Scores) -> None:
    a, c, targets = (x.to(DEVICE) for x in batch)
    a, c, upstream = a.requires_grad_(), c.requires_grad_(), torch.ones(*a.shape[:2], c.shape[1], device=DEVICE)

    def both_ways() -> tuple[Tensor, ...]:
        return torch.autograd.grad(fused.word_log_probs(a, c, targets), (a, c), upstream)

    first = both_ways()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        second = both_ways()
        fused.log_normaliser(a.detach(), c.detach())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


# --- when they are used ----------------------------------------------------------------------------------------------


def used(batch: Scores) -> tuple[bool, bool]:
    """Whether ``noisychannel.joint`` takes the kernels for these: its probabilities, and its normaliser."""
    a, c, targets = (x.to(DEVICE) for x in batch)
    value = portable.word_log_probs(a.requires_grad_(), c, targets)
    seen: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        kernel = fused.log_normaliser
        patch.setattr(fused, "log_normaliser", lambda *x: seen.append(True) or kernel(*x))
        plain, scaled = portable.log_normaliser(a, c), portable.log_normaliser(portable.Scaled.of(a.detach()), c)
    assert torch.equal(plain, scaled)
    assert len(seen) in (0, 2)
    return isinstance(value.grad_fn, fused._WordLogProbs._backward_cls), bool(seen)


def test_they_are_used_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = scores(2, 3, 4, 40)
    assert used(batch) == (False, False)
    monkeypatch.setenv("NOISYCHANNEL_KERNELS", "on")
    if DEVICE == "cpu":
        assert used(batch) == (False, False)
        monkeypatch.setattr(kernels, "usable", lambda *tensors: True)
    assert used(batch) == (True, True)
    assert used((batch[0], batch[1].bfloat16(), batch[2])) == (True, True)
    assert used((batch[0].double(), batch[1].double(), batch[2])) == (False, False)
    assert used(tuple(x[:0] for x in batch)) == (False, False)
    assert used((batch[0][:, :0], *batch[1:])) == (False, False)
    monkeypatch.setattr(fused, "LONGEST_PIECE", 1)
    assert used(batch) == (False, False)
    assert used(scores(2, 3, 4, 32)) == (True, True)


def test_wrong_arguments_are_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "usable", lambda *tensors: True)
    a, c, targets = scores(2, 3, 4, 5)
    with pytest.raises(ValueError, match=r"\[B,I,V\]"):
        portable.word_log_probs(a[..., 1:], c, targets)
    with pytest.raises(ValueError, match=r"\[B,I,V\]"):
        portable.log_normaliser(a[:1], c)
    with pytest.raises(ValueError, match=r"\[B,J\]"):
        portable.word_log_probs(a, c, targets[:, 1:])
    with pytest.raises(RuntimeError, match="int64"):
        portable.word_log_probs(a, c, targets.float())


@pytest.mark.long
def test_a_gpu_compiler_takes_them(tmp_path: Path) -> None:
    script = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from noisychannel.kernels import joint
assert not triton.knobs.runtime.interpret
none = dict.fromkeys(("targets_ptr", "product_ptr", "peak_ptr", "a_max_ptr", "c_max_ptr"))
tile = {"BLOCK_R": 64, "BLOCK_C": 16}
for kernel, dtype, constants in (
    (joint.exponentiate, "*bf16", {"BLOCK_W": 1024}),
    (joint.finish, "*fp32", {"BLOCK_J": 32, **joint.FINISH}),
    (joint.finish, "*fp16", {"BLOCK_J": 16, **joint.FINISH, **none}),
    (joint.divide, "*fp32", joint.RATIO),
    (joint.descend, "*fp32", {"OF_OUTPUTS": False, **tile, **joint.GRADIENT}),
    (joint.descend, "*bf16", {"OF_OUTPUTS": True, **tile, **joint.GRADIENT}),
):
    constants = dict(constants)
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages") if name in constants}
    scores = dict.fromkeys(("scores_ptr", "a_ptr", "c_ptr", "own_ptr", "other_ptr", "result_ptr"), dtype)
    kinds = {**scores, "targets_ptr": "*i64", "lost_ptr": "*i32", "threshold": "fp32"}
    signature = {}
    for name in kernel.arg_names:
        kind = kinds.get(name, "*fp32" if name.endswith("_ptr") else "i32")
        signature[name] = "constexpr" if name in constants else kind
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"]
"""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, env=environment)


def test_symbols_that_one_side_leaves_out_count_nothing() -> None:
    """A search over some words has -inf for places that a sentence does not need."""
    a, c, _ = scores(2, 5, 4, 37, scale=3.0)
    a[0, :, 30:] = -math.inf
    a[1, 2] += 80.0
    exact = oracles.joint_log_normaliser(a.double(), c.double())
    found = fused.log_normaliser(a.to(DEVICE), c.to(DEVICE), "ieee").cpu()
    for normaliser in (found, portable.log_normaliser(a, c)):
        assert torch.allclose(normaliser.double(), exact, rtol=1e-6, atol=1e-5)
