"""A whole training run: prepare the data, train every model of every group, and resume what was left unfinished."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noisychannel.atomic import cannot_write, write_text
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import Prepared, prepare
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ROLES, RunConfig
from noisychannel.training.events import Finished, Listener
from noisychannel.training.jobs import choose_processes, run_jobs
from noisychannel.training.loop import Job, train_model
from noisychannel.training.metrics import forget_after
from noisychannel.training.parse import dump_config, parse_config
from noisychannel.training.state import TrainingState
from noisychannel.training.world import World

FREE_TO_CHANGE = {
    "run_dir", "models", "device", "jobs", "tensorboard", "training.max_epochs", "training.patience",
    "training.checkpoint_every", "training.log_every",
    *(f"{role}.max_epochs" for role in ROLES),
}  # fmt: skip
"""Keys that may differ when a run is resumed."""


def train_run(config: RunConfig, listen: Listener, say: Any = print, overwrite: bool = False) -> list[Finished]:
    """Train what a configuration asks for into its run directory. Finished models are left as they are.

    Under torchrun every process calls this; the results come back in the leading one only.
    """
    world = World.join(config.device)
    run = RunDirectory(Path(config.run_dir))
    try:
        with _locked(run) if world.leads else nullcontext(False) as begun:
            if world.leads:
                jobs = _prepare_run(run, config, say, overwrite, begun)
            world.wait()
            if not world.leads:
                jobs = _jobs(run, config, run.header()["groups"])
            if world.size > 1:
                finished = [train_model(job, world, listen) for job in jobs]
            else:
                finished = run_jobs(jobs, config.jobs or choose_processes(jobs, world.device), listen)
            if world.leads:
                for group in run.header()["groups"]:
                    shutil.rmtree(run.group(group).data_dir, ignore_errors=True)
            return finished if world.leads else []
    finally:
        world.leave()


def _prepare_run(run: RunDirectory, config: RunConfig, say: Any, overwrite: bool, begun: bool) -> list[Job]:
    """Bring the run directory into the state in which its unfinished models can be trained.

    ``begun``: what is in a directory without run.json is the unfinished preparation of an earlier training.
    """
    if overwrite:
        _clear(run)
    resumed = (run.path / "run.json").exists()
    if resumed:
        _check_same(run, config)
        unfinished = _jobs(run, config, run.header()["groups"])
        if not unfinished:
            say(f"{run.path}: every model is trained already; start anew with --overwrite")
            return []
    elif not begun and any(p.name != ".lock" for p in run.path.iterdir()):
        raise BadInputError(f"{run.path}: not empty, and no run directory; name another run_dir, or remove it")

    try:
        prepared = prepare(config.data, lambda group: run.group(group).data_dir)
    except BaseException:
        for leftover in list(run.path.glob("**/.data")):
            shutil.rmtree(leftover, ignore_errors=True)
            if leftover.parent != run.path and not any(leftover.parent.iterdir()):
                leftover.parent.rmdir()
        raise
    for group, data in prepared.items():
        say(f"{group or 'data'}: " + "; ".join(f"{split} {counts.summary()}" for split, counts in data.counts.items()))
        if resumed:
            _check_vocabularies(run.group(group), data)
        else:
            _write_group(run.group(group), config, data, group)
    if list(prepared) != [""]:
        run.write_header(sorted(prepared), {})
        write_text(run.config_file, dump_config(config))
    jobs = _jobs(run, config, sorted(prepared))
    for job in jobs:
        state_file = RunDirectory(job.run_dir).state_file(job.role)
        step = TrainingState.step_in(state_file) if state_file.exists() else 0
        forget_after(RunDirectory(job.run_dir).metrics_file, job.role, step)
        if step:
            say(f"{job.label}: goes on at step {step}")
    return jobs


def _jobs(run: RunDirectory, config: RunConfig, groups: list[str]) -> list[Job]:
    """The models still to be trained. Language models, which have the most data, go first."""
    roles = sorted(config.models, key=lambda role: role != "lm")
    return [
        Job(config, role, run.group(group).path, f"{group} {role}".strip())
        for role in roles
        for group in groups
        if not run.group(group).finished(role)
    ]


def _write_group(run: RunDirectory, config: RunConfig, data: Prepared, group: str) -> None:
    """A run directory ready for training; run.json comes last, so that a directory with it is whole."""
    data.input_codec.save(run.path, "input")
    data.output_codec.save(run.path, "output")
    write_text(run.config_file, dump_config(config))
    counts: dict[str, Any] = {split: {**asdict(c), "unknown": c.unknown.total()} for split, c in data.counts.items()}
    run.write_header([""], dict(counts), group)


def _check_same(run: RunDirectory, config: RunConfig) -> None:
    """Refuse to go on with another configuration, naming the first key that differs."""
    before = _flat(asdict(parse_config(run.config_file)))
    trained = {role for role in ROLES if any(run.group(g).model_dir(role).exists() for g in run.header()["groups"])}
    for key, value in _flat(asdict(config)).items():
        section = key.partition(".")[0]
        if key in FREE_TO_CHANGE or (section in ROLES and section not in trained):
            continue
        if before[key] != value:
            raise BadInputError(
                f"{run.path}: was begun with {key}: {before[key]}, not {value}; "
                "keep it, name another run_dir, or start anew with --overwrite"
            )


def _check_vocabularies(run: RunDirectory, data: Prepared) -> None:
    for side, codec in (("input", data.input_codec), ("output", data.output_codec)):
        if Codec.load(run.path, side).fingerprint != codec.fingerprint:
            raise NoisyChannelError(
                f"{run.path}: the training data has changed since it began; restore it, or start anew (--overwrite)"
            )


def _clear(run: RunDirectory) -> None:
    """Remove what a training writes, and nothing else."""
    groups = run.header()["groups"] if (run.path / "run.json").exists() else [""]
    for directory in {run.path, *(run.group(group).path for group in groups)}:
        for role in ROLES:
            shutil.rmtree(directory / role, ignore_errors=True)
        shutil.rmtree(directory / ".data", ignore_errors=True)
        shutil.rmtree(directory / "tensorboard", ignore_errors=True)
        for name in ("run.json", "config.yaml", "metrics.jsonl", "weights.json"):
            (directory / name).unlink(missing_ok=True)
        for side in ("input", "output"):
            (directory / f"{side}.vocabulary.json").unlink(missing_ok=True)
            (directory / f"{side}.sentencepiece").unlink(missing_ok=True)
        if directory != run.path and directory.exists() and not any(directory.iterdir()):
            directory.rmdir()


@contextmanager
def _locked(run: RunDirectory) -> Iterator[bool]:
    """Keep a second training out of the directory while this one lives; tells whether an earlier one died in it."""
    file = run.path / ".lock"
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        begun = file.exists()
        empty = not any(run.path.iterdir())
        lock = file.open("w")
    except OSError as error:
        raise cannot_write(run.path, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInputError(
                f"{run.path}: another training is at work in it; wait, or name another run_dir"
            ) from None
        try:
            yield begun or empty
        finally:
            # Left where a preparation of ours broke off, as the mark that what is there can be replaced.
            left_over = (begun or empty) and not (run.path / "run.json").exists()
            if not left_over or [p.name for p in run.path.iterdir()] == [file.name]:
                file.unlink(missing_ok=True)
            if empty and not any(run.path.iterdir()):
                run.path.rmdir()


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
