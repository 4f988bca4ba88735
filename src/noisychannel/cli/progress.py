"""How work shows itself, on standard error: bars on a terminal, elsewhere a plain line about every ten seconds."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBar

from noisychannel.cli.standard_streams import say
from noisychannel.reporting import Advance, Pace, duration, no_progress
from noisychannel.training.events import Advanced, DevEvaluation, Event, Finished, Started

SECONDS_BETWEEN_LINES = 10.0
NAMED = 3
"""So many models a line tells about; the others are counted."""
TOLD_AFTER = 10
"""Steps after which the time that is left can be told: the first ones are slow."""


class Display(Protocol):
    """Shows events, and lines between them, from entering to leaving it."""

    def __call__(self, event: Event) -> None: ...

    def say(self, line: str) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_display() -> Display:
    """Bars where stderr is a terminal, else lines; standard output is left for results."""
    return BarDisplay() if sys.stderr.isatty() else LineDisplay()


class LineDisplay:
    """A line for each evaluation, and about every ten seconds one for all models that are being trained."""

    def __init__(self) -> None:
        self.running: dict[str, Pace] = {}
        self.losses: dict[str, float] = {}
        self.shown = time.monotonic()

    def __call__(self, event: Event) -> None:
        match event:
            case Started(label, step, total, parameters):
                resumed = f", from step {step}" if step else ""
                self.say(f"{label}: {parameters:,} parameters, at most {total:,} steps{resumed}")
                if not self.running:
                    self.shown = time.monotonic()
                self.running[label] = Pace(label, total, step)
            case Advanced(label, step, loss, _):
                self.running[label].done = step
                self.losses[label] = loss
                if (now := time.monotonic()) - self.shown >= SECONDS_BETWEEN_LINES:
                    self.shown = now
                    self.say(self.news())
            case DevEvaluation():
                self.say(describe(event))
            case Finished(label):
                self.say(describe_end(event))
                if event.fault:
                    self.say(describe_fault(event))
                self.running.pop(label, None)

    def news(self) -> str:
        """How far the models are, those that take longest first."""
        by_time = sorted(self.running.values(), key=lambda pace: -(pace.seconds_left or math.inf))
        parts = []
        for pace in by_time[:NAMED]:
            loss = self.losses.get(pace.label, math.nan)
            shown = "" if math.isnan(loss) else f", loss {loss:.3f}"
            known = pace.done - pace.start >= TOLD_AFTER and pace.seconds_left is not None
            left = f", at most {duration(pace.seconds_left or 0.0)} left" if known else ""
            parts.append(f"{pace.label}: step {pace.done:,} of {pace.total or 0:,}{shown}{left}")
        further = [f"and {len(by_time) - NAMED} more"] if len(by_time) > NAMED else []
        return "; ".join([*parts, *further])

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class BarDisplay:
    """A bar a model, with loss, perplexity, speed and the time left; evaluations scroll by above."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[news]}"),
        )
        self.progress = ProgressBar(*columns, TimeRemainingColumn(), console=Console(stderr=True))
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Started(label, step, total, _):
                self.tasks[label] = self.progress.add_task(label, total=total, completed=step, news="")
            case Advanced(label, step, loss, speed):
                shown = "" if math.isnan(loss) else f"loss {loss:.3f} ppl {math.exp(min(loss, 700)):.2f} "
                self.progress.update(self.tasks[label], completed=step, news=f"{shown}{speed:,.0f} symbols/s")
            case DevEvaluation():
                self.say(describe(event))
            case Finished(label):
                self.say(describe_end(event))
                if event.fault:
                    self.say(describe_fault(event))
                self.progress.remove_task(self.tasks.pop(label))

    def say(self, line: str) -> None:
        self.progress.console.print(line, highlight=False, markup=False)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()


def describe(event: DevEvaluation) -> str:
    mark = "  best" if event.best else ""
    return (
        f"{event.label}: epoch {event.epoch} step {event.step}  train ppl {event.train_perplexity:.3f}  "
        f"dev ppl {event.dev_perplexity:.3f}  lr {event.learning_rate:.2g}{mark}"
    )


def describe_end(event: Finished) -> str:
    with_list = "" if event.listed_outputs is None else f"; word list of {event.listed_outputs:,} outputs"
    return (
        f"{event.label}: finished after {event.step} steps and {event.seconds:.0f} s; "
        f"best dev perplexity {event.dev_perplexity:.3f} at step {event.best_step}{with_list}{describe_limit(event)}"
    )


def describe_limit(event: Finished) -> str:
    """Whether more updates may help, and how to get them; nothing if dev had stopped improving."""
    if not event.at_limit:
        return ""
    improving = "dev was still improving" if event.best_step == event.step else "its patience had not run out"
    return f"; stopped at its limit after {event.step} updates while {improving}; to train it further: {event.further}"


def describe_fault(event: Finished) -> str:
    return (
        f"{event.label}: {event.fault}. If the parts of an output have about the order of the input, train it again, "
        f"with another --run-dir and {event.remedy}"
    )


class TerminalReporter:
    """Warnings and progress on standard error: a bar on a terminal, elsewhere lines. Quick work shows no lines."""

    def __init__(self) -> None:
        self.shown = time.monotonic()
        """When the last line of progress was written, or the command began."""

    def warn(self, message: str) -> None:
        print(f"noisychannel: {message}", file=sys.stderr)

    @contextmanager
    def counting(self, label: str, total: int | None = None, enabled: bool = True, start: int = 0) -> Iterator[Advance]:
        """Count items from entering to leaving. ``start``: how many an earlier command has done."""
        console = Console(stderr=True)
        if not enabled:
            yield no_progress
        elif console.is_terminal:
            with _bar(Pace(label, total, start), console) as advance:
                yield advance
        else:
            with self._lines(Pace(label, total, start)) as advance:
                yield advance

    @contextmanager
    def _lines(self, pace: Pace) -> Iterator[Advance]:
        """A thread writes the lines: also if a single item takes long."""
        ended = Flag()

        def write() -> None:
            while not ended.wait(max(0.0, self.shown + SECONDS_BETWEEN_LINES - time.monotonic())):
                self.shown = time.monotonic()
                say(str(pace))

        writer = Thread(target=write, daemon=True)
        writer.start()
        try:
            yield pace.add
        finally:
            ended.set()
            writer.join()


@contextmanager
def _bar(pace: Pace, console: Console) -> Iterator[Advance]:
    """A bar with count, rate and the time left. Without a total there is no question mark, but count and rate."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[news]}"))
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(pace.label, total=pace.total, completed=pace.done, news=pace.news)

        def advance(more: int) -> None:
            pace.add(more)
            bar.update(task, completed=pace.done, news=pace.news)

        yield advance
