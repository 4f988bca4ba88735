"""Sentences per second of several processes that search at the same time: what ``decode --jobs`` can bring on a GPU.

One search of words launches hundreds of small kernels for every symbol, so a GPU waits for the process much of the
time. Without CUDA's multi-process service (``nvidia-cuda-mps-control -d``) the processes use the GPU in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Barrier

import torch

from noisychannel import NoisyChannelDecoder
from noisychannel.bench.timing import wait_for_device
from noisychannel.processes import BOUND

MOST_SECONDS = 3600.0
"""For one process to be ready, or to finish: if one was killed, the others do not wait for it for ever."""

HEADER = (
    "| setting | batch | products | processes | sentences/s, all | times one process |\n"
    "| --- | ---: | --- | ---: | ---: | ---: |"
)

Decoder = Callable[[int], NoisyChannelDecoder]
"""Makes a decoder that shares the memory with so many others. A new process must be able to call it: no lambda."""


def rows(
    name: str, products: str, make: Decoder, inputs: Sequence[Sequence[int]], rounds: int, counts: Sequence[int]
) -> Iterator[str]:
    """One row for one process, and for each of these numbers of them: each process decodes all inputs so many times,
    after once that does not count."""
    alone = 0.0
    for count in sorted({1, *counts}):
        rate = count * rounds * len(inputs) / _seconds(make, inputs, rounds, count)
        alone = alone or rate
        yield f"| {name} | {len(inputs)} | {products} | {count} | {rate:.3g} | {rate / alone:.2f} |"


def _seconds(make: Decoder, inputs: Sequence[Sequence[int]], rounds: int, count: int) -> float:
    """From the moment when all processes are ready until the last has finished."""
    barrier = BOUND.Barrier(count + 1)
    work = partial(_decode, make, [list(ids) for ids in inputs], rounds, count, barrier)
    processes = [BOUND.Process(target=work) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        barrier.wait(MOST_SECONDS)
        start = time.perf_counter()
        barrier.wait(MOST_SECONDS)
        return time.perf_counter() - start
    finally:
        for process in processes:
            process.join()


def _decode(make: Decoder, inputs: list[list[int]], rounds: int, count: int, barrier: Barrier) -> None:
    """One process."""
    try:
        torch.set_num_threads(max(1, torch.get_num_threads() // count))
        decoder = make(count)
        decoder.decode(inputs, align=False)
        wait_for_device()
        barrier.wait(MOST_SECONDS)
        for _ in range(rounds):
            decoder.decode(inputs, align=False)
        wait_for_device()
        barrier.wait(MOST_SECONDS)
    except BaseException:
        barrier.abort()  # the others need not wait
        raise
