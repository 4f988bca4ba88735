"""Many small models at once: stacked on a GPU, otherwise in several processes.

A small model cannot keep two cores busy, nor a GPU: it spends its time starting one operation after the other. So
several processes train side by side, as many as fit on the machine; on a GPU one process trains all models of one shape
together. Each model has its own early stopping, checkpoints and metrics.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from noisychannel.devices import choose_device
from noisychannel.errors import NoisyChannelError
from noisychannel.models.stacked import unsupported
from noisychannel.training.events import Event, Finished, Listener
from noisychannel.training.learner import Job, Learner
from noisychannel.training.loop import train_learner, train_model
from noisychannel.training.together import train_together
from noisychannel.training.world import World

GPU_PROCESSES = 8
"""The most processes that work on one GPU at the same time; each takes memory of its own."""
MOST_TOGETHER = 32
"""The most models that one process trains together; more would gain little and take more memory."""


def choose_processes(jobs: int, device: torch.device, wanted: int | None = None) -> int:
    """The number of processes for so many jobs: one per core, on a GPU at most GPU_PROCESSES, unless told otherwise."""
    most = min(cores(), GPU_PROCESSES) if device.type == "cuda" else cores()
    return max(1, min(jobs, wanted or most))


def run_jobs(
    jobs: Sequence[Job], processes: int, listen: Listener, say: Callable[[str], object] = print
) -> list[Finished]:
    """Train every model. One that fails does not stop the others; its error is raised when they are done."""
    if jobs and all(_graphs_work_for(job) for job in jobs):
        return _run_together(jobs, listen, say)
    if processes == 1 or len(jobs) == 1:
        return _run_here(jobs, listen)
    context = multiprocessing.get_context("spawn")
    news: Any = context.Queue()
    stop: Any = context.Event()
    listener = threading.Thread(target=_pass_on, args=(news, listen), daemon=True)
    listener.start()
    start = (news, stop, max(1, cores() // processes))
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker, initargs=start)
    try:
        return _share_out(jobs, processes, pool)
    except BrokenProcessPool as error:
        raise NoisyChannelError(
            "a training process was killed, perhaps because memory ran out; use fewer processes (--jobs 1)"
        ) from error
    finally:
        # Processes that are still training finish their update, save their state, and stop.
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        news.put(None)
        listener.join()


def _share_out(jobs: Sequence[Job], processes: int, pool: ProcessPoolExecutor) -> list[Finished]:
    """Never submit more jobs than there are processes: a job that waits inside the pool could not be cancelled."""
    waiting = deque(jobs)
    running: set[Future[Finished]] = set()
    finished: list[Finished] = []
    errors: list[Exception] = []
    while waiting or running:
        while waiting and len(running) < processes:
            with _ignoring_interrupts():
                running.add(pool.submit(_work, waiting.popleft()))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                finished.append(future.result())
            except NoisyChannelError as error:
                errors.append(error)
    _raise_first(errors, len(jobs))
    return finished


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


def _pass_on(news: Any, listen: Listener) -> None:
    while (event := news.get()) is not None:
        listen(event)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes started in this block ignore ctrl-C until they train: the signal goes to the whole process group."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """What a worker process knows from its start."""

    news: Any
    stop: Any
    parent: int


def _start_worker(news: Any, stop: Any, threads: int) -> None:
    _Worker.news, _Worker.stop, _Worker.parent = news, stop, os.getppid()
    torch.set_num_threads(threads)


def _orphaned_or_stopped() -> bool:
    return _Worker.stop.is_set() or os.getppid() != _Worker.parent


def _tell_parent(event: Event) -> None:
    _Worker.news.put(event)


def _work(job: Job) -> Finished:
    return train_model(job, World(0, 1, choose_device(job.config.device)), _tell_parent, _orphaned_or_stopped)
