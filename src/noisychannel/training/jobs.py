"""Many small models at once: each in a process of its own, as many at a time as the machine has room for.

A small model cannot keep two cores busy, nor a GPU: its time goes into starting operations, one after the other.
Processes run these side by side, and each model keeps its own early stopping, checkpoints and metrics.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from noisychannel.errors import NoisyChannelError
from noisychannel.training.events import Event, Finished, Listener
from noisychannel.training.loop import Job, train_model
from noisychannel.training.world import World, choose_device

GPU_PROCESSES = 8
"""Models trained at the same time on one GPU, at most."""


def choose_processes(jobs: Sequence[Job], device: torch.device) -> int:
    """As many as there are cores; on a GPU, where each has memory of its own, at most GPU_PROCESSES."""
    cores = os.cpu_count() or 1
    return max(1, min(len(jobs), cores, GPU_PROCESSES if device.type == "cuda" else cores))


def run_jobs(jobs: Sequence[Job], processes: int, listen: Listener) -> list[Finished]:
    """Train every model. One that fails does not stop the others; its error is raised when they are done."""
    if processes == 1 or len(jobs) == 1:
        return _run_here(jobs, listen)
    context = multiprocessing.get_context("spawn")
    news: Any = context.Queue()
    listener = threading.Thread(target=_pass_on, args=(news, listen), daemon=True)
    listener.start()
    threads = max(1, (os.cpu_count() or 1) // processes)
    finished: list[Finished] = []
    errors: list[Exception] = []
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker, initargs=(news, threads))
    try:
        futures = [pool.submit(_work, job) for job in jobs]
        for future in futures:
            try:
                finished.append(future.result())
            except NoisyChannelError as error:
                errors.append(error)
            except BrokenProcessPool as error:
                raise NoisyChannelError(
                    "a training process was killed, perhaps for want of memory; repeat with fewer at a time (--jobs 1)"
                ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        news.put(None)
        listener.join()
    _raise_first(errors, len(jobs))
    return finished


def _run_here(jobs: Sequence[Job], listen: Listener) -> list[Finished]:
    finished: list[Finished] = []
    errors: list[Exception] = []
    for job in jobs:
        try:
            finished.append(train_model(job, World(0, 1, choose_device(job.config.device)), listen))
        except NoisyChannelError as error:
            errors.append(error)
    _raise_first(errors, len(jobs))
    return finished


def _raise_first(errors: Sequence[Exception], jobs: int) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise NoisyChannelError(
            f"{errors[0]} (and {len(errors) - 1} of the other {jobs - 1} models failed)"
        ) from errors[0]


def _pass_on(news: Any, listen: Listener) -> None:
    while (event := news.get()) is not None:
        listen(event)


_news: Any = None


def _start_worker(news: Any, threads: int) -> None:
    global _news
    _news = news
    torch.set_num_threads(threads)


def _tell_parent(event: Event) -> None:
    _news.put(event)


def _work(job: Job) -> Finished:
    return train_model(job, World(0, 1, choose_device(job.config.device)), _tell_parent)
