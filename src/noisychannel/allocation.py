"""Memory that a training on a CPU keeps between its updates.

The C library gives every block of more than 32 MiB back to the system as soon as it is free, and the system clears
the pages of the next one. Scores of a large vocabulary are such blocks, many in each update: with words as symbols,
clearing pages takes a large part of the time. ``benchmarks/allocation.py`` measures it.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt: the free memory that is kept, and how many blocks are asked of the system."""
_NO_LIMIT = 2**31 - 1


def keep_freed_memory() -> bool:
    """From now on this process keeps what it frees, and uses it again. Returns False if its C library cannot do so."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NO_LIMIT))
