"""Dropout masks that are a function of a seed and an index, so that stacked models do not depend on each other.

Masks from a random number generator depend on how many numbers were drawn before: for models that are trained together,
on how many models there are and on the longest sequence of any of them. Here each element has its own key,

    key(seed, site, row, position, …) = mix(… mix(mix(mix(seed + site·c) + row·c) + position·c) …),

and it is dropped if the key, a 64-bit number, is below a threshold. ``mix`` is a finaliser: each input bit changes each
output bit with probability one half.

Shapes: N models, R rows of all models, B rows of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from noisychannel import kernels

GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""2⁶⁴ divided by the golden ratio, as a signed number: it is odd, and its multiples are spread evenly."""
FACTORS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
SHIFTS = (30, 27, 31)
"""The constants of splitmix64 (Steele, Lea and Flood, 2014)."""


def check_share(name: str, share: float) -> None:
    """Refuse a share of elements to drop that is not one, or that leaves nothing."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1, but is {share!r}")


class Masks:
    """The dropout of N models whose rows are stacked: row n·B + b is row b of model n."""

    def __init__(self, models: int, device: torch.device | str = "cpu") -> None:
        self.seeds_N = torch.zeros(models, dtype=torch.int64, device=device)
        """Of the current update. A CUDA graph reads them from this tensor, so it is changed in place."""
        self._site = 0

    def begin(self) -> None:
        """Start a pass through the network; its dropout layers are numbered in the order of their calls."""
        self._site = 0

    def drop(self, x: Tensor, share: float) -> Tensor:
        """``x`` [R, …] with a share of its elements set to zero and the others scaled up to compensate."""
        check_share("share", share)
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
    """A 64-bit number, as int64, for each index of a shape [R, …]."""
    key = _mix(seeds_N + torch.full_like(seeds_N, site) * GOLDEN)
    for size in (shape[0] // len(seeds_N), *shape[1:]):
        key = within(key, size)
    return key.view(*shape)


def within(key: Tensor, size: int) -> Tensor:
    """The keys of one more dimension: [...] -> [..., size]."""
    return _mix(key[..., None] + torch.arange(size, device=key.device) * GOLDEN)


def _mix(key: Tensor) -> Tensor:
    """The finaliser of splitmix64; ``key`` is overwritten."""
    for shift, factor in zip(SHIFTS, (*FACTORS, None), strict=True):
        # A logical shift: the shift of torch copies the sign bit.
        key.bitwise_xor_((key >> shift).bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            key.mul_(factor)
    return key
