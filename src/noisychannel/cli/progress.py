"""How a training shows itself: bars on a terminal, plain lines where output is piped."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBar

from noisychannel.reporting import Advance
from noisychannel.training.events import Advanced, DevEvaluation, Event, Finished, Started


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
    """One line an evaluation."""

    def __call__(self, event: Event) -> None:
        match event:
            case Started(label, step, total, parameters):
                resumed = f", from step {step}" if step else ""
                self.say(f"{label}: {parameters:,} parameters, at most {total:,} steps{resumed}")
            case DevEvaluation():
                self.say(describe(event))
            case Finished():
                self.say(describe_end(event))

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


class TerminalReporter:
    """Warnings on standard error, and a counter there if it is a terminal."""

    def warn(self, message: str) -> None:
        print(f"noisychannel: {message}", file=sys.stderr)

    @contextmanager
    def counting(self, label: str, total: int | None = None, enabled: bool = True) -> Iterator[Advance]:
        """A counter of items done, shown on a terminal and silent elsewhere."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        disable = not (enabled and console.is_terminal)
        with ProgressBar(*columns, console=console, disable=disable, transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.advance(task, done)
