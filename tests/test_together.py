"""Many models trained together: each ends where it would have ended alone. On the GPU if there is one, as graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from noisychannel.errors import NoisyChannelError
from noisychannel.models import LanguageModel
from noisychannel.models.registry import MODEL_CLASSES, Role
from noisychannel.runs import RunDirectory
from noisychannel.tensors import load_tensors
from noisychannel.training import jobs, together
from noisychannel.training.config import RunConfig
from noisychannel.training.events import Event, Finished
from noisychannel.training.learner import Learner
from noisychannel.training.run import train_run
from noisychannel.training.together import _rounded
from toys import copy, double_vowels, reverse, toy_config, write_pairs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GROUPS: dict[str, tuple[Callable[[str], str], int]] = {
    "copied": (copy, 120),
    "doubled": (double_vowels, 190),
    "reversed": (lambda x: reverse(x) + "q", 75),
}
"""Of different sizes, vocabularies and difficulty."""


@pytest.fixture(autouse=True)
def also_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU does in graphs is done step by step on a CPU, if it is told to."""
    monkeypatch.setattr(jobs, "_graphs_work_for", lambda job: job.config.training.cuda_graphs)


def grouped(directory: Path, cuda_graphs: bool, **settings: object) -> RunConfig:
    settings = {"evaluate_every": 5, **settings}
    config = toy_config(directory, models=("direct", "lm"), cuda_graphs=cuda_graphs, bidirectional=True, **settings)
    config.device, config.data.columns = DEVICE, "input,output,group"
    for split in ("train", "dev"):
        lines = []
        for name, (task, rows) in GROUPS.items():
            own = write_pairs(directory / "own.tsv", task, rows if split == "train" else 30, seed=len(split))
            lines += [f"{line}\t{name}\n" for line in own.read_text().splitlines()]
        (directory / f"{split}.tsv").write_text("".join(lines))
    return config


def train(config: RunConfig, listen: Callable[[Event], None] = lambda event: None) -> list[Finished]:
    return train_run(config, listen, lambda line: None)


def records(config: RunConfig, group: str) -> dict[tuple[str, str], list[dict[str, float]]]:
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for line in RunDirectory(Path(config.run_dir)).group(group).metrics_file.read_text().splitlines():
        record = json.loads(line)
        found.setdefault((record.pop("model"), record.pop("kind")), []).append(record)
    return found


def assert_same_training(
    a: RunConfig, b: RunConfig, rel: float = 0.003, groups: Collection[str] = tuple(GROUPS)
) -> None:
    for group in groups:
        ours, theirs = records(a, group), records(b, group)
        assert ours.keys() == theirs.keys()
        for key, record in ours.items():
            assert [r["step"] for r in record] == [r["step"] for r in theirs[key]]
            for x, y in zip(record, theirs[key], strict=True):
                assert x == pytest.approx(y, rel=rel), (group, key)
        for role in a.models:
            runs = [RunDirectory(Path(config.run_dir)).group(group) for config in (a, b)]
            assert all(run.finished(role) for run in runs)
            (x, about_x), (y, about_y) = (load_tensors(run.model_file(role)) for run in runs)
            assert about_x["step"] == about_y["step"]
            for name in x:
                assert x[name].shape == y[name].shape
                # Adam makes much of small gradients, and so of their rounding.
                assert (x[name] - y[name]).norm() <= 0.02 * y[name].norm(), (group, role, name)


def test_each_ends_where_it_would_have_ended_alone(tmp_path: Path) -> None:
    settings = {"max_epochs": 4, "learning_rate": 0.003}
    apart, one = grouped(tmp_path / "apart", False, **settings), grouped(tmp_path / "one", True, **settings)
    train(apart)
    finished = train(one)
    assert sorted(x.label for x in finished) == sorted(f"{g} {role}" for g in GROUPS for role in ("direct", "lm"))
    assert_same_training(one, apart)


