"""Memory that is freed and soon needed again: a training on a CPU keeps it between its updates.

The C library gives every block of more than 32 MiB back to the system as soon as it is free, and the system clears
the pages of the next one. Scores of a large vocabulary are such blocks, many in each update: with words as symbols,
clearing pages takes up to a third of the time. ``benchmarks/allocation.py`` measures it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Parameters of glibc's mallopt: how much free memory is kept, the size of a block that is asked of the system, and how
many blocks may be."""
_KEPT = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1}
_USUAL = {_MMAP_MAX: 1 << 16, _TRIM_THRESHOLD: 1 << 26, _MMAP_THRESHOLD: 1 << 25}
"""What glibc comes to by itself in a process that has freed large blocks."""


@contextmanager
def freed_memory_kept(device: torch.device) -> Iterator[bool]:
    """While the block runs, this process keeps what it frees; at the end it gives it back.

    False, and nothing else, if the device has memory of its own or the C library is not glibc.
    """
    kept = device.type == "cpu" and _set(_KEPT)
    try:
        yield kept
    finally:
        if kept:
            _set(_USUAL)
            ctypes.CDLL(None).malloc_trim(0)


def _set(values: dict[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    accepted = [mallopt(parameter, value) for parameter, value in values.items()]
    return all(accepted)
