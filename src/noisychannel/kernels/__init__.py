"""Fused kernels: the same mathematics as the portable code, in one launch on a GPU.

They are written in Triton, which PyTorch's CUDA builds bring along. Where it is missing or does not work, the portable
code runs instead. ``NOISYCHANNEL_KERNELS=off`` in the environment turns the kernels off.
"""

from __future__ import annotations

import os
import warnings
from functools import cache

import torch
from torch import Tensor


def usable(*tensors: Tensor) -> bool:
    """Whether kernels may be used on these tensors: all on one GPU on which Triton works, and not turned off."""
    if not all(x.is_cuda and x.device == tensors[0].device for x in tensors):
        return False
    switch = os.environ.get("NOISYCHANNEL_KERNELS", "on")
    if switch not in ("on", "off"):
        raise ValueError(f"NOISYCHANNEL_KERNELS must be on or off, but is {switch!r}")
    return switch == "on" and _triton_works(tensors[0].device)


@cache
def _triton_works(device: torch.device) -> bool:
    """Ask the smallest lattice: Triton may be missing, and one that is there still needs a C compiler beside it."""
    try:
        from noisychannel.kernels import lattice
    except ImportError:
        return False
    try:
        cell, length = torch.zeros(1, 1, 1, device=device), torch.ones(1, dtype=torch.int64, device=device)
        lattice.log_marginal(cell, cell, length, length)
    except Exception as error:  # whatever a compiler or a driver may raise
        warnings.warn(
            f"Triton does not work on {device}, so the slower portable code is used: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    return True