def test_evaluations_by_steps_and_batches_by_symbols(tmp_path: Path) -> None:
    settings = {"max_epochs": 2, "learning_rate": 0.003, "evaluate_every": 3, "batch_symbols": 150, "log_every": 4}
    apart, one = grouped(tmp_path / "apart", False, **settings), grouped(tmp_path / "one", True, **settings)
    train(apart)
    train(one)
    assert_same_training(one, apart)


@pytest.mark.parametrize("models", [("direct", "lm"), pytest.param(("channel", "attention"), marks=pytest.mark.long)])
def test_dropout_does_not_depend_on_the_neighbours(tmp_path: Path, models: tuple[Role, ...]) -> None:
    """One group trained beside two others, of which one is far ahead, and the same group trained by itself."""
    settings = {"max_updates": 9, "learning_rate": 0.003}
    beside, alone = (grouped(tmp_path / name, True, **settings) for name in ("beside", "alone"))
    for config in (beside, alone):
        config.models = list(models)
        config.lm.num_layers = config.channel.num_layers = 2
        for role in models:
            config.model(role).dropout = 0.4
            config.model(role).hidden_size = 16
    for split in ("train", "dev"):
        file = tmp_path / "alone" / f"{split}.tsv"
        file.write_text("".join(x for x in file.read_text().splitlines(keepends=True) if x.endswith("\tdoubled\n")))
    train(alone)
    beside.training.max_updates = 5
    train(beside)
    beside.training.max_updates = 9
    train(beside)
    assert_same_training(beside, alone, rel=1e-4, groups=["doubled"])
    dry = grouped(tmp_path / "dry", True, **settings)
    dry.models = list(models)
    train(dry)
    losses = [records(config, "doubled")[models[0], "train"][-1]["loss"] for config in (dry, alone)]
    assert losses[0] != pytest.approx(losses[1], rel=0.01), "the test is worth something only with dropout"


def test_those_that_stop_early_leave_the_others_alone(tmp_path: Path) -> None:
    settings = {"max_epochs": 12, "learning_rate": 0.02, "patience": 1, "decay_patience": 1}
    one = grouped(tmp_path / "one", True, **settings)
    finished = {x.label: x for x in train(one)}
    epochs = {group: len(records(one, group)["direct", "dev"]) for group in GROUPS}
    assert len(set(epochs.values())) > 1, "the test is worth something only if they stop at different times"
    for group in GROUPS:
        dev = records(one, group)["direct", "dev"]
        losses = [r["loss"] for r in dev]
        assert finished[f"{group} direct"].best_step == dev[losses.index(min(losses))]["step"]
        assert finished[f"{group} direct"].at_limit or losses[-1] >= min(losses[:-1])
        _, about = load_tensors(RunDirectory(Path(one.run_dir)).group(group).model_file("direct"))
        assert float(about["dev_loss"]) == min(losses)


def test_an_interrupted_training_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"max_epochs": 3, "learning_rate": 0.003}
    whole, broken = grouped(tmp_path / "whole", True, **settings), grouped(tmp_path / "broken", True, **settings)
    for config in (whole, broken):
        config.direct.dropout = config.lm.dropout = 0.3
    train(whole)
    original, asked = jobs.train_together, iter(range(100))
    monkeypatch.setattr(jobs, "train_together", lambda learners: original(learners, lambda: next(asked) == 9))
    with pytest.raises(KeyboardInterrupt):
        train(broken)
    files = RunDirectory(Path(broken.run_dir)).group("doubled")
    assert files.state_file("lm").exists()
    monkeypatch.setattr(jobs, "train_together", original)
    train(broken)
    assert_same_training(broken, whole, rel=1e-3)


def test_checkpoints_are_written_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    config = grouped(tmp_path, True, max_epochs=2)
    seen = []

    def listen(event: Event) -> None:
        files = RunDirectory(Path(config.run_dir)).group("copied")
        if files.state_file("lm").exists():
            _, about = load_tensors(files.state_file("lm"))
            seen.append(json.loads(about["state"])["step"])

    train(config, listen)
    assert len(set(seen)) > 2


