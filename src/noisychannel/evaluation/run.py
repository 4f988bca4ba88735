"""Evaluating a run directory: decode a test set with every system, and compare the systems in one table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Columns, Row, read_pairs, read_parallel
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.evaluation.baselines import BASELINES
from noisychannel.evaluation.decoding import average_lagging, best_alignments, search_errors
from noisychannel.evaluation.held_out import HeldOut, as_seen, rows_of_groups
from noisychannel.evaluation.metrics import FloatArray, Metric, make_metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap
from noisychannel.evaluation.systems import ComparedSystem, compared_systems
from noisychannel.evaluation.table import Bootstrap, EvaluationTable, MetricValue, SystemResult
from noisychannel.noisy_channel import NoisyChannel, Output, load_systems
from noisychannel.reporting import Reporter, Silent
from noisychannel.runs import RunDirectory
from noisychannel.weights import TunedSystem, read_systems


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What to evaluate, and how.

    Args:
        file: The test set.
        outputs: Parallel files of references, if FILE has inputs alone.
        systems: Which systems; if not given, direct, all tuned ones, and attention and seq2seq if the run has them.
        baselines: Rows to compare with, made from the training pairs: identity (the input), memorised (the most
            frequent training output of the input), rules (suffix rules; for characters).
        metrics: accuracy, edit_distance, bleu, chrf, rouge1, rouge2, rougeL.
        tokenize: sacrebleu's tokenizer for bleu.
        columns: What the columns of FILE are; those of the training data if not given.
        resample_by: What the bootstrap draws: all lines with the same input, output, features or group, or with the
            same value in a column named -NAME in columns; or each line by itself.
        k1: Proposals of the direct model for each cell; as tuned if not given.
        k2: Survivors of each cell, at most k1; as tuned if not given.
        search_errors: Count the inputs with a wrong output although the system itself prefers the reference, which the
            search did not find.
        samples: Of the bootstrap.
        seed: Of the bootstrap.
        batch_size: Inputs decoded together.
        device: auto takes a GPU if there is one.
    """

    file: str = ""
    outputs: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=list)
    baselines: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=lambda: ["accuracy"])
    tokenize: str | None = None
    columns: str | None = None
    resample_by: str = "input"
    k1: int | None = None
    k2: int | None = None
    search_errors: bool = False
    samples: int = 1000
    seed: int = 1
    batch_size: int = 32
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, least in (("samples", 1), ("batch_size", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise BadInputError(f"--{name}: must be at least {least}, but is {getattr(self, name)}")


def evaluate_run(
    run: RunDirectory,
    options: EvaluateOptions,
    reporter: Reporter = Silent(),  # noqa: B008 (no state)
) -> EvaluationTable:
    """Decode and measure the test set with every system and baseline."""
    rows = _test_rows(run, options)
    if not any(rows.values()):
        group = run.header()["group"]
        what = f"has no lines of the group {group!r}" if group else "empty"
        raise BadInputError(f"{options.file}: {what}; there is nothing to evaluate")
    runs = {group: run.group(group) for group in rows if rows[group]}
    codecs = next(iter(runs.values())).codecs()
    text = codecs[1].config
    metrics = [make_metric(name, options.tokenize if name == "bleu" else None, text) for name in options.metrics]
    names = options.systems or _systems_of_all(list(runs.values()), reporter)
    if not options.systems and names == ["direct"]:
        reporter.warn(
            f"{run.path}: not tuned, so the direct model is evaluated alone; "
            f"for the others, first run noisychannel tune {run.path}"
        )
    systems = compared_systems(list(runs.values()), names, options.k1, options.k2)
    pairs = _training_rows(run, codecs, options.baselines)
    groups = [_Group.load(group, of_group, systems, rows[group], options, reporter) for group, of_group in runs.items()]
    evaluation = _Evaluation(groups, metrics, options, reporter)
    # The direct models come first: all others are compared with them.
    results = [evaluation.system(system) for system in systems]
    baselines = [evaluation.baseline(name, pairs, systems[0].label) for name in dict.fromkeys(options.baselines)]
    return EvaluationTable(str(run.path), evaluation.held_out, metrics, evaluation.bootstrap, [*baselines, *results])


def _systems_of_all(runs: Sequence[RunDirectory], reporter: Reporter) -> list[str]:
    """The systems that every group has; those that only some have are left out, and named."""
    known = [[*read_systems(run), *(role for role in ("attention", "seq2seq") if run.has_model(role))] for run in runs]
    every = dict.fromkeys(name for systems in known for name in systems)
    names = [name for name in every if all(name in systems for systems in known)]
    if missing := [name for name in every if name not in names]:
        reporter.warn(f"{', '.join(missing)}: left out, because it was not tuned for all groups")
    return names


@dataclass(frozen=True)
class _Group:
    """The models of one group and its test items; a run without groups is one group."""

    name: str
    models: Mapping[str, NoisyChannel]
    """By the model that proposes."""
    held_out: HeldOut
    output_codec: Codec

    @staticmethod
    def load(
        name: str,
        run: RunDirectory,
        systems: Sequence[ComparedSystem],
        rows: Sequence[Row],
        options: EvaluateOptions,
        reporter: Reporter,
    ) -> _Group:
        models = {}
        for proposer in dict.fromkeys(system.proposer for system in systems):
            tuned = [each for system in systems if system.proposer == proposer for each in system.tuned]
            terms = {term: source for each in tuned for term, source in each.terms.items()}
            some = [each.system for each in tuned]
            models[proposer] = load_systems(run, some, SearchSettings(), options.device, terms, reporter)
        codec = next(iter(models.values())).output_codec
        return _Group(name, models, HeldOut.read(options.file, rows, options.outputs[1:], codec), codec)

    def under(self, label: str, tuned: TunedSystem) -> NoisyChannel:
        """The models with the weights and the search of a system."""
        try:
            return self.models[tuned.system.proposer].reweighted(tuned.weights, tuned.settings)
        except ValueError as error:
            raise BadInputError(f"{label}: {error}") from error

    def answers(self, baseline: str, rows: Sequence[Row]) -> list[str]:
        """The outputs of a baseline, made from these training pairs; all text is treated as references are."""
        codec = self.output_codec
        answer = BASELINES[baseline](
            (as_seen(row.input, codec), as_seen(row.output, codec), row.features) for row in rows
        )
        questions = zip(self.held_out.inputs, self.held_out.features, strict=True)
        return [answer(as_seen(text, codec), features) for text, features in questions]


class _Evaluation:
    """Rows of the table, one after another."""

    def __init__(
        self, groups: Sequence[_Group], metrics: Sequence[Metric], options: EvaluateOptions, reporter: Reporter
    ) -> None:
        self.groups, self.metrics, self.options, self.reporter = groups, metrics, options, reporter
        self.held_out = HeldOut.of_all([group.held_out for group in groups])
        self.units = self.held_out.units(options.resample_by)
        self.bootstrap = Bootstrap(options.samples, options.seed, options.resample_by, len(set(self.units)))
        self.reference_symbols = sum(
            len(group.output_codec.split(references[0])) for group in groups for references in group.held_out.references
        )
        # By row and metric: [N,S].
        self.statistics: dict[tuple[str, str], FloatArray] = {}

    def system(self, system: ComparedSystem) -> SystemResult:
        """Decode and measure. Alignments are not part of the time."""
        models = [group.under(system.label, tuned) for group, tuned in zip(self.groups, system.tuned, strict=True)]
        with self.reporter.counting(f"decode {system.label}", len(self.held_out.inputs)) as progress:
            began = time.perf_counter()
            outputs = [
                model.batch(
                    group.held_out.inputs, 1, group.held_out.features, self.options.batch_size, progress, align=False
                )
                for group, model in zip(self.groups, models, strict=True)
            ]
            seconds = time.perf_counter() - began
        best = [n_best[0] for of_group in outputs for n_best in of_group]
        texts = [output.text for output in best]
        names = [group.name for group in self.groups]
        return SystemResult(
            system=system.label,
            baseline=False,
            weights=_shared(names, [tuned.weights.by_name() for tuned in system.tuned]),
            search=_shared(names, [tuned.settings.record() for tuned in system.tuned]),
            compared_with=system.compared_with,
            measured=self._values(system.label, texts, system.compared_with),
            length_ratio=self._length_ratio(sum(len(output.hypothesis.tokens) for output in best)),
            sentences_per_second=len(best) / seconds,
            average_lagging=self._lagging(models, outputs),
            search_errors=self._search_errors(models, outputs),
            outputs=texts,
            complete=[output.hypothesis.complete for output in best],
        )

    def baseline(self, name: str, pairs: Mapping[str, Sequence[Row]], compared_with: str) -> SystemResult:
        """Ask and measure; ``pairs`` are those of training, by group."""
        answers = [(group, text) for group in self.groups for text in group.answers(name, pairs[group.name])]
        texts = [text for _, text in answers]
        return SystemResult(
            system=name,
            baseline=True,
            compared_with=compared_with,
            measured=self._values(name, texts, compared_with),
            length_ratio=self._length_ratio(sum(len(group.output_codec.split(text)) for group, text in answers)),
            outputs=texts,
            complete=[True] * len(texts),
        )

    def _values(self, row: str, texts: Sequence[str], compared_with: str | None) -> dict[str, MetricValue]:
        values = {}
        samples, seed = self.options.samples, self.options.seed
        for metric in self.metrics:
            pairs = zip(texts, self.held_out.references, strict=True)
            statistics = np.stack([metric.statistics(text, references) for text, references in pairs])
            self.statistics[row, metric.name] = statistics
            low, high = confidence_interval(metric, statistics, samples, seed, groups=self.units)
            p_value = None
            if compared_with is not None:
                theirs = self.statistics[compared_with, metric.name]
                p_value = paired_bootstrap(metric, statistics, theirs, samples, seed, groups=self.units)
            score = float(metric.score(np.asarray(statistics.sum(0)), len(statistics)))
            values[metric.name] = MetricValue(score, low, high, p_value)
        return values

    def _length_ratio(self, symbols: int) -> float:
        return symbols / max(self.reference_symbols, 1)

    def _lagging(self, models: Sequence[NoisyChannel], outputs: Sequence[list[list[Output]]]) -> float | None:
        if models[0].proposer != "direct" or models[0].models["direct"].bidirectional:
            return None
        alignments, lengths = [], []
        for group, model, of_group in zip(self.groups, models, outputs, strict=True):
            alignments += best_alignments(model, group.held_out, of_group)
            items = zip(group.held_out.inputs, group.held_out.features, strict=True)
            lengths += [len(model.input_codec.encode(*item)) for item in items]
        return average_lagging(alignments, lengths)

    def _search_errors(self, models: Sequence[NoisyChannel], outputs: Sequence[list[list[Output]]]) -> float | None:
        if not self.options.search_errors:
            return None
        of_groups = zip(self.groups, models, outputs, strict=True)
        errors = sum(search_errors(model, group.held_out, of_group) for group, model, of_group in of_groups)
        return 100 * errors / len(self.held_out.inputs)


def _shared(groups: Sequence[str], settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The settings of all groups, once if they are the same, else by group."""
    same = all(other == settings[0] for other in settings)
    return settings[0] if same else dict(zip(groups, settings, strict=True))


def _training_rows(run: RunDirectory, codecs: Iterable[Codec], baselines: Sequence[str]) -> dict[str, list[Row]]:
    """The pairs of each group that the baselines are made from; none if there are no baselines."""
    for name in baselines:
        if name not in BASELINES:
            raise BadInputError(f"--baselines: unknown baseline {name!r}; there are {', '.join(BASELINES)}")
    for side, codec in zip(("input", "output"), codecs, strict=True):
        if "rules" in baselines and codec.config.units != "characters":
            raise BadInputError(
                f"--baselines: rules need characters, but the {side} of this run is split into {codec.config.units}; "
                "leave rules out"
            )
    if not baselines:
        return {}
    try:
        return rows_of_groups(run, DataSource(run.data_config).rows("train"))
    except BadInputError as error:
        raise BadInputError(f"--baselines needs the training pairs that config.yaml names: {error}") from error


def _test_rows(run: RunDirectory, options: EvaluateOptions) -> dict[str, list[Row]]:
    """The test items of each group of the run."""
    data = run.data_config
    trained = DataSource(data).columns
    columns = trained if options.columns is None else Columns.parse(options.columns, "--columns", ("input", "output"))
    if run.header()["groups"] != [""] and (options.outputs or "group" not in columns.roles):
        raise BadInputError(
            f"{run.path}: has groups, so FILE needs the outputs and a column that says which group "
            "(--columns input,output,group); or name the directory of one of them"
        )
    if options.outputs:
        return rows_of_groups(run, read_parallel([options.file], options.outputs[:1]))
    return rows_of_groups(run, read_pairs([options.file], columns, data.feature_separator))
