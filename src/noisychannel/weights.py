"""weights.json: the tuned weights of each system of a run, with its search, its further terms and its history."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from noisychannel import __version__
from noisychannel.atomic import write_text
from noisychannel.checksums import locked
from noisychannel.confidence import Confidence
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError, command_line, did_you_mean
from noisychannel.run_files import NGRAMS
from noisychannel.runs import RunDirectory
from noisychannel.schemas import damaged, read_record
from noisychannel.systems import PROPOSERS, FreeWeight, System, make_system
from noisychannel.weight_records import FORMAT, SystemRecord, TermKind, WeightsRecord

WEIGHTS = "weights"
"""The name under which a run remembers the content of weights.json."""


@dataclass(frozen=True)
class TermSource:
    """Where a further term of the objective comes from."""

    kind: TermKind
    run: Path
    """The run directory whose language model, word list or counts it is."""

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
        groups = run.header().groups
        if groups == [""]:
            return self
        if group not in groups:
            raise BadInputError(f"{self.run}: has no group {group!r}, so it cannot be a term there")
        return replace(self, run=run.group(group).path)

    def weight(self, name: str) -> FreeWeight:
        """Where the tuner may move the weight of this term."""
        match self.kind:
            case "word_list":
                return FreeWeight(name, start=2.0, spread=1.0)
            case "lm":
                return FreeWeight(name, start=0.5, spread=0.8)
            case "density_ratio":
                return FreeWeight(name, start=-0.25, spread=0.8, floor=-float("inf"), ceiling=0.0)
            case "seen":
                return FreeWeight(name, start=10.0, spread=1.0)
            case "ngram_pairs":  # usually subtracted, but the dev items decide
                return FreeWeight(name, start=-0.2, spread=0.3, floor=-float("inf"))
            case "ngram_outputs":
                return FreeWeight(name, start=0.2, spread=0.3, floor=-float("inf"))

    def file(self) -> Path:
        """The file that it is loaded from."""
        return _file(self, RunDirectory(self.run))


def own_terms(run: RunDirectory) -> dict[str, TermSource]:
    """The further terms that a run has by itself: the word list of its language model, counts of its pairs, n-grams."""
    listed = {"word_list": TermSource("word_list", run.path)} if run.has_word_list else {}
    counted = {"seen": TermSource("seen", run.path)} if run.has_seen else {}
    names = [name for name in NGRAMS if run.was_counted(run.ngram_file(name))]
    return listed | counted | {f"ngram_{name}": TermSource(ngram_kind(name), run.path) for name in names}


def ngram_kind(name: str) -> TermKind:
    """The term of the n-gram model of ``pairs`` or ``outputs``."""
    return "ngram_pairs" if name == "pairs" else "ngram_outputs"


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
    models: Mapping[str, str] = field(default_factory=dict)
    """Checksums of the models that it was tuned with, by role, and of further terms, by name."""
    confidence: Confidence | None = None
    """What gives its outputs a probability of being right, if that was fitted."""

    @property
    def system(self) -> System:
        return system_of(self.name, self.terms)

    def searching(self, settings: SearchSettings) -> TunedSystem:
        """The same weights with another search; the confidence stays if that is wider, and else like the tuned one."""
        confidence = self.confidence if settings.finds_all_of(self.settings) else None
        return replace(self, settings=settings, confidence=confidence)


UNTUNED = TunedSystem("direct", Weights(direct=1.0), SearchSettings())


def write_systems(run: RunDirectory, systems: Sequence[TunedSystem], default: str | None = None) -> None:
    """Add systems to weights.json, replacing those of the same name; ``default``, if given, is what decode uses."""
    added = {system.name: _entry(run, system) for system in systems}
    with locked(run.path):  # another process may be tuning another system
        run.forget(WEIGHTS)
        before, outdated = _read(run), outdated_systems(run)
        entries = {name: entry.as_json() for name, entry in before.systems.items() if name not in outdated} | added
        default = default or before.default
        record = {
            "format": FORMAT,
            "noisychannel": __version__,
            **({"default": default} if default in entries else {}),
            "systems": {name: _without_empty(entry) for name, entry in entries.items()},
        }
        write_text(run.weights_file, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    run.forget(WEIGHTS)


def read_systems(run: RunDirectory) -> dict[str, TunedSystem]:
    """Every tuned system of a run, and the direct model alone, which needs no tuning.

    The direct model is what the others are compared with: it searches as the run's default system does.
    """
    record, outdated = _read(run), outdated_systems(run)
    tuned = {name: _tuned(run, name, entry) for name, entry in record.systems.items() if name not in outdated}
    default = tuned.get(record.default or "", UNTUNED)
    return {UNTUNED.name: replace(UNTUNED, settings=default.settings.for_direct())} | tuned


def outdated_systems(run: RunDirectory) -> list[str]:
    """Systems that version 0.1 tuned with a word list inside the language model; they must be tuned again."""
    record = _read(run)
    if record.format == FORMAT or not run.has_word_list:
        return []
    return [name for name in record.systems if "lm" in name.split("+")]


def stale_systems(run: RunDirectory, systems: Iterable[TunedSystem]) -> dict[str, list[str]]:
    """Those of some tuned systems whose models have been trained again since, with the names of these models."""
    stale = {}
    for tuned in systems:
        now = _checksums(run, tuned.system.roles, tuned.terms)
        if changed := [name for name, old in tuned.models.items() if now.get(name, old) != old]:
            stale[tuned.name] = changed
    return stale


def stale_warning(run: RunDirectory, stale: Mapping[str, Sequence[str]]) -> str:
    """One line about stale systems, of a run or of its groups."""
    names = " and ".join(dict.fromkeys(name for changed in stale.values() for name in changed))
    return (
        f"{run.path}: the weights of {', '.join(stale)} were tuned with an earlier {names}; "
        f"tune again: {command_line('tune', run.path)}"
    )


def known_terms(run: RunDirectory) -> dict[str, TermSource]:
    """The further terms that a run has by itself, and those of its tuned systems."""
    return {**own_terms(run), **{name: s for tuned in read_systems(run).values() for name, s in tuned.terms.items()}}


def read_system(run: RunDirectory, name: str | None = None) -> TunedSystem:
    """A tuned system by name; without a name the run's default, or its proposing model if nothing was tuned.

    Models that propose need no tuning if they are alone.
    """
    systems = read_systems(run)
    untuned = next((role for role in PROPOSERS if run.has_model(role)), UNTUNED.name)
    name = name or _read(run).default or untuned
    if name in outdated_systems(run):
        raise BadInputError(
            f"{run.weights_file}: {name} was tuned by version 0.1, in which the word list was part of the language "
            f"model; it is a term of its own now, so tune again: {command_line('tune', run.path)}"
        )
    if name in systems:
        return systems[name]
    terms = known_terms(run)
    possible = {*PROPOSERS, "channel", "lm", "length", "seen", *terms}
    if not possible.issuperset(name.split("+")):
        alone = [role for role in PROPOSERS if run.has_model(role)]
        usable = dict.fromkeys([*alone, *(other for other in systems if other not in PROPOSERS)])
        raise BadInputError(f"{run.path}: unknown system {name!r}; the run has {', '.join(usable) or 'none'}")
    system = system_of(name, terms)
    if system.name in systems:
        return systems[system.name]
    if not system.free:
        return TunedSystem(name, system.fixed, systems[UNTUNED.name].settings)
    raise BadInputError(
        f"{run.path}: the system {name} has not been tuned; there are {', '.join(systems)}. "
        f"Tune it with {command_line('tune', run.path, '--systems', name)}"
    )


def _entry(run: RunDirectory, system: TunedSystem) -> dict[str, Any]:
    """What weights.json keeps of a system."""
    terms = {
        name: {"kind": source.kind, "run": os.path.relpath(source.run.resolve(), run.path.resolve())}
        for name, source in system.terms.items()
    }
    return {
        "weights": system.weights.by_name(),
        "search": system.settings.record(),
        "terms": terms,
        "models": _checksums(run, system.system.roles, system.terms),
        **system.record,
        **({} if system.confidence is None else {"confidence": asdict(system.confidence)}),
    }


def _tuned(run: RunDirectory, name: str, entry: SystemRecord) -> TunedSystem:
    terms = {
        term: TermSource(source.kind, (run.path.resolve() / source.run).resolve())
        for term, source in entry.terms.items()
    }
    used = ("weights", "search", "terms", "models", "confidence")
    record = _without_empty({key: value for key, value in asdict(entry).items() if key not in used})
    return TunedSystem(name, Weights.of(entry.weights), entry.search, record, terms, entry.models, entry.confidence)


def _checksums(run: RunDirectory, roles: Iterable[str], terms: Mapping[str, TermSource]) -> dict[str, str]:
    """Of the models that are there, by role, and of further terms, by name."""
    sums = {role: run.model_checksum(role) for role in roles if run.model_file(role).exists()}
    for name, source in terms.items():
        other = run if source.run.resolve() == run.path.resolve() else RunDirectory(source.run)
        if not _file(source, other).exists():
            continue
        match source.kind:
            case "word_list":
                sums[name] = other.word_list_checksum()
            case "seen":
                sums[name] = other.counted_checksum(other.seen_file)
            case "ngram_pairs" | "ngram_outputs":
                sums[name] = other.counted_checksum(_file(source, other))
            case _:
                sums[name] = other.model_checksum("lm")
    return sums


def _file(source: TermSource, run: RunDirectory) -> Path:
    """Of a term of this run."""
    match source.kind:
        case "word_list":
            return run.word_list_file
        case "seen":
            return run.seen_file
        case "ngram_pairs" | "ngram_outputs":
            return run.ngram_file(source.kind.removeprefix("ngram_"))
        case _:
            return run.model_file("lm")


def _without_empty(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None and value != {} and value != ()}


def _read(run: RunDirectory) -> WeightsRecord:
    return run.once(WEIGHTS, lambda: _read_file(run) if run.weights_file.exists() else WeightsRecord(systems={}))


def _read_file(run: RunDirectory) -> WeightsRecord:
    file = run.weights_file
    again = f"remove it and tune again: {shlex.join(['rm', str(file)])} && {command_line('tune', run.path)}"
    record = read_record(file, WeightsRecord, again, [None, FORMAT])
    for name, entry in record.systems.items():
        try:
            system_of(name, {term: TermSource(source.kind, run.path) for term, source in entry.terms.items()})
        except BadInputError as error:
            raise damaged(file, f"systems.{name}: {error}", again) from error
    if record.default is not None and record.default not in record.systems:
        raise damaged(file, f"default: there is no system {record.default!r}", again)
    return record
