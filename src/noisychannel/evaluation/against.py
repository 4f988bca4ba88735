"""Two runs on the same items: scores, their difference, and the items that only one of them gets right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Columns
from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import FloatArray, Metric
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.evaluation.significance import difference_interval, paired_bootstrap
from noisychannel.evaluation.table import EvaluationTable, SystemResult, markdown
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory
from noisychannel.weights import read_system, read_systems

EXAMPLES = 5


class Difference(NamedTuple):
    """One metric of both."""

    score: float
    other: float
    difference: float
    """score - other."""
    low: float
    high: float
    """The ends of its 95 % bootstrap interval."""
    p_value: float


@dataclass(frozen=True)
class Pairing:
    """A system of the run and one of the other run."""

    system: str
    other: str
    measured: dict[str, Difference]
    only_run: list[int]
    """Items, as the run counts them, that only its system gets right."""
    only_other: list[int]


@dataclass(frozen=True)
class Against:
    """A comparison with another run."""

    table: EvaluationTable
    """Of the other run."""
    place_of: dict[int, int]
    """For each item of the run the place of the same item in the other's table."""
    items: int
    """How many items the run has."""
    pairings: list[Pairing]

    def record(self) -> dict[str, Any]:
        """For a file; what the other has of items is in the order of the run's items, null for those that it lacks."""
        return {
            "run": self.table.run,
            "references": self._by_item(self.table.held_out.references),
            "pairings": [
                {
                    "system": pairing.system,
                    "other": pairing.other,
                    "measured": {name: value._asdict() for name, value in pairing.measured.items()},
                    "only_run": pairing.only_run,
                    "only_other": pairing.only_other,
                    **self._other(self.table.result(pairing.other)),
                }
                for pairing in self.pairings
            ],
        }

    def _other(self, row: SystemResult) -> dict[str, Any]:
        """What the other's system did, and with what."""
        return {
            "other_weights": row.weights,
            "other_search": row.search,
            "other_outputs": self._by_item(row.outputs),
            "other_complete": self._by_item(row.complete),
            "other_confidence": None if row.confidence is None else self._by_item(row.confidence),
        }

    def _by_item(self, values: Sequence[Any]) -> list[Any]:
        return [values[self.place_of[n]] if n in self.place_of else None for n in range(self.items)]

    def text(self, run: EvaluationTable) -> str:
        """For reading."""
        rows = [["system", "of the other run", "metric", "this run", "other run", "difference", "p"]]
        for pairing in self.pairings:
            for name, d in pairing.measured.items():
                interval = f"{d.difference:+.2f} [{d.low:+.2f}, {d.high:+.2f}]"
                rows.append([pairing.system, pairing.other, name, f"{d.score:.2f}", f"{d.other:.2f}", interval])
                rows[-1].append(f"{d.p_value:.3f}")
        first = self.pairings[0]
        lines = [
            f"Against {self.table.run}, {len(self.place_of)} items that both decode. In brackets: 95 % interval of the "
            "difference; p: paired bootstrap.",
            "",
            markdown(rows),
        ]
        for items, right, wrong in (
            (first.only_run, "this run", "the other"),
            (first.only_other, "the other run", "this one"),
        ):
            lines += ["", f"{len(items)} items that only {right} gets right ({wrong} wrote …):"]
            outputs = self.table.result(first.other).outputs
            for n in items[:EXAMPLES]:
                ours, theirs = run.result(first.system).outputs[n], outputs[self.place_of[n]]
                good, bad = (ours, theirs) if items is first.only_run else (theirs, ours)
                lines.append(f"  {run.held_out.inputs[n]}: {good} ({bad})")
        return "\n".join(lines)


def default_system(run: RunDirectory) -> str:
    """What decode uses, or the direct model."""
    return read_system(run.groups()[0]).name


