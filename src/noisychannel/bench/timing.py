"""What all suites share: interleaved timing, and a line that says where and when."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import date
from typing import TypeVar

import torch

from noisychannel import __version__

Name = TypeVar("Name", bound=Hashable)


def median_seconds(variants: Mapping[Name, Callable[[], object]], rounds: int) -> dict[Name, float]:
    """Seconds of each variant, run in turn, round after round, after one round that does not count."""
    times: dict[Name, list[float]] = {name: [] for name in variants}
    for _ in range(rounds + 1):
        for name, run in variants.items():
            wait_for_device()
            start = time.perf_counter()
            run()
            wait_for_device()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


def where_and_when(device: str) -> str:
    """Versions, date and hardware: a figure means nothing without them."""
    cpu = f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"
    hardware = torch.cuda.get_device_name() if device == "cuda" else cpu
    return f"noisychannel {__version__}, torch {torch.__version__}, {date.today().isoformat()}, {hardware}"


def wait_for_device() -> None:
    """Until a GPU, if there is one, has done what it was told to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
