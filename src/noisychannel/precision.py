"""Probabilities are normalised and summed in float32 at least, whatever the networks compute in."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """bfloat16 and float16 become float32; float32 and float64 stay."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
