"""weights.json: the tuned weights of each system of a run, with its search, its further terms and its history."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from noisychannel import __version__
from noisychannel.atomic import write_text
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError, NoisyChannelError, did_you_mean
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS, FreeWeight, System, make_system

FORMAT = 2
"""Of weights.json. Version 0.1 wrote none; there a language model's word list was part of the language model."""

TermKind = Literal["word_list", "lm", "density_ratio"]
"""The list of outputs a language model was trained on; a second language model; a language model that is subtracted."""


@dataclass(frozen=True)
class TermSource:
    """Where a further term of the objective comes from."""

    kind: TermKind
    run: Path
    """The run directory whose language model, or word list, it is."""

    def __post_init__(self) -> None:
        kinds: tuple[TermKind, ...] = get_args(TermKind)
        if self.kind not in kinds:
            raise BadInputError(f"unknown kind of term {self.kind!r}{did_you_mean(self.kind, kinds)}")
        object.__setattr__(self, "run", Path(self.run))

    @staticmethod
    def parse(text: str) -> tuple[str, TermSource]:
        """``NAME=KIND:RUN`` as a name and a source, such as ``news=lm:runs/news``."""
        name, equals, source = text.partition("=")
        kind, colon, run = source.partition(":")
        if not (name and equals and colon and run):
            raise BadInputError(f"--terms: {text!r} is not NAME=KIND:RUN, such as news=lm:runs/news")
        try:
            Weights(extra={name: 1.0})
            if name in PROPOSERS:
                raise ValueError(f"a further term cannot be named {name!r}, which is a model")
            return name, TermSource(kind, Path(run))  # type: ignore[arg-type]
        except ValueError as error:
            raise BadInputError(f"--terms: {error}") from error

    def of_group(self, group: str) -> TermSource:
        """The source for one group: that group of a run with groups, or the run itself."""
        run = RunDirectory.open(self.run)
        groups = run.header()["groups"]
        if groups == [""]:
            return self
        if group not in groups:
            raise BadInputError(f"{self.run}: has no group {group!r}, so it cannot be a term there")
        return replace(self, run=run.group(group).path)

    def weight(self, name: str) -> FreeWeight:
        """Where the tuner may move the weight of this term."""
        match self.kind:
            case "word_list":
                return FreeWeight(name, low=0.0, high=20.0, start=1.0)
            case "lm":
                return FreeWeight(name, low=0.0, high=5.0, start=0.5)
            case "density_ratio":
                return FreeWeight(name, low=-3.0, high=0.0, start=-0.25, floor=-float("inf"), ceiling=0.0)


def own_terms(run: RunDirectory) -> dict[str, TermSource]:
    """The further terms that a run has by itself: the word list of its language model."""
    return {"word_list": TermSource("word_list", run.path)} if run.word_list_file.exists() else {}


def system_of(name: str, terms: Mapping[str, TermSource]) -> System:
    """The system of that name, of the models of a run and these further terms."""
    return make_system(name, {term: source.weight(term) for term, source in terms.items()})


@dataclass(frozen=True)
class TunedSystem:
    """A system with its weights."""

    name: str
    weights: Weights
    settings: SearchSettings
    record: Mapping[str, Any] = field(default_factory=dict)
    """Metric, signature, dev score and history; empty if nothing was tuned."""
    terms: Mapping[str, TermSource] = field(default_factory=dict)
    """Where its further terms come from."""

    @property
    def system(self) -> System:
        return system_of(self.name, self.terms)


UNTUNED = TunedSystem("direct", Weights(direct=1.0), SearchSettings())


