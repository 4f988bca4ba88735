"""Evaluating a run directory: decode a test set with every system, and compare the systems in one table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from noisychannel.arguments import Bounds, Count, Seed, check_bounds, option_name
from noisychannel.data.rows import Row
from noisychannel.data.standard_input import check_read_once
from noisychannel.errors import BadInputError, command_line
from noisychannel.evaluation.calibration import reliability
from noisychannel.evaluation.decoded import DecodedSystem, Evaluation
from noisychannel.evaluation.decoding import average_lagging, output_alignments, search_errors
from noisychannel.evaluation.default_metric import EXACT, are_sentences, default_metric, tuned_metric
from noisychannel.evaluation.group import EvaluationGroup
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.evaluation.metrics import FloatArray, Metric, make_metric
from noisychannel.evaluation.rows import held_out_rows, training_rows
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap
from noisychannel.evaluation.systems import ComparedSystem, compared_systems
from noisychannel.evaluation.table import Bootstrap, EvaluationTable, MetricValue, SystemResult
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.reporting import Reporter, Silent
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS, check_used, unused_settings
from noisychannel.weights import outdated_systems, read_system, read_systems, stale_systems, stale_warning


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What to evaluate, and how.

    Args:
        file: The test set.
        references: Parallel files of references, if FILE has inputs alone.
        systems: Which systems; if not given, direct, all tuned ones, and each baseline model that the run has.
        baselines: Rows to compare with, made from the training pairs: identity (the input), first_8 and first_15
            (its first words), memorised (the most frequent training output of the input), nearest (that of
            the training input with the most words in common; for sentences), rules (suffix rules; for characters).
        metrics: Which metrics, of those above. If not given, accuracy; if outputs are sentences, what the run was
            tuned on, or bleu.
        tokenize: sacrebleu's tokenizer for bleu.
        columns: What the columns of FILE are; those of the training data if not given.
        resample_by: What the bootstrap draws: all lines with the same input, output, features or group, or with the
            same value in a column named -NAME in columns; or each line by itself.
        k1: Proposals of the direct model for each cell; as tuned if not given.
        k2: Survivors of each cell, at most k1; as tuned if not given.
        search_errors: Count search errors: wrong outputs that the system itself scores below the reference.
        samples: Number of bootstrap samples.
        seed: Random seed of the bootstrap.
        batch_size: Inputs decoded together.
        device: auto takes a GPU if there is one.
    """

    file: str = ""
    references: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=list)
    baselines: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    tokenize: str | None = None
    columns: str | None = None
    resample_by: str = "input"
    k1: Count | None = None
    k2: Count | None = None
    search_errors: bool = False
    samples: Annotated[int, Bounds(least=1, most=1_000_000)] = 1000
    seed: Seed = 1
    batch_size: Count = 32
    device: str = "auto"

    def __post_init__(self) -> None:
        check_bounds(self)


def evaluate_run(
    run: RunDirectory,
    options: EvaluateOptions,
    reporter: Reporter = Silent(),  # noqa: B008 (no state)
) -> EvaluationTable:
    """Decode and measure the test set with every system and baseline."""
    _check(options)
    check_read_once([options.file, *options.references])
    rows = held_out_rows(run, options.file, options.references, options.columns, reporter)
    return evaluate_rows(run, rows, options, reporter).table


