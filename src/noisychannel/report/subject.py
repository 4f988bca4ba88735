"""The subject of a report: the items, and what every system makes of them.

Without a test set these are the dev data of the run, on which its weights were tuned. Every caption says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from noisychannel import __version__
from noisychannel.arguments import load_yaml
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Row
from noisychannel.data.sources import warnings_of
from noisychannel.errors import BadInputError, command_line
from noisychannel.evaluation.against import default_system
from noisychannel.evaluation.decoded import DecodedSystem, Evaluation
from noisychannel.evaluation.default_metric import EXACT, default_metric, tuned_metric
from noisychannel.evaluation.held_out import HeldOut, rows_of_groups
from noisychannel.evaluation.metrics import FloatArray
from noisychannel.evaluation.report import shown_of
from noisychannel.evaluation.rows import held_out_rows
from noisychannel.evaluation.run import EvaluateOptions, evaluate_rows
from noisychannel.evaluation.table import EvaluationTable, SystemResult
from noisychannel.packaged import DEMO, PLACE
from noisychannel.report.options import PageOptions
from noisychannel.reporting import Advance, Reporter, plural
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS
from noisychannel.tuning.run import dev_is_training, drawn_pairs

N_BEST = 10
"""Outputs of each item that are looked at, as many as tuning looks at."""


class Remembering:
    """A reporter that also remembers the warnings, for the page."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)
            self.reporter.warn(message)

    def say(self, message: str) -> None:
        """A warning of which the page speaks elsewhere."""
        self.reporter.warn(message)

    def counting(self, label: str, total: int | None = None) -> AbstractContextManager[Advance]:
        return self.reporter.counting(label, total)


@dataclass(frozen=True)
class Subject:
    """Items that all systems have decoded."""

    run: RunDirectory
    split: str
    """test or dev."""
    total: int
    """How many items there are; those of the evaluation may be a sample."""
    evaluation: Evaluation
    shown: DecodedSystem
    """The system that decode uses, if it was evaluated."""
    base: DecodedSystem | None
    """Its proposing model alone; None if it is that itself."""

    @property
    def table(self) -> EvaluationTable:
        return self.evaluation.table

    @property
    def held_out(self) -> HeldOut:
        return self.table.held_out

    @property
    def result(self) -> SystemResult:
        """The row of the system that is shown."""
        return self.table.result(self.shown.label)

    @property
    def simpler(self) -> str:
        """A sentence if a baseline is better than every system by the first metric; else empty."""
        metric = self.table.metrics[0]
        if not getattr(metric, "tunable", True):
            return ""
        sign = 1.0 if metric.higher_is_better else -1.0

        def score(result: SystemResult) -> float:
            return sign * result.measured[metric.name].score

        simple = max((one for one in self.table.results if one.baseline), key=score, default=None)
        best = max((one for one in self.table.results if not one.baseline), key=score)
        if simple is None or score(simple) <= score(best):
            return ""
        shown = [f"{one.system} ({one.measured[metric.name].score:.2f})" for one in (simple, best)]
        return f"The baseline {shown[0]} is better here than every system of the run; the best of them is {shown[1]}."

    @property
    def exact(self) -> bool:
        """Whether an output is right or wrong; else the first metric says how good it is."""
        return any(metric.name in EXACT for metric in self.table.metrics)

    @property
    def proposer(self) -> str:
        """The model that proposes outputs in the system that is shown."""
        return self.shown.models[0].proposer

    @property
    def characters(self) -> bool:
        return self.evaluation.groups[0].output_codec.config.units == "characters"

    def right(self, system: DecodedSystem) -> list[bool]:
        """Whether each best output is one of the references."""
        pairs = zip(system.best, self.held_out.references, strict=True)
        return [output.text in references for output, references in pairs]

    def item_scores(self, system: DecodedSystem) -> FloatArray:
        """How good the best output of each item is, higher is better: [N]."""
        if self.exact:
            return np.array(self.right(system), np.float64)
        metric = self.table.metrics[0]
        pairs = zip(system.best, self.held_out.references, strict=True)
        statistics_NS = np.stack([metric.statistics(output.text, references) for output, references in pairs])
        return (1.0 if metric.higher_is_better else -1.0) * metric.score(statistics_NS, np.ones(len(statistics_NS)))

    @property
    def data(self) -> str:
        """What the items are, in words."""
        sample = "" if self.total == len(self.held_out.inputs) else f" drawn from {self.total:,}"
        tuned = "; the weights were tuned on these data" if self.split == "dev" else ""
        return f"{self.split} data ({self.held_out.name}), {plural(len(self.held_out.inputs), 'item')}{sample}{tuned}"

    def caption(self, *systems: DecodedSystem) -> str:
        """Data, systems with their weights and search, and versions: what makes a number reproducible."""
        parts = [f"Data: {self.data}."]
        parts += [f"{system.label}: {weights_of(system)}; {search_of(system)}." for system in systems]
        return " ".join([*parts, made_by(self.run)])


