"""Probabilities are normalised and summed in float32 or better, whatever the networks compute in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

Products = Literal["ieee", "tf32"]
"""How a GPU computes matrix products of float32: exactly, or with factors rounded to ten bits (TF32)."""
SearchProducts = Literal["ieee", "tf32", "bf16"]
"""The same in a search; bf16 runs the networks in bfloat16 and rounds the factors of the normaliser to it."""


def at_least_float32(x: Tensor) -> Tensor:
    """bfloat16 and float16 become float32; float32 and float64 stay."""
    if x.dtype in (torch.float32, torch.float64):
        return x
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def exact_recurrence(like: Tensor) -> Iterator[None]:
    """Compute float32 LSTMs in full float32 on a GPU, where cuDNN would round their factors to ten bits (TF32).

    A whole sequence and the same sequence step by step must have the same scores, and a GPU those of a CPU.
    """
    with _flag(torch.backends.cudnn.rnn, "ieee", like.device):
        yield


@contextmanager
def float32_products(precision: Products, device: torch.device) -> Iterator[None]:
    """Compute matrix products of float32 on a GPU with this precision."""
    with _flag(torch.backends.cuda.matmul, precision, device):
        yield


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Compute products of probabilities in full float32, whatever the networks compute in."""
    with torch.autocast(device.type, enabled=False), float32_products("ieee", device):
        yield


@contextmanager
def search_products(products: SearchProducts, device: torch.device) -> Iterator[None]:
    """Compute the networks of a search with this precision. On a CPU tf32 is as exact as ieee."""
    if products == "ieee":
        yield
        return
    with (
        torch.autocast(device.type, torch.bfloat16, enabled=products == "bf16"),
        float32_products("tf32", device),
    ):
        yield


@contextmanager
def normaliser_products(products: SearchProducts, device: torch.device) -> Iterator[None]:
    """Compute products of probabilities in float32, exactly or in TF32; their factors may have been rounded before."""
    if device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        yield
        return
    with (
        torch.autocast(device.type, enabled=False),
        float32_products("ieee" if products == "ieee" else "tf32", device),
    ):
        yield


@contextmanager
def _flag(flags: Any, precision: str, device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    before = flags.fp32_precision
    flags.fp32_precision = precision
    try:
        yield
    finally:
        flags.fp32_precision = before
