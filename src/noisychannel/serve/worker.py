"""One thread for each run: what waits in its queue and has equal settings is decoded together.

Clients wait for futures. A client that leaves cancels its futures, which takes them out of the queue.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, NamedTuple, Protocol

from noisychannel.errors import NoisyChannelError
from noisychannel.serve.limits import Limits
from noisychannel.serve.measures import Measures
from noisychannel.serve.tasks import RefusedTaskError, Task, TaskSettings

Answer = dict[str, Any]
LEAST_WAIT, MOST_WAIT = 1, 60
"""Seconds after which a client that was refused should come back."""
SMOOTHING = 0.8
"""How much of the time of an input is that of earlier ones."""


class BusyError(NoisyChannelError):
    """The queue is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many inputs are waiting; try again in {retry_after} s")
        self.retry_after = retry_after


class StoppingError(NoisyChannelError):
    """The server takes no new requests."""

    retry_after = 5

    def __init__(self) -> None:
        super().__init__("the server is stopping; try again when it is back")


class Answering(Protocol):
    """What a worker needs of a run."""

    name: str

    def answer(self, settings: TaskSettings, tasks: Sequence[Task]) -> Sequence[Answer | RefusedTaskError]:
        """An answer for each task."""
        ...


class _Waiting(NamedTuple):
    settings: TaskSettings
    task: Task
    future: Future[Answer]


class Worker:
    """The queue of a run, and the thread that works on it."""

    def __init__(
        self, run: Answering, limits: Limits, measures: Measures, warn: Callable[[str], None] = lambda line: None
    ) -> None:
        self.run, self.limits, self.measures, self.warn = run, limits, measures, warn
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._working: list[_Waiting] = []
        self._seconds = 0.1
        """What an input takes, more or less."""
        # A daemon, so that a second signal ends the program although a search is going on.
        self._thread = threading.Thread(target=self._work, name=f"run {run.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Tasks in the queue."""
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether its thread has not ended, which it does after ``stop``."""
        return self._thread.is_alive()

    def submit(self, settings: TaskSettings, tasks: Sequence[Task]) -> list[Future[Answer]]:
        """Queue all of these tasks, or none of them."""
        with self._changed:
            if self._stopping:
                raise StoppingError
            if len(self._queue) + len(tasks) > self.limits.queue:
                raise BusyError(self._retry_after())
            futures = []
            for task in tasks:
                waiting = _Waiting(settings, task, Future())
                waiting.future.add_done_callback(partial(self._left, waiting))
                self._queue.append(waiting)
                futures.append(waiting.future)
            self._changed.notify()
            return futures

    def stop(self) -> None:
        """Take no new tasks; those that were accepted are still answered."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, seconds: float) -> int:
        """Wait for the answers to everything that was accepted, after ``stop``: how many tasks are left then."""
        self._thread.join(seconds)
        with self._changed:
            left = [*self._working, *self._queue] if self._thread.is_alive() else []
            self._queue.clear()
        for waiting in left:
            if not waiting.future.cancel():
                with contextlib.suppress(InvalidStateError):  # it may be answered at this moment
                    waiting.future.set_exception(StoppingError())
        return len(left)

    def abandon(self, seconds: float = 2.0) -> None:
        """End a search that nobody waits for. The program aborts if it ends while a thread is inside of torch."""
        self.stop()
        if self._thread.is_alive():
            thread = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(SystemExit))
            self._thread.join(seconds)

    def _retry_after(self) -> int:
        return round(min(max(LEAST_WAIT, self._seconds * len(self._queue)), MOST_WAIT))

    def _left(self, waiting: _Waiting, future: Future[Answer]) -> None:
        """A client has left: its task is not worked on."""
        if not future.cancelled():
            return
        with self._changed:
            before = len(self._queue)
            self._queue = deque(other for other in self._queue if other is not waiting)
            if len(self._queue) < before:
                self.measures.dropped.add(run=self.run.name)

    def _next(self) -> list[_Waiting]:
        """The first that waits, and others with the same settings; nothing when the worker should end."""
        with self._changed:
            while not self._queue and not self._stopping:
                self._changed.wait()
            if not self._queue:
                return []
            first, rest, batch = self._queue[0].settings, deque[_Waiting](), list[_Waiting]()
            for waiting in self._queue:
                take = waiting.settings == first and len(batch) < self.limits.batch_size
                (batch if take else rest).append(waiting)
            self._queue, self._working = rest, batch
        return batch

    def _work(self) -> None:
        while batch := self._next():
            live = [waiting for waiting in batch if waiting.future.set_running_or_notify_cancel()]
            if live:
                self._answer(live)
            self._working = []

    def _answer(self, batch: list[_Waiting]) -> None:
        settings, began, name = batch[0].settings, time.monotonic(), self.run.name
        try:
            answers: Sequence[Answer | BaseException] = self.run.answer(settings, [waiting.task for waiting in batch])
        except Exception as error:
            if len(batch) > 1:  # only the one that failed should fail
                for waiting in batch:
                    self._answer([waiting])
                return
            if not isinstance(error, NoisyChannelError):
                self.warn(f"{name}: {settings.kind} failed ({type(error).__name__}: {error})")
            answers = [error]
        seconds = time.monotonic() - began
        self._seconds = SMOOTHING * self._seconds + (1 - SMOOTHING) * seconds / len(batch)
        self.measures.inputs.add(len(batch), run=name, kind=settings.kind)
        self.measures.batches.observe(len(batch), run=name)
        self.measures.work.observe(seconds, run=name)
        for waiting, answer in zip(batch, answers, strict=True):
            with contextlib.suppress(InvalidStateError):  # the server has stopped, and told the client
                if isinstance(answer, BaseException):
                    waiting.future.set_exception(answer)
                else:
                    waiting.future.set_result(answer)
