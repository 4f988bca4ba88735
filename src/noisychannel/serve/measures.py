"""Counters and histograms of a server, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from noisychannel import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Labels = tuple[tuple[str, str], ...]


class Measure(Protocol):
    """Something that is counted, under one name."""

    name: str
    purpose: str
    kind: str

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Each number with its name and labels."""
        ...


class Counter:
    """A number that only grows, for each set of labels."""

    kind = "counter"

    def __init__(self, name: str, purpose: str) -> None:
        self.name, self.purpose = name, purpose
        self.values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, amount: float = 1.0, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            self.values[key] = self.values.get(key, 0.0) + amount

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        with self._lock:
            values = dict(self.values)
        for labels, value in values.items():
            yield self.name, labels, value


class Histogram:
    """How often values were at most as large as each of some bounds, for each set of labels."""

    kind = "histogram"

    def __init__(self, name: str, purpose: str, bounds: tuple[float, ...]) -> None:
        self.name, self.purpose, self.bounds = name, purpose, bounds
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            counts = self.counts.setdefault(key, [0] * (len(self.bounds) + 1))
            counts[bisect_left(self.bounds, value)] += 1
            self.sums[key] = self.sums.get(key, 0.0) + value

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        with self._lock:
            found = {labels: (list(counts), self.sums[labels]) for labels, counts in self.counts.items()}
        for labels, (counts, total) in found.items():
            so_far = 0
            for bound, count in zip((*(f"{bound:g}" for bound in self.bounds), "+Inf"), counts, strict=True):
                so_far += count
                yield f"{self.name}_bucket", (*labels, ("le", bound)), so_far
            yield f"{self.name}_sum", labels, total
            yield f"{self.name}_count", labels, so_far


class Gauge:
    """A number that is read when it is asked for, for each set of labels."""

    kind = "gauge"

    def __init__(self, name: str, purpose: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        self.name, self.purpose, self.read = name, purpose, read

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        for labels, value in self.read().items():
            yield self.name, labels, value


class Measures:
    """Everything that a server counts."""

    def __init__(self) -> None:
        self.requests = Counter("noisychannel_requests_total", "Requests that were answered, by path and status.")
        self.seconds = Histogram("noisychannel_request_seconds", "Time from request to answer.", SECONDS)
        self.inputs = Counter("noisychannel_inputs_total", "Inputs that a run has worked on, by what was asked.")
        self.batches = Histogram("noisychannel_batch_inputs", "Inputs that were worked on together.", SIZES)
        self.work = Histogram("noisychannel_batch_seconds", "Time that a batch took.", SECONDS)
        self.refused = Counter("noisychannel_refused_total", "Requests that were refused because of load, by reason.")
        self.dropped = Counter("noisychannel_dropped_inputs_total", "Inputs whose client left while they waited.")
        self._gauges = [
            Gauge("noisychannel_info", "The version that is running.", lambda: {(("version", __version__),): 1.0}),
            Gauge("process_resident_memory_bytes", "Resident memory.", lambda: {(): float(resident_bytes())}),
        ]

    def add_gauge(self, gauge: Gauge) -> None:
        self._gauges.append(gauge)

    def text(self) -> str:
        """For ``GET /metrics``."""
        lines: list[str] = []
        counters: list[Measure] = [self.requests, self.inputs, self.refused, self.dropped]
        for measure in [*counters, self.seconds, self.batches, self.work, *self._gauges]:
            lines += [f"# HELP {measure.name} {measure.purpose}", f"# TYPE {measure.name} {measure.kind}"]
            lines += [f"{name}{_braces(labels)} {value:.10g}" for name, labels, value in measure.samples()]
        return "\n".join(lines) + "\n"


def _braces(labels: Labels) -> str:
    escaped = ((name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels)
    inside = ",".join(f'{name}="{value}"' for name, value in escaped)
    return f"{{{inside}}}" if inside else ""


def resident_bytes() -> int:
    """The memory of this process; 0 if the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return 1024 * int(line.split()[1])
    except (OSError, UnicodeDecodeError):
        pass
    return 0
