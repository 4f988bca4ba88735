"""Independent pieces of work in several processes, as many as the device allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

import torch

from noisychannel.devices import choose_device
from noisychannel.experiments.settings import Setup
from noisychannel.processes import BOUND, kill_children
from noisychannel.training.jobs import choose_processes, cores

T = TypeVar("T")


def in_processes(setup: Setup, work: Callable[[T], str], tasks: Sequence[T], most: int | None = None) -> None:
    """Do each task, and say what it returns; at most ``most`` at a time. With one job, in this process."""
    number = choose_processes(len(tasks), choose_device(setup.device), setup.jobs or most)
    if number <= 1 or len(tasks) <= 1:
        with setup.reporter.counting("work, tasks", len(tasks)) as advance:
            for task in tasks:
                setup.say(work(task))
                advance(1)
        return
    with (
        setup.reporter.counting("work, tasks", len(tasks)) as advance,
        ProcessPoolExecutor(number, BOUND, torch.set_num_threads, (max(1, cores() // number),)) as pool,
    ):
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for future in as_completed(futures):
                setup.say(future.result())
                advance(1)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                kill_children()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
