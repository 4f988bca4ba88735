"""How far ``fit`` is, and how long it will take: stages with estimated times, corrected by what has passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from noisychannel.reporting import Reporter, duration
from noisychannel.training.events import Advanced, Event, Finished, Started

SKIPPED = 0.05
"""A stage that takes less than this share of its estimate was done before."""
TRUSTED = 0.2
"""After this share of the work, the time that is left follows from its pace alone."""


class Progress(NamedTuple):
    """How far the work is."""

    stage: int
    """From 1."""
    stages: int
    label: str
    share: float
    """Of the whole, from 0 to 1."""
    seconds_left: float

    def __str__(self) -> str:
        return f"stage {self.stage} of {self.stages}, {self.label}: {100 * self.share:.0f} %, {remaining(self)}"


class FitReporter(Reporter, Protocol):
    """Somebody who listens to ``fit``."""

    def say(self, line: str) -> None:
        """One line of the plan."""
        ...

    def progress(self, progress: Progress) -> None:
        """Called about every second or two."""
        ...


class Stages:
    """The stages of the work, in order, with the seconds that each is estimated to take."""

    def __init__(self, seconds: Mapping[str, float], tell: Callable[[Progress], None]) -> None:
        self.seconds, self.tell = dict(seconds), tell
        self.order = list(self.seconds)
        self.began = time.monotonic()
        self.done = 0.0
        """Estimated seconds of what is complete."""
        self.skipped = 0.0
        """Of these, what an earlier command had done."""

    @contextmanager
    def stage(self, label: str) -> Iterator[Callable[[float], None]]:
        """Work on a stage; call what it gives with the share of the stage that is done."""
        own, began = self.seconds[label], time.monotonic()

        def advance(share: float) -> None:
            self.tell(self._progress(label, self.done + own * min(1.0, max(0.0, share))))

        advance(0.0)
        yield advance
        self.done += own
        if time.monotonic() - began < SKIPPED * own:
            self.skipped += own
        own = 0.0
        advance(0.0)

    def _progress(self, label: str, done: float) -> Progress:
        total = sum(self.seconds.values())
        passed, worked = time.monotonic() - self.began, done - self.skipped
        # The pace is trusted more the longer it has been observed; at first the estimate counts.
        trust = min(1.0, worked / max(1e-9, TRUSTED * total))
        pace = trust * (passed / worked if worked else 1.0) + (1 - trust)
        return Progress(
            self.order.index(label) + 1, len(self.order), label, done / max(total, 1e-9), pace * max(0.0, total - done)
        )


@dataclass
class TrainingShare:
    """Turns the events of several trainings into the share of all of them that is done."""

    costs: Mapping[str, float]
    """The cost of a model by its label: its updates, times what one takes."""
    advance: Callable[[float], None]
    shares: dict[str, float] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        match event:
            case Started(label, step, total, _):
                self.totals[label] = max(total, 1)
                self.shares[label] = step / self.totals[label]
            case Advanced(label, step, _, _):
                self.shares[label] = step / self.totals[label]
            case Finished(label):
                self.shares[label] = 1.0
            case _:
                return
        whole = sum(self.costs.values())
        self.advance(sum(self.costs.get(label, 0.0) * share for label, share in self.shares.items()) / max(whole, 1e-9))


def remaining(progress: Progress) -> str:
    return f"about {duration(progress.seconds_left)} left"
