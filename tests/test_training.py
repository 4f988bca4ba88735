"""Training end to end: toy tasks are learnt, runs are resumed and replaced, and more processes change nothing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from noisychannel import SSNT
from noisychannel.arguments import dump_config
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.runs import RunDirectory
from noisychannel.tensors import load_tensors
from noisychannel.training.config import RunConfig, parse_config
from noisychannel.training.events import Finished
from noisychannel.training.learner import Learner
from noisychannel.training.log import MetricsLog
from noisychannel.training.run import train_run, train_runs
from toys import copy, double_vowels, reverse, toy_config


def train(config: RunConfig, overwrite: bool = False) -> dict[str, float]:
    """Best dev perplexity of each model trained."""
    finished = train_run(config, listen=lambda event: None, say=lambda line: None, overwrite=overwrite)
    return {model.label: model.dev_perplexity for model in finished}


def quiet(config: RunConfig) -> list[Finished]:
    return train_run(config, listen=lambda event: None, say=lambda line: None)


def records(config: RunConfig) -> list[dict[str, float]]:
    lines = (Path(config.run_dir) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def start(config: RunConfig, *launcher: str) -> subprocess.Popen[bytes]:
    """``noisychannel train`` as a process of its own, one thread."""
    file = Path(config.run_dir).parent / "config.yaml"
    file.write_text(dump_config(config))
    command = [sys.executable, *launcher, "-m", "noisychannel", "train", str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


def finish(process: subprocess.Popen[bytes]) -> None:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output.decode()


@pytest.mark.parametrize("task", [pytest.param(copy, marks=pytest.mark.long), double_vowels])
def test_direct_and_channel_learn_monotone_tasks(task, tmp_path: Path) -> None:
    models = ("direct", "channel")
    config = toy_config(tmp_path, task, models=models, rows=2000, batch_size=20, max_epochs=8, decay_patience=1)
    perplexity = train(config)
    assert perplexity["direct"] < 1.03
    # Undoing the doubling, or copying, is as certain as doing it.
    assert perplexity["channel"] < 1.04


def test_reverse_is_learnt_only_by_reading_everything_first(tmp_path: Path) -> None:
    """What a monotone model does with a task that is not: see docs/models.md."""
    config = toy_config(tmp_path, reverse, rows=1500, models=("direct",), longest=4, max_epochs=10, decay_patience=1)
    config.direct = replace(config.direct, hidden_size=64)
    assert train(config)["direct"] < 1.15
    run = RunDirectory.open(Path(config.run_dir))
    model = run.load_model("direct")
    assert isinstance(model, SSNT)
    input_codec, output_codec = run.codecs()
    inputs, outputs = torch.tensor([input_codec.encode("abde")]), torch.tensor([output_codec.encode("edba")])
    posterior_IJ = model.alignments(inputs, torch.tensor([5]), outputs, torch.tensor([5]))[0]
    # The first output symbol is the last input symbol, so nothing can be emitted before 'e' has been read.
    assert posterior_IJ[:3].sum() < 0.1


def test_seq2seq_baselines_train_with_the_same_command(tmp_path: Path) -> None:
    config = toy_config(tmp_path, copy, models=("seq2seq", "attention"), longest=3, rows=600, max_epochs=10)
    config.seq2seq = config.attention = config.direct
    perplexity = train(config)
    assert perplexity["attention"] < 1.6
    assert perplexity["seq2seq"] < 2.5


@pytest.mark.parametrize("models", [("direct",), pytest.param(("lm",), marks=pytest.mark.long)])
def test_two_processes_have_the_losses_of_one(models, tmp_path: Path) -> None:
    # 101 rows in batches of 25: the last batch has one row, so one of the processes has none.
    def config(name: str) -> RunConfig:
        return toy_config(tmp_path / name, models=models, rows=101, max_epochs=2, log_every=1, accumulate=2)

    one, two = config("one"), config("two")
    train(one)
    finish(start(two, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"))
    assert len(records(one)) == len(records(two)) > 4
    for ours, theirs in zip(records(two), records(one), strict=True):
        assert ours["step"] == theirs["step"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


def test_accumulation_equals_a_larger_batch(tmp_path: Path) -> None:
    small = toy_config(tmp_path / "small", rows=100, batch_size=10, accumulate=10, max_epochs=3, log_every=1)
    large = toy_config(tmp_path / "large", rows=100, batch_size=100, accumulate=1, max_epochs=3, log_every=1)
    train(small)
    train(large)
    assert [r["loss"] for r in records(small)] == pytest.approx([r["loss"] for r in records(large)], rel=1e-4)


def test_same_seed_same_losses_other_seed_other_losses(tmp_path: Path) -> None:
    losses = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        config = toy_config(tmp_path / name, max_epochs=1)
        config.seed = seed
        config.direct = replace(config.direct, dropout=0.2)
        train(config)
        losses.append([record["loss"] for record in records(config)])
    assert losses[0] == losses[1] != losses[2]


def test_early_stopping_keeps_the_best_model_and_decays_the_learning_rate(tmp_path: Path) -> None:
    config = toy_config(
        tmp_path, rows=30, max_epochs=200, patience=3, decay_patience=1, learning_rate=0.05, batch_size=10
    )
    perplexity = train(config)["direct"]
    dev = [record for record in records(config) if record["kind"] == "dev"]
    assert len(dev) < 200, "30 pairs overfit long before 200 epochs"
    best = min(range(len(dev)), key=lambda n: dev[n]["loss"])
    assert len(dev) - 1 - best == 3
    assert dev[best]["perplexity"] == pytest.approx(perplexity)
    rates = [record["learning_rate"] for record in dev]
    assert rates[-1] == pytest.approx(rates[best] * 0.25), "halved after the first and the second bad evaluation"
    _, metadata = load_tensors(RunDirectory(Path(config.run_dir)).model_file("direct"))
    assert int(metadata["step"]) == dev[best]["step"]


def test_a_linear_schedule_lowers_the_rate_to_zero_and_is_complete_at_its_limit(tmp_path: Path) -> None:
    settings = {"max_epochs": None, "max_updates": 50, "schedule": "linear", "patience": 1, "log_every": 1}
    config = toy_config(tmp_path, rows=5, learning_rate=0.1, evaluate_every=2, batch_size=5, **settings)
    (finished,) = quiet(config)
    assert finished.step == 50
    assert not finished.at_limit
    losses = [record["loss"] for record in records(config) if record["kind"] == "dev"]
    worse = [n for n, loss in enumerate(losses[:-1]) if loss > min(losses[: n + 1])]
    assert worse, "the test is worth something only if patience would have ended the training"
    rates = [record["learning_rate"] for record in records(config) if record["kind"] == "train"]
    assert rates == pytest.approx([0.1 * (1 - step / 50) for step in range(1, 51)])
    longer = replace(config, training=replace(config.training, max_updates=80))
    with pytest.raises(BadInputError, match=r"was started with training\.max_updates: 50, not 80"):
        quiet(longer)


def test_a_linear_schedule_needs_a_limit_of_updates(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"training\.schedule: linear needs a limit of updates, but direct has one"):
        toy_config(tmp_path, max_epochs=3, schedule="linear").check()


def test_copying_is_learnt_from_very_few_pairs(tmp_path: Path) -> None:
    perplexities = []
    for copies in (False, True):
        config = toy_config(tmp_path / str(copies), copy, rows=20, models=("direct", "channel"), max_epochs=10)
        config.direct = replace(config.direct, copy=copies)
        config.channel = replace(config.channel, copy=copies)
        perplexities.append(train(config))
    for role, without in perplexities[0].items():
        assert perplexities[1][role] < 0.5 * without


def test_evaluation_by_steps_covers_the_last_step_too(tmp_path: Path) -> None:
    config = toy_config(tmp_path, rows=100, max_epochs=2, evaluate_every=3, batch_size=25)
    train(config)
    assert [record["step"] for record in records(config) if record["kind"] == "dev"] == [3, 6, 8]


def test_bf16_trains_to_about_the_same_perplexity(tmp_path: Path) -> None:
    half = toy_config(tmp_path / "half", models=("direct", "lm"), precision="bf16")
    full = toy_config(tmp_path / "full", models=("direct", "lm"))
    assert train(half) == pytest.approx(train(full), rel=0.1)


def test_groups_are_trained_apart_in_one_run(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("direct", "lm"), max_epochs=8, rows=600)
    for split in ("train", "dev"):
        file = Path(getattr(config.data, split)[0])
        pairs = [line.split("\t") for line in file.read_text().splitlines()]
        rows = [f"{x}\t{y}\tdoubled/2\n{x}\t{x}\tcopied\n" for x, y in pairs]
        file.write_text("".join(rows))
    config.data.columns = "input,output,group"
    perplexity = train(config)
    assert set(perplexity) == {"doubled/2 direct", "doubled/2 lm", "copied direct", "copied lm"}
    assert perplexity["copied direct"] < 1.2
    run = RunDirectory.open(Path(config.run_dir))
    assert run.header().groups == ["copied", "doubled/2"]
    assert isinstance(run.group("doubled/2").load_model("direct"), SSNT)
    with pytest.raises(BadInputError, match="one run per group; choose one of them: copied, doubled%2F2"):
        run.codecs()


def test_a_finished_run_is_left_alone_and_extended_by_further_models(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("direct",), max_epochs=1)
    train(config)
    before = RunDirectory(Path(config.run_dir)).model_file("direct").stat().st_mtime_ns
    assert train(config) == {}
    config.models = ["direct", "lm"]
    assert set(train(config)) == {"lm"}
    assert RunDirectory(Path(config.run_dir)).model_file("direct").stat().st_mtime_ns == before
    assert set(train(config, overwrite=True)) == {"direct", "lm"}


def test_another_configuration_or_other_data_is_not_mixed_into_a_run(tmp_path: Path) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    train(config)
    other = replace(config, direct=replace(config.direct, hidden_size=48))
    with pytest.raises(BadInputError, match=r"started with direct\.hidden_size: 32, not 48"):
        train(other)
    config.models = ["direct", "lm"]
    for split in ("dev", "train"):
        file = Path(getattr(config.data, split)[0])
        before = file.read_text()
        file.write_text(before + "ab\taab\n")
        with pytest.raises(NoisyChannelError, match=f"data.{split} has changed"):
            train(config)
        file.write_text(before)
    moved = Path(config.data.train[0]).rename(tmp_path / "moved.tsv")
    config.data.train = [str(moved)]
    assert set(train(config)) == {"lm"}, "the same data in another place is the same data"


def test_an_added_model_keeps_its_own_settings(tmp_path: Path) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    train(config)
    added = replace(config, models=["lm"], lm=replace(config.lm, hidden_size=24))
    assert set(train(added)) == {"lm"}
    kept = parse_config(Path(config.run_dir) / "config.yaml")
    assert kept.models == ["direct", "lm"]
    assert kept.lm.hidden_size == 24
    assert train(added) == {}


def test_a_loss_that_is_not_finite_ends_the_training(tmp_path: Path) -> None:
    config = toy_config(tmp_path, learning_rate=3e38, max_epochs=3, clip_norm=1e38)
    with pytest.raises(NoisyChannelError, match="the loss became nan"):
        train(config)


def test_tensorboard_events_are_written_on_request(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    config = toy_config(tmp_path, max_epochs=1)
    config.tensorboard = True
    train(config)
    assert list((Path(config.run_dir) / "tensorboard" / "direct").glob("events*"))


def test_a_second_training_is_kept_out_of_the_directory(tmp_path: Path) -> None:
    import fcntl

    config = toy_config(tmp_path, max_epochs=1)
    Path(config.run_dir).mkdir()
    with (Path(config.run_dir) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BadInputError, match="in use by another process"):
            train(config)
    train(config)


def test_waiting_for_another_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other process has trained is not trained again."""
    import fcntl
    import threading

    from noisychannel.training.lock import locked_run

    monkeypatch.setattr("noisychannel.training.lock.SECONDS_FOR_LOCK", 0.1)
    config = toy_config(tmp_path, max_epochs=1)
    Path(config.run_dir).mkdir()
    with (Path(config.run_dir) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = threading.Timer(0.5, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        release.start()
        assert train_runs([config], lambda event: None, lambda line: None, wait=True)
        assert not release.is_alive()
    with locked_run(RunDirectory(Path(config.run_dir))):  # nobody holds it any more
        pass
    assert train_runs([config], lambda event: None, lambda line: None, wait=True) == []


def test_waiting_makes_no_directory_ours(tmp_path: Path) -> None:
    """Another process that refuses a directory holds its lock for a moment; what is in there stays."""
    import threading

    from noisychannel.training.lock import locked_run

    config = toy_config(tmp_path, max_epochs=1)
    place = Path(config.run_dir)
    place.mkdir()
    (place / "config.yaml").write_text("precious")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked_run(RunDirectory(place)):
            held.set()
            done.wait(0.5)

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with pytest.raises(BadInputError, match="not a run directory"):
        train_runs([config], lambda event: None, lambda line: None, wait=True)
    other.join()
    assert [path.name for path in place.iterdir()] == ["config.yaml"]
    assert (place / "config.yaml").read_text() == "precious"


def test_waiting_for_a_training_that_fails(tmp_path: Path) -> None:
    """It removes the directory that it has made; who waits makes it again."""
    import threading

    from noisychannel.training.lock import locked_run

    config, held = toy_config(tmp_path, max_epochs=1), threading.Event()

    def fail() -> None:
        with contextlib.suppress(RuntimeError), locked_run(RunDirectory(Path(config.run_dir))):
            held.set()
            time.sleep(0.5)
            raise RuntimeError

    other = threading.Thread(target=fail)
    other.start()
    held.wait()
    assert train_runs([config], lambda event: None, lambda line: None, wait=True)
    other.join()


def test_one_directory_for_two_runs_is_refused(tmp_path: Path) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    same = replace(config, run_dir=f"{config.run_dir}/../{Path(config.run_dir).name}")
    with pytest.raises(BadInputError, match="two runs cannot be trained in one directory"):
        train_runs([config, same], lambda event: None, lambda line: None, wait=True)


def test_vocabularies_of_another_run_make_models_interchangeable(tmp_path: Path) -> None:
    first = toy_config(tmp_path / "first", max_epochs=1)
    train(first)
    other = toy_config(tmp_path / "other", models=("lm",), max_epochs=1)
    Path(other.data.train[0]).write_text("zzz\tzzz\nab\tab\n")  # letters in another order of frequency, and a new one
    other.data.vocabularies = first.run_dir
    train(other)
    mixed = RunDirectory(Path(first.run_dir)), RunDirectory(Path(other.run_dir))
    assert [x.fingerprint for x in mixed[0].codecs()] == [x.fingerprint for x in mixed[1].codecs()]
    assert mixed[1].load_model("lm") is not None


def test_one_vocabulary_for_all_groups(tmp_path: Path) -> None:
    first = toy_config(tmp_path / "first", max_epochs=1)
    train(first)
    other = toy_config(tmp_path / "other", max_epochs=1)
    for file in (*other.data.train, *other.data.dev):
        lines = Path(file).read_text().splitlines()
        Path(file).write_text("".join(f"{line}\t{'ab'[n % 2]}\n" for n, line in enumerate(lines)))
    other.data.columns, other.data.vocabularies = "input,output,group", first.run_dir
    train(other)
    run = RunDirectory(Path(other.run_dir))
    assert {run.group(name).codecs()[0].fingerprint for name in "ab"} == {
        RunDirectory(Path(first.run_dir)).codecs()[0].fingerprint
    }


def test_several_runs_at_once_are_what_each_is_alone(tmp_path: Path) -> None:
    alone, first, second = (toy_config(tmp_path / name, max_epochs=2) for name in ("alone", "first", "second"))
    second.seed = 2
    train(alone)
    finished = train_runs([first, second], lambda event: None, lambda line: None)
    assert len(finished) == 2
    assert records(first) == records(alone)
    assert records(second) != records(alone)


def test_a_model_stopped_by_its_limit_says_so_and_trains_further(tmp_path: Path) -> None:
    """With the losses of a training that had the larger limit from the start; the others are left as they are."""
    settings: dict[str, object] = {"max_epochs": None, "max_updates": 10, "evaluate_every": 5, "patience": 50}
    short, long = (toy_config(tmp_path / name, models=("direct", "lm"), **settings) for name in ("short", "long"))
    for config in (short, long):
        config.direct.dropout = 0.2
    long.direct.max_updates = 25
    (direct,) = (model for model in quiet(short) if model.label == "direct")
    assert (direct.step, direct.at_limit) == (10, True)
    run = RunDirectory(Path(short.run_dir))
    assert run.finished("direct"), "a model at its limit is of use"
    other = run.model_file("lm").stat().st_mtime_ns
    assert quiet(short) == [], "the limit is the same"
    short.direct.max_updates = 25
    (further,) = quiet(short)
    assert (further.label, further.step) == ("direct", 25)
    assert run.model_file("lm").stat().st_mtime_ns == other
    quiet(long)
    for file in ("direct/model.safetensors", "direct/stopped.safetensors"):
        (ours, said), (theirs, also) = (load_tensors(Path(c.run_dir) / file) for c in (short, long))
        assert said == also
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [x for x in records(short) if x["model"] == "direct"] == [x for x in records(long) if x["model"] == "direct"]


def test_the_command_to_train_further_names_the_limit_that_ended_it(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("direct", "lm"), max_epochs=None, max_updates=10, patience=50)
    config.lm.max_epochs = 1
    further = {model.label: model.further.split()[-2:] for model in quiet(config)}
    assert further == {"direct": ["--direct.max_updates", "20"], "lm": ["--lm.max_epochs", "2"]}
    config.lm.max_epochs = 2
    (lm,) = quiet(config)
    assert (lm.label, lm.step) == ("lm", 24)


def test_a_new_baseline_leaves_weights_as_they_are(tmp_path: Path) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    quiet(config)
    RunDirectory(Path(config.run_dir)).weights_file.write_text("{}")
    config.models = ["seq2seq"]
    config.seq2seq.hidden_size = 16
    said: list[str] = []
    assert len(train_run(config, lambda event: None, said.append)) == 1
    assert not any("tune again" in line for line in said)


def test_a_model_out_of_patience_is_not_at_its_limit(tmp_path: Path) -> None:
    config = toy_config(
        tmp_path, rows=30, max_epochs=200, patience=1, decay_patience=1, learning_rate=0.3, batch_size=10
    )
    (finished,) = quiet(config)
    assert not finished.at_limit
    assert not RunDirectory(Path(config.run_dir)).stopped_file("direct").exists()
    config.training.max_epochs = 400
    assert quiet(config) == []


def test_patience_is_not_counted_in_tiny_epochs(tmp_path: Path) -> None:
    """Ten pairs are two updates an epoch: dev is looked at after a hundred updates all the same."""
    config = toy_config(tmp_path, rows=10, batch_size=5, max_epochs=None, max_updates=250)
    config.training.evaluate_every = None
    (finished,) = quiet(config)
    assert finished.step == 250
    assert [x["step"] for x in records(config) if x["kind"] == "dev"] == [100, 200, 250]


def test_training_further_asks_for_new_weights(tmp_path: Path) -> None:
    config = toy_config(tmp_path, max_epochs=None, max_updates=4)
    quiet(config)
    RunDirectory(Path(config.run_dir)).weights_file.write_text("{}")
    config.training.max_updates = 6
    said: list[str] = []
    train_run(config, lambda event: None, said.append)
    assert any("tune again" in line for line in said)


def grouped(config: RunConfig) -> RunConfig:
    """The same pairs in two groups, a and b."""
    for file in map(Path, (*config.data.train, *config.data.dev)):
        lines = file.read_text().splitlines()
        file.write_text("".join(f"{line}\t{'ab'[n % 2]}\n" for n, line in enumerate(lines)))
    config.data.columns = "input,output,group"
    return config


def test_starting_over_replaces_a_linked_model_and_leaves_what_the_link_points_to(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("direct", "lm"), rows=40, max_epochs=1)
    train(config)
    run = Path(config.run_dir)
    for name in ("lm", "metrics.jsonl"):
        (run / name).rename(tmp_path / name)
        (run / name).symlink_to(tmp_path / name)
    kept = (tmp_path / "lm/model.safetensors").read_bytes()
    records_before = (tmp_path / "metrics.jsonl").read_text()
    config.seed = 2
    assert set(train(config, overwrite=True)) == {"direct", "lm"}
    assert not (run / "lm").is_symlink()
    assert not (run / "metrics.jsonl").is_symlink()
    assert (run / "lm/model.safetensors").read_bytes() != kept
    assert (tmp_path / "lm/model.safetensors").read_bytes() == kept
    assert (tmp_path / "metrics.jsonl").read_text() == records_before


def test_starting_over_replaces_a_linked_group_and_leaves_the_other_run(tmp_path: Path) -> None:
    config = grouped(toy_config(tmp_path, rows=40, max_epochs=1))
    train(config)
    run, other = Path(config.run_dir), tmp_path / "other"
    (run / "a").rename(other)
    (run / "a").symlink_to(other)
    kept = {file: file.read_bytes() for file in other.rglob("*") if file.is_file()}
    config.seed = 2
    train(config, overwrite=True)
    assert not (run / "a").is_symlink()
    assert (run / "a/direct/model.safetensors").read_bytes() != kept[other / "direct/model.safetensors"]
    assert {file: file.read_bytes() for file in other.rglob("*") if file.is_file()} == kept


def test_a_run_may_be_a_link_to_a_directory(tmp_path: Path) -> None:
    config = toy_config(tmp_path, rows=40, max_epochs=1)
    (tmp_path / "elsewhere").mkdir()
    Path(config.run_dir).symlink_to(tmp_path / "elsewhere")
    train(config)
    before = (tmp_path / "elsewhere/direct/model.safetensors").read_bytes()
    config.seed = 2
    train(config, overwrite=True)
    assert Path(config.run_dir).is_symlink()
    assert (tmp_path / "elsewhere/direct/model.safetensors").read_bytes() != before


def test_what_a_killed_write_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    config = grouped(toy_config(tmp_path, rows=40, max_epochs=1))
    train(config)
    run = Path(config.run_dir)
    left = [run / ".run.json.123.tmp", run / "a/.config.yaml.7.tmp", run / "a/direct/.model.safetensors.99.tmp"]
    others = [run / "notes.tmp", run / "a/.mine.tmp"]
    for file in (*left, *others):
        file.write_text("")
    train(config)
    assert not any(file.exists() for file in left)
    assert all(file.exists() for file in others)


def test_an_evaluation_that_ends_a_training_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of the last step, then the last evaluation: killed between its record and its checkpoint."""
    whole, killed = (
        toy_config(tmp_path / name, rows=50, max_epochs=None, max_updates=3, evaluate_every=2, checkpoint_every=3)
        for name in ("whole", "killed")
    )
    train(whole)
    save = Learner.save_state

    def die(self: Learner, interval_loss: float) -> None:
        if self.state.evaluated_step == 3:
            raise KeyboardInterrupt
        save(self, interval_loss)

    monkeypatch.setattr(Learner, "save_state", die)
    with pytest.raises(KeyboardInterrupt):
        train(killed)
    assert records(killed) == records(whole)
    monkeypatch.setattr(Learner, "save_state", save)
    train(killed)
    assert records(killed) == records(whole)


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl", "lm")
    log.write("train", 1, loss=0.5)
    before = log.file.read_bytes()
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:9]))
        with pytest.raises(NoisyChannelError, match=r"metrics\.jsonl: cannot be written \(No space left on device\)"):
            log.write("train", 2, loss=0.4)
    assert log.file.read_bytes() == before


def test_a_training_keeps_its_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared by all models of the run, whatever is left of them, and kept when it resumes: rounding depends on it."""
    seen: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    config = toy_config(tmp_path, models=("direct", "lm"), rows=40, max_epochs=None, max_updates=2)
    train(config)
    assert seen == [4, 8, 4, 8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    config.training.max_updates = 4
    seen.clear()
    train(config)
    assert seen == [4, 2, 4, 2]
