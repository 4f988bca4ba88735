"""The files that a run was trained on: what changes is noticed, what has only moved is not."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel.data.augment import AugmentConfig
from noisychannel.data.prepare import DataConfig, DataSource
from noisychannel.data.rows import Row
from noisychannel.data.sources import SourceFile, Sources, compare, warnings_of
from noisychannel.errors import BadInputError
from noisychannel.evaluation.rows import training_rows
from noisychannel.reporting import Silent
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.run import train_run
from noisychannel.tuning.run import TuneOptions, tune_run
from toys import toy_config


class Said(Silent):
    """Every warning."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, message: str) -> None:
        self.lines.append(message)


def train(config: RunConfig) -> list[str]:
    said: list[str] = []
    train_run(config, lambda event: None, said.append)
    return said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    config = toy_config(tmp_path_factory.mktemp("made") / "task", models=("direct", "lm"), rows=40, max_epochs=1)
    train(config)
    return config


@pytest.fixture
def finished(made: RunConfig) -> Iterator[RunConfig]:
    """A finished run. What a test does to its files is undone."""
    home = Path(made.run_dir).parent
    kept = shutil.copytree(home, home.with_name("kept"))
    yield made
    shutil.rmtree(home)
    kept.rename(home)


def test_a_run_keeps_size_and_hash_of_its_files(made: RunConfig) -> None:
    sources = RunDirectory(Path(made.run_dir)).header().data.sources
    assert list(sources) == ["train", "dev"]
    for key, (name,) in (("train", made.data.train), ("dev", made.data.dev)):
        content = Path(name).read_bytes()
        assert sources[key] == {name: SourceFile(len(content), hashlib.sha256(content).hexdigest())}


