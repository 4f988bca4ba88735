"""Processes that train: none is left behind, whatever ends their parent, and signals save what there is to save."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from noisychannel.arguments import dump_config
from noisychannel.errors import NoisyChannelError
from noisychannel.processes import interruption
from noisychannel.runs import RunDirectory
from noisychannel.training import jobs
from noisychannel.training.config import RunConfig
from noisychannel.training.events import Event, Started
from noisychannel.training.run import train_run
from noisychannel.training.state import TrainingState
from toys import toy_config

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc")

PATIENCE = 60.0
"""Seconds until a test gives up; a busy machine is slow."""
MOMENT = 5.0
"""Seconds in which processes end that need not wait for anything. To import torch or to train takes them longer."""


def members(session: int) -> set[int]:
    """The living processes of a session: those that a command has started, directly or not."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session = place.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of_session) == session and state != "Z":
            found.add(int(place.parent.name))
    return found


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


class Training:
    """``noisychannel train`` in a session of its own."""

    def __init__(self, path: Path, processes: int) -> None:
        config = toy_config(path, models=("direct", "lm"), rows=200, max_epochs=5000, patience=5000, log_every=1)
        self.run, self.file = RunDirectory(Path(config.run_dir)), path / "config.yaml"
        self.file.write_text(dump_config(config))
        command = [sys.executable, "-m", "noisychannel", "train", str(self.file), "--jobs", str(processes)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def is_starting(self) -> bool:
        """The workers have been started, and import torch."""
        return len(members(self.process.pid)) >= 4  # with the resource tracker of Python

    def is_training(self) -> bool:
        metrics = self.run.metrics_file
        return metrics.exists() and all(f'"{role}"' in metrics.read_text() for role in ("direct", "lm"))

    def send(self, number: int, to_all: bool = False) -> None:
        (os.killpg if to_all else os.kill)(self.process.pid, number)

    def is_gone(self) -> bool:
        return not members(self.process.pid)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Training]]:
    started: list[Training] = []

    def begin(processes: int) -> Training:
        started.append(Training(tmp_path, processes))
        return started[-1]

    yield begin
    for training in started:
        for process in members(training.process.pid):
            os.kill(process, signal.SIGKILL)
        training.process.communicate()


@pytest.mark.parametrize("moment", ["is_starting", pytest.param("is_training", marks=pytest.mark.faults)])
def test_no_process_survives_a_killed_parent(moment: str, start: Callable[[int], Training]) -> None:
    training = start(2)
    assert until(getattr(training, moment))
    training.send(signal.SIGKILL)
    assert until(training.is_gone, MOMENT)


@pytest.mark.parametrize("moment", ["is_starting", pytest.param("is_training", marks=pytest.mark.faults)])
@pytest.mark.parametrize("to_all", [True, pytest.param(False, marks=pytest.mark.faults)])
def test_ctrl_c_again_and_again_ends_every_process(moment: str, to_all: bool, start: Callable[[int], Training]) -> None:
    """A terminal sends it to all processes, ``kill -INT`` to one."""
    training = start(2)
    assert until(getattr(training, moment))
    for _ in range(5):
        if not training.is_gone():
            training.send(signal.SIGINT, to_all)
        time.sleep(0.03)
    shown, _ = training.process.communicate(timeout=PATIENCE)
    assert until(training.is_gone)
    assert training.process.returncode not in (0, None)
    assert "Traceback" not in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.faults)])
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.faults)])
def test_other_signals_save_the_state_too(number: int, processes: int, start: Callable[[int], Training]) -> None:
    training = start(processes)
    begun = training.is_training if processes == 2 else training.run.metrics_file.exists
    assert until(begun)
    training.send(number, to_all=True)
    shown, _ = training.process.communicate(timeout=PATIENCE)
    assert training.process.returncode == 128 + number, shown
    assert until(training.is_gone)
    records = map(json.loads, training.run.metrics_file.read_text().splitlines())
    last = {record["model"]: record["step"] for record in records}
    for role, step in last.items():
        assert TrainingState.read(training.run.state_file(role)).step == step, "saved after the last update"


def two_models(path: Path, **training: object) -> RunConfig:
    config = toy_config(path, models=("direct", "lm"), rows=60, **training)
    config.jobs = 2
    return config


def test_a_killed_worker_is_one_line_and_the_other_model_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system does when memory runs out."""
    workers: list[jobs._Worker] = []
    begin = jobs._Worker.__init__

    def noted(self: jobs._Worker, locks: list[int]) -> None:
        begin(self, locks)
        workers.append(self)

    def kill(event: Event) -> None:
        if isinstance(event, Started) and event.label == "direct":
            (worker,) = (worker for worker in workers if worker.job is not None and worker.job.role == "direct")
            worker.process.kill()

    monkeypatch.setattr(jobs._Worker, "__init__", noted)
    config = two_models(tmp_path, max_epochs=200, patience=200)
    config.lm.max_epochs = 1
    with pytest.raises(NoisyChannelError, match=r"^direct: its process was killed by SIGKILL, perhaps because memory"):
        train_run(config, kill, lambda line: None)
    run = RunDirectory(Path(config.run_dir))
    assert run.finished("lm")
    assert run.state_file("direct").exists()


def test_the_number_of_processes_changes_no_bit(tmp_path: Path) -> None:
    for number in (1, 2):
        config = two_models(tmp_path, max_epochs=1)
        config.jobs = number
        train_run(config, lambda event: None, lambda line: None)
        (tmp_path / "run").rename(tmp_path / f"run{number}")
    one, two = (RunDirectory(tmp_path / f"run{number}") for number in (1, 2))
    for role in config.models:
        for file in (one.model_file, two.model_file), (one.stopped_file, two.stopped_file):
            assert file[0](role).read_bytes() == file[1](role).read_bytes()


def test_signals_are_counted_and_then_end_the_block_as_they_would_have_ended_it() -> None:
    with pytest.raises(KeyboardInterrupt), interruption() as interrupted:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted.is_set()
        interrupted.leave()
    with pytest.raises(SystemExit) as caught, interruption() as interrupted:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        interrupted.leave()
    assert caught.value.code == 143
    with pytest.raises(KeyboardInterrupt), interruption():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    with interruption(at_once=False) as interrupted:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
    assert interrupted.count == 3


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption() as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
        assert not interrupted.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)
