"""A whole training run: prepare the data, train every model of every group, resume what is unfinished."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from noisychannel.arguments import dump_config
from noisychannel.atomic import cannot_write
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource, Prepared, open_corpus, prepare
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models.registry import ROLES, Role
from noisychannel.run_records import DataRecord
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig, parse_config
from noisychannel.training.events import Finished, Listener
from noisychannel.training.jobs import choose_processes, run_jobs
from noisychannel.training.learner import Job
from noisychannel.training.log import forget_after
from noisychannel.training.loop import train_model
from noisychannel.training.state import TrainingState
from noisychannel.training.world import World

Say = Callable[[str], object]

FREE_TO_CHANGE = {
    "run_dir", "models", "device", "jobs", "tensorboard", "training.max_updates", "training.max_epochs",
    "training.patience", "training.checkpoint_every", "training.log_every",
    *(f"{role}.{limit}" for role in ROLES for limit in ("max_updates", "max_epochs")),
    *(f"data.{key}" for key in ("train", "dev", "unpaired", "train_outputs", "dev_outputs", "vocabularies")),
}  # fmt: skip
"""Keys that may differ when a run is resumed. Files may have moved: their content is compared instead."""


def train_run(config: RunConfig, listen: Listener, say: Say = print, overwrite: bool = False) -> list[Finished]:
    """Train the models of a configuration into its run directory. Finished models stay as they are.

    Under torchrun every process calls this; only the leading one returns results.
    """
    world = World.join(config.device)
    run = RunDirectory(Path(config.run_dir))
    try:
        if world.size == 1:
            return train_runs([config], listen, say, overwrite)
        with _locked(run) if world.leads else nullcontext(False) as begun:
            if world.leads:
                jobs = _prepare_run(run, config, say, overwrite, begun)
            world.wait()
            if not world.leads:
                jobs = _jobs(run, config, run.header().groups)
            finished = [train_model(job, world, listen) for job in jobs]
            if world.leads and jobs:
                _close(run, jobs, say)
            return finished if world.leads else []
    finally:
        world.leave()


def train_runs(
    configs: Sequence[RunConfig], listen: Listener, say: Say = print, overwrite: bool = False
) -> list[Finished]:
    """Train several runs at once, such as one per seed. On a GPU, models of one shape are trained together."""
    with ExitStack() as locks:
        jobs: list[Job] = []
        for config in configs:
            run = RunDirectory(Path(config.run_dir))
            jobs += _prepare_run(run, config, say, overwrite, locks.enter_context(_locked(run)))
        if not jobs:
            return []
        processes = choose_processes(len(jobs), choose_device(configs[0].device), configs[0].jobs)
        finished = run_jobs(jobs, processes, listen, say)
        for config in configs:
            _close(RunDirectory(Path(config.run_dir)), jobs, say)
        return finished


def prepare_run(config: RunConfig, say: Say = print) -> None:
    """Create a run with its vocabularies, for other runs to share, and train nothing yet."""
    run = RunDirectory(Path(config.run_dir))
    with _locked(run) as begun:
        _prepare_run(run, config, say, False, begun)
        _remove_data(run)


def _close(run: RunDirectory, jobs: Sequence[Job], say: Say) -> None:
    """After training: remove the encoded data, and say so if the tuned weights belong to the earlier models."""
    changed = any(ROLES[job.role].in_objective and Path(job.config.run_dir) == run.path for job in jobs)
    _remove_data(run)
    if changed and any(group.weights_file.exists() for group in run.groups()):
        say(f"{run.path}: the weights were tuned with the earlier models; tune again: noisychannel tune {run.path}")


def _remove_data(run: RunDirectory) -> None:
    for group in run.groups():
        shutil.rmtree(group.data_dir, ignore_errors=True)


def _prepare_run(run: RunDirectory, config: RunConfig, say: Say, overwrite: bool, begun: bool) -> list[Job]:
    """Prepare the run directory so that its unfinished models can be trained.

    ``begun``: a directory without run.json contains the unfinished preparation of an earlier training.
    """
    ours = run.header_file.exists()
    if not ours and not begun and any(p.name != ".lock" for p in run.path.iterdir()):
        raise BadInputError(f"{run.path}: not empty, and not a run directory; choose another run_dir, or remove it")
    resumed = ours and not overwrite
    record = config
    codecs: dict[str, tuple[Codec, Codec]] | None = None
    if resumed:
        record = _continued(run, config)
        groups = run.header().groups
        if not _jobs(run, config, groups):
            say(
                f"{run.path}: nothing to do, every model is trained. A model that stopped at its limit continues with "
                "a larger limit; a model that ran out of patience does not. --overwrite deletes all and starts over"
            )
            return []
        codecs = _codecs(run)
    elif config.data.vocabularies is not None:
        codecs = _codecs(RunDirectory.open(Path(config.data.vocabularies)))
        if list(codecs) == [""]:  # one for all groups
            codecs = dict.fromkeys((row.group for row in DataSource(config.data).rows("train")), codecs[""])

    # Nothing is removed before the new data has been read without errors.
    prepared = _prepare_data(run, config, codecs)
    if not resumed:
        _clear(run, list(prepared))
    for group, data in prepared.items():
        say(f"{group or 'data'}: " + "; ".join(f"{split} {counts.summary()}" for split, counts in data.counts.items()))
        if resumed:
            _check_data(run.group(group), data)
        else:
            run.group(group).write_codecs(data.input_codec, data.output_codec)
        _write_group(run.group(group), record, data, group)
    if list(prepared) != [""]:
        run.write_config(dump_config(record))
        run.write_header(sorted(prepared), DataRecord())
    jobs = _jobs(run, config, sorted(prepared))
    for job in jobs:
        files = RunDirectory(job.run_dir)
        if files.finished(job.role):
            files.stopped_file(job.role).replace(files.state_file(job.role))
        step = TrainingState.read(files.state_file(job.role)).step if files.state_file(job.role).exists() else 0
        forget_after(files.metrics_file, job.role, step)
        if step:
            say(f"{job.label}: resuming at step {step}")
    return jobs


def _codecs(run: RunDirectory) -> dict[str, tuple[Codec, Codec]]:
    return {group: run.group(group).codecs() for group in run.header().groups}


def _prepare_data(
    run: RunDirectory, config: RunConfig, codecs: dict[str, tuple[Codec, Codec]] | None
) -> dict[str, Prepared]:
    try:
        return prepare(config.data, lambda group: run.group(group).data_dir, codecs)
    except BaseException:
        for leftover in list(run.path.glob("**/.data")):
            shutil.rmtree(leftover, ignore_errors=True)
            if leftover.parent != run.path and not any(leftover.parent.iterdir()):
                leftover.parent.rmdir()
        raise


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


def _write_group(run: RunDirectory, config: RunConfig, data: Prepared, group: str) -> None:
    """Configuration and header of a group. The header comes last: a directory that has it is complete."""
    run.write_config(dump_config(config))
    counts: dict[str, Any] = {split: {**asdict(c), "unknown": c.unknown.total()} for split, c in data.counts.items()}
    run.write_header([""], DataRecord(**counts, fingerprints=_fingerprints(data)), group)


def _fingerprints(data: Prepared) -> dict[str, str]:
    """Hashes of everything that the models of a group are trained and evaluated on."""
    return {
        "train": open_corpus(data.directory, "pairs", "train").fingerprint,
        "dev": open_corpus(data.directory, "pairs", "dev").fingerprint,
        "unpaired": open_corpus(data.directory, "outputs", "train").fingerprint,
    }


def _check_data(run: RunDirectory, data: Prepared) -> None:
    before = run.header().data.fingerprints
    for name, fingerprint in _fingerprints(data).items():
        if before.get(name) != fingerprint:
            raise NoisyChannelError(
                f"{run.path}: data.{name} has changed since the run was started; restore it or start over (--overwrite)"
            )


def _continued(run: RunDirectory, config: RunConfig) -> RunConfig:
    """The configuration that the run stores: the earlier models, and those added now.

    A different configuration is refused, naming the first key that differs. The section of a model whose training has
    not started may change.
    """
    before = parse_config(run.existing_config())
    # The sections of models that are not asked for now are those of the run.
    config = replace(config)
    for role in ROLES:
        if role not in config.models:
            setattr(config, role, before.model(role))
    begun = {role for role in ROLES if any(of_group.model_dir(role).exists() for of_group in run.groups())}
    known = _flat(asdict(before))
    for key, value in _flat(asdict(config)).items():
        section = key.partition(".")[0]
        if key in FREE_TO_CHANGE or (section in ROLES and section not in begun):
            continue
        if known[key] != value:
            raise BadInputError(
                f"{run.path}: was started with {key}: {known[key]}, not {value}; "
                "keep it, choose another run_dir, or start over (--overwrite)"
            )
    return replace(config, models=list(dict.fromkeys([*before.models, *config.models])))


def _clear(run: RunDirectory, groups: list[str]) -> None:
    """Remove the files of an earlier training, and nothing else. The header of the whole run goes last."""
    with suppress(NoisyChannelError):  # no header, one of another version, or a damaged one: starting over is the cure
        groups = groups + list(run.header().groups)
    for directory in [*dict.fromkeys(run.group(group).path for group in groups if group), run.path]:
        for name in (*ROLES, "tensorboard"):
            shutil.rmtree(directory / name, ignore_errors=True)
        for side in ("input", "output"):
            (directory / f"{side}.vocabulary.json").unlink(missing_ok=True)
            (directory / f"{side}.sentencepiece").unlink(missing_ok=True)
        for name in ("metrics.jsonl", "weights.json", "config.yaml", "run.json"):
            (directory / name).unlink(missing_ok=True)
        if directory != run.path and directory.exists() and not any(directory.iterdir()):
            directory.rmdir()
    run.forget()


@contextmanager
def _locked(run: RunDirectory) -> Iterator[bool]:
    """Keep other processes from training in the directory. Yields whether its content is ours to replace."""
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
                f"{run.path}: in use by another process; wait until it has finished, or choose another run_dir"
            ) from None
        try:
            yield begun or empty
        finally:
            # The file stays if our preparation was interrupted. It marks the content as ours to replace.
            left_over = (begun or empty) and not run.header_file.exists()
            if not left_over or [p.name for p in run.path.iterdir()] == [file.name]:
                file.unlink(missing_ok=True)
            if empty and not any(run.path.iterdir()):
                run.path.rmdir()


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
