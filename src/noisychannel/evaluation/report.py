"""The whole report of an evaluation: the table, confidences, errors by kind, and the comparison with another run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from noisychannel.errors import BadInputError
from noisychannel.evaluation.against import Against, compare_with, default_system, shared_columns
from noisychannel.evaluation.default_metric import EXACT
from noisychannel.evaluation.error_kinds import Errors, Judged, group_errors
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.evaluation.seen import seen_items
from noisychannel.evaluation.table import RECORD_KEYS, EvaluationTable, SystemResult, markdown
from noisychannel.reporting import Reporter, Silent
from noisychannel.runs import RunDirectory

KINDS = 10
"""Kinds of errors that the text shows."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions(EvaluateOptions):
    """What to report.

    Args:
        against: Another run directory: decode the same items with its default system, too, and compare.
    """

    against: str | None = None


@dataclass(frozen=True)
class EvaluationReport:
    """An evaluation with everything that was asked for."""

    table: EvaluationTable
    errors: Errors
    """Of the system that decode uses."""
    against: Against | None = None

    def record(self) -> dict[str, Any]:
        """For a file."""
        kinds = [{"count": len(kind.items), **asdict(kind)} for kind in self.errors.kinds]
        return {
            **self.table.record(),
            "errors": {**asdict(self.errors), "kinds": kinds},
            **({} if self.against is None else {"against": self.against.record()}),
        }

    def text(self) -> str:
        """For reading."""
        parts = [self.table.table()]
        if self.against is not None:
            parts.append(self.against.text(self.table))
        exact = any(metric.name in EXACT for metric in self.table.metrics)
        sure = [result for result in self.table.results if result.reliability is not None]
        if sure and exact:
            parts.append("\n".join(_confidence(shown_of(self.table, sure, self.errors.system))))
        parts.append("\n".join(_errors(self.errors) if exact else [_NOT_EXACT]))
        return "\n\n".join(parts)


_NOT_EXACT = (
    "Confidences and errors by kind are for outputs that are right or wrong: they are shown if --metrics names "
    "accuracy or edit_distance. To read the outputs: --outputs FILE."
)


def is_report(text: str) -> bool:
    """Whether the content of a file is a record of a report; one of an earlier version has at least the table."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.keys() >= RECORD_KEYS


def report_run(
    run: RunDirectory,
    options: ReportOptions,
    reporter: Reporter = Silent(),  # noqa: B008 (no state)
) -> EvaluationReport:
    """Evaluate a run, and look at what it gets wrong."""
    default = default_system(run)
    if options.against is None:
        table, against = evaluate_run(run, options, reporter), None
    else:
        if options.file == "-":
            raise BadInputError("--against reads FILE twice, which standard input does not allow; name a file")
        other = RunDirectory.open_finished(Path(options.against))
        columns = [None, None] if options.references else shared_columns([run, other], options.columns)
        systems = [] if not options.systems else list(dict.fromkeys([*options.systems, default]))
        table = evaluate_run(run, replace(options, columns=columns[0], systems=systems), reporter)
        metrics = [metric.name for metric in table.metrics]
        against = compare_with(table, default, other, replace(options, columns=columns[1], metrics=metrics), reporter)
    return EvaluationReport(table, errors_of(run, table, default), against)


def shown_of(table: EvaluationTable, results: list[SystemResult], system: str) -> SystemResult:
    """The row of a system; if there is none, the best by the first metric, of equal ones the largest system.

    The system that decode uses is not chosen by the items of the table.
    """
    for result in results:
        if result.system == system:
            return result
    metric = table.metrics[0]
    sign = 1 if metric.higher_is_better else -1
    return max(reversed(results), key=lambda result: sign * result.measured[metric.name].score)


def errors_of(run: RunDirectory, table: EvaluationTable, system: str) -> Errors:
    """The errors of a system by kind; if the table does not have it, of the one that ``shown_of`` finds."""
    shown = shown_of(table, [result for result in table.results if not result.baseline], system)
    direct = None if shown.compared_with is None else table.result(shown.compared_with)
    held_out = table.held_out
    characters = run.groups()[0].codecs()[1].config.units == "characters"
    seen = seen_items(run, held_out)
    judged = [
        Judged(
            held_out.inputs[n],
            shown.outputs[n],
            references,
            shown.complete[n],
            characters,
            None if seen is None else seen[n],
            None if direct is None else direct.outputs[n] in references,
        )
        for n, references in enumerate(held_out.references)
    ]
    return group_errors(shown.system, judged)


def _confidence(result: SystemResult) -> Iterator[str]:
    found = result.reliability
    assert found is not None
    yield (
        f"Confidence of {result.system}: off by {100 * found.ece:.1f} points on average "
        f"({100 * found.ece_by_chance:.1f} by chance alone), Brier score {found.brier:.3f}. "
        f"Accuracy of the most confident outputs (area under the curve {found.area:.2f}):"
    )
    yield ""
    yield markdown(
        [
            ["most confident", *(f"{point.coverage} %" for point in found.curve)],
            ["accuracy", *(f"{point.accuracy:.1f}" for point in found.curve)],
            ["lowest confidence", *(f"{point.confidence:.2f}" for point in found.curve)],
        ]
    )


def _errors(errors: Errors) -> Iterator[str]:
    line = f"Errors of {errors.system}: {errors.wrong} of {errors.items} outputs are wrong"
    if errors.wrong and errors.direct_right is not None:
        line += f"; the direct model alone is right in {errors.direct_right} of these"
    yield f"{line}."
    if errors.seen_items is not None and errors.seen_right is not None:
        new, right = errors.items - errors.seen_items, errors.items - errors.wrong - errors.seen_right
        yield (
            f"Inputs that are in the training pairs: {_share(errors.seen_right, errors.seen_items)}; "
            f"new inputs: {_share(right, new)}."
        )
    if not errors.kinds:
        return
    shown = errors.kinds[:KINDS]
    with_direct, with_seen = (all(getattr(k, name) is not None for k in shown) for name in ("direct_right", "seen"))
    rows = [["error", "outputs", "share"]]
    rows[0] += [*(["direct right"] if with_direct else []), *(["input seen"] if with_seen else []), "examples"]
    for kind in shown:
        cells = [kind.kind, str(len(kind.items)), f"{kind.share:.1f} %"]
        cells += [str(kind.direct_right)] if with_direct else []
        cells += [str(kind.seen)] if with_seen else []
        examples = (f"{one.input}: {one.output or '(nothing)'}, not {one.reference}" for one in kind.examples)
        rows.append([*cells, "; ".join(examples)])
    yield from ("", markdown(rows), "")
    more = len(errors.kinds) - len(shown)
    yield "An output with several differences counts for each." + (
        f" More kinds of errors: {more}; --json has all." if more else ""
    )


def _share(right: int, items: int) -> str:
    return f"{items} items, {100 * right / items:.1f} % right" if items else "none"
