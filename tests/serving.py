"""Servers in a thread of the tests, with real sockets."""

from __future__ import annotations

import asyncio
import copy
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from noisychannel.reporting import Silent
from noisychannel.runs import RunDirectory
from noisychannel.serve.app import Guarded, create_app
from noisychannel.serve.limits import Limits
from noisychannel.serve.served_run import ServedRun
from noisychannel.serve.server import RunsServer
from noisychannel.serve.tasks import Task, TaskSettings
from noisychannel.training.run import train_run
from noisychannel.web.guard import LOOPBACK_NAMES
from noisychannel.web.server import address_of, bind
from toys import tag, toy_config


@cache
def demo() -> ServedRun:
    """The run of the package."""
    return ServedRun("demo", RunDirectory.open(Path("demo")), "cpu", Limits(), Silent())


def toy_run(directory: Path, units: str, features: str = "") -> ServedRun:
    """A run of a toy task, which one epoch has not taught much."""
    config = toy_config(directory, models=("direct", "channel", "lm"), rows=40, max_epochs=1)
    if features:
        tag(config, features)
    for file in (*config.data.train, *config.data.dev):
        if units == "words":
            text = Path(file).read_text()
            Path(file).write_text("".join(" ".join(c) if c.isalpha() else c for c in re.split(r"(\w+)", text)))
    config.data.input.units = config.data.output.units = units  # type: ignore[assignment]
    train_run(config, lambda event: None, lambda line: None)
    return ServedRun("toy", RunDirectory.open(Path(config.run_dir)), "cpu", Limits(), Silent())


class GatedRun(ServedRun):
    """The run of the package, which answers when its gate is open."""

    def __init__(self) -> None:
        self.__dict__ = copy.copy(demo().__dict__)
        self.gate, self.working = threading.Event(), threading.Event()
        self.batches: list[list[str]] = []

    def answer(self, settings: TaskSettings, tasks: Sequence[Task]) -> list[Any]:
        self.batches.append([task.text for task in tasks])
        self.working.set()
        assert self.gate.wait(60)
        return super().answer(settings, tasks)


class Running:
    """A server in a thread."""

    def __init__(self, app: Guarded, limits: Limits) -> None:
        self.app, started, self.socket = app, threading.Event(), bind("127.0.0.1", 0)
        self.address = address_of(self.socket)
        self.port: int = self.socket.getsockname()[1]
        self.server = RunsServer(app, limits, started.set)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.socket])))
        self.thread.start()
        assert started.wait(30)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=60, trust_env=False)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **options)

    def stop(self) -> None:
        """As a signal does."""
        self.server.should_exit = True


@contextmanager
def running(
    runs: Sequence[ServedRun] | None = None,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    **options: Any,
) -> Iterator[Running]:
    """A server of some runs, or of the run of the package."""
    app = create_app(runs or [demo()], limits, hosts=options.pop("hosts", LOOPBACK_NAMES), **options)
    server = Running(app, limits)
    try:
        yield server
    finally:
        server.stop()
        server.thread.join(60)
        assert not server.thread.is_alive()
        server.socket.close()


def until(holds: Any, seconds: float = 20.0) -> None:
    """Wait for something that happens soon."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