def evaluate_rows(
    run: RunDirectory,
    rows: Mapping[str, Sequence[Row]],
    options: EvaluateOptions,
    reporter: Reporter = Silent(),  # noqa: B008 (no state)
    n_best: int = 1,
) -> Evaluation:
    """Decode and measure test items that have been read, by group. ``options.file`` is their name.

    ``n_best``: how many outputs of each item are kept, if the search of a system ranks so many.
    """
    _check(options)
    if not any(rows.values()):
        group = run.header().group
        what = f"has no lines of the group {group!r}" if group else "empty"
        raise BadInputError(f"{options.file}: {what}; there is nothing to evaluate")
    if not options.metrics:
        options = replace(options, metrics=[_metric_of(run, rows, reporter)])
        _check(options)
    runs = {group: run.group(group) for group in rows if rows[group]}
    codecs = next(iter(runs.values())).codecs()
    text = codecs[1].config
    metrics = [make_metric(name, options.tokenize if name == "bleu" else None, text) for name in options.metrics]
    for of_group in runs.values():
        if outdated := outdated_systems(of_group):
            reporter.warn(
                f"{of_group.weights_file}: {', '.join(outdated)} left out, because version 0.1 tuned it with the word "
                f"list inside the language model; tune again: {command_line('tune', run.path)}"
            )
    names = options.systems or _systems_of_all(list(runs.values()), reporter)
    if not names:
        raise BadInputError(
            f"{run.path}: no model proposes outputs ({', '.join(PROPOSERS)}) for each item of {options.file}; "
            f"train one: {run.training()} --models direct"
        )
    if not options.systems and names == ["direct"]:
        reporter.warn(
            f"{run.path}: not tuned, so the direct model is evaluated alone; "
            f"for the others, first run {command_line('tune', run.path)}"
        )
    systems = compared_systems(list(runs.values()), names, options.k1, options.k2)
    proposers = {one.system.proposer: None for system in systems for one in system.tuned}
    check_used([] if options.k1 is None else ["k1"], unused_settings(proposers, with_channel=True))
    if unsure := [
        system.label
        for system in systems
        if any(
            one.confidence is None and read_system(of_group, one.name).confidence is not None
            for one, of_group in zip(system.tuned, runs.values(), strict=True)
        )
    ]:
        reporter.warn(f"no confidence for {', '.join(unsure)}: the search is narrower than the tuned one")
    stale: dict[str, list[str]] = {}
    for n, of_group in enumerate(runs.values()):
        stale |= stale_systems(of_group, [system.tuned[n] for system in systems])
    if stale:
        reporter.warn(stale_warning(run, stale))
    pairs = training_rows(run, codecs, options.baselines, reporter)
    groups = []
    for n, (group, of_group) in enumerate(runs.items()):
        own = [(system.label, system.tuned[n]) for system in systems]
        groups.append(
            EvaluationGroup.load(
                group, of_group, own, rows[group], options.file, options.references[1:], options.device, reporter
            )
        )
    evaluation = _Evaluation(groups, metrics, options, reporter, n_best)
    # The direct models come first: all others are compared with them.
    results = [evaluation.system(n, system) for n, system in enumerate(systems)]
    baselines = [evaluation.baseline(name, pairs, systems[0].label) for name in dict.fromkeys(options.baselines)]
    table = EvaluationTable(str(run.path), evaluation.held_out, metrics, evaluation.bootstrap, [*baselines, *results])
    return Evaluation(table, groups, evaluation.units, evaluation.decoded)


def _check(options: EvaluateOptions) -> None:
    """Refuse options that contradict each other."""
    if options.tokenize is not None and options.metrics and "bleu" not in options.metrics:
        raise BadInputError("--tokenize is for the metric bleu, which --metrics does not name; leave it out")
    if options.references and options.columns is not None:
        raise BadInputError("--columns would be ignored: with --references FILE has inputs alone; leave it out")
    for name in ("systems", "metrics", "baselines", "references"):
        values = getattr(options, name)
        if len(set(values)) < len(values):
            raise BadInputError(f"{option_name(name)}: something is named twice in {', '.join(values)}")


def _metric_of(run: RunDirectory, rows: Mapping[str, Sequence[Row]], reporter: Reporter) -> str:
    """The metric of an evaluation that names none. That of the tuning says most about sentences."""
    items = [row for of_group in rows.values() for row in of_group]
    tuned = tuned_metric(run)
    if tuned is not None and tuned not in EXACT and are_sentences(run, [row.output for row in items]):
        return tuned
    return default_metric(run, items, reporter, "--metrics")


