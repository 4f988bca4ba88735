"""Many small models at once: stacked on a GPU, otherwise in several processes.

A small model cannot keep two cores busy, nor a GPU: it spends its time starting one operation after the other. So
several processes train side by side, as many as fit on the machine; on a GPU one process trains all models of one shape
together. Each model has its own early stopping, checkpoints and metrics.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Self, cast

import torch

from noisychannel.devices import choose_device
from noisychannel.errors import NoisyChannelError
from noisychannel.models.stacked import unsupported
from noisychannel.processes import BOUND, HeldOpen, interruption, start_shielded
from noisychannel.training.events import Finished, Listener
from noisychannel.training.learner import Job, Learner
from noisychannel.training.loop import train_learner, train_model
from noisychannel.training.together import train_together
from noisychannel.training.world import World

GPU_PROCESSES = 8
"""The most processes that work on one GPU at the same time; each takes memory of its own."""
MOST_TOGETHER = 32
"""The most models that one process trains together; more would gain little and take more memory."""
SECONDS_BETWEEN_LOOKS = 0.2
"""How soon a signal is noticed while worker processes train."""
SECONDS_TO_END = 5.0
"""What a process gets that is ending, so that its exit code says why."""


def choose_processes(jobs: int, device: torch.device, wanted: int | None = None) -> int:
    """The number of processes for so many jobs: one per core, on a GPU at most GPU_PROCESSES, unless told otherwise."""
    most = min(cores(), GPU_PROCESSES) if device.type == "cuda" else cores()
    return max(1, min(jobs, wanted or most))


def run_jobs(
    jobs: Sequence[Job],
    processes: int,
    listen: Listener,
    say: Callable[[str], object] = print,
    locks: Sequence[int] = (),
) -> list[Finished]:
    """Train every model. One that fails does not stop the others; its error is raised when they are done.

    ``locks``: descriptors that every process holds open, so that a run stays locked until the last one has ended.
    """
    if trained_in_graphs(jobs):
        return _run_together(jobs, listen, say)
    if processes == 1 or len(jobs) == 1:
        return _run_here(jobs, listen)
    with interruption(at_once=False) as interrupted, _Workers(jobs, processes, listen, locks) as workers:
        while workers.assign():
            workers.listen()
            if interrupted.count > 1:
                break
            if interrupted.is_set():
                workers.stop()
        if interrupted.is_set():
            interrupted.leave()
    _raise_first(workers.errors, len(jobs))
    return workers.finished


class _Result(NamedTuple):
    """What a worker answers to a job; neither, if it was asked to stop."""

    finished: Finished | None = None
    error: Exception | None = None


class _Worker:
    """A process that trains one model after another."""

    def __init__(self, locks: Sequence[int]) -> None:
        self.connection, theirs = BOUND.Pipe()
        self.process = BOUND.Process(target=_serve, args=(theirs, [HeldOpen(lock) for lock in locks]), daemon=True)
        start_shielded(self.process)
        theirs.close()
        self.job: Job | None = None
        self.training = False
        """Whether the model is being trained; before that there is nothing to save."""

    def give(self, job: Job) -> None:
        self.job, self.training = job, False
        with suppress(BrokenPipeError):  # it has died, which its connection tells when it is read
            self.connection.send(job)

    def ask_to_stop(self) -> None:
        """After its update, with its state saved; at once if it does not train yet."""
        if not self.training:
            self.process.kill()
        else:
            with suppress(BrokenPipeError):
                self.connection.send(None)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class _Workers:
    """The worker processes and their jobs. Leaving the block ends every process."""

    def __init__(self, jobs: Sequence[Job], most: int, tell: Listener, locks: Sequence[int]) -> None:
        self.waiting, self.most, self.tell, self.locks = deque(jobs), most, tell, locks
        self.workers: list[_Worker] = []
        self.stopping = False
        self.finished: list[Finished] = []
        self.errors: list[Exception] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.end()

    def assign(self) -> bool:
        """Give every idle worker its next job. Returns whether there is something to wait for."""
        idle = [worker for worker in self.workers if worker.job is None]
        while self.waiting and not self.stopping and (idle or len(self.workers) < self.most):
            if not idle:
                idle.append(_Worker(self.locks))
                self.workers += idle
            idle.pop().give(self.waiting.popleft())
        return any(worker.job for worker in self.workers)

    def listen(self) -> None:
        """Pass on what the workers tell; return after a while, so that a signal is noticed."""
        working = {worker.connection: worker for worker in self.workers if worker.job is not None}
        for connection in wait(list(working), SECONDS_BETWEEN_LOOKS):
            worker = working[cast(Any, connection)]
            try:
                told = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                self._lose(worker)
                continue
            if isinstance(told, _Result):
                worker.job = None
                self.finished += [told.finished] if told.finished else []
                self.errors += [told.error] if told.error else []
            else:
                worker.training = True
                self.tell(told)

    def stop(self) -> None:
        """Let the models that are being trained finish their update and save their state; start no others."""
        if not self.stopping:
            self.stopping = True
            for worker in self.workers:
                worker.ask_to_stop()

    def _lose(self, worker: _Worker) -> None:
        """A worker has died. The others continue, without one in its place: perhaps there is not enough memory."""
        worker.process.join(SECONDS_TO_END)
        worker.end()
        self.workers.remove(worker)
        self.most = max(1, self.most - 1)
        if worker.job is not None and not self.stopping:
            code = worker.process.exitcode or 0
            reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            cause = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
            self.errors.append(
                NoisyChannelError(
                    f"{worker.job.label}: its process {reason}{cause}; repeat the command to resume it, "
                    "with fewer processes at a time (--jobs 1)"
                )
            )


def trained_in_graphs(jobs: Sequence[Job]) -> bool:
    """Whether all models are trained together in CUDA graphs."""
    return bool(jobs) and all(_graphs_work_for(job) for job in jobs)


def _graphs_work_for(job: Job) -> bool:
    """Whether a model is trained in CUDA graphs, together with others."""
    training = job.config.training
    return training.cuda_graphs and training.accumulate == 1 and choose_device(job.config.device).type == "cuda"


def _run_together(jobs: Sequence[Job], listen: Listener, say: Callable[[str], object]) -> list[Finished]:
    """Models of one role and one configuration, which differ in data and seed, are trained at the same time.

    If ``models.stacked`` does not support a model, each is trained on its own.
    """
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(repr((job.role, job.config.model(job.role), job.config.training)), []).append(job)
    finished: list[Finished] = []
    errors: list[Exception] = []
    for group in alike.values():
        for start in range(0, len(group), MOST_TOGETHER):
            some = group[start : start + MOST_TOGETHER]
            learners = [Learner(job, World(0, 1, choose_device(job.config.device)), listen) for job in some]
            if (reason := unsupported(learners[0].model)) is not None:
                say(f"{some[0].role}: cannot be trained as a stack ({reason}); training one model at a time")
                done, failed = _one_by_one(partial(train_learner, learner) for learner in learners)
            else:
                done, failed = train_together(learners)
            finished += done
            errors += failed
    _raise_first(errors, len(jobs))
    return finished


def _run_here(jobs: Sequence[Job], listen: Listener) -> list[Finished]:
    finished, errors = _one_by_one(
        partial(train_model, job, World(0, 1, choose_device(job.config.device)), listen) for job in jobs
    )
    _raise_first(errors, len(jobs))
    return finished


def _one_by_one(trainings: Iterable[Callable[[], Finished]]) -> tuple[list[Finished], list[NoisyChannelError]]:
    finished: list[Finished] = []
    errors: list[NoisyChannelError] = []
    for train in trainings:
        try:
            finished.append(train())
        except NoisyChannelError as error:
            errors.append(error)
    return finished, errors


def _raise_first(errors: Sequence[Exception], jobs: int) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        others = f"({len(errors) - 1} of the other {jobs - 1} models failed too)"
        raise NoisyChannelError(f"{errors[0]} {others}") from errors[0]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(connection: Connection, locks: Sequence[HeldOpen]) -> None:
    """The work of a worker process: jobs come through the connection, events and results go back through it."""
    while (job := connection.recv()) is not None:
        connection.send(_answer(job, connection))


def _answer(job: Job, connection: Connection) -> _Result:
    try:
        world = World(0, 1, choose_device(job.config.device))
        # During a training the parent sends nothing but the request to stop.
        return _Result(finished=train_model(job, world, connection.send, connection.poll))
    except KeyboardInterrupt:
        return _Result()
    except Exception as error:  # whatever it is, the parent raises it
        error.add_note("".join(traceback.format_exception(error)))
        return _Result(error=error)