def write_systems(run: RunDirectory, systems: Sequence[TunedSystem], default: str | None = None) -> None:
    """Add systems to weights.json, replacing those of the same name; ``default``, if given, is what decode uses."""
    record = _read(run) or {"systems": {}}
    for name in outdated_systems(run):
        del record["systems"][name]
    for system in systems:
        terms = {
            name: {"kind": source.kind, "run": os.path.relpath(source.run.resolve(), run.path.resolve())}
            for name, source in system.terms.items()
        }
        record["systems"][system.name] = {
            "weights": system.weights.by_name(),
            "search": system.settings.record(),
            **({"terms": terms} if terms else {}),
            **system.record,
        }
    record |= {"format": FORMAT, "noisychannel": __version__}
    if default is not None:
        record["default"] = default
    write_text(run.weights_file, json.dumps(record, ensure_ascii=False, indent=1) + "\n")


def read_systems(run: RunDirectory) -> dict[str, TunedSystem]:
    """Every tuned system of a run, and the direct model alone, which needs no tuning.

    The direct model is what the others are compared with: it searches as the run's default system does.
    """
    record = _read(run) or {"systems": {}}
    try:
        outdated = outdated_systems(run)
        entries = {name: entry for name, entry in record["systems"].items() if name not in outdated}
        tuned = {name: _tuned(run, name, entry) for name, entry in entries.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(run, error) from error
    default = tuned.get(record.get("default", ""), UNTUNED)
    return {UNTUNED.name: replace(UNTUNED, settings=default.settings.for_direct())} | tuned


def outdated_systems(run: RunDirectory) -> list[str]:
    """Systems that version 0.1 tuned with a word list inside the language model; they must be tuned again."""
    record = _read(run)
    if record is None or record.get("format") == FORMAT or not run.word_list_file.exists():
        return []
    return [name for name in record["systems"] if "lm" in name.split("+")]


def known_terms(run: RunDirectory) -> dict[str, TermSource]:
    """The further terms that a run has by itself, and those of its tuned systems."""
    return {**own_terms(run), **{name: s for tuned in read_systems(run).values() for name, s in tuned.terms.items()}}


def read_system(run: RunDirectory, name: str | None = None) -> TunedSystem:
    """A tuned system by name; without a name the run's default, or its proposing model if nothing was tuned.

    Models that propose need no tuning if they are alone.
    """
    systems = read_systems(run)
    untuned = next((role for role in PROPOSERS if run.has_model(role)), UNTUNED.name)
    name = name or (_read(run) or {}).get("default", untuned)
    if name in outdated_systems(run):
        raise BadInputError(
            f"{run.weights_file}: {name} was tuned by version 0.1, in which the word list was part of the language "
            f"model; it is a term of its own now, so tune again: noisychannel tune {run.path}"
        )
    if name in systems:
        return systems[name]
    system = system_of(name, known_terms(run))
    if system.name in systems:
        return systems[system.name]
    if not system.free:
        return TunedSystem(name, system.fixed, systems[UNTUNED.name].settings)
    raise BadInputError(
        f"{run.path}: the system {name} has not been tuned; there are {', '.join(systems)}. "
        f"Tune it with noisychannel tune {run.path} --systems {name}"
    )


def _tuned(run: RunDirectory, name: str, entry: Mapping[str, Any]) -> TunedSystem:
    terms = {
        term: TermSource(source["kind"], (run.path.resolve() / source["run"]).resolve())
        for term, source in entry.get("terms", {}).items()
    }
    return TunedSystem(name, Weights.of(entry["weights"]), SearchSettings(**entry["search"]), entry, terms)


def _read(run: RunDirectory) -> dict[str, Any] | None:
    if not run.weights_file.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(run.weights_file.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or not isinstance(record.get("systems"), dict):
            raise ValueError("no systems")
        if record.get("format", FORMAT) != FORMAT:
            raise ValueError(f"format {record['format']}; this version reads format {FORMAT}")
    except ValueError as error:
        raise _damaged(run, error) from error
    return record


def _damaged(run: RunDirectory, error: Exception) -> NoisyChannelError:
    return NoisyChannelError(f"{run.weights_file}: damaged ({error}); tune again: noisychannel tune {run.path}")
