"""What library code tells its caller while it works: warnings, and how much is done.

A command, a server or a notebook listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

Advance: TypeAlias = Callable[[int], None]
"""Called with how many more items are done."""
Say: TypeAlias = Callable[[str], object]
"""Called with one line about what was done."""


class Reporter(Protocol):
    """Somebody who listens."""

    def warn(self, message: str) -> None:
        """One line that a user should read; the work goes on."""
        ...

    def counting(self, label: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Count the items of one piece of work, from entering to leaving it."""
        ...


def no_progress(done: int) -> None:
    """Nobody counts."""


class Silent:
    """Nobody listens."""

    def warn(self, message: str) -> None:
        return None

    def counting(self, label: str, total: int | None = None) -> AbstractContextManager[Advance]:
        return nullcontext(no_progress)


class Pace:
    """How far one piece of work is, in words: what, how much is done, how fast, how long it will take."""

    def __init__(self, label: str, total: int | None = None, start: int = 0) -> None:
        """``start``: what an earlier command has done."""
        self.label, self.total, self.done, self.start = label, total, start, start
        self.began = time.monotonic()

    def add(self, more: int) -> None:
        self.done += more
        if self.total is not None:
            self.done = min(self.done, self.total)

    @property
    def seconds_left(self) -> float | None:
        """None if nobody knows the total, or nothing is done yet."""
        worked = self.done - self.start
        if self.total is None or not worked:
            return None
        return (time.monotonic() - self.began) * max(0, self.total - self.done) / worked

    @property
    def news(self) -> str:
        """Such as ``888 of 5,000, 120 a second, about 34 s left``; without a total only count and rate."""
        seconds = time.monotonic() - self.began
        parts = [f"{self.done:,} done" if self.total is None else f"{self.done:,} of {self.total:,}"]
        if (worked := self.done - self.start) and seconds > 0:
            parts.append(rate(worked, seconds))
        else:
            parts.append(f"{duration(seconds)} so far")
        if (left := self.seconds_left) is not None:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.label}: {self.news}"


def rate(items: float, seconds: float) -> str:
    """How fast, for people: items in a second, or in a minute if they are few."""
    in_a_second = items / seconds
    if in_a_second < 1:
        return f"{60 * in_a_second:.2g} a minute"
    return f"{in_a_second:,.0f} a second" if in_a_second >= 10 else f"{in_a_second:.1f} a second"


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def plural(count: float, noun: str) -> str:
    """``1 item``, ``300 items``, ``0.5 minutes``."""
    shown = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{shown} {noun}" if count == 1 else f"{shown} {noun}s"