@pytest.mark.parametrize("key", ["train", "dev"])
def test_changed_data_of_a_finished_run_is_refused(key: str, finished: RunConfig) -> None:
    assert "nothing to do" in train(finished)[-1]
    file = Path(getattr(finished.data, key)[0])
    text, times = file.read_text(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_text(text[:-2] + ("b" if text[-2] == "a" else "a") + "\n")
    os.utime(file, ns=times)  # the same size and time
    with pytest.raises(BadInputError) as caught:
        train(finished)
    assert f"data.{key} has changed since the run was started ({file}); restore it" in str(caught.value)
    assert not list(Path(finished.run_dir).rglob(".data"))
    file.write_text(text)
    assert "nothing to do" in train(finished)[-1]


def test_data_that_has_moved_or_is_compressed_is_the_same(finished: RunConfig) -> None:
    file = Path(finished.data.train[0])
    packed = file.with_name("train.tsv.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    before, finished.data.train = finished.data.train, [str(packed)]
    said = train(finished)
    finished.data.train = before
    assert "nothing to do" in said[-1]


def test_missing_data_of_a_finished_run_is_not_compared(finished: RunConfig) -> None:
    Path(finished.data.train[0]).unlink()
    said = train(finished)
    assert f"data.train was not compared with what the models were trained on ({finished.data.train[0]}: no" in said[0]
    assert "nothing to do" in said[1]
    with Path(finished.data.dev[0]).open("a") as file:
        file.write("ab\tab\n")
    with pytest.raises(BadInputError, match=r"data\.dev has changed"):
        train(finished)


# --- made-up pairs and pairs of a model


@pytest.fixture
def augmented(tmp_path: Path) -> RunConfig:
    """A run that stopped at its limit, with made-up pairs and pairs of a model."""
    config = toy_config(tmp_path / "task", rows=40, max_epochs=1)
    (tmp_path / "words.txt").write_text("bale\nkidomu\nmaluke\nlebo\n")
    (tmp_path / "further.tsv").write_text("bale\tbaalee\n")
    config.data.unpaired, config.data.further = [str(tmp_path / "words.txt")], [str(tmp_path / "further.tsv")]
    config.data.augment = AugmentConfig(made_up=50, copies=2, repeat=2)
    said = train(config)
    assert said == [
        "data: train 40 lines, each 2 times; dev 60 lines; unpaired 4 lines; further 1 lines; made-up 50 lines; "
        "copies 2 lines"
    ]
    config.training.max_epochs = 2
    return config


def test_a_run_is_resumed_with_the_same_made_up_pairs(augmented: RunConfig) -> None:
    run = RunDirectory(Path(augmented.run_dir))
    before = run.header().data
    assert list(before.sources) == ["train", "dev", "further", "unpaired"]
    counts = {split: getattr(before, split) for split in ("train", "further", "made_up", "copies")}
    assert {split: count["lines"] for split, count in counts.items()} == {
        "train": 40, "further": 1, "made_up": 50, "copies": 2
    }  # fmt: skip
    assert (before.train["repeat"], before.made_up["wanted"], before.copies["wanted"]) == (2, 50, 2)
    assert any("resuming at step" in line for line in train(augmented))
    run.forget()
    assert run.header().data == before


def test_a_resumed_run_refuses_another_way_of_making_pairs(augmented: RunConfig) -> None:
    for key, value in (("made_up", 51), ("copies", 1), ("repeat", 1), ("seed", 2)):
        changed = replace(
            augmented, data=replace(augmented.data, augment=AugmentConfig(made_up=50, copies=2, repeat=2))
        )
        setattr(changed.data.augment, key, value)
        with pytest.raises(BadInputError, match=rf"was started with data\.augment\.{key}: \d+, not {value}; keep it"):
            train(changed)
    with pytest.raises(BadInputError, match=r"was started with data\.lm_data: all, not unpaired"):
        train(replace(augmented, data=replace(augmented.data, lm_data="unpaired")))


@pytest.mark.parametrize("key", ["further", "unpaired", "train"])
def test_a_resumed_run_refuses_changed_files_of_its_pairs(key: str, augmented: RunConfig) -> None:
    file = Path(getattr(augmented.data, key)[0])
    file.write_text(file.read_text() + ("kilo\n" if key == "unpaired" else "kilo\tkiiloo\n"))
    with pytest.raises(BadInputError) as caught:
        train(augmented)
    assert f"data.{key} has changed since the run was started ({file}); restore it" in str(caught.value)


def test_files_of_further_pairs_may_move(augmented: RunConfig) -> None:
    file = Path(augmented.data.further[0])
    augmented.data.further = [str(file.rename(file.with_name("moved.tsv")))]
    assert any("resuming at step" in line for line in train(augmented))


def test_tuning_and_baselines_warn_of_changed_data(finished: RunConfig) -> None:
    def warnings() -> list[str]:
        run, said = RunDirectory(Path(finished.run_dir)), Said()
        training_rows(run, run.codecs(), ["identity"], said)
        tune_run(run, TuneOptions(systems=["direct+lm"], limit=2, iterations=1), reporter=said)
        return [line for line in said.lines if "trained on" in line]

    assert warnings() == []
    for file in (*finished.data.train, *finished.data.dev):
        with Path(file).open("a") as stream:
            stream.write("ab\tab\n")
    assert warnings() == [
        f"{finished.data.train[0]}: not what the run was trained on (data.train has changed since)",
        f"{finished.data.dev[0]}: not what the run was trained on (data.dev has changed since)",
    ]


def test_a_run_of_an_earlier_version_has_nothing_to_compare_with(made: RunConfig) -> None:
    assert list(warnings_of(made.data, {}, ("train",))) == []


def config_of(tmp_path: Path) -> DataConfig:
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text(f"{name[0]}\tx\n")
    return DataConfig(train=[str(tmp_path / "[ab].tsv")], dev=[str(tmp_path / "a.tsv")], unpaired=["hf:some:train"])


def test_a_file_more_or_less_is_a_change(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    recorded = Sources(config).record()
    assert compare(config, recorded) == ({}, {})
    (tmp_path / "b.tsv").rename(tmp_path / "c.tsv")
    assert compare(config, recorded).changed == {"train": str(tmp_path / "b.tsv")}
    config.train = [str(tmp_path / "[ac].tsv")]
    assert compare(config, recorded) == ({}, {}), "names do not matter"
    (tmp_path / "d.tsv").write_text("d\tx\n")
    config.train = [str(tmp_path / "[acd].tsv")]
    assert compare(config, recorded).changed == {"train": str(tmp_path / "d.tsv")}


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    sources = Sources(config_of(tmp_path))
    with (tmp_path / "b.tsv").open("a") as file:
        file.write("bb\tx\n")
    with pytest.raises(BadInputError, match=r"b\.tsv: changed while it was read; wait until it is complete"):
        sources.record()


def test_a_file_that_changes_during_the_preparation_stops_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config(tmp_path, rows=20, max_epochs=1)
    rows = DataSource.rows

    def growing(self: DataSource, split: str) -> Iterator[Row]:
        yield from rows(self, split)  # type: ignore[arg-type]
        with Path(config.data.train[0]).open("a") as file:
            file.write("ab\tab\n")

    monkeypatch.setattr(DataSource, "rows", growing)
    with pytest.raises(BadInputError, match=r"train\.tsv: changed while it was read"):
        train(config)
    assert not Path(config.run_dir).exists()


@pytest.mark.parametrize("key", ["train", "dev", "unpaired"])
def test_a_pipe_is_refused_without_waiting_for_it(key: str, tmp_path: Path) -> None:
    config = toy_config(tmp_path, rows=20)
    os.mkfifo(tmp_path / "pipe")
    setattr(config.data, key, [str(tmp_path / "pipe")])
    with pytest.raises(BadInputError, match=r"pipe: a pipe, but training data is read several times; write it to a"):
        train(config)
    assert not Path(config.run_dir).exists()


def test_neither_is_a_device_a_socket_or_an_open_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        kinds = {"/dev/zero": "a device", str(tmp_path / "socket"): "a socket"}
        with (tmp_path / "file").open("w") as opened:
            kinds[f"/dev/fd/{opened.fileno()}"] = "an open file"
            for name, kind in kinds.items():
                with pytest.raises(BadInputError, match=f"{name}: {kind}, but"):
                    Sources(DataConfig(train=[name]))