def weights_of(system: DecodedSystem) -> str:
    """The weights of a system in words; those of its first group if groups differ."""
    sets = [tuned.weights.by_name() for tuned in system.tuned]
    shown = ", ".join(f"{name} {weight:.3g}" for name, weight in sets[0].items() if weight)
    return f"weights {shown}" + ("" if all(one == sets[0] for one in sets) else " (other groups have others)")


def search_of(system: DecodedSystem) -> str:
    """The search of a system in words."""
    settings = system.models[0].settings
    beam = system.models[0].proposer != "direct"
    search = f"beam {settings.k2}" if beam else f"search {settings.search}, k1 {settings.k1}, k2 {settings.k2}"
    ahead = ", looking ahead" if settings.look_ahead and not beam else ""
    return search + ahead + (", terms per symbol" if settings.per_symbol else "")


def run_name(run: RunDirectory) -> str:
    """A run as a user names it."""
    return DEMO if run.path.resolve() == PLACE.resolve() else str(run.path)


def made_by(run: RunDirectory) -> str:
    """Versions and seed of a run, and the version that reports."""
    return f"Run: seed {seed_of(run)}, noisychannel {run.header().noisychannel}. Reported by {__version__}."


def seed_of(run: RunDirectory) -> str:
    """The seed that a run was trained with."""
    seed = load_yaml(run.config_file).get("seed") if run.config_file.exists() else None
    return "not recorded" if seed is None else str(seed)


def reason_without_items(run: RunDirectory, options: PageOptions) -> str:
    """Why a run cannot be looked at item by item; empty if it can. It is not the fault of what the user gave."""
    groups = run.groups()
    if not any(all(group.has_model(role) for group in groups) for role in PROPOSERS):
        return (
            "No model of this run proposes outputs (direct, attention or seq2seq), so there is nothing to evaluate. "
            f"Train one: {run.training()} --models direct"
        )
    if options.test:
        return ""
    name_test = f"Name a test set: {command_line('report', run_name(run), 'TEST')}"
    if dev_is_training(run):
        return (
            "This run was fitted with folds: it has no dev set. "
            f"Give a test set: {command_line('report', run_name(run), 'TEST')}"
        )
    try:
        data = DataSource(run.data_config)
        if next(iter(data.rows("dev")), None) is None:
            return f"The run has no dev data. {name_test}"
    except BadInputError as error:
        return f"The dev data of the run cannot be read ({error}). {name_test}"
    return ""


def make_subject(run: RunDirectory, options: PageOptions, reporter: Remembering) -> Subject:
    """Decode the test set, or else the dev data, with every system."""
    if options.test:
        rows = held_out_rows(run, options.test, (), options.columns, reporter)
        return _evaluated(run, "test", options.test, rows, options, reporter)
    if options.columns is not None:
        raise BadInputError("--columns would be ignored: it is about TEST, which is not given; leave it out")
    return dev_subject(run, options, reporter)


def dev_subject(run: RunDirectory, options: PageOptions, reporter: Remembering) -> Subject:
    """Decode the dev data with every system."""
    for warning in warnings_of(run.data_config, run.header().data.sources, ("dev", "dev_outputs")):
        reporter.warn(warning)
    rows = rows_of_groups(run, DataSource(run.data_config).rows("dev"))
    return _evaluated(run, "dev", ", ".join(run.data_config.dev), rows, options, reporter)


def _evaluated(
    run: RunDirectory,
    split: str,
    name: str,
    rows: Mapping[str, Sequence[Row]],
    options: PageOptions,
    reporter: Remembering,
) -> Subject:
    drawn = {group: drawn_pairs(of_group, options.limit) for group, of_group in rows.items()}
    total, used = (sum(map(len, of_groups.values())) for of_groups in (rows, drawn))
    if used < total:
        reporter.say(f"{name}: {used:,} of {total:,} items, drawn with a fixed seed; for all: --limit 0")
    chosen = EvaluateOptions(
        file=name,
        systems=options.systems,
        baselines=options.baselines,
        metrics=options.metrics or metrics_of(run, drawn, reporter),
        samples=options.samples,
        seed=options.seed,
        batch_size=options.batch_size,
        device=options.device,
    )
    evaluation = evaluate_rows(run, drawn, chosen, reporter, N_BEST)
    table, default = evaluation.table, default_system(run)
    shown = evaluation.system(shown_of(table, [one for one in table.results if not one.baseline], default).system)
    return Subject(run, split, total, evaluation, shown, _base(evaluation, shown))


def _base(evaluation: Evaluation, shown: DecodedSystem) -> DecodedSystem | None:
    """The proposing model of a system alone, as it was compared with it."""
    compared = evaluation.table.result(shown.label).compared_with
    alone = shown.models[0].proposer if compared is None else compared
    return next((one for one in evaluation.decoded if one.label == alone and one is not shown), None)


def metrics_of(run: RunDirectory, rows: Mapping[str, Sequence[Row]], reporter: Reporter) -> list[str]:
    """The metric that a run was tuned on, else the usual one; if outputs are right or wrong, edit distances, too."""
    items = [row for of_group in rows.values() for row in of_group]
    metric = tuned_metric(run) or default_metric(run, items, reporter, "--metrics")
    return list(dict.fromkeys([metric, *EXACT])) if metric in EXACT else [metric]
