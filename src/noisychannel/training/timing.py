"""How long trainings take on this machine: a few updates are measured, the rest follows from the limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from noisychannel.allocation import freed_memory_kept
from noisychannel.data.batches import make_batch, plan_batches
from noisychannel.data.prepare import open_corpus
from noisychannel.models.registry import ROLES, Role
from noisychannel.reporting import duration
from noisychannel.runs import RunDirectory
from noisychannel.training.dev_sample import DEV_COST, sample
from noisychannel.training.learner import Job, describe_model, dev_pairs, evaluation_interval
from noisychannel.training.loop import cpu_threads
from noisychannel.training.state import TrainingState

WARM_UP, MEASURED = 1, 3
"""Updates."""
SLOW = 2.0
"""Seconds. After an update that takes longer, no more are measured."""
BUSY = 1.15
"""Cores share caches and memory: so much slower is each if all of them train."""
STACKED_COST = 0.15
"""On a GPU, models are trained together: a further one costs so much of the first."""
LONG = 30 * 60.0
"""Seconds. Whoever wants to train for longer than this is told what to lower."""
SHORTER = 15 * 60.0
"""Seconds that a suggestion is made for."""
LONG_LINE, OUTLIER = 200, 4
"""A line with more symbols, and so many times as long as almost all others, is worth a warning."""


def seconds_of(update: Callable[[], object], warm_up: int = WARM_UP, measured: int = MEASURED) -> float:
    """The seconds that an update takes; the first ones are not counted, unless they are slow."""
    for _ in range(warm_up):
        if (first := _time(update, 1)) > SLOW:
            return first
    return _time(update, measured) / measured


def _time(update: Callable[[], object], times: int) -> float:
    _wait()
    began = time.perf_counter()
    for _ in range(times):
        update()
    _wait()
    return time.perf_counter() - began


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_together(costs: Sequence[float], processes: int, stacked: bool) -> float:
    """The seconds of several trainings at a time, given those of each alone."""
    if stacked:
        return max(costs) * (1 + STACKED_COST * (len(costs) - 1))
    return max(max(costs), sum(costs) / processes)


class Work(NamedTuple):
    """What is left of a training: the updates if patience ends it as soon as it can, and those to its limit."""

    least: int
    most: int
    dev_cost: float
    """What the evaluations on dev cost for each update, in updates."""


@dataclass(frozen=True)
class TrainingTime:
    """How long the models of one role will take."""

    role: Role
    update: float
    """Seconds."""
    work: tuple[Work, ...]
    """Of each model."""

    @property
    def least(self) -> list[float]:
        """The seconds of each model if patience ends its training as soon as it can."""
        return [self.update * work.least * (1 + work.dev_cost) for work in self.work]

    @property
    def most(self) -> list[float]:
        """The seconds of each model to its limit."""
        return [self.update * work.most * (1 + work.dev_cost) for work in self.work]

    def __str__(self) -> str:
        update = f"{self.update:.2g} s" if self.update >= 0.1 else f"{1000 * self.update:.2g} ms"
        several = f"{len(self.work)} models, " if len(self.work) > 1 else ""
        updates = between(max(work.least for work in self.work), max(work.most for work in self.work), "{:,}".format)
        return f"{self.role} {between(max(self.least), max(self.most))} ({several}{updates} updates of {update})"


def between(least: float, most: float, show: Callable[[Any], str] = duration) -> str:
    """Two numbers for people; one if they look the same."""
    low, high = show(least), show(most)
    if low.endswith(" min") and high.endswith(" min") and "h" not in low + high:
        low = low.removesuffix(" min") if low != high else low
    return high if low == high else f"{low} to {high}"


def training_times(jobs: Sequence[Job], processes: int, device: torch.device) -> list[TrainingTime]:
    """Time some updates of one model of each role. Nothing is written, and no random number of the training is used."""
    busy = BUSY if processes > 1 and device.type == "cpu" else 1.0
    times = []
    for role in dict.fromkeys(job.role for job in jobs):
        own = [job for job in jobs if job.role == role]
        times.append(TrainingTime(role, busy * _update_seconds(own[0], device), tuple(map(_work, own))))
    return times


def _work(job: Job) -> Work:
    files, training, limits = RunDirectory(job.run_dir), job.config.training, job.config.limits(job.role)
    kind, size = ROLES[job.role].trained_on, _batch_size(job)
    train, held_out = (open_corpus(files.data_dir, kind, split) for split in ("train", "dev"))
    per_epoch = math.ceil(len(plan_batches(train, size, training.batch_symbols, order=None)) / training.accumulate)
    drawn = sample(held_out, dev_pairs(job))
    dev = len(plan_batches(held_out, size, training.batch_symbols, order=None, among=drawn))
    state = files.state_file(job.role)
    done = TrainingState.read(state).step if state.exists() else 0
    total = limits.total(per_epoch)
    most = max(0, total - done)
    interval = evaluation_interval(training, per_epoch)
    # The first evaluation is the best so far; then patience runs out. A training that resumes may be near its end.
    soonest = 0 if done else (training.patience + 1) * interval + job.config.model(job.role).paced(total)
    least = min(most, soonest) if training.schedule == "plateau" else most
    return Work(least, most, dev * DEV_COST / training.accumulate / interval)


def _update_seconds(job: Job, device: torch.device) -> float:
    """The seconds of an update on batches of the training data."""
    training = job.config.training
    corpus = open_corpus(RunDirectory(job.run_dir).data_dir, ROLES[job.role].trained_on, "train")
    batches = cycle(plan_batches(corpus, _batch_size(job), training.batch_symbols, np.random.default_rng(0)))
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        cpu_threads(job.threads),
        freed_memory_kept(device),
        torch.enable_grad(),
    ):
        model = describe_model(job).build().to(device).train()
        optimiser = torch.optim.Adam(model.parameters(), fused=True)

        def update() -> None:
            for _ in range(training.accumulate):
                batch = make_batch(corpus, next(batches)).to(device)
                with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bf16"):
                    (-model(*batch.arguments).sum()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()

        return seconds_of(update)


def _batch_size(job: Job) -> int:
    return job.config.model(job.role).batch_size or job.config.training.batch_size


def describe_times(jobs: Sequence[Job], times: Sequence[TrainingTime], processes: int) -> list[str]:
    """The estimate in a line, and a second one with what to lower if it is long."""
    least, most = (
        seconds_together([seconds for each in times for seconds in getattr(each, end)], processes, stacked=False)
        for end in ("least", "most")
    )
    longest_first = sorted(times, key=lambda each: (-max(each.least), -max(each.most)))
    why = ", depending on when patience runs out" if least < most else ""
    models = "; ".join(map(str, longest_first))
    lines = [f"estimated time: {between(least, most)} on this machine{why}: {models}"]
    return [*lines, _advice(jobs, longest_first, processes)] if most > LONG else lines


def _advice(jobs: Sequence[Job], longest_first: Sequence[TrainingTime], processes: int) -> str:
    """Which keys to lower, and to what."""
    updates = []
    for each in longest_first:
        seconds = max(each.most) * max(1.0, len(each.work) / processes)
        if seconds > SHORTER:
            most = _round_down(max(work.most for work in each.work) * SHORTER / seconds)
            updates.append(f"--{each.role}.max-updates {most}")
    slowest = longest_first[0].role
    config = jobs[0].config.model(slowest)
    layers = f" or --{slowest}.num-layers (now {config.num_layers})" if config.num_layers > 1 else ""
    smaller = f"--{slowest}.hidden-size (now {config.hidden_size}){layers}"
    return (
        f"warning: that may be long. For at most about {duration(SHORTER)} a model: {' '.join(updates)}; or lower "
        f"{smaller}. noisychannel fit chooses sizes and updates that fit the data and the machine"
    )


def _round_down(updates: float) -> int:
    """A number that a person would choose."""
    unit = 10 ** max(0, math.floor(math.log10(max(updates, 1))))
    return max(100, math.floor(updates / unit) * unit)


def describe_samples(jobs: Sequence[Job]) -> list[str]:
    """A line if evaluations use a sample of dev."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        corpus = open_corpus(RunDirectory(job.run_dir).data_dir, ROLES[job.role].trained_on, "dev")
        if (used := dev_pairs(job)) < corpus.size:
            found.setdefault(f"{used:,} of {corpus.size:,} dev lines", []).append(job.label)
    samples = "; ".join(f"{which} ({', '.join(labels)})" for which, labels in found.items())
    return [f"evaluations during training use {samples}; for all: --training.dev-limit 0"] if found else []


def describe_long_lines(jobs: Sequence[Job]) -> list[str]:
    """A warning if a few training lines are so long that they take most of the time and memory."""
    found: dict[str, None] = {}
    for job in jobs:
        kind = ROLES[job.role].trained_on
        corpus = open_corpus(RunDirectory(job.run_dir).data_dir, kind, "train")
        sides = {"output": corpus.outputs, "input": corpus.inputs}
        if kind == "swapped pairs":
            sides = {"input": corpus.outputs, "output": corpus.inputs}
        for side, sequences in sides.items():
            if sequences is None or not corpus.size:
                continue
            longest, usual = int(sequences.lengths.max()) - 1, int(np.quantile(sequences.lengths, 0.99)) - 1
            if longest > max(OUTLIER * usual, LONG_LINE):
                line = (
                    f"warning: the longest {side} of the training data has {longest:,} symbols, and 99 % have at most "
                    f"{usual:,}. Long lines are slow and need memory; to leave them out: "
                    f"--data.{side}.max-length {2 * usual}"
                )
                found[line] = None
    return list(found)
