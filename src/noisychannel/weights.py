"""weights.json: the weights a run was tuned to, for each system, with how they came about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from noisychannel import __version__
from noisychannel.atomic import write_text
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.runs import RunDirectory
from noisychannel.systems import SYSTEMS


@dataclass(frozen=True)
class TunedSystem:
    """A system with its weights."""

    name: str
    weights: Weights
    settings: SearchSettings
    record: Mapping[str, Any] = field(default_factory=dict)
    """Metric, signature, dev score and history; empty where nothing was tuned."""


UNTUNED = TunedSystem("direct", Weights(direct=1.0), SearchSettings())


def write_systems(run: RunDirectory, systems: Sequence[TunedSystem], default: str | None = None) -> None:
    """Add systems to weights.json, in place of those of the same name; ``default``, if given, is what decode uses."""
    record = _read(run) or {"systems": {}}
    for system in systems:
        record["systems"][system.name] = {
            "weights": system.weights.by_name(),
            "search": system.settings.record(),
            **system.record,
        }
    record["noisychannel"] = __version__
    if default is not None:
        record["default"] = default
    write_text(run.weights_file, json.dumps(record, ensure_ascii=False, indent=1) + "\n")


def read_systems(run: RunDirectory) -> dict[str, TunedSystem]:
    """Every tuned system of a run, and the direct model alone, which needs no tuning.

    The direct model is what the others are compared with: it searches as the run's default system does.
    """
    record = _read(run) or {"systems": {}}
    try:
        tuned = {
            name: TunedSystem(name, Weights.of(entry["weights"]), SearchSettings(**entry["search"]), entry)
            for name, entry in record["systems"].items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise NoisyChannelError(f"{run.weights_file}: damaged ({error}); tune again with noisychannel tune") from error
    default = tuned.get(record.get("default", ""), UNTUNED)
    return {UNTUNED.name: replace(UNTUNED, settings=default.settings.for_direct())} | tuned


def read_system(run: RunDirectory, name: str | None = None) -> TunedSystem:
    """A tuned system by name; the run's default, or where nothing was tuned the direct model, without one."""
    systems = read_systems(run)
    name = name or (_read(run) or {}).get("default", UNTUNED.name)
    if name not in SYSTEMS:
        raise BadInputError(f"unknown system {name!r}; the systems are {', '.join(SYSTEMS)}")
    if name not in systems:
        raise BadInputError(
            f"{run.path}: the system {name} has not been tuned; there are {', '.join(systems)}. "
            f"Tune it with noisychannel tune {run.path} --systems {name}"
        )
    return systems[name]


def _read(run: RunDirectory) -> dict[str, Any] | None:
    if not run.weights_file.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(run.weights_file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NoisyChannelError(f"{run.weights_file}: damaged ({error}); tune again with noisychannel tune") from error
    return record
