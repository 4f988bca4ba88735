"""CUDA graphs: work that is recorded once, on tensors at fixed addresses, and then launched as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

WARM_UP = 2
"""Runs before the recording, in which libraries choose their algorithms."""


def capture(
    run: Callable[[], object], warm_up: Callable[[], object] | None = None, pool: Any = None
) -> torch.cuda.CUDAGraph:
    """Record what ``run`` does on the current GPU. ``warm_up``, or ``run`` if not given, is called before.

    Graphs that are replayed one after the other, and whose results are not needed after the next one, can share a
    ``pool`` of memory. The state of the random number generator is restored.
    """
    drawn = torch.cuda.get_rng_state()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            (warm_up or run)()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        run()
    torch.cuda.set_rng_state(drawn)
    return graph
