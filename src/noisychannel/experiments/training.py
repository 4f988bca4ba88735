"""Training the runs of an experiment: groups of runs wait for a place on the device.

The models of one group are trained together, by one process on a GPU or by several on a CPU. On a GPU several groups
are trained at the same time, but only as many as its memory holds. Commands that work in one directory at the same time
share what they train: one of them trains a run, and the others wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.experiments.settings import Setup
from noisychannel.processes import BOUND, kill_children
from noisychannel.provenance import provenance
from noisychannel.run_ngrams import missing_ngrams
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.events import Finished
from noisychannel.training.jobs import choose_processes
from noisychannel.training.resuming import check_sources, continued
from noisychannel.training.run import train_runs

Group = Sequence[RunConfig]
TRAININGS = "trainings.jsonl"
"""In the work directory: a line for each model that was trained."""
GROUP_GIB = 10
"""GPU memory that is set aside for each group. A stack of 24 small models with their CUDA graphs needs 6 to 8 GiB."""


def train_groups(groups: Sequence[Group], setup: Setup) -> None:
    """Train every group that is not finished, several at a time if the device allows it."""
    waiting = []
    for group in groups:
        finished = [config for config in group if is_finished(config)]
        for config in finished:
            require_same(config)
        if len(finished) < len(group):
            waiting.append(group)
    places = groups_at_once(len(waiting), choose_device(setup.device), setup.jobs)
    if not waiting:
        return
    if places <= 1:
        with setup.reporter.counting("train, groups of runs", len(waiting)) as advance:
            for group in waiting:
                _keep(_train(group), group, setup)
                advance(1)
        return
    with (
        setup.reporter.counting("train, groups of runs", len(waiting)) as advance,
        ProcessPoolExecutor(places, BOUND) as pool,
    ):
        futures = {pool.submit(_train, group): group for group in waiting}
        try:
            for future in as_completed(futures):
                _keep(future.result(), futures[future], setup)
                advance(1)
        except BrokenProcessPool as error:
            raise NoisyChannelError(
                "a training process was killed, perhaps because memory ran out; repeat with a smaller --jobs"
            ) from error
        finally:
            # After an error, groups that have not begun are not begun; those that run finish, and are kept.
            try:
                pool.shutdown(wait=True, cancel_futures=True)
            except KeyboardInterrupt:
                kill_children()
                raise


def groups_at_once(groups: int, device: torch.device, jobs: int | None) -> int:
    """How many groups are trained at the same time. On a CPU one: its models already use every core."""
    if device.type != "cuda":
        return min(1, groups)
    if jobs is not None:
        return min(jobs, groups)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return min(choose_processes(groups, device), max(1, int(free_bytes / 2**30 / GROUP_GIB)), groups)


def is_finished(config: RunConfig) -> bool:
    """Whether every model of a run is trained, and what it counts is counted."""
    directory = RunDirectory(Path(config.run_dir))
    if not (directory.path / "run.json").exists():
        return False
    runs = directory.groups()
    has_list = "lm" in config.models and config.lm.word_list
    listed = not has_list or all(run.word_list_file.exists() for run in runs)
    counted = not any(missing_ngrams(run, asdict(config.ngrams)) for run in runs)
    return listed and counted and all(run.finished(role) for run in runs for role in config.models)


def require_same(config: RunConfig) -> None:
    """Refuse a finished run that has other data or settings than are asked for now."""
    run = RunDirectory(Path(config.run_dir))
    try:
        continued(run, config)
        check_sources(run, config, lambda line: None)
    except BadInputError as error:
        what = str(error).removeprefix(f"{run.path}: ").partition(";")[0]
        raise BadInputError(
            f"{run.path}: trained with other data or settings ({what}); choose another --work, or remove this run"
        ) from error


def ended_by_limit(run: RunDirectory, roles: Sequence[str]) -> list[str]:
    """The models of a run whose training a limit ended, so that more updates may make them better."""
    ended = []
    for group in run.groups():
        name = str(group.path.relative_to(run.path.parent))
        ended += [f"{name} {role}" for role in roles if group.stopped_file(role).exists()]
    return ended


def recorded_trainings(work: Path, runs: Collection[str]) -> list[dict[str, Any]]:
    """What is known of the trainings of these runs in a work directory, by this command or earlier ones."""
    file = work / TRAININGS
    records = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
    return [record for record in records if record["run"] in runs]


def _train(group: Group) -> list[Finished]:
    """Train the runs of a group."""
    return train_runs(group, lambda event: None, lambda line: None, wait=True)


def _keep(trained: Sequence[Finished], group: Group, setup: Setup) -> None:
    """A line and a record for each model."""
    names = [Path(config.run_dir).name for config in group]
    if not trained:
        setup.say(f"{', '.join(names)}: another command has trained it")
    records = []
    for finished in trained:
        label = finished.label if len(group) > 1 else f"{names[0]} {finished.label}"
        run, _, model = label.partition(" ")
        setup.say(
            f"{label}: dev perplexity {finished.dev_perplexity:.4f} at step {finished.best_step} "
            f"of {finished.step}{' (its limit)' if finished.at_limit else ''}, {finished.seconds:.0f} s"
        )
        if finished.fault:
            setup.say(f"{label}: {finished.fault}")
        figures = {"dev perplexity": finished.dev_perplexity, "best step": finished.best_step, "steps": finished.step}
        if finished.at_one_place is not None:
            figures["whole output at one input symbol"] = round(finished.at_one_place, 3)
        records.append({"run": run, "model": model, **figures, "seconds": round(finished.seconds, 1), **provenance()})
    with (setup.work / TRAININGS).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