def shared_columns(runs: Sequence[RunDirectory], given: str | None) -> list[str | None]:
    """How each run reads the one file: a column that a run was not trained with is ignored."""
    trained = [DataSource(run.data_config).columns for run in runs]
    if given is not None:
        file = Columns.parse(given, "--columns", ("input", "output"))
    else:
        file = max(trained, key=lambda columns: len(columns.roles))
    every: list[str | None] = []
    for columns in trained:
        roles = ["-" if role == "features" and role not in columns.roles else role for role in file.roles]
        every.append(",".join(f"{r}={f}" if f else r for r, f in zip(roles, file.fields, strict=True)))
    return every


def compare_with(
    table: EvaluationTable, system: str, other: RunDirectory, options: EvaluateOptions, reporter: Reporter
) -> Against:
    """Decode the same items with another run. ``system``: the default of the run; ``options``: for the other run."""
    known = [read_systems(group).keys() for group in other.groups()]
    shared = [name for name in options.systems if all(name in names for names in known)]
    if missing := [name for name in options.systems if name not in shared]:
        reporter.warn(f"{other.path}: skipping {', '.join(missing)}, which it does not have")
    default = default_system(other)
    systems = list(dict.fromkeys([*shared, default]))
    # Only the comparison resamples, by units of the run. The other may lack them: it ignores features, for example.
    theirs = evaluate_run(other, replace(options, systems=systems, baselines=[], resample_by="line"), reporter)
    places = {place: n for n, place in enumerate(theirs.held_out.places)}
    place_of = {n: places[place] for n, place in enumerate(table.held_out.places) if place in places}
    if not place_of:
        raise BadInputError(f"--against: {other.path} decodes none of the items that {table.run} decodes")
    if left := len(table.held_out.places) + len(places) - 2 * len(place_of):
        reporter.warn(f"--against: {left} items that only one of the runs decodes are left out")
    pairs = dict.fromkeys([(system, default), *((name, name) for name in shared)])
    pairings = [
        _pairing(table, theirs, place_of, _row(table, ours), _row(theirs, name), options) for ours, name in pairs
    ]
    return Against(theirs, place_of, len(table.held_out.inputs), pairings)


def _pairing(
    table: EvaluationTable,
    theirs: EvaluationTable,
    place_of: dict[int, int],
    ours: SystemResult,
    other: SystemResult,
    options: EvaluateOptions,
) -> Pairing:
    numbers, places = list(place_of), list(place_of.values())
    every_unit = table.held_out.units(options.resample_by)
    units = [every_unit[n] for n in numbers]
    measured = {}
    for metric in table.metrics:
        a_NS = _statistics(metric, ours, table, numbers)
        b_NS = _statistics(metric, other, theirs, places)
        a, b = (float(metric.score(np.asarray(one.sum(0)), len(one))) for one in (a_NS, b_NS))
        low, high = difference_interval(metric, a_NS, b_NS, options.samples, options.seed, groups=units)
        p_value = paired_bootstrap(metric, a_NS, b_NS, options.samples, options.seed, groups=units)
        measured[metric.name] = Difference(a, b, a - b, low, high, p_value)
    right = [ours.outputs[n] in table.held_out.references[n] for n in numbers]
    right_there = [other.outputs[n] in theirs.held_out.references[n] for n in places]
    judged = list(zip(numbers, right, right_there, strict=True))
    return Pairing(
        ours.system,
        other.system,
        measured,
        [n for n, here, there in judged if here and not there],
        [n for n, here, there in judged if there and not here],
    )


def _statistics(metric: Metric, row: SystemResult, table: EvaluationTable, numbers: Sequence[int]) -> FloatArray:
    """Of some items; each run compares with references as its models see text."""
    return np.stack([metric.statistics(row.outputs[n], table.held_out.references[n]) for n in numbers])


def _row(table: EvaluationTable, name: str) -> SystemResult:
    """The row of a system; of a direct model with several searches the first."""
    rows = [row for row in table.results if not row.baseline]
    return next(row for row in rows if row.system == name or row.system.startswith(f"{name} ("))