def test_networks_in_bf16_train_about_as_well(tmp_path: Path) -> None:
    settings = {"max_epochs": 3, "learning_rate": 0.01}
    exact, rounded = grouped(tmp_path / "fp32", True, **settings), grouped(tmp_path / "bf16", True, **settings)
    rounded.training.precision = "bf16"
    train(exact)
    train(rounded)
    for group in GROUPS:
        for key, record in records(rounded, group).items():
            assert record[-1]["loss"] == pytest.approx(records(exact, group)[key][-1]["loss"], rel=0.1), (group, key)


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Learner.record

    def fails(self: Learner, interval_loss: float) -> None:
        record(self, float("nan") if self.job.label == "doubled lm" else interval_loss)

    monkeypatch.setattr(Learner, "record", fails)
    config = grouped(tmp_path, True, max_epochs=2)
    with pytest.raises(NoisyChannelError, match="doubled lm: the loss became nan"):
        train(config)
    run = RunDirectory(Path(config.run_dir))
    for group in GROUPS:
        assert run.group(group).finished("direct")
        assert run.group(group).finished("lm") == (group != "doubled")


class OddLanguageModel(LanguageModel):
    """A model with a parameter of its own, outside any layer that can be stacked."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        return self.scale * super().forward(outputs, output_lengths)


def test_a_model_that_cannot_be_stacked_is_trained_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODEL_CLASSES, "LanguageModel", OddLanguageModel)
    settings = {"max_epochs": 2, "learning_rate": 0.003}
    apart, one = grouped(tmp_path / "apart", False, **settings), grouped(tmp_path / "one", True, **settings)
    train(apart)
    said: list[str] = []
    finished = train_run(one, lambda event: None, said.append)
    assert sorted(x.label for x in finished) == sorted(f"{g} {role}" for g in GROUPS for role in ("direct", "lm"))
    (line,) = [line for line in said if "stack" in line]
    assert line == (
        "lm: cannot be trained as a stack (the layer OddLanguageModel is not supported); training one model at a time"
    )
    assert_same_training(one, apart)
    for group in GROUPS:
        ours, theirs = (RunDirectory(Path(config.run_dir)).group(group).model_file("lm") for config in (one, apart))
        (x, _), (y, _) = load_tensors(ours), load_tensors(theirs)
        assert all(torch.equal(x[name], y[name]) for name in y), "the very same loop"
        assert x["scale"] != 1


def test_one_that_fails_outside_a_stack_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODEL_CLASSES, "LanguageModel", OddLanguageModel)
    record = Learner.record
    monkeypatch.setattr(
        Learner,
        "record",
        lambda self, loss: record(self, float("nan") if self.job.label == "doubled lm" else loss),
    )
    config = grouped(tmp_path, True, max_epochs=1)
    with pytest.raises(NoisyChannelError, match="doubled lm: the loss became nan"):
        train(config)
    assert RunDirectory(Path(config.run_dir)).group("reversed").finished("lm")


def test_no_more_processes_than_models_or_cores() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    cores = jobs.cores()
    assert jobs.choose_processes(1, cpu) == 1
    assert jobs.choose_processes(1000, cpu) == cores
    assert jobs.choose_processes(1000, gpu) == min(cores, jobs.GPU_PROCESSES)
    assert jobs.choose_processes(3, cpu, wanted=16) == 3, "never more than there are models"
    assert jobs.choose_processes(1000, cpu, wanted=cores + 5) == cores + 5, "the user knows best"


def test_sizes_are_few_and_hardly_larger() -> None:
    sizes = {_rounded(n) for n in range(1, 129)}
    assert len(sizes) <= 20
    assert all(n <= _rounded(n) <= max(4, 1.25 * n + 3) for n in range(1, 129))
    assert all(_rounded(n) == n for n in sizes)
