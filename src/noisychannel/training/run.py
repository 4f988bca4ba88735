"""A whole training run: prepare the data, train every model of every group, resume what is unfinished."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from noisychannel.arguments import dump_config
from noisychannel.atomic import cannot_write
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource, Prepared, prepare
from noisychannel.data.sources import SourceFiles, Sources
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError
from noisychannel.models.registry import ROLES, Role
from noisychannel.reporting import Say
from noisychannel.run_files import WORK, directory_name
from noisychannel.run_records import DataRecord
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.counts import add_counts, counts_pairs, write_ngrams, write_seen
from noisychannel.training.events import Finished, Listener
from noisychannel.training.jobs import choose_processes, run_jobs, trained_in_graphs
from noisychannel.training.learner import Job
from noisychannel.training.lock import locked_run
from noisychannel.training.log import forget_after
from noisychannel.training.loop import train_model
from noisychannel.training.memory import check_prepared, check_sizes, processes_that_fit
from noisychannel.training.removal import clear_run, leaving_no_data, remove, remove_data, remove_unfinished_files
from noisychannel.training.resuming import (
    check_data,
    check_sources,
    check_state,
    codecs_of,
    continued,
    fingerprints,
    verify_models,
)
from noisychannel.training.state import TrainingState
from noisychannel.training.timing import describe_long_lines, describe_samples, describe_times, training_times
from noisychannel.training.world import World


def train_run(
    config: RunConfig, listen: Listener, say: Say = print, overwrite: bool = False, estimate: bool = False
) -> list[Finished]:
    """Train the models of a configuration into its run directory. Finished models stay as they are.

    ``estimate``: first measure some updates and say how long it will take (in one process, without CUDA graphs). Under
    torchrun every process calls this; only the leading one returns results.
    """
    world = World.join(config.device)
    run = RunDirectory(Path(config.run_dir))
    try:
        if world.size == 1:
            return train_runs([config], listen, say, overwrite, estimate)
        with locked_run(run) if world.leads else nullcontext() as lock:
            if lock is not None:
                jobs = _prepare_run(run, config, say, overwrite, lock.begun)
            world.wait()
            if not world.leads:
                jobs = _jobs(run, config, run.header().groups)
            finished = [train_model(job, world, listen) for job in _with_threads(jobs, [config])]
            if world.leads and jobs:
                _close(run, jobs, say)
            return finished if world.leads else []
    finally:
        world.leave()


def train_runs(
    configs: Sequence[RunConfig],
    listen: Listener,
    say: Say = print,
    overwrite: bool = False,
    estimate: bool = False,
    wait: bool = False,
) -> list[Finished]:
    """Train several runs at once, such as one per seed. On a GPU, models of one shape are trained together.

    ``wait``: if another process trains one of them, wait until it has ended, and train what it has left.
    """
    with ExitStack() as stack:
        places = [Path(config.run_dir).resolve() for config in configs]
        if len(set(places)) < len(places):
            raise BadInputError("run_dir: two runs cannot be trained in one directory; choose another run_dir")
        # In the same order in all processes: none holds what another needs while it waits for what that one holds.
        locks = {place: stack.enter_context(locked_run(RunDirectory(place), wait)) for place in sorted(places)}
        jobs: list[Job] = []
        for config, place in zip(configs, places, strict=True):
            run = RunDirectory(Path(config.run_dir))
            own = _prepare_run(run, config, say, overwrite, locks[place].begun)
            jobs += [_named(job, run) for job in own] if len(configs) > 1 else own
        if not jobs:
            return []
        device = choose_device(configs[0].device)
        processes = processes_that_fit(jobs, choose_processes(len(jobs), device, configs[0].jobs), say)
        jobs = _with_threads(jobs, configs)
        for line in [*describe_long_lines(jobs), *describe_samples(jobs)] if estimate else []:
            say(line)
        if estimate and not trained_in_graphs(jobs):
            for line in describe_times(jobs, training_times(jobs, processes, device), processes):
                say(line)
        finished = run_jobs(jobs, processes, listen, say, [lock.descriptor for lock in locks.values()])
        for config in configs:
            _close(RunDirectory(Path(config.run_dir)), jobs, say)
        return finished


def _named(job: Job, run: RunDirectory) -> Job:
    """A job of one of several runs: its events say of which."""
    return replace(job, label=f"{run.path.name} {job.label}")


def prepare_run(config: RunConfig, say: Say = print, wait: bool = False) -> None:
    """Create a run with its vocabularies, for other runs to share, and train nothing yet.

    ``wait``: if another process does, wait until it has ended.
    """
    run = RunDirectory(Path(config.run_dir))
    with locked_run(run, wait) as lock:
        if wait and run.header_file.exists():
            return
        _prepare_run(run, config, say, False, lock.begun)
        remove_data(run)


def _with_threads(jobs: Sequence[Job], configs: Sequence[RunConfig]) -> list[Job]:
    """Share the threads among all models, finished or not: results depend on their number, and not on ``jobs``."""
    groups = [len(RunDirectory(Path(config.run_dir)).header().groups) for config in configs]
    models = sum(len(config.models) * number for config, number in zip(configs, groups, strict=True))
    threads = max(1, torch.get_num_threads() // models)
    return [replace(job, threads=threads) for job in jobs]


def _close(run: RunDirectory, jobs: Sequence[Job], say: Say) -> None:
    """After training: remove the encoded data, and say so if the tuned weights belong to the earlier models."""
    changed = any(ROLES[job.role].in_objective and Path(job.config.run_dir) == run.path for job in jobs)
    remove_data(run)
    if changed and any(group.weights_file.exists() for group in run.groups()):
        say(f"{run.path}: the weights were tuned with the earlier models; tune again: noisychannel tune {run.path}")


def _prepare_run(run: RunDirectory, config: RunConfig, say: Say, overwrite: bool, begun: bool) -> list[Job]:
    """Prepare the run directory so that its unfinished models can be trained.

    ``begun``: a directory without run.json contains the unfinished preparation of an earlier training.
    """
    ours = run.header_file.exists()
    if not ours and not (begun and overwrite) and _holds_models(run):
        way = "start over (--overwrite)" if begun else "choose another run_dir"
        raise BadInputError(
            f"{run.header_file}: missing, but {run.path} holds trained models; restore it from a copy, or {way}"
        )
    if not ours and not begun and any(p.name not in (".lock", WORK) for p in run.path.iterdir()):
        raise BadInputError(f"{run.path}: not empty, and not a run directory; choose another run_dir, or remove it")
    remove_unfinished_files(run)
    resumed = ours and not overwrite
    record = config
    codecs: dict[str, tuple[Codec, Codec]] | None = None
    jobs: list[Job] = []
    if resumed:
        record = continued(run, config)
        codecs = codecs_of(run)
        verify_models(run, config)
        if not (jobs := _jobs(run, config, run.header().groups)):
            complete = check_sources(run, config, say)
            add_counts(run, record, complete, say)
            remove_data(run)
            say(
                f"{run.path}: nothing to do, every model is trained. A model that stopped at its limit continues with "
                "a larger limit; a model that ran out of patience does not. --overwrite deletes all and starts over"
            )
            return []
    roles = list(dict.fromkeys(job.role for job in jobs)) if resumed else config.models
    check_sizes(config, roles)
    sources = Sources(config.data)
    if not resumed and config.data.vocabularies is not None:
        codecs = codecs_of(RunDirectory.open(Path(config.data.vocabularies)))
        if list(codecs) == [""]:  # one for all groups
            codecs = dict.fromkeys((row.group for row in DataSource(config.data).rows("train")), codecs[""])

    for place in (run, *run.groups()) if resumed else (run,):
        if place.data_dir.is_symlink():  # what it points to is not ours
            remove(place.data_dir)
    # Nothing is removed before the new data has been read without errors.
    with leaving_no_data(run):
        prepared = prepare(config.data, lambda group: _data_dir(run, group, resumed), codecs, say)
        hashes = sources.record()
        for group, data in prepared.items():
            check_prepared(config, roles, data, group)
            if resumed:
                check_data(run.group(group), data, config)
        for job in jobs:
            check_state(job)
    if not resumed:
        clear_run(run, list(prepared))
    for group, data in prepared.items():
        say(f"{group or 'data'}: {data.summary()}")
        if not resumed:
            _settle(run.group(group), data)
            run.group(group).write_codecs(data.input_codec, data.output_codec)
        if counts_pairs(record):
            write_seen(run.group(group), data)
        write_ngrams(run.group(group), record, data, asdict(record.ngrams))
        _write_group(run.group(group), record, data, group, hashes)
    if list(prepared) != [""]:
        run.write_config(dump_config(record))
        run.write_header(sorted(prepared), DataRecord(sources=hashes))
    jobs = _jobs(run, config, sorted(prepared))
    for job in jobs:
        _take_up(job, say)
    return jobs


def _holds_models(run: RunDirectory) -> bool:
    """Whether a directory without run.json has models or weights that nobody has asked to replace."""
    if RunDirectory(run.path / ".old").header_file.exists():  # the unfinished work of --overwrite
        return False
    names = ["weights.json", *(f"{role}/model.safetensors" for role in ROLES)]
    return any(file for name in names for place in ("", "*/") for file in run.path.glob(place + name))


def _take_up(job: Job, say: Say) -> None:
    """Let a model continue from its state, if it has one."""
    files = RunDirectory(job.run_dir)
    state_file = files.state_file(job.role)
    if files.finished(job.role):
        files.stopped_file(job.role).replace(state_file)
    state = TrainingState.read(state_file) if state_file.exists() else None
    forget_after(files.metrics_file, job.role, state)
    if state is not None and state.step:
        say(f"{job.label}: resuming at step {state.step}")


def _data_dir(run: RunDirectory, group: str, resumed: bool) -> Path:
    """Where data is encoded. Before the run is cleared, the directory of a group may still be that of another run."""
    return run.group(group).data_dir if resumed or not group else run.data_dir / directory_name(group)


def _settle(run: RunDirectory, data: Prepared) -> None:
    """Move the encoded data to the group that it belongs to."""
    if data.directory != run.data_dir:
        try:
            run.path.mkdir(exist_ok=True)
            remove(run.data_dir)
            data.directory.replace(run.data_dir)
        except OSError as error:
            raise cannot_write(run.data_dir, error) from error
        data.directory = run.data_dir


def _jobs(run: RunDirectory, config: RunConfig, groups: list[str]) -> list[Job]:
    """The models still to be trained. Language models go first: they have the most data."""
    roles = sorted(config.models, key=lambda role: ROLES[role].trained_on != "outputs")
    return [
        Job(config, role, run.group(group).path, f"{group} {role}".strip())
        for role in roles
        for group in groups
        if not run.group(group).finished(role) or _goes_further(run.group(group), config, role)
    ]


def _goes_further(run: RunDirectory, config: RunConfig, role: Role) -> bool:
    """Whether the training of a model stopped at a limit that is now larger."""
    stopped = run.stopped_file(role)
    return stopped.exists() and not TrainingState.read(stopped).at_limit(config.limits(role))


def _write_group(run: RunDirectory, config: RunConfig, data: Prepared, group: str, sources: SourceFiles) -> None:
    """Configuration and header of a group. The header comes last: a directory that has it is complete."""
    run.write_config(dump_config(config))
    counts: dict[str, Any] = {split: {**asdict(c), "unknown": c.unknown.total()} for split, c in data.counts.items()}
    run.write_header([""], DataRecord(**counts, fingerprints=fingerprints(data), sources=sources), group)
