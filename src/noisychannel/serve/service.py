"""The runs of a server behind their queues: what a request asks for, and waiting for the answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from fastapi import Request as HTTPRequest

from noisychannel import __version__
from noisychannel.errors import BadInputError, NoisyChannelError, did_you_mean, shortened
from noisychannel.serve.limits import Limits
from noisychannel.serve.measures import Gauge, Labels, Measures
from noisychannel.serve.schema import Request
from noisychannel.serve.served_run import ServedRun
from noisychannel.serve.tasks import Kind, RefusedTaskError, Task, TaskSettings, UnknownNameError
from noisychannel.serve.worker import Answer, BusyError, StoppingError, Worker


class ClientGoneError(Exception):
    """The client has left; nobody reads the answer."""


class Service:
    """Runs with a worker each."""

    def __init__(
        self, runs: Sequence[ServedRun], limits: Limits, measures: Measures, warn: Callable[[str], None]
    ) -> None:
        self.runs, self.limits, self.measures = {run.name: run for run in runs}, limits, measures
        self.default = runs[0].name
        self.workers = {run.name: Worker(run, limits, measures, warn) for run in runs}
        self.stopping = False
        measures.add_gauge(Gauge("noisychannel_waiting_inputs", "Inputs in the queue of each run.", self._waiting))

    def _waiting(self) -> dict[Labels, float]:
        return {(("run", name),): float(worker.waiting) for name, worker in self.workers.items()}

    def run(self, name: str | None) -> ServedRun:
        """A run by its name; the default one without a name."""
        if (name or self.default) not in self.runs:
            raise UnknownNameError(f"there is no run {shortened(name)}{did_you_mean(name or '', self.runs)}")
        return self.runs[name or self.default]

    def check_n_best(self, n_best: int) -> None:
        if n_best > self.limits.max_n_best:
            raise BadInputError(f"n_best: is {n_best}; at most {self.limits.max_n_best} are allowed")

    def check_count(self, what: str, number: int, most: int) -> None:
        if number > most:
            raise BadInputError(f"{what}: there are {number}; at most {most} are allowed in one request")

    async def ask(
        self,
        request: HTTPRequest,
        kind: Kind,
        body: Request,
        tasks: Sequence[Task],
        places: Sequence[str],
        n_best: int = 1,
    ) -> dict[str, Any]:
        """The answers to tasks, in order. ``places``: what messages call each of them."""
        run = self.run(body.run)
        system = run.system(body.system)
        weights = run.weights(system, body.weights)
        for task, place in zip(tasks, places, strict=True):
            run.check(task, place)
        settings = TaskSettings(kind, system.tuned.name, weights, n_best)
        try:
            futures = self.workers[run.name].submit(settings, tasks)
        except (BusyError, StoppingError) as error:
            self.measures.refused.add(reason="stopping" if isinstance(error, StoppingError) else "queue")
            raise
        results = await _answers(request, futures, places)
        by_name = weights.by_name()
        used = {name: by_name.get(name, 0.0) for name in system.terms}
        return {"run": run.name, "system": system.tuned.name, "weights": used, "results": results}

    def info(self) -> dict[str, Any]:
        names = ("max_symbols", "max_n_best", "max_inputs", "max_body")
        return {
            "version": __version__,
            "limits": {name: getattr(self.limits, name) for name in names},
            "runs": [run.info() for run in self.runs.values()],
        }

    def stop(self) -> None:
        """Refuse new requests; what was accepted is still answered."""
        self.stopping = True
        for worker in self.workers.values():
            worker.stop()

    @property
    def busy(self) -> bool:
        """Whether a worker has not ended."""
        return any(worker.busy for worker in self.workers.values())

    def join(self, seconds: float) -> int:
        """Wait for the workers, after ``stop``: how many inputs are left unanswered."""
        end = time.monotonic() + seconds
        return sum(worker.join(max(0.0, end - time.monotonic())) for worker in self.workers.values())

    def abandon(self) -> None:
        """End what the workers still do, for nobody."""
        for worker in self.workers.values():
            worker.abandon()


async def _answers(
    request: HTTPRequest, futures: Sequence[Future[Answer]], places: Sequence[str]
) -> list[dict[str, Any]]:
    """Wait for all answers, or for the client to leave: then nothing more is done for it."""
    waiting = asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    leaving = asyncio.create_task(_until_gone(request))
    try:
        both: set[asyncio.Future[Any]] = {waiting, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientGoneError
        answers = []
        for place, answer in zip(places, waiting.result(), strict=True):
            match answer:
                case RefusedTaskError():
                    raise RefusedTaskError(f"{place}: {answer}")
                case NoisyChannelError():
                    raise answer
                case MemoryError():
                    raise NoisyChannelError("out of memory; send shorter inputs, or fewer at once") from answer
                case asyncio.CancelledError():
                    raise StoppingError
                case BaseException():
                    raise NoisyChannelError(f"internal error ({type(answer).__name__})") from answer
            answers.append(answer)
        return answers
    finally:
        for future in futures:
            future.cancel()
        waiting.cancel()
        leaving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


async def _until_gone(request: HTTPRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
