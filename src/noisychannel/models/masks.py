"""Dropout masks that are a function of a seed and a place, so that no model's masks depend on its neighbours.

A generator of random numbers gives masks that depend on how many numbers were drawn before: for models that are trained
together, on how many there are, and on the longest sequence of any of them. Here each element has a key of its own,

    key(seed, site, row, position, …) = mix(… mix(mix(mix(seed + site·c) + row·c) + position·c) …),

and it is dropped if the key, a number of 64 bits, is below the share to drop. ``mix`` is a finaliser: every bit of
what goes in changes every bit of what comes out with probability one half.

Shapes: N models, R rows of all models, B rows of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from noisychannel import kernels

GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""2⁶⁴ over the golden ratio, as a signed number: odd, and its multiples are spread evenly."""
FACTORS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
SHIFTS = (30, 27, 31)
"""Those of splitmix64 (Steele, Lea and Flood, 2014)."""


class Masks:
    """The dropout of N models whose rows are stacked: row n·B + b is row b of model n."""

    def __init__(self, models: int, device: torch.device | str = "cpu") -> None:
        self.seeds_N = torch.zeros(models, dtype=torch.int64, device=device)
        """Of the present update; a CUDA graph reads them where they are."""
        self._site = 0

    def begin(self) -> None:
        """A pass through the network begins; its dropouts are numbered in the order in which they are met."""
        self._site = 0

    def drop(self, x: Tensor, share: float) -> Tensor:
        """``x`` [R, …] without a share of its elements, the others enlarged to make up for it."""
        self._site += 1
        if not share:
            return x
        lowest, factor = int(share * 2**64) - 2**63, 1 / (1 - share)
        *outer, size = x.shape
        key = keys(self.seeds_N, self._site, outer)
        if kernels.usable(x):
            from noisychannel.kernels import dropout

            return dropout.drop(x.reshape(-1, size), key.flatten(), lowest, factor).view(x.shape)
        return x * ((within(key, size) >= lowest).to(x.dtype) * factor)


def keys(seeds_N: Tensor, site: int, shape: Sequence[int]) -> Tensor:
    """A number of 64 bits, as int64, for each place in a shape [R, …]."""
    key = _mix(seeds_N + torch.full_like(seeds_N, site) * GOLDEN)
    for size in (shape[0] // len(seeds_N), *shape[1:]):
        key = within(key, size)
    return key.view(*shape)


def within(key: Tensor, size: int) -> Tensor:
    """The keys of one more dimension: [...] -> [..., size]."""
    return _mix(key[..., None] + torch.arange(size, device=key.device) * GOLDEN)


def _mix(key: Tensor) -> Tensor:
    """splitmix64's finaliser; ``key`` is used up."""
    for shift, factor in zip(SHIFTS, (*FACTORS, None), strict=True):
        # A logical shift: torch's copies the sign.
        key.bitwise_xor_((key >> shift).bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            key.mul_(factor)
    return key
