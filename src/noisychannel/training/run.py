"""A whole training run: prepare the data, train every model of every group, resume what is unfinished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from noisychannel.arguments import dump_config
from noisychannel.atomic import cannot_write
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource, Prepared, open_corpus, prepare
from noisychannel.data.sources import SOURCE_KEYS, SourceFiles, Sources, compare, keys_of
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models.registry import ROLES, Role
from noisychannel.models.seen import Seen
from noisychannel.run_files import NGRAMS, WORK, directory_name
from noisychannel.run_ngrams import make_ngram, missing_ngrams, write_ngram
from noisychannel.run_records import DataRecord
from noisychannel.runs import RunDirectory
from noisychannel.tensors import load_shapes
from noisychannel.training.config import NGramConfig, RunConfig, parse_config
from noisychannel.training.events import Finished, Listener
from noisychannel.training.jobs import choose_processes, run_jobs, trained_in_graphs
from noisychannel.training.learner import Job
from noisychannel.training.lock import locked_run
from noisychannel.training.log import check_regular, forget_after
from noisychannel.training.loop import train_model
from noisychannel.training.memory import check_prepared, check_sizes, processes_that_fit
from noisychannel.training.removal import clear_run, leaving_no_data, remove, remove_data, remove_unfinished_files
from noisychannel.training.state import TrainingState
from noisychannel.training.timing import describe_long_lines, describe_samples, describe_times, training_times
from noisychannel.training.world import World

Say = Callable[[str], object]

LIMITS = {f"{section}.{limit}" for section in ("training", *ROLES) for limit in ("max_updates", "max_epochs")}
FREE_TO_CHANGE = LIMITS | {
    "run_dir", "models", "device", "jobs", "tensorboard", "training.patience", "training.checkpoint_every",
    "training.log_every",
    *(f"data.{key}" for key in (*SOURCE_KEYS, "vocabularies")), *(f"ngrams.{name}" for name in NGRAMS),
}  # fmt: skip
"""Keys that may differ when a run is resumed. Files may have moved: their content is compared instead.
A linear schedule depends on its limit, so there the limits may not differ."""


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
    configs: Sequence[RunConfig], listen: Listener, say: Say = print, overwrite: bool = False, estimate: bool = False
) -> list[Finished]:
    """Train several runs at once, such as one per seed. On a GPU, models of one shape are trained together."""
    with ExitStack() as stack:
        jobs: list[Job] = []
        locks: list[int] = []
        for config in configs:
            run = RunDirectory(Path(config.run_dir))
            lock = stack.enter_context(locked_run(run))
            own = _prepare_run(run, config, say, overwrite, lock.begun)
            jobs += [_named(job, run) for job in own] if len(configs) > 1 else own
            locks.append(lock.descriptor)
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
        finished = run_jobs(jobs, processes, listen, say, locks)
        for config in configs:
            _close(RunDirectory(Path(config.run_dir)), jobs, say)
        return finished


def _named(job: Job, run: RunDirectory) -> Job:
    """A job of one of several runs: its events say of which."""
    return replace(job, label=f"{run.path.name} {job.label}")


def prepare_run(config: RunConfig, say: Say = print) -> None:
    """Create a run with its vocabularies, for other runs to share, and train nothing yet."""
    run = RunDirectory(Path(config.run_dir))
    with locked_run(run) as lock:
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
        record = _continued(run, config)
        codecs = _codecs(run)
        _verify_models(run, config)
        if not (jobs := _jobs(run, config, run.header().groups)):
            complete = _check_sources(run, config, say)
            _add_counts(run, record, complete, say)
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
        codecs = _codecs(RunDirectory.open(Path(config.data.vocabularies)))
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
                _check_data(run.group(group), data, config)
        for job in jobs:
            _check_state(job)
    if not resumed:
        clear_run(run, list(prepared))
    for group, data in prepared.items():
        say(f"{group or 'data'}: {data.summary()}")
        if not resumed:
            _settle(run.group(group), data)
            run.group(group).write_codecs(data.input_codec, data.output_codec)
        if _counts_pairs(record):
            _write_seen(run.group(group), data)
        _write_ngrams(run.group(group), record, data, asdict(record.ngrams))
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


def _verify_models(run: RunDirectory, config: RunConfig) -> None:
    """Refuse trained models that are damaged or exchanged: further training would give them valid checksums."""
    for group in run.groups():
        for role in config.models:
            if group.finished(role):
                group.verify_model(role)


def _check_state(job: Job) -> None:
    """Refuse a state from which a model cannot continue, before anything is changed."""
    files, role = RunDirectory(job.run_dir), job.role
    check_regular(files.metrics_file)
    finished = files.finished(role)
    state_file = files.stopped_file(role) if finished else files.state_file(role)
    if not state_file.exists():
        return
    files.check_role(role)
    data = open_corpus(files.data_dir, ROLES[role].trained_on, "train").fingerprint
    _, tensors = TrainingState.verified(state_file, role, data)
    weights = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name.startswith("model.")}
    if finished and weights != {f"model.{name}": shape for name, shape in load_shapes(files.model_file(role)).items()}:
        raise NoisyChannelError(
            f"{state_file}: not the state of this model; restore it from a copy, or {files.training_again(role)}"
        )


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


def _codecs(run: RunDirectory) -> dict[str, tuple[Codec, Codec]]:
    return {group: run.group(group).codecs() for group in run.header().groups}


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
    run.write_header([""], DataRecord(**counts, fingerprints=_fingerprints(data), sources=sources), group)


def _fingerprints(data: Prepared) -> dict[str, str]:
    """Hashes of everything that the models of a group are trained and evaluated on."""
    return {
        "train": open_corpus(data.directory, "pairs", "train").fingerprint,
        "dev": open_corpus(data.directory, "pairs", "dev").fingerprint,
        "unpaired": open_corpus(data.directory, "outputs", "train").fingerprint,
    }


def _check_data(run: RunDirectory, data: Prepared, config: RunConfig) -> None:
    """Refuse data that is not what the models of the run see; the message names the key and the file."""
    before, sources = run.header().data.fingerprints, run.header().data.sources
    for name, fingerprint in _fingerprints(data).items():
        if before.get(name) != fingerprint:
            changed = compare(config.data, sources, keys_of(name, config.data)).changed if sources else {}
            key = next(iter(changed), name).removesuffix("_outputs")
            raise _changed(run, key, *(file for k, file in changed.items() if k.removesuffix("_outputs") == key))


def _changed(run: RunDirectory, key: str, *files: str) -> BadInputError:
    where = f" ({', '.join(files)})" if files else ""
    return BadInputError(
        f"{run.path}: data.{key} has changed since the run was started{where}; restore it or start over (--overwrite)"
    )


def _counts_pairs(config: RunConfig) -> bool:
    """Whether a run keeps counts of its pairs: if it has a model of outputs given inputs."""
    return any(ROLES[role].trained_on == "pairs" for role in config.models)


def _write_seen(run: RunDirectory, data: Prepared) -> None:
    """The term ``seen`` of a group, from its encoded pairs."""
    inputs, outputs = open_corpus(data.directory, "pairs", "train")
    assert inputs is not None
    symbols = max(len(data.input_codec), len(data.output_codec))
    run.write_seen(Seen.of(*inputs, *outputs, symbols, data.real_pairs()))


def _write_ngrams(run: RunDirectory, config: RunConfig, data: Prepared, orders: Mapping[str, int]) -> None:
    """The n-gram models of a group that have an order, by name."""
    for name, order in orders.items():
        if order:
            write_ngram(run, name, make_ngram(name, order, data, config.data))


def _add_counts(run: RunDirectory, config: RunConfig, complete: bool, say: Say) -> None:
    """Count what a finished run lacks: because an earlier version did not, the configuration asks for n-grams now, or
    the counts were removed or are damaged.

    ``complete``: all files of data are there.
    """
    groups = run.groups()
    lacks_seen = _counts_pairs(config) and not all(group.is_intact(group.seen_file) for group in groups)
    ngrams: dict[str, int] = {}
    for of_group in groups:
        ngrams |= missing_ngrams(of_group, asdict(config.ngrams))
    added = [
        *(["the training pairs were{} counted (seen)"] if lacks_seen else []),
        *(f"the n-grams of {name} were{{}} counted (ngram_{name})" for name in ngrams),
    ]
    if not added:
        return
    if not complete:
        for line in added:
            say(f"{run.path}: {line.format(' not')}, because files of its data are missing")
        return
    with leaving_no_data(run):
        prepared = prepare(config.data, lambda group: run.group(group).data_dir, _codecs(run))
        for group, data in prepared.items():
            _check_data(run.group(group), data, config)
    for group, data in prepared.items():
        if lacks_seen:
            _write_seen(run.group(group), data)
        _write_ngrams(run.group(group), config, data, ngrams)
        run.group(group).record_prepared()
    for place in dict.fromkeys([*groups, run]) if ngrams else ():
        place.write_config(dump_config(config))
    for line in added:
        say(f"{run.path}: {line.format('')}")


def _check_sources(run: RunDirectory, config: RunConfig, say: Say) -> bool:
    """Refuse data that has changed since the models were trained. If its bytes differ, what the models see counts.

    Returns whether all files are there.
    """
    recorded = run.header().data.sources
    differences = compare(config.data, recorded)
    for key, reason in differences.missing.items():
        say(f"{run.path}: data.{key} was not compared with what the models were trained on ({reason})")
    if differences.missing:
        for key, file in differences.changed.items() if recorded else ():
            raise _changed(run, key, file)
    if not differences.changed or differences.missing:
        return not differences.missing
    with leaving_no_data(run):
        prepared = prepare(config.data, lambda group: run.group(group).data_dir, _codecs(run))
        for group, data in prepared.items():
            _check_data(run.group(group), data, config)
    return True


def _continued(run: RunDirectory, config: RunConfig) -> RunConfig:
    """The configuration that the run stores: the earlier models, and those added now.

    A different configuration is refused, naming the first key that differs. The section of a model whose training has
    not started may change.
    """
    before = parse_config(run.existing_config())
    # The sections of models that are not asked for now are those of the run.
    config = replace(config)
    orders = {name: order or getattr(before.ngrams, name) for name, order in asdict(config.ngrams).items()}
    config.ngrams = NGramConfig(**orders)
    for role in ROLES:
        if role not in config.models:
            setattr(config, role, before.model(role))
    begun = {role for role in ROLES if any(of_group.model_dir(role).exists() for of_group in run.groups())}
    known = _flat(asdict(before))
    for key, value in _flat(asdict(config)).items():
        section = key.partition(".")[0]
        free = FREE_TO_CHANGE if config.training.schedule == "plateau" else FREE_TO_CHANGE - LIMITS
        if key in free or (section in ROLES and section not in begun):
            continue
        if known[key] != value:
            raise BadInputError(
                f"{run.path}: was started with {key}: {known[key]}, not {value}; "
                "keep it, choose another run_dir, or start over (--overwrite)"
            )
    return replace(config, models=list(dict.fromkeys([*before.models, *config.models])))


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
