"""Training that is killed, or meets a full disk, anywhere: the next command resumes it, and the run ends the same.

"The same" is every byte of every file of the run directory: models, checkpoints, word list, vocabularies,
configuration, header and metrics. (If several processes train, the records of different models may follow each other in
any order in metrics.jsonl; those of one model may not.) There must be no other file.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from noisychannel.arguments import dump_config
from toys import toy_config

Content = dict[str, object]


class Answer(NamedTuple):
    status: int
    errors: str
    changes: int | None


class Commands:
    """``faulty.py``, which runs commands that fail."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("faulty.py"))]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._hear() == "ready\n"

    def __call__(self, directory: Path, *words: str, **fault: Any) -> Answer:
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps({"words": words, "directory": str(directory), **fault}) + "\n")
        self.server.stdin.flush()
        return Answer(**json.loads(self._hear()))

    def _hear(self) -> str:
        assert self.server.stdout is not None
        return self.server.stdout.readline()

    def end(self) -> None:
        self.server.communicate()


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    commands = Commands()
    yield commands
    commands.end()


class Trial:
    """A small run, what it looks like if nothing happens, and the command that trains it."""

    def __init__(self, path: Path, commands: Commands, *words: str, groups: bool = False) -> None:
        settings = {"batch_size": 10, "accumulate": 2, "max_epochs": 2, "log_every": 2, "checkpoint_every": 1}
        config = toy_config(path, models=("direct", "lm"), rows=60, **settings)
        config.direct = replace(config.direct, hidden_size=8, dropout=0.2)
        config.lm = replace(config.lm, hidden_size=8, num_layers=2, dropout=0.2, word_list=True)
        if groups:
            for file in map(Path, (*config.data.train, *config.data.dev)):
                lines = file.read_text().splitlines()
                file.write_text("".join(f"{line}\t{'ab'[n % 2]}\n" for n, line in enumerate(lines)))
            config.data.columns = "input,output,group"
        self.file, self.run, self.data = path / "config.yaml", path / "run", Path(config.data.train[0])
        self.file.write_text(dump_config(config))
        self.commands, self.words = commands, words
        answer = self.train()
        assert answer.status == 0, answer.errors
        assert answer.changes is not None
        self.changes, self.whole = answer.changes, self.content()
        shutil.rmtree(self.run)

    def train(self, *words: str, **fault: Any) -> Answer:
        return self.commands(self.run, "train", str(self.file), *self.words, *words, **fault)

    def content(self) -> Content:
        files = {str(p.relative_to(self.run)): p for p in self.run.rglob("*") if not p.is_dir()}
        return {
            name: _by_model(file) if file.name == "metrics.jsonl" else file.read_bytes() for name, file in files.items()
        }

    def finish(self) -> None:
        """Resume what is left; the run is then the same as if nothing had happened."""
        answer = self.train()
        assert answer.status == 0, answer.errors
        now = self.content()
        assert now.keys() == self.whole.keys()
        assert [name for name in now if now[name] != self.whole[name]] == []


@pytest.fixture(scope="module")
def reference(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("reference"), commands)


@pytest.fixture
def trial(reference: Trial) -> Trial:
    """The reference, with nothing trained."""
    shutil.rmtree(reference.run, ignore_errors=True)
    return reference


def _by_model(metrics: Path) -> dict[str, list[str]]:
    records: dict[str, list[str]] = {}
    for line in metrics.read_text().splitlines():
        records.setdefault(json.loads(line)["model"], []).append(line)
    return records


def assert_clear(answer: Answer, status: int) -> None:
    """One line that says what is wrong, after the progress of the training."""
    assert answer.status == status, answer.errors
    assert "Traceback" not in answer.errors
    assert "internal error" not in answer.errors
    assert sum(line.startswith("noisychannel: ") for line in answer.errors.splitlines()) == 1


def test_a_training_killed_again_and_again_ends_the_same(trial: Trial) -> None:
    rng = random.Random(1)
    for fault in ("kill", "torn", "kill"):
        assert trial.train(fault=fault, at=rng.randint(20, 60)).status == -9
    trial.finish()


@pytest.mark.faults
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("groups", [False, True])
def test_twenty_kills_in_a_row(jobs: str, groups: bool, commands: Commands, tmp_path: Path) -> None:
    """Half of them before a change of a file, of which some leave half a file; the others at any time."""
    trial = Trial(tmp_path, commands, "--jobs", jobs, groups=groups)
    rng = random.Random(1)
    # Few changes after the preparation of the data, so that twenty kills come before the end.
    first = trial.changes // 4 if jobs == "1" else trial.changes // 2
    for n in range(20):
        fault = {"fault": ("kill", "torn")[n // 2 % 2], "at": rng.randint(1, first)}
        answer = trial.train(**(fault if n % 2 else {"after": rng.uniform(0.05, 0.6 if jobs == "1" else 4.0)}))
        assert answer.status == -9, answer.errors
    trial.finish()


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["kill", "torn", "full", "read-only"])
def test_a_fault_at_every_change_of_a_file(fault: str, trial: Trial) -> None:
    places = range(1, trial.changes + 1, 1 if fault in ("kill", "torn") else 3)
    print(f"{fault}: {len(places)} trainings")
    for at in places:
        answer = trial.train(fault=fault, at=at)
        if fault in ("kill", "torn"):
            assert answer.status == -9, at
        elif answer.status != 0:  # errors while data is removed at the end do not matter
            assert_clear(answer, 1)
        trial.finish()
        shutil.rmtree(trial.run)


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_training_resumes_when_there_is_room_again(fault: str, trial: Trial) -> None:
    for at in (2, 20, 60):
        answer = trial.train(fault=fault, at=at)
        assert_clear(answer, 1)
        assert {"full": "No space left", "read-only": "Read-only file system"}[fault] in answer.errors
    trial.finish()


def test_data_that_vanishes_is_named_and_the_training_starts_when_it_is_back(trial: Trial, tmp_path: Path) -> None:
    kept = shutil.copy2(trial.data, tmp_path / "kept.tsv")
    answer = trial.train(fault="vanish", at=8, victim=str(trial.data))
    assert_clear(answer, 2)
    assert str(trial.data) in answer.errors
    shutil.copy2(kept, trial.data)
    trial.finish()


def test_starting_over_that_is_killed_leaves_the_old_run_or_a_new_one(commands: Commands, tmp_path: Path) -> None:
    trial = Trial(tmp_path, commands, groups=True)
    trial.finish()
    for at in (10, 60, 110):
        assert trial.train("--overwrite", fault="kill", at=at).status == -9
        trial.finish()


@pytest.mark.faults
def test_starting_over_killed_at_every_change_of_a_file(commands: Commands, tmp_path: Path) -> None:
    """Until the new training has begun, which takes less than half of all changes."""
    trial = Trial(tmp_path, commands, groups=True)
    trial.finish()
    print(f"--overwrite: {trial.changes // 2 - 1} kills")
    for at in range(1, trial.changes // 2):
        assert trial.train("--overwrite", fault="kill", at=at).status == -9
        trial.finish()
