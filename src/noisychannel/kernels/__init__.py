"""Fused kernels: the same mathematics as the portable code, in one launch on a GPU.

They are written in Triton, which is part of PyTorch's CUDA builds. If it is missing or does not work, the portable code
runs instead. The environment variable ``NOISYCHANNEL_KERNELS=off`` turns the kernels off.
"""

from __future__ import annotations

import os
import warnings
from functools import cache

import torch
from torch import Tensor


def usable(*tensors: Tensor) -> bool:
    """Whether kernels can be used on these tensors: all on one GPU, Triton works there, and kernels are not off."""
    if not tensors[0].is_cuda or not all(x.is_cuda and x.device == tensors[0].device for x in tensors):
        return False
    switch = os.environ.get("NOISYCHANNEL_KERNELS", "on")
    if switch not in ("on", "off"):
        raise ValueError(f"NOISYCHANNEL_KERNELS must be on or off, but is {switch!r}")
    return switch == "on" and _triton_works(tensors[0].device)


@cache
def _triton_works(device: torch.device) -> bool:
    """Try the smallest lattice: Triton may be missing, or installed without the C compiler that it needs."""
    try:
        from noisychannel.kernels import lattice
    except ImportError:
        return False
    try:
        cell, length = torch.zeros(1, 1, 1, device=device), torch.ones(1, dtype=torch.int64, device=device)
        lattice.log_marginal(cell, cell, length, length)
    except Exception as error:  # a compiler or a driver can raise anything
        warnings.warn(
            f"Triton does not work on {device}; using the slower portable code ({error})",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    return True
