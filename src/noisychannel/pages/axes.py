"""Axes of charts: where ticks are, how numbers are written, and where a value lies on the paper."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
TINY = 1e-100
"""Differences that are no larger are drawn as none."""
LOG_STEPS = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Round numbers of a logarithmic axis, within a power of ten."""


@dataclass(frozen=True)
class Axis:
    """A straight way from values to places, with ticks at round numbers."""

    low: float
    high: float
    start: float
    """The place of ``low``."""
    end: float
    """The place of ``high``; it may be smaller than ``start``."""
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value lies. What lies beyond the ends is drawn at the end."""
        low, high, value = (math.log(x) if self.logarithmic else x for x in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def make_axis(
    values: Iterable[float], start: float, end: float, *, most: int = 5, logarithmic: bool = False, tight: bool = False
) -> Axis:
    """An axis that covers these values; ``most``: about how many ticks there are. No value may be infinite.

    It ends at ticks, or at the outermost values if it is ``tight``.
    """
    known = list(values) or [0.0, 1.0]
    low, high = min(known), max(known)
    if logarithmic and low > 0:
        ticks = _log_ticks(low, high, most)
        return Axis(min(low, ticks[0]), max(high, ticks[-1]), start, end, ticks, logarithmic=True)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, TINY):
        room = largest / 10 if largest > TINY else 0.5
        low, high = low - room, high + room
    step = _step((high - low) / max(most - 1, 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = 2 - math.floor(math.log10(step))  # the last digit of a step is its second
    ticks = tuple(round(n * step, digits) for n in range(first, last + 1))
    if tight:
        room = 1e-9 * (high - low)
        return Axis(low, high, start, end, tuple(tick for tick in ticks if low - room <= tick <= high + room))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def number(value: float) -> str:
    """A number as charts and their tables show it: four digits that count."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    shown = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{int(shown):,}" if abs(value) >= 1000 else shown


def _step(wanted: float) -> float:
    """The smallest round number that is at least ``wanted``."""
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(step * power for step in (*STEPS, 20.0) if step * power >= wanted * (1 - 1e-9))


def _log_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Round numbers around and between the ends, thinned out to about ``most``."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    every = [round(step * 10.0**power, 12) for power in powers for step in LOG_STEPS]
    first = max((n for n, tick in enumerate(every) if tick <= low), default=0)
    last = min((n for n, tick in enumerate(every) if tick >= high), default=len(every) - 1)
    inside = every[first : max(last, first + 1) + 1]
    stride = max(1, math.ceil((len(inside) - 1) / max(most, 1)))
    kept = inside[::stride]
    return tuple(kept if kept[-1] == inside[-1] else [*kept, inside[-1]])
