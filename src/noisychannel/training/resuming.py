"""What an existing run may be resumed with: the same data, the same configuration but for some keys, intact models."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from noisychannel.data.codec import Codec
from noisychannel.data.prepare import Prepared, open_corpus, prepare
from noisychannel.data.sources import SOURCE_KEYS, compare, keys_of
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models.registry import ROLES
from noisychannel.reporting import Say
from noisychannel.run_files import NGRAMS
from noisychannel.runs import RunDirectory
from noisychannel.tensors import load_shapes
from noisychannel.training.config import NGramConfig, RunConfig, parse_config
from noisychannel.training.learner import Job
from noisychannel.training.log import check_regular
from noisychannel.training.removal import leaving_no_data
from noisychannel.training.state import TrainingState

LIMITS = {f"{section}.{limit}" for section in ("training", *ROLES) for limit in ("max_updates", "max_epochs")}
FREE_TO_CHANGE = LIMITS | {
    "run_dir", "models", "device", "jobs", "tensorboard", "training.patience", "training.checkpoint_every",
    "training.log_every",
    *(f"data.{key}" for key in (*SOURCE_KEYS, "vocabularies")), *(f"ngrams.{name}" for name in NGRAMS),
}  # fmt: skip
"""Keys that may differ when a run is resumed. Files may have moved: their content is compared instead.
A linear schedule depends on its limit, so there the limits may not differ."""


def verify_models(run: RunDirectory, config: RunConfig) -> None:
    """Refuse trained models that are damaged or exchanged: further training would give them valid checksums."""
    for group in run.groups():
        for role in config.models:
            if group.finished(role):
                group.verify_model(role)


def check_state(job: Job) -> None:
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


def codecs_of(run: RunDirectory) -> dict[str, tuple[Codec, Codec]]:
    """Vocabularies of both sides by group."""
    return {group: run.group(group).codecs() for group in run.header().groups}


def fingerprints(data: Prepared) -> dict[str, str]:
    """Hashes of everything that the models of a group are trained and evaluated on."""
    return {
        "train": open_corpus(data.directory, "pairs", "train").fingerprint,
        "dev": open_corpus(data.directory, "pairs", "dev").fingerprint,
        "unpaired": open_corpus(data.directory, "outputs", "train").fingerprint,
    }


def check_data(run: RunDirectory, data: Prepared, config: RunConfig) -> None:
    """Refuse data that is not what the models of the run see; the message names the key and the file."""
    before, sources = run.header().data.fingerprints, run.header().data.sources
    for name, fingerprint in fingerprints(data).items():
        if before.get(name) != fingerprint:
            changed = compare(config.data, sources, keys_of(name, config.data)).changed if sources else {}
            key = next(iter(changed), name).removesuffix("_outputs")
            raise _changed(run, key, *(file for k, file in changed.items() if k.removesuffix("_outputs") == key))


def _changed(run: RunDirectory, key: str, *files: str) -> BadInputError:
    where = f" ({', '.join(files)})" if files else ""
    return BadInputError(
        f"{run.path}: data.{key} has changed since the run was started{where}; restore it or start over (--overwrite)"
    )


def check_sources(run: RunDirectory, config: RunConfig, say: Say) -> bool:
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
        prepared = prepare(config.data, lambda group: run.group(group).data_dir, codecs_of(run))
        for group, data in prepared.items():
            check_data(run.group(group), data, config)
    return True


def continued(run: RunDirectory, config: RunConfig) -> RunConfig:
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
