"""The table of systems with intervals, and what ``fit`` estimated."""

from __future__ import annotations

from collections.abc import Sequence

from noisychannel.errors import NoisyChannelError
from noisychannel.evaluation.baselines import LEARNT
from noisychannel.evaluation.table import FEW_UNITS
from noisychannel.fitting.work import Done, Work
from noisychannel.pages.charts import Dot, dots, table
from noisychannel.report.section import Section, caption, paragraph
from noisychannel.report.subject import Subject, made_by, weights_of
from noisychannel.runs import RunDirectory
from noisychannel.tuning.run import dev_is_training
from noisychannel.weights import read_systems

KEY, TITLE = "systems", "Systems"
UNITS = {"accuracy": "accuracy, %", "edit_distance": "edit distance"}


def systems_section(run: RunDirectory, subject: Subject | None) -> Section:
    """Every system: measured on the items if there are any, and as ``fit`` or ``tune`` recorded it."""
    parts, charts = [], []
    done = None
    try:
        done = Work(run.path).done()
    except NoisyChannelError as error:
        parts.append(paragraph(str(error), "remark"))
    if subject is not None:
        charts += [_dots(subject, metric.name) for metric in subject.table.metrics]
    if done is not None:
        charts.append(_estimate(done))
    parts.append(f'<div class="charts">{"".join(charts)}</div>' if charts else "")
    if subject is not None:
        parts.append(_table(subject))
    else:
        parts.append(paragraph("Nothing was evaluated.", "remark"))
    if done is not None:
        parts.append(_about_estimate(done))
    if recorded := _recorded(run):
        where = "held-out pairs" if dev_is_training(run) else "the dev data"
        parts.append(f"<details><summary>What tuning measured on {where}</summary>{recorded}</details>")
    if subject is not None:
        parts.append(caption(f"{subject.caption()} {_drawn(subject)}"))
    else:
        parts.append(caption(made_by(run)))
    return Section(KEY, TITLE, "".join(parts))


def _dots(subject: Subject, metric: str) -> str:
    rows = [
        Dot(
            result.system,
            (value := result.measured[metric]).score,
            value.low,
            value.high,
            f"{value.score:.2f} [{value.low:.2f}, {value.high:.2f}]",
            result.system == subject.shown.label,
        )
        for result in subject.table.results
    ]
    name = UNITS.get(metric, metric)
    return dots(f"{name}, {subject.split} data", f"{name} of each system with its 95 % interval.", name, rows)


def _table(subject: Subject) -> str:
    metrics = [metric.name for metric in subject.table.metrics]
    head = ["system"]
    for name in metrics:
        head += [UNITS.get(name, name), "95 % interval", "p"]
    head += ["length ratio", "weights"]
    rows = []
    decoded = {system.label: system for system in subject.evaluation.decoded}
    for result in subject.table.results:
        cells = [result.system + (" (decode uses this)" if result.system == subject.shown.label else "")]
        for name in metrics:
            value = result.measured[name]
            p_value = "" if value.p_value is None else f"{value.p_value:.3f}"
            cells += [f"{value.score:.2f}", f"[{value.low:.2f}, {value.high:.2f}]", p_value]
        cells.append(f"{result.length_ratio:.3f}")
        own = decoded.get(result.system)
        learnt = "made from the training pairs" if result.system in LEARNT else ""
        cells.append(learnt if own is None else weights_of(own).removeprefix("weights "))
        rows.append(cells)
    return table(head, rows, text_last=True)


def _drawn(subject: Subject) -> str:
    drawn, table_ = subject.table.bootstrap, subject.table
    signatures = "; ".join(f"{metric.name} {metric.signature}" for metric in table_.metrics)
    few = ", too few for reliable intervals" if drawn.units < FEW_UNITS else ""
    return (
        f"Intervals: bootstrap, {drawn.samples} samples, seed {drawn.seed}, resampled by {drawn.resampled_by} "
        f"({drawn.units} units{few}). p: paired bootstrap against {subject.proposer} alone with the same search. "
        f"Length ratio: symbols of the outputs for each symbol of the references. Signatures: {signatures}."
    )


def _estimate(done: Done) -> str:
    rows = [
        Dot(one.system, one.score, one.low, one.high, f"{one.score:.2f} [{one.low:.2f}, {one.high:.2f}]",
            one.system == done.default)
        for one in done.estimates
    ]  # fmt: skip
    name = UNITS.get(done.metric, done.metric)
    return dots(f"{name}, as fit estimated", f"{name} of each system on pairs that were held out.", name, rows)


def _about_estimate(done: Done) -> str:
    plan = done.begun.plan
    how = f"each held out once ({plan.folds} folds)" if plan.folds else "that were split off"
    text = (
        f"The estimate of fit: {done.held_out:,} pairs, {how}; the weights of each estimate were tuned on other pairs "
        f"than it is measured on. noisychannel {done.begun.noisychannel}, "
        f"seed {done.begun.chosen.get('seed', 'not recorded')}."
    )
    if plan.folds:
        text += " The models of the run have seen all pairs, those of the estimate a part of them."
    helps = "".join(f"<li>{_item(line)}</li>" for line in done.helps)
    return paragraph(text) + (f"<p>What would help most, most important first:</p><ol>{helps}</ol>" if helps else "")


def _item(line: str) -> str:
    return paragraph(line).removeprefix("<p>").removesuffix("</p>")


def _recorded(run: RunDirectory) -> str:
    """Dev scores of weights.json."""
    rows: list[Sequence[str]] = []
    for name, tuned in read_systems(run.groups()[0]).items():
        record = tuned.record
        if record.get("dev_score") is None:
            continue
        used = f"{record['dev_sentences']:,}" if record.get("dev_sentences") else "–"
        of = f" of {record['dev_sentences_of']:,}" if record.get("dev_sentences_of") else ""
        weights = ", ".join(f"{key} {weight:.3g}" for key, weight in tuned.weights.by_name().items() if weight)
        p_value = "–" if record.get("p_start") is None else f"{record['p_start']:.3f}"
        rows.append([name, str(record.get("metric")), f"{record['dev_score']:.2f}", used + of, p_value, weights])
    if not rows:
        return ""
    return table(
        ["system", "metric", "dev score", "items", "p against start weights", "weights"], rows, 2, text_last=True
    )
