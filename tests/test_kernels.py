"""The kernels against the enumeration and against the portable code: on the GPU if there is one, else interpreted.

Triton's interpreter runs a kernel line by line on the CPU, so what it cannot tell is whether a GPU's compiler takes
the kernel: that is a test of its own.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import oracles
from interpreter import DEVICE, MARKS, interpreted, portable_is_portable  # noqa: F401 (used by every test)
from noisychannel import kernels
from noisychannel import lattice as portable
from test_lattice import MIXED, Lattices, random_lattices

with interpreted():
    from noisychannel.kernels import lattice as fused

pytestmark = MARKS

LogMarginal = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def gradients(
    function: LogMarginal, batch: Lattices, weights: Tensor | None = None, device: str = DEVICE
) -> list[Tensor]:
    """The value and the gradients of its (weighted) sum by word_logp and emit_logit, all on the CPU."""
    leaves = [x.detach().to(device).requires_grad_() for x in (batch.word_logp, batch.emit_logit)]
    value = function(*leaves, batch.input_lengths.to(device), batch.output_lengths.to(device))
    (value if weights is None else value * weights.to(device)).sum().backward()
    assert all(x.grad is not None for x in leaves)
    return [x.detach().cpu() for x in (value, *(x.grad for x in leaves))]


def assert_near(
    actual: Tensor, expected: Tensor, tolerance: float, summands: float = 1.0, equal_nan: bool = False
) -> None:
    """Equal to within ``tolerance`` of the largest number of ``expected``, or of its ``summands`` if these are larger.

    Sums are compared: their error grows with what is added up, and a sum may be near zero. A number of a type with
    fewer bits than float32 may be rounded, too.
    """
    finite = expected[expected.isfinite()].abs()
    size = max(summands, finite.max().item()) if finite.numel() else summands
    rounding = 0.0 if actual.dtype == torch.float32 else torch.finfo(actual.dtype).eps
    torch.testing.assert_close(
        actual.to(expected.dtype), expected, rtol=rounding, atol=tolerance * size, equal_nan=equal_nan
    )


def assert_same(batch: Lattices, weights: Tensor | None = None, tolerance: float = 1e-5) -> list[Tensor]:
    """The kernels compute what the portable code computes; returns it."""
    actual = gradients(fused.log_marginal, batch, weights)
    expected = gradients(portable.log_marginal, batch, weights)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        assert_near(a, e, tolerance)
    for gradient in actual[1:]:
        assert (gradient[~batch.inside()] == 0).all()
    return actual


def single(batch: Lattices) -> Lattices:
    return batch.to(torch.float32)


WEIGHTS = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
"""Upstream gradients of MIXED's five rows."""


# --- values and gradients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("values", "tolerance"), [("moderate", 1e-5), ("flat", 1e-5), ("50", 1e-4), ("500", 5e-3)])
def test_the_enumeration(values: str, tolerance: float, seed: int) -> None:
    # In float32 a score of a thousand has an error of 1e-4, and so have the differences that the gradients come from.
    lengths = [(4, 3), (1, 4), (5, 1), (2, 5), (1, 1)]
    batch = single(random_lattices(seed, lengths, (5 + seed % 2, 6 - seed % 2), values))
    leaves = Lattices(
        batch.word_logp.double().requires_grad_(),
        batch.emit_logit.double().requires_grad_(),
        batch.input_lengths,
        batch.output_lengths,
    )
    expected = torch.stack([oracles.log_marginal(*pair) for pair in leaves.each()])
    (expected * WEIGHTS).sum().backward()
    value, *grads = gradients(fused.log_marginal, batch, WEIGHTS)
    torch.testing.assert_close(value.double(), expected.detach(), rtol=2e-6, atol=2e-6)
    for actual, leaf in zip(grads, (leaves.word_logp, leaves.emit_logit), strict=True):
        assert_near(actual, leaf.grad, tolerance)


