"""CUDA graphs: work recorded once, on tensors that stay where they are, and launched at once as often as one likes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

WARM_UP = 2
"""Runs before the record, in which libraries choose their algorithms."""


def capture(
    run: Callable[[], object], warm_up: Callable[[], object] | None = None, pool: Any = None
) -> torch.cuda.CUDAGraph:
    """Record what ``run`` does on the present GPU; ``warm_up`` is run before it in its stead, where given.

    Graphs that are replayed one after the other, and whose results are not looked at after the next, can share a
    ``pool`` of memory. The random numbers drawn here are given back.
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
