"""A run that is served: its systems around models that are loaded once, and the answers to what clients ask."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from noisychannel.data.prepare import DataSource
from noisychannel.decode.memory import Refuse, SearchTooLargeError
from noisychannel.decode.objective import TERMS, Weights
from noisychannel.decoded_line import DecodedLine
from noisychannel.errors import BadInputError, NoisyChannelError, did_you_mean, did_you_mean_system, shortened
from noisychannel.json_lines import writable
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.packaged import EXAMPLES, PLACE
from noisychannel.reporting import Reporter
from noisychannel.run_files import directory_name
from noisychannel.runs import RunDirectory
from noisychannel.serve.explaining import Explainer
from noisychannel.serve.limits import Limits
from noisychannel.serve.tasks import RefusedTaskError, Task, TaskSettings, UnknownNameError
from noisychannel.weights import (
    TermSource,
    TunedSystem,
    known_terms,
    read_system,
    read_systems,
    stale_systems,
    stale_warning,
)

SHOWN_EXAMPLES = 8
ROWS_READ = 2000
"""Of the dev data, from which examples are taken."""
CACHED = 64
"""Systems with weights that clients have asked for: making one takes a moment."""


@dataclass(frozen=True)
class ServedSystem:
    """A tuned system, with the weights that it can have."""

    tuned: TunedSystem
    model: NoisyChannel
    """With every model and term of the run that goes with its proposing model."""

    @property
    def terms(self) -> tuple[str, ...]:
        """What can have a weight, the terms of the paper first."""
        models = self.model.models
        first = [name for name in TERMS if name in ("direct", "length") or name in models]
        return (*first, *self.model.terms)

    @property
    def weights(self) -> dict[str, float]:
        """The tuned weights of all these terms."""
        tuned = self.tuned.weights.by_name()
        return {name: tuned.get(name, 0.0) for name in self.terms}


class ServedRun:
    """Answers tasks; all of them in one thread."""

    def __init__(self, name: str, run: RunDirectory, device: str, limits: Limits, reporter: Reporter) -> None:
        self.name, self.run, self.limits = name, run, limits
        self.default = read_system(run).name
        self.systems = _load(run, device, reporter)
        if self.default not in self.systems:
            raise BadInputError(f"{run.path}: its system {self.default} cannot be loaded; tune the run again")
        self.codecs = run.codecs()
        self.with_features = bool(self.codecs[0].features)
        self.examples = _examples(run)
        self._model = lru_cache(maxsize=CACHED)(self._make_model)

    def system(self, name: str | None) -> ServedSystem:
        """A system by its name; the default one if there is none."""
        if (name or self.default) not in self.systems:
            raise UnknownNameError(f"the run {self.name} has no system {shortened(name)}{self._suggestion(name or '')}")
        return self.systems[name or self.default]

    def _suggestion(self, name: str) -> str:
        return did_you_mean_system(name, self.systems)

    def weights(self, system: ServedSystem, given: Mapping[str, float]) -> Weights:
        """The weights of a system with others in place of some."""
        for name in given:
            if name not in system.terms:
                raise BadInputError(f"weights: there is no term {shortened(name)}{did_you_mean(name, system.terms)}")
        if {**system.weights, **given} == system.weights:
            return system.tuned.weights  # the very same: tasks are grouped by weights, and these have a confidence
        try:
            return Weights.of({**system.weights, **given})
        except ValueError as error:
            raise BadInputError(f"weights: {error}") from error

    def check(self, task: Task, where: str) -> None:
        """Refuse an input that cannot be decoded, before it waits."""
        if not task.text.strip():
            raise BadInputError(f"{where}: the input is blank; give a text")
        if task.features and not self.with_features:
            raise BadInputError(f"{where}: the run {self.name} was trained without features; leave them out")
        if self.with_features and not task.features:
            tags = json.dumps(self._usual_features(), ensure_ascii=False)
            raise BadInputError(
                f"{where}: the run {self.name} was trained with features, and there are none; give them in the order "
                f'of the training data, such as "features": {tags}'
            )
        for what, codec, text, more in (
            ("the input", self.codecs[0], task.text, len(task.features)),  # each is a symbol of the input
            *(("an output", self.codecs[1], output, 0) for output in task.outputs),
        ):
            if "\0" in text:
                raise BadInputError(f"{where}: {what} must not contain a NUL character")
            if (symbols := len(codec.split(text)) + more) > self.limits.max_symbols:
                raise BadInputError(
                    f"{where}: {what} has {symbols} symbols; at most {self.limits.max_symbols} are allowed"
                )

    def _usual_features(self) -> list[str]:
        """Those of an example, or two that the run knows."""
        return next((one["features"] for one in self.examples if one["features"]), list(self.codecs[0].features[:2]))

    def answer(self, settings: TaskSettings, tasks: Sequence[Task]) -> list[dict[str, Any] | RefusedTaskError]:
        """The answers to tasks with the same settings, ready for JSON."""
        model = self._model(settings.system, settings.weights)
        refused: dict[int, SearchTooLargeError] = {}
        answers: Sequence[dict[str, Any]]
        match settings.kind:
            case "decode":
                answers = self._decoded(model, tasks, settings.n_best, refused.__setitem__)
            case "rerank":
                answers = self._reranked(model, tasks, settings.n_best, refused.__setitem__)
            case "explain":
                explainer = self._explainer(model, settings)
                answers = explainer.explained(tasks, settings.n_best, refused.__setitem__)
            case "score":
                answers = self._explainer(model, settings).scored(tasks, refused.__setitem__)
        return [
            RefusedTaskError(str(refused[n])) if n in refused else writable(answer) for n, answer in enumerate(answers)
        ]

    def _decoded(self, model: NoisyChannel, tasks: Sequence[Task], n_best: int, refuse: Refuse) -> list[dict[str, Any]]:
        texts, features = [task.text for task in tasks], [task.features for task in tasks]
        found = model.batch(texts, n_best, features, self.limits.batch_size, refuse=refuse)
        return [answer(model, task, outputs) for task, outputs in zip(tasks, found, strict=True)]

    def _reranked(
        self, model: NoisyChannel, tasks: Sequence[Task], n_best: int, refuse: Refuse
    ) -> list[dict[str, Any]]:
        texts, features = [task.text for task in tasks], [task.features for task in tasks]
        found = model.rerank_batch(texts, [task.outputs for task in tasks], features, refuse=refuse)
        return [answer(model, task, outputs[:n_best]) for task, outputs in zip(tasks, found, strict=True)]

    def _explainer(self, model: NoisyChannel, settings: TaskSettings) -> Explainer:
        every = self._model(settings.system, Weights.of(dict.fromkeys(self.systems[settings.system].terms, 1.0)))
        return Explainer(model, every, self.limits.batch_size)

    def _make_model(self, system: str, weights: Weights) -> NoisyChannel:
        served = self.systems[system]
        confidence = served.tuned.confidence if weights == served.tuned.weights else None
        return served.model.reweighted(weights, served.tuned.settings, confidence)

    def info(self) -> dict[str, Any]:
        """What a client should know about the run."""
        data = self.run.data_config
        return {
            "name": self.name,
            "default_system": self.default,
            "systems": [
                {
                    "name": name,
                    "weights": system.weights,
                    "terms": list(system.terms),
                    "proposer": system.model.proposer,
                    "search": system.tuned.settings.record(),
                    "confidence": system.tuned.confidence is not None,
                    "has_tree": system.model.proposer == "direct",
                }
                for name, system in self.systems.items()
            ],
            "needs_features": self.with_features,
            "features": list(self.codecs[0].features),
            "feature_separator": data.feature_separator,
            "input_units": self.codecs[0].config.units,
            "output_units": self.codecs[1].config.units,
            "examples": self.examples,
        }


def answer(model: NoisyChannel, task: Task, outputs: list[Output]) -> dict[str, Any]:
    """What ``decode --json`` prints of an input, and its features."""
    symbols = model.input_symbols(task.text, task.features)
    unknown = model.input_codec.unknown(task.text, task.features)
    record = DecodedLine(task.text, outputs, unknown, symbols).record(model)
    return {"input": task.text, "features": list(task.features), **record}


def _load(run: RunDirectory, device: str, reporter: Reporter) -> dict[str, ServedSystem]:
    """Every tuned system of a run, and its default system; systems with one proposing model share all models."""
    tuned = {**read_systems(run), (default := read_system(run)).name: default}
    terms = known_terms(run)
    missing = {name for name, source in terms.items() if not source.run.is_dir()}
    usable: dict[str, TunedSystem] = {}
    for name, system in tuned.items():
        lacking = [role for role in system.system.roles if not run.has_model(role)]
        lacking += sorted(missing & set(system.system.extra))
        if not lacking:
            usable[name] = system
        elif system.record:
            reporter.warn(f"{run.path}: the system {name} is not served: there is no {' and no '.join(lacking)}")
    models: dict[str, NoisyChannel] = {}
    for proposer in dict.fromkeys(system.system.proposer for system in usable.values()):
        sources = {name: source for name, source in terms.items() if name not in missing}
        models[proposer] = _load_models(run, proposer, sources, device, reporter)
    if stale := stale_systems(run, usable.values()):
        reporter.warn(stale_warning(run, stale))
    return {name: ServedSystem(system, models[system.system.proposer]) for name, system in usable.items()}


def _load_models(
    run: RunDirectory, proposer: str, sources: Mapping[str, TermSource], device: str, reporter: Reporter
) -> NoisyChannel:
    roles = [proposer, *(role for role in ("channel", "lm") if run.has_model(role))]
    for warning in run.unfinished(roles):
        reporter.warn(warning)
    settings = read_system(run).settings
    weights = Weights(extra=dict.fromkeys(sources, 1.0))
    try:
        return NoisyChannel.load(run, None, weights, settings, device, roles, sources)
    except ValueError as error:
        raise BadInputError(str(error)) from error


def _examples(run: RunDirectory) -> list[dict[str, Any]]:
    """A few inputs of the dev data, if it is still there; of the run of the package, nouns."""
    if run.path.resolve() == PLACE.resolve():
        return [{"text": text, "features": []} for text in EXAMPLES]
    try:
        source = DataSource(run.data_config)
        rows = islice(source.rows("dev"), ROWS_READ)
        ours = [row for row in rows if not source.grouped or directory_name(row.group) == run.path.name]
    except (NoisyChannelError, OSError):
        return []
    inputs = list(dict.fromkeys((row.input, row.features) for row in ours))
    spread = inputs[:: max(1, len(inputs) // SHOWN_EXAMPLES)][:SHOWN_EXAMPLES]
    return [{"text": text, "features": list(features)} for text, features in spread]
