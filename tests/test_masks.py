"""Dropout masks by place: what a model draws depends on its seed, and on nothing beside it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interpreter import DEVICE, MARKS, interpreted, portable_is_portable  # noqa: F401 (used by every test)
from noisychannel.models.lm import LanguageModel
from noisychannel.models.masks import Masks, keys

with interpreted():
    from noisychannel.kernels import dropout

pytestmark = MARKS


def masks(*seeds: int) -> Masks:
    made = Masks(len(seeds))
    made.seeds_N.copy_(torch.tensor(seeds))
    return made


def test_a_model_drops_the_same_whatever_stands_beside_it() -> None:
    """Other models, more rows of each, and longer sequences: all these come from neighbours."""
    alone = masks(7)
    first, second = (alone.drop(torch.ones(3, 5, 6), 0.4) for _ in range(2))
    together = masks(1, 7, 2)
    for expected in (first, second):
        whole = together.drop(torch.ones(3 * 4, 8, 6), 0.4).view(3, 4, 8, 6)
        assert torch.equal(whole[1, :3, :5], expected)
        assert not torch.equal(whole[0, :3, :5], expected)
    assert not torch.equal(first, second), "every dropout of a network has a mask of its own"


def test_a_pass_begins_where_the_one_before_began() -> None:
    made = masks(3)
    first = made.drop(torch.ones(2, 9), 0.5)
    made.begin()
    assert torch.equal(made.drop(torch.ones(2, 9), 0.5), first)
    made.seeds_N += 1
    made.begin()
    assert not torch.equal(made.drop(torch.ones(2, 9), 0.5), first)


def test_shares_are_right_and_elements_independent() -> None:
    """Means of a mask, and of its products with itself moved along each dimension, within five deviations."""
    for share in (0.1, 0.5, 0.8):
        kept_NBTH = (masks(*range(8)).drop(torch.ones(8 * 16, 20, 64), share) > 0).double().view(8, 16, 20, 64)
        expected = 1 - share
        spread = (share * expected) ** 0.5
        assert abs(kept_NBTH.mean() - expected) < 5 * spread / kept_NBTH.numel() ** 0.5
        assert abs(kept_NBTH.mean((0, 1)) - expected).max() < 6 * spread / (8 * 16) ** 0.5
        centred = (kept_NBTH - expected) / spread
        for dim in range(4):
            for far in (1, 2, 4):
                correlation = (centred * centred.roll(far, dim)).mean()
                assert abs(correlation) < 5 / kept_NBTH.numel() ** 0.5, (share, dim, far)


def test_what_is_kept_is_enlarged_and_has_its_gradient() -> None:
    x = torch.randn(4, 10, dtype=torch.float64, requires_grad=True)
    dropped = masks(1, 2).drop(x, 0.75)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 4 * x[kept])
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, 4 * kept.double())
    assert masks(1).drop(x, 0.0) is x


@pytest.mark.parametrize(("shape", "share"), [((2, 1), 0.5), ((6, 7, 5), 0.3), ((4, 3, 300), 0.8)])
def test_the_kernel_drops_the_same(shape: tuple[int, ...], share: float) -> None:
    torch.manual_seed(1)
    x, weights = torch.randn(2, *shape, device=DEVICE)
    made = masks(12345678901234567, -3)
    made.seeds_N = made.seeds_N.to(DEVICE)
    lowest, factor = int(share * 2**64) - 2**63, 1 / (1 - share)
    results = []
    for fused in (False, True):
        made.begin()
        leaf = x.clone().requires_grad_()
        if fused:
            key = keys(made.seeds_N, 1, shape[:-1])
            dropped = dropout.drop(leaf.view(-1, shape[-1]), key.flatten(), lowest, factor).view(shape)
        else:
            dropped = made.drop(leaf, share)
        (dropped * weights).sum().backward()
        results.append((dropped.detach(), leaf.grad))
    assert torch.equal(results[0][0] == 0, results[1][0] == 0)
    torch.testing.assert_close(results[1], results[0])


def test_a_gpu_compiler_takes_it(tmp_path: Path) -> None:
    script = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from noisychannel.kernels import dropout
for dtype in ("*fp32", "*bf16"):
    signature = {"x": dtype, "dropped": dtype, "keys": "*i64", "lowest": "i64", "factor": "fp32", "H": "i32"}
    constants = {"BLOCK": dropout.BLOCK["BLOCK"]}
    source = ASTSource(fn=dropout._drop, signature={**signature, "BLOCK": "constexpr"}, constexprs=constants)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2}).asm["cubin"]
"""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, env=environment)


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, math.nan, True])
def test_a_share_outside_zero_to_one_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=f"share must be at least 0 and less than 1, but is {share}"):
        Masks(1).drop(torch.ones(2, 2), share)
    with pytest.raises(ValueError, match=f"dropout must be at least 0 and less than 1, but is {share}"):
        LanguageModel(5, 3, dropout=share)


def test_keys_are_those_of_splitmix() -> None:
    """The first outputs of splitmix64 from seed 1234567, as its public test vectors have them."""
    state, golden = 1234567, 0x9E3779B97F4A7C15
    key = keys(torch.tensor([state]), 1, torch.Size([1]))
    # One more mixing step for the row (of number 0): mix(mix(seed + golden)).
    expected = _mix(_mix((state + golden) % 2**64))
    assert _mix((state + golden) % 2**64) == 6457827717110365317
    assert key.item() % 2**64 == expected


def _mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)
