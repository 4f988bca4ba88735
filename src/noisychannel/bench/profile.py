"""Where the time of a search goes, part by part.

    python benchmarks/decode.py --parts profile --settings words --batches 64 [--device cpu|cuda]

Every part of a step is timed with a wait for the GPU before and after it, so its time is that of the host and of the
GPU together; a part that calls another does not count the other's time. "alone" is the same search without these waits.
Two lines below the table say how many kernels were launched and how long they ran, by PyTorch's profiler: if the GPU is
busy for much less than the search takes, the host is too slow. The kernels that took longest follow.
"""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from noisychannel import NoisyChannelDecoder

PARTS = {
    "read the inputs": ("parts", "read_sentences"),
    "first table": ("search", "first_table"),
    "emission gates": ("lattices chart", "emissions"),
    "columns of the direct model": ("chart", "reach_both"),
    "scores of the next words": ("chart", "next_words"),
    "normalisers": ("next_words lattices", "log_normaliser"),
    "proposals": ("chart", "propose"),
    "candidates": ("chart", "_score"),
    "language model": ("chart", "next_symbols"),
    "channel, LSTM and scores": ("chart", "step_channel"),
    "channel, words of the input": ("chart", "read_one_more"),
    "channel, from its states": ("lattices", "_written_from_states"),
    "columns of the channel": ("lattices", "advance_channel"),
    "complete outputs": ("chart", "complete"),
    "survivors": ("chart", "survivors"),
    "bounds": ("chart", "still_open"),
    "next table, LSTM": ("chart", "_next_table"),
    "rest of a step": ("search", "step"),
    "answers and traces": ("parts", "search"),
}
"""The functions of the search that are timed: the modules of ``decode`` that call them, and their names."""
TOP = 15


def report(name: str, decoder: NoisyChannelDecoder, inputs: list[list[int]], device: str) -> Iterator[str]:
    """The table of one search, as lines of Markdown."""

    def decode() -> None:
        decoder.decode(inputs, align=False)

    decode()  # compiles kernels
    alone = _seconds(decode)
    with timed_parts() as times:
        whole = _seconds(decode)
    yield f"\n{name}, batch {len(inputs)}: {whole:.3f} s in parts, {alone:.3f} s alone\n"
    yield "| part | calls | ms | share |\n| --- | ---: | ---: | ---: |"
    rest = whole - sum(seconds for _, seconds in times.values())
    ordered = sorted(times.items(), key=lambda item: -item[1][1])
    for part, (calls, seconds) in [*ordered, ("everything else", (1, rest))]:
        yield f"| {part} | {calls} | {1e3 * seconds:.1f} | {seconds / whole:.0%} |"
    yield from _kernels(decode, alone, device)


@contextmanager
def timed_parts() -> Iterator[dict[str, tuple[int, float]]]:
    """While it is open, calls and seconds of each part are counted."""
    times: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    inner: list[float] = []

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*arguments: Any, **keywords: Any) -> Any:
            inner.append(0.0)
            start = _now()
            try:
                return function(*arguments, **keywords)
            finally:
                taken = _now() - start
                calls, seconds = times[part]
                times[part] = calls + 1, seconds + taken - inner.pop()
                if inner:
                    inner[-1] += taken

        return run

    before: list[tuple[Any, str, Any]] = []
    try:
        for part, (modules, name) in PARTS.items():
            for module_name in modules.split():
                module = importlib.import_module(f"noisychannel.decode.{module_name}")
                before.append((module, name, getattr(module, name)))
                setattr(module, name, timed(part, getattr(module, name)))
        yield times
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def _kernels(decode: Callable[[], None], alone: float, device: str) -> Iterator[str]:
    """How much of a search the device works, and on what."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profiler:
        decode()
        _now()
    on_gpu = device == "cuda"
    found = [
        (event.self_device_time_total if on_gpu else event.self_cpu_time_total, event.count, event.key)
        for event in profiler.key_averages()
        if not on_gpu or "cuda" in str(event.device_type).lower()
    ]
    busy = sum(microseconds for microseconds, _, _ in found) / 1e6
    what = "kernels" if on_gpu else "operations"
    yield f"\n{sum(count for _, count, _ in found)} {what}, {busy:.3f} s of {alone:.3f} s ({busy / alone:.0%})."
    yield "\n| of these | calls | ms |\n| --- | ---: | ---: |"
    for microseconds, count, key in sorted(found, reverse=True)[:TOP]:
        yield f"| `{key[:100].replace('|', ' ')}` | {count} | {microseconds / 1e3:.1f} |"


def _seconds(run: Callable[[], None]) -> float:
    start = _now()
    run()
    return _now() - start


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