def _systems_of_all(runs: Sequence[RunDirectory], reporter: Reporter) -> list[str]:
    """The systems that every group has; those that only some have are left out, and named."""
    known = []
    for run in runs:
        tuned = [name for name in read_systems(run) if name != "direct" or run.has_model("direct")]
        known.append([*tuned, *(role for role in PROPOSERS[1:] if run.has_model(role))])
    every = dict.fromkeys(name for systems in known for name in systems)
    names = [name for name in every if all(name in systems for systems in known)]
    if missing := [name for name in every if name not in names]:
        reporter.warn(f"skipping {', '.join(missing)}: not tuned for every group")
    return names


class _Evaluation:
    """Rows of the table, one after another."""

    def __init__(
        self,
        groups: Sequence[EvaluationGroup],
        metrics: Sequence[Metric],
        options: EvaluateOptions,
        reporter: Reporter,
        n_best: int,
    ) -> None:
        self.n_best = n_best
        self.decoded: list[DecodedSystem] = []
        self.groups, self.metrics, self.options, self.reporter = groups, metrics, options, reporter
        self.held_out = HeldOut.of_all([group.held_out for group in groups])
        self.units = self.held_out.units(options.resample_by)
        self.bootstrap = Bootstrap(options.samples, options.seed, options.resample_by, len(set(self.units)))
        self.reference_symbols = sum(
            len(group.output_codec.split(references[0])) for group in groups for references in group.held_out.references
        )
        # By row and metric: [N,S].
        self.statistics: dict[tuple[str, str], FloatArray] = {}

    def system(self, n: int, system: ComparedSystem) -> SystemResult:
        """Decode with the n-th system, and measure. Alignments are not part of the time."""
        models = [group.models[n] for group in self.groups]
        with self.reporter.counting(f"decode {system.label}", len(self.held_out.inputs)) as progress:
            began = time.perf_counter()
            outputs = [
                model.batch(
                    group.held_out.inputs,
                    self.kept(model),
                    group.held_out.features,
                    self.options.batch_size,
                    progress,
                    align=False,
                )
                for group, model in zip(self.groups, models, strict=True)
            ]
            seconds = time.perf_counter() - began
        self.decoded.append(DecodedSystem(system.label, system.tuned, models, outputs))
        best = [n_best[0] for of_group in outputs for n_best in of_group]
        texts = [output.text for output in best]
        sure = [output.confidence for output in best if output.confidence is not None]
        confidence = sure if len(sure) == len(best) else None
        names = [group.name for group in self.groups]
        return SystemResult(
            system=system.label,
            baseline=False,
            weights=_shared(names, [tuned.weights.by_name() for tuned in system.tuned]),
            search=_shared(names, [model.settings.record() for model in models]),
            compared_with=system.compared_with,
            measured=self._values(system.label, texts, system.compared_with),
            length_ratio=self._length_ratio(sum(len(output.hypothesis.tokens) for output in best)),
            sentences_per_second=len(best) / seconds,
            average_lagging=self._lagging(models, outputs),
            search_errors=self._search_errors(models, outputs),
            outputs=texts,
            complete=[output.hypothesis.complete for output in best],
            confidence=confidence,
            reliability=None if confidence is None else reliability(confidence, self._right(texts)),
        )

    def kept(self, model: NoisyChannel) -> int:
        """How many outputs of each item: a beam search that kept more than its beam might find another best one."""
        return self.n_best if model.proposer == "direct" else min(self.n_best, model.settings.k2)

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

    def _right(self, texts: Sequence[str]) -> list[bool]:
        return [text in right for text, right in zip(texts, self.held_out.references, strict=True)]

    def _length_ratio(self, symbols: int) -> float:
        return symbols / max(self.reference_symbols, 1)

    def _lagging(self, models: Sequence[NoisyChannel], outputs: Sequence[list[list[Output]]]) -> float | None:
        if models[0].proposer != "direct" or models[0].models["direct"].bidirectional:
            return None
        alignments, lengths = [], []
        for group, model, of_group in zip(self.groups, models, outputs, strict=True):
            alignments += output_alignments(model, group.held_out, of_group)
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
