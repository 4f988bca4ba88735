"""``noisychannel fit PAIRS``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as ProgressBar

from noisychannel.arguments import parse_options, split_list
from noisychannel.cli.progress import SECONDS_BETWEEN_LINES, TerminalReporter
from noisychannel.cli.stopping import leaving
from noisychannel.fitting.fit import fit
from noisychannel.fitting.options import FitOptions
from noisychannel.fitting.progress import Progress, remaining
from noisychannel.fitting.report import describe
from noisychannel.fitting.work import Work
from noisychannel.reporting import Advance

USAGE = """usage: noisychannel fit PAIRS [--words FILE] [--columns unimorph] [--word-columns output] [--test FILE]

From pairs, and a list of words if there is one, to a tuned run in one command. fit counts what there is, chooses the
settings by rule and says why, and estimates the time before it starts. It holds pairs out by itself, trains, tunes, and
ends with an honest estimate of what the run can do beside simple baselines. The run is an ordinary one: decode,
evaluate and score work on it. Repeating the command resumes what is unfinished.

PAIRS has a pair on each line: input, tab, output; or other columns, named by --columns as in train (a list of input,
output, features and -, or a preset such as sigmorphon2017). The words are outputs without inputs, one a line, or with
tags (--word-columns features,output). One of the files can be -, standard input. Blank lines are skipped.

example:
  noisychannel fit pairs.tsv --words words.txt
  noisychannel fit german-train-low --columns sigmorphon2017 --words german-forms --word-columns features,output
"""


def run(words: list[str]) -> int:
    options = parse_options(FitOptions, _joined(words), ("pairs", "words?"), USAGE)
    with leaving(lambda: Work(options.place).exists), TemporaryDirectory() as directory, FitDisplay() as display:
        result = fit(options.with_standard_input(Path(directory)), display)
    print("\n".join(describe(result)))
    return 0


def _joined(words: list[str]) -> list[str]:
    """``--words`` may be repeated: all of them as one list."""
    files: list[str] = []
    rest: list[str] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if word.startswith("--words="):
            files.append(word.partition("=")[2])
        elif word == "--words" and left and not left[-1].startswith("--"):
            files.append(left.pop())
        else:
            rest.append(word)
    if len(files) == 1:
        return [*rest, f"--words={files[0]}"]
    named = [name for file in files for name in split_list(file, "--words")]
    return [*rest, f"--words={named!r}"] if files else rest


class FitDisplay(TerminalReporter):
    """One bar for everything on a terminal, else a line about every ten seconds; on standard error."""

    def __init__(self) -> None:
        super().__init__()
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[news]}"))
        self.bar = ProgressBar(*columns, console=console, disable=not console.is_terminal, transient=True)
        self.task: TaskID | None = None
        self.shown = 0.0

    def say(self, line: str) -> None:
        if self.bar.disable:
            print(line, file=sys.stderr, flush=True)
        else:
            self.bar.console.print(line, highlight=False, markup=False)

    def warn(self, message: str) -> None:
        self.say(f"noisychannel: {message}")

    def progress(self, progress: Progress) -> None:
        if not self.bar.disable:
            if self.task is None:
                self.task = self.bar.add_task("", total=1.0, news="")
            label = f"{progress.stage}/{progress.stages} {progress.label}"
            news = f"{100 * progress.share:.0f} %, {remaining(progress)}"
            self.bar.update(self.task, completed=progress.share, description=label, news=news)
        elif (now := time.monotonic()) - self.shown >= SECONDS_BETWEEN_LINES:
            self.shown = now
            self.say(str(progress))

    @contextmanager
    def counting(self, label: str, total: int | None = None, enabled: bool = True, start: int = 0) -> Iterator[Advance]:
        # One live display at a time: the evaluation of test pairs counts when the bar of the stages is full.
        self.bar.stop()
        with super().counting(f"test, {label}", total, enabled, start) as advance:
            yield advance

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
