"""Probabilities are normalised and summed in float32 at least, whatever the networks compute in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """bfloat16 and float16 become float32; float32 and float64 stay."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def exact_recurrence(like: Tensor) -> Iterator[None]:
    """float32 LSTMs in float32 on a GPU, too, where cuDNN would round their factors to ten bits (TF32).

    A whole sequence and the same sequence step by step must give the same scores, and a GPU those of a CPU.
    """
    if like.device.type != "cuda":
        yield
        return
    flags: Any = torch.backends.cudnn.rnn
    before = flags.fp32_precision
    flags.fp32_precision = "ieee"
    try:
        yield
    finally:
        flags.fp32_precision = before
