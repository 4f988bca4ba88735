"""Copies of this process that decode with its models. A search keeps neither a GPU nor several cores busy.

On a CPU a copy is made by fork, so it has the models at once and shares their memory. A GPU does not survive a fork, so
a copy is a new process that loads the models again. A copy works in one thread and ends with its parent.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from typing import NamedTuple

import torch

from noisychannel.confidence import Confidence
from noisychannel.decode.memory import GIB, Refuse, SearchTooLargeError, room_of
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import NoisyChannelError
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.processes import BOUND, STOPPING, start_shielded

MOST_PROCESSES = 8
"""Unless the caller asks for more: a stream has so many batches in memory."""


class _Copy(NamedTuple):
    process: int
    connection: Connection
    join: Callable[[], object]
    """Waits until the process has ended."""


class _AsHere(NamedTuple):
    """How a copy must decode, even if the run was tuned again since this process has loaded it."""

    weights: Weights
    settings: SearchSettings
    """With the memory that the copy may use."""
    confidence: Confidence | None


class _Call(NamedTuple):
    """The arguments of ``NoisyChannel.batch``."""

    texts: Sequence[str]
    n_best: int
    features: Sequence[Sequence[str]]
    batch_size: int
    align: bool
    confident: bool

    def of(self, model: NoisyChannel, refuse: Refuse) -> list[list[Output]]:
        return model.batch(
            self.texts,
            self.n_best,
            self.features,
            self.batch_size,
            align=self.align,
            refuse=refuse,
            confident=self.confident,
        )


class Work:
    """Texts that a ``ModelProcesses`` has begun to decode."""

    def __init__(self, call: _Call, here: bool) -> None:
        """``here``: no copy gets it; it is decoded when it is finished."""
        self.call, self.here = call, here
        self.outputs: list[list[Output]] = [[] for _ in call.texts]
        self.left = 0
        """Tasks of it that are not done."""
        self.left_over: list[int] = []
        """Places of texts that do not fit into the memory of a copy."""
        self.error: BaseException | None = None

    def part(self, rows: Sequence[int], batch_size: int) -> _Call:
        """The call for some of its texts."""
        texts, features = [self.call.texts[n] for n in rows], [self.call.features[n] for n in rows]
        return self.call._replace(texts=texts, features=features, batch_size=batch_size)

    def put(self, rows: Sequence[int], outputs: Sequence[list[Output]]) -> None:
        for n, best in zip(rows, outputs, strict=True):
            self.outputs[n] = best


class _Task(NamedTuple):
    """Texts of some work that one copy decodes together."""

    work: Work
    rows: list[int]


class ModelProcesses:
    """Decodes like ``NoisyChannel.batch``, in several processes if that can be faster. Outputs are the same."""

    def __init__(
        self, model: NoisyChannel, processes: int | None = None, load: Callable[[], NoisyChannel] | None = None
    ) -> None:
        """At most so many; one decodes in this process. If no number is given, one for each core that PyTorch would
        use, within reason, but only one if copies cannot be made by fork: on a GPU, and on systems other than Linux.

        ``load`` gives the same model in a new process, so it must be something that can be pickled. Without it,
        there are no copies that are not made by fork.
        """
        self.model, self.load = model, load
        self._forks = sys.platform == "linux" and model.decoder.device.type == "cpu"
        usual = min(torch.get_num_threads(), MOST_PROCESSES) if self._forks else 1
        self.processes = (processes or usual) if self._forks or load is not None else 1
        self._share = 0.0
        """GiB of each copy."""
        self._copies: list[_Copy] = []
        self._idle: list[_Copy] = []
        self._busy: dict[Connection, tuple[_Copy, _Task]] = {}
        self._tasks: deque[_Task] = deque()

    def batch(
        self,
        texts: Sequence[str],
        n_best: int,
        features: Sequence[Sequence[str]],
        batch_size: int,
        align: bool,
        refuse: Refuse,
        confident: bool,
    ) -> list[list[Output]]:
        """``NoisyChannel.batch``. Copies are made when there is more than one batch to decode, one for each."""
        return self.finish(self.begin(texts, n_best, features, batch_size, align, confident), refuse)

    def begin(
        self,
        texts: Sequence[str],
        n_best: int,
        features: Sequence[Sequence[str]],
        batch_size: int,
        align: bool,
        confident: bool,
    ) -> Work:
        """Give texts to the copies, after those that were given before. ``finish`` waits for their outputs."""
        here = self.processes == 1 or (not self._copies and len(texts) <= batch_size)
        work = Work(_Call(texts, n_best, features, batch_size, align, confident), here)
        if here:
            return work
        order = sorted(range(len(texts)), key=lambda n: (len(features[n]), len(texts[n])))
        tasks = [_Task(work, order[start : start + batch_size]) for start in range(0, len(order), batch_size)]
        self._start(min(self.processes, len(tasks)))
        work.left = len(tasks)
        self._tasks += reversed(tasks)  # the longest first
        self._hand_out()
        return work

    def finish(self, work: Work, refuse: Refuse) -> list[list[Output]]:
        """The outputs of a work. Those that were begun earlier must be finished first."""
        if work.here:
            return work.call.of(self.model, refuse)
        while work.left:
            self._receive()
            self._hand_out()
        if work.error is not None:
            raise work.error
        if work.left_over:
            # A copy has its share of the memory. What does not fit there may fit here.
            rows = sorted(work.left_over)
            again = work.part(rows, 1).of(self.model, lambda place, reason: refuse(rows[place], reason))
            work.put(rows, again)
        return work.outputs

    def _hand_out(self) -> None:
        """A task for each copy that has none."""
        while self._tasks and self._idle:
            copy, task = self._idle.pop(), self._tasks.popleft()
            _send(copy.connection, task.work.part(task.rows, task.work.call.batch_size))
            self._busy[copy.connection] = copy, task

    def _receive(self) -> None:
        """Wait for the outputs of some tasks."""
        for connection in wait(list(self._busy)):
            assert isinstance(connection, Connection)
            copy, (work, rows) = self._busy[connection]
            outputs, refused, error = _received(connection)
            del self._busy[connection]
            self._idle.append(copy)
            work.left -= 1
            work.error = work.error or error
            work.put(rows, outputs or [[] for _ in rows])
            work.left_over += [rows[place] for place in refused]

    def close(self) -> None:
        """End the copies."""
        for copy in self._copies:
            copy.connection.close()
            copy.join()
        self._copies, self._idle, self._busy = [], [], {}
        self._tasks.clear()

    def __enter__(self) -> ModelProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self, wanted: int) -> None:
        """Make copies until there are so many."""
        model = self.model
        if not self._copies:
            self._share = room_of(model.settings, model.decoder.device) / GIB / self.processes
        as_here = _AsHere(model.weights, replace(model.settings, memory=self._share), model.confidence)
        while len(self._copies) < wanted:
            self._copies.append(self._fork(as_here) if self._forks else self._spawn(as_here))
            self._idle.append(self._copies[-1])

    def _fork(self, as_here: _AsHere) -> _Copy:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # collecting garbage writes to every object, so a copy would copy the memory of the models
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            # Of threads that do not survive the fork: a copy works in one thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process == 0:
            for other in (ours, *(copy.connection for copy in self._copies)):
                other.close()
            _decode_for_parent(lambda: self.model, theirs, as_here)
        theirs.close()
        return _Copy(process, ours, partial(os.waitpid, process, 0))

    def _spawn(self, as_here: _AsHere) -> _Copy:
        ours, theirs = BOUND.Pipe()
        process = BOUND.Process(target=_decode_for_parent, args=(self.load, theirs, as_here))
        start_shielded(process)
        theirs.close()
        assert process.pid is not None
        return _Copy(process.pid, ours, process.join)


def _received(connection: Connection) -> tuple[list[list[Output]], list[int], BaseException | None]:
    """The outputs of a task, the places of its texts that a copy refuses, and the error if there is one."""
    try:
        answer = connection.recv()
    except (EOFError, ConnectionResetError):
        raise NoisyChannelError(
            "a process that decodes has ended, perhaps because memory ran out; lower --batch-size, or set --jobs 1"
        ) from None
    if isinstance(answer, BaseException):
        return [], [], answer
    outputs, refused = answer
    return outputs, refused, None


def _send(connection: Connection, what: object) -> None:
    # If the process has ended, there will be no answer, and that is reported.
    with suppress(BrokenPipeError):
        connection.send(what)


def _decode_for_parent(load: Callable[[], NoisyChannel], connection: Connection, as_here: _AsHere) -> None:
    """The whole life of a copy: it never returns."""
    try:
        for number in STOPPING:  # its parent decides
            signal.signal(number, signal.SIG_IGN)
        torch.set_num_threads(1)
        inbox: list[_Call] = []
        arrived = threading.Semaphore(0)
        threading.Thread(target=_read, args=(connection, inbox, arrived), daemon=True).start()
        model = _loaded(load, as_here)
        while True:
            arrived.acquire()
            call = inbox.pop(0)
            connection.send(_answer(model, call) if isinstance(model, NoisyChannel) else model)
    except BaseException:
        os._exit(1)


def _loaded(load: Callable[[], NoisyChannel], as_here: _AsHere) -> NoisyChannel | Exception:
    """The model, or why there is none."""
    try:
        return load().reweighted(*as_here)
    except Exception as error:
        return _sendable(error)


def _read(connection: Connection, inbox: list[_Call], arrived: threading.Semaphore) -> None:
    """What the parent sends. When the parent ends, this process ends at once, whatever it is doing."""
    try:
        while True:
            inbox.append(connection.recv())
            arrived.release()
    except BaseException:
        os._exit(0)


def _answer(model: NoisyChannel, call: _Call) -> object:
    """The outputs, and the places of texts that do not fit into memory; or the error."""
    refused: list[int] = []

    def refuse(place: int, reason: SearchTooLargeError) -> None:
        refused.append(place)

    try:
        return call.of(model, refuse), refused
    except Exception as error:
        return _sendable(error)


def _sendable(error: Exception) -> Exception:
    """The error, or one with its text if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return NoisyChannelError(f"{type(error).__name__}: {error}")
    return error
