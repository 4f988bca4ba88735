"""Processes that never outlive the process that started them, and signals that ask a process to stop.

Every child watches a pipe whose other end only its parent has. When the parent ends in any way, kill -9 included, the
pipe closes and the child exits at once. It watches before it imports anything heavy, so it does not survive its
start-up either. The kernel's PR_SET_PDEATHSIG is no alternative: it kills a child when the *thread* that started it
ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import reduction, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from types import FrameType
from typing import Any, NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a process to stop: ctrl-C, ``kill``, and a closed terminal."""


@contextmanager
def loaded_for_good() -> Iterator[None]:
    """Collecting garbage does not look at what is there already.

    Looking at all objects of PyTorch takes longer than decoding a word.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class HeldOpen:
    """A descriptor as an argument of a process, which keeps it open while it lives: a lock is held until both end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[Any], HeldOpen], tuple[Any]]:
        return _hold, (reduction.DupFd(self.descriptor),)


def _hold(passed: Any) -> HeldOpen:
    return HeldOpen(passed.detach())


class _BoundProcess(SpawnProcess):
    """A process that ends with its parent."""

    def __reduce__(self) -> tuple[Callable[[HeldOpen], _BoundProcess], tuple[HeldOpen], dict[str, Any]]:
        # _born runs before the state is read, whose target may import torch.
        return _born, (HeldOpen(_lifeline(os.getpid())),), self.__dict__


class _BoundContext(SpawnContext):
    Process = _BoundProcess


BOUND: SpawnContext = _BoundContext()
"""The context of every pool and process of this package: new interpreters, which end with their parent."""


@cache
def _lifeline(process: int) -> int:
    """The end of a pipe that children watch. The other end stays open in this process, and only here."""
    watched, _ = os.pipe()
    return watched


def _born(lifeline: HeldOpen) -> _BoundProcess:
    threading.Thread(target=_end_with_parent, args=(lifeline.descriptor,), daemon=True).start()
    return _BoundProcess.__new__(_BoundProcess)


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is ever written
    os._exit(1)


def start_shielded(process: SpawnProcess) -> None:
    """Start a process that gets no signal of ``STOPPING``: its parent tells it when to stop.

    The terminal sends ctrl-C to the whole process group, and a batch system sends SIGTERM to every process of a job.
    """
    # It would unblock the signals in its own start.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill_children() -> None:
    """End every process that this one has started, at once."""
    for process in multiprocessing.active_children():
        process.kill()


class Interruption:
    """The signals that have asked this process to stop since a block was entered."""

    def __init__(self) -> None:
        self.count = 0
        self._first: int | None = None
        self._before: dict[int, Any] = {}

    def is_set(self) -> bool:
        return self.count > 0

    def leave(self) -> NoReturn:
        """End as the first signal would have ended the process without the block."""
        handler = self._before.get(self._first) if self._first is not None else None
        if callable(handler):
            handler(self._first, None)
        if self._first not in (None, signal.SIGINT):
            raise SystemExit(128 + self._first)
        raise KeyboardInterrupt


@contextmanager
def interruption(enabled: bool = True, at_once: bool = True) -> Iterator[Interruption]:
    """Signals are only counted, so that work can be finished and saved; call ``leave`` then.

    ``at_once``: the second signal does not wait. A signal that is ignored (``nohup``) stays ignored. In a thread other
    than the main one no signal is seen.
    """
    seen = Interruption()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.count += 1
        seen._first = seen._first or number
        if at_once and seen.count > 1:
            seen.leave()

    for number in STOPPING:
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
            seen._before[number] = handler
            signal.signal(number, interrupt)
    try:
        yield seen
    finally:
        for signum, handler in seen._before.items():
            signal.signal(signum, handler)