@pytest.mark.parametrize(
    ("I", "J"),
    [
        *[(1, 1), (1, 7), (7, 1), (31, 33), (32, 32), (3, 80)],
        *[pytest.param(I, J, marks=pytest.mark.long) for I, J in ((40, 33), (65, 66), (70, 64))],
    ],
)
def test_sizes_around_those_of_vectors_and_warps(I: int, J: int) -> None:
    lengths = [(I, J), (max(1, I - 1), max(1, J // 2))]
    assert_same(single(random_lattices(I, lengths, (I, J), "moderate")), torch.tensor([1.0, -0.5]))


def test_random_lengths() -> None:
    rng = torch.Generator().manual_seed(0)
    lengths = [(int(i), int(j)) for i, j in torch.randint(1, 13, (12, 2), generator=rng)]
    assert_same(single(random_lattices(1, lengths, (12, 12), "moderate")), torch.randn(12, generator=rng))


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter is too slow for large lattices")
@pytest.mark.parametrize(("I", "J"), [(500, 480), (300, 900), (1024, 1030), (1500, 600)])
def test_large_lattices(I: int, J: int) -> None:
    lengths = [(I, J), (I // 2, J), (I, 1), (1, J), (37, 41)]
    batch = single(random_lattices(2, lengths, (I, J), "moderate"))
    actual = gradients(fused.log_marginal, batch)
    exact = gradients(portable.log_marginal, batch.to(torch.float64))
    torch.testing.assert_close(actual[0].double(), exact[0], rtol=1e-5, atol=0)
    # Differences of scores of thousands, which float32 rounds to 1e-4.
    for a, e in zip(actual[1:], exact[1:], strict=True):
        assert_near(a, e, 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types(dtype: torch.dtype) -> None:
    value, word_grad, emit_grad = assert_same(MIXED.to(dtype), WEIGHTS)
    assert value.dtype == torch.float32
    assert word_grad.dtype == emit_grad.dtype == dtype


def test_mixed_types() -> None:
    batch = single(MIXED)
    _, word_grad, emit_grad = assert_same(
        Lattices(batch.word_logp, batch.emit_logit.bfloat16(), *MIXED.arguments()[2:])
    )
    assert (word_grad.dtype, emit_grad.dtype) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("seed", range(3))
def test_huge_logits(seed: int) -> None:
    batch = single(random_lattices(seed, [(6, 5), (5, 6), (1, 6)], (6, 6), "10000"))
    value, word_grad, emit_grad = assert_same(batch, tolerance=2e-2)
    assert all(x.isfinite().all() for x in (value, word_grad, emit_grad))
    assert value.min() < -1e4


def test_infinite_logits() -> None:
    batch = single(random_lattices(0, [(4, 5)], (4, 5), "moderate"))
    batch.emit_logit[0, 1] = -math.inf  # never emits there, so it shifts for sure
    batch.emit_logit[0, 2, 3] = math.inf
    value, *grads = assert_same(batch)
    assert value.isfinite().all()
    assert all(x.isfinite().all() for x in grads)


def test_tiny_logarithms_are_not_lost() -> None:
    # log sigmoid(20) = -2.06e-9: 1 + e^-20 is 1 in float32.
    batch = Lattices(torch.zeros(1, 1, 3), torch.full((1, 1, 3), 20.0), torch.tensor([1]), torch.tensor([3]))
    value = gradients(fused.log_marginal, batch)[0]
    assert value.item() == pytest.approx(-3 * math.log1p(math.exp(-20)), rel=1e-4)


def test_impossible_words() -> None:
    batch = single(random_lattices(6, [(4, 4), (3, 4)], (4, 4), "moderate"))
    batch.word_logp[:, 1] = -math.inf
    batch.word_logp[0, 2, 1] = -math.inf
    value, word_grad, emit_grad = assert_same(batch)
    assert value.isfinite().all()
    assert (word_grad[:, 1] == 0).all()
    assert emit_grad.isfinite().all()


@pytest.mark.parametrize(("I", "J"), [(4, 3), (3, 4)])
def test_nothing_is_possible(I: int, J: int) -> None:
    batch = single(random_lattices(6, [(I, J), (I, J)], (I, J), "moderate"))
    batch.word_logp[0] = -math.inf
    batch.word_logp[1, :, 1] = -math.inf
    value, *grads = assert_same(batch)
    assert (value == -math.inf).all()
    assert not any(x.isnan().any() for x in grads)


def test_nan_is_not_hidden() -> None:
    batch = single(random_lattices(6, [(4, 3)], (4, 3), "moderate"))
    batch.emit_logit[0, 2, 1] = math.nan
    assert gradients(fused.log_marginal, batch)[0].isnan().all()


@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf])
def test_padding_changes_nothing(filler: float) -> None:
    expected = gradients(fused.log_marginal, single(MIXED), WEIGHTS)
    actual = assert_same(single(MIXED).padded_with(filler), WEIGHTS)
    assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))


# --- tensors as they come --------------------------------------------------------------------------------------------


def test_strides() -> None:
    batch = single(random_lattices(9, [(4, 6), (3, 5)], (4, 6), "moderate"))
    wide = torch.full((2, 9, 14), math.nan, device=DEVICE)
    wide[:, 1::2, 2::2] = batch.word_logp.to(DEVICE)
    turned = batch.emit_logit.to(DEVICE).permute(2, 0, 1).contiguous().permute(1, 2, 0)
    for x in (wide, turned):
        x.requires_grad_()
    lengths = [torch.stack([x, x], 1).to(DEVICE)[:, 0] for x in batch.arguments()[2:]]
    value = fused.log_marginal(wide[:, 1::2, 2::2], turned, *lengths)
    value.backward(torch.tensor([[2.0, 0.0], [-1.0, 0.0]], device=DEVICE)[:, 0])
    expected = gradients(fused.log_marginal, batch, torch.tensor([2.0, -1.0]))
    for actual, e in zip((value, wide.grad[:, 1::2, 2::2], turned.grad), expected, strict=True):
        assert torch.equal(actual.cpu(), e)


def test_one_lattice_expanded_to_a_batch() -> None:
    one = single(random_lattices(9, [(4, 6)], (4, 6), "moderate"))
    batch = Lattices(*(x.expand(3, *x.shape[1:]) for x in one.arguments()))
    for actual, expected in zip(assert_same(batch), assert_same(one), strict=True):
        assert all(torch.equal(row, expected[0]) for row in actual)


def test_lengths_of_other_types_and_from_the_cpu() -> None:
    batch = single(MIXED)
    expected = gradients(fused.log_marginal, batch)[0]
    tensors = [x.to(DEVICE) for x in batch.arguments()[:2]]
    lengths = [x.to(torch.int32) for x in batch.arguments()[2:]]
    assert torch.equal(fused.log_marginal(*tensors, *lengths).cpu(), expected)


@pytest.mark.parametrize(("row", "column"), [(0, 3), (7, 3), (4, 0), (4, 7), (-1, 3)])
def test_lengths_that_cannot_be_right_give_nan(row: int, column: int) -> None:
    tensors = [x[:2].to(DEVICE) for x in single(MIXED).arguments()[:2]]
    lengths = [torch.tensor([x, 2], device=DEVICE) for x in (row, column)]
    value = fused.log_marginal(*tensors, *lengths)
    assert value[0].isnan()
    assert value[1].isfinite()


def test_second_derivatives_are_refused() -> None:
    word_logp, emit_logit = (x.to(DEVICE).requires_grad_() for x in single(MIXED).arguments()[:2])
    value = fused.log_marginal(word_logp, emit_logit, *MIXED.arguments()[2:])
    (gradient,) = torch.autograd.grad(value.square().sum(), emit_logit, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_what_is_kept_is_one_number_a_cell() -> None:
    word_logp, emit_logit = (x.to(DEVICE).requires_grad_() for x in single(MIXED).arguments()[:2])
    value = fused.log_marginal(word_logp, emit_logit, *MIXED.arguments()[2:])
    kept = [x for x in value.grad_fn.saved_tensors if x.data_ptr() != emit_logit.data_ptr()]
    assert sorted(x.nbytes for x in kept) == [8 * 5, 8 * 5, 4 * word_logp.numel()]


# --- when they are used ----------------------------------------------------------------------------------------------


def used(batch: Lattices) -> bool:
    """Whether ``noisychannel.lattice.log_marginal`` takes the kernels for this batch."""
    word_logp, emit_logit = (x.detach().to(DEVICE).requires_grad_() for x in (batch.word_logp, batch.emit_logit))
    value = portable.log_marginal(word_logp, emit_logit, batch.input_lengths, batch.output_lengths)
    assert value.grad_fn is not None
    return isinstance(value.grad_fn, fused._LogMarginal._backward_cls)


def test_they_are_used_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISYCHANNEL_KERNELS", "on")
    if DEVICE == "cpu":
        assert not used(single(MIXED))
        monkeypatch.setattr(kernels, "usable", lambda *tensors: True)
    assert used(single(MIXED))
    assert used(MIXED.to(torch.bfloat16))
    assert not used(MIXED)  # float64
    assert not used(Lattices(*(x[:0] for x in single(MIXED).arguments())))
    monkeypatch.setattr(fused, "LONGEST_VECTOR", 5)
    assert not used(single(MIXED))
    assert used(single(random_lattices(0, [(9, 5)], (9, 5), "moderate")))


def test_wrong_arguments_are_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "usable", lambda *tensors: True)
    batch = single(MIXED)
    with pytest.raises(ValueError, match="must lie in"):
        used(Lattices(*batch.arguments()[:2], batch.input_lengths + 9, batch.output_lengths))
    with pytest.raises(ValueError, match="must both be"):
        used(Lattices(batch.word_logp[0], *batch.arguments()[1:]))


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_triton_works", lambda device: True)
    first, other = (SimpleNamespace(is_cuda=True, device=torch.device("cuda", n)) for n in range(2))
    monkeypatch.delenv("NOISYCHANNEL_KERNELS")
    assert kernels.usable(first, first)
    assert not kernels.usable(first, other)
    assert not kernels.usable(first, torch.zeros(1))
    monkeypatch.setenv("NOISYCHANNEL_KERNELS", "off")
    assert not kernels.usable(first, first)
    monkeypatch.setenv("NOISYCHANNEL_KERNELS", "no")
    with pytest.raises(ValueError, match="must be on or off, but is 'no'"):
        kernels.usable(first, first)


def test_a_triton_that_does_not_work_is_told_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Tensor) -> Tensor:
        raise RuntimeError("Failed to find C compiler")

    works = kernels._triton_works.__wrapped__
    assert works(torch.device(DEVICE))
    monkeypatch.setattr(fused, "log_marginal", fails)
    with pytest.warns(RuntimeWarning, match=r"using the slower portable code \(Failed to find C compiler\)"):
        assert not works(torch.device(DEVICE))


def test_without_triton() -> None:
    script = """
import sys, torch
sys.modules["triton"] = None  # importing it fails
from noisychannel import kernels
from noisychannel.lattice import log_marginal
assert not kernels._triton_works(torch.device("cpu"))
cell, one = torch.zeros(1, 1, 1), torch.ones(1, dtype=torch.int64)
assert abs(log_marginal(cell, cell, one, one).item() + 0.6931) < 1e-4
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_gpu_compiler_takes_them(tmp_path: Path) -> None:
    script = """
import itertools, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from noisychannel.kernels import lattice
assert not triton.knobs.runtime.interpret
kinds = dict.fromkeys(("share_ptr", "total_ptr", "grad_ptr"), "*fp32")
kinds |= dict.fromkeys(("length_K_ptr", "length_L_ptr"), "*i64")
sizes = ("*fp32", 70, 70), ("*bf16", 9, 5)
for kernel, (dtype, I, J) in itertools.product((lattice._ascend, lattice._descend), sizes):
    constants = dict(lattice._Layout(I, J).constants)
    options = {"num_warps": constants.pop("num_warps")}
    signature = {}
    for name in kernel.arg_names:
        pointer = kinds.get(name, dtype if name.endswith("_ptr") else "i32")
        signature[name] = "constexpr" if name in constants else pointer
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"]
"""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, env=environment)
