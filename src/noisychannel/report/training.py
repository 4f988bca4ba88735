"""Training curves: the perplexity of training and dev data, from metrics.jsonl."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from noisychannel.errors import NoisyChannelError
from noisychannel.models.registry import ROLES
from noisychannel.pages.charts import LineChart, Mark, Series, lines, table
from noisychannel.report.section import Section, caption, paragraph, spread
from noisychannel.report.subject import made_by
from noisychannel.runs import RunDirectory
from noisychannel.schemas import Record, parse_record, read_content
from noisychannel.tuning.run import dev_is_training

KEY, TITLE = "training", "Training curves"
POINTS = 120
"""Of a line; longer trainings show so many of their records."""
GROUPS = 4
"""Groups whose curves are shown."""
LARGEST = 1e6
"""A larger perplexity, of a training that has hardly begun, is drawn as this."""


@dataclass(frozen=True)
class LossRecord(Record):
    """A line of metrics.jsonl, as far as a curve needs it."""

    model: str
    kind: str
    step: int
    loss: float | None = None


def training_section(run: RunDirectory) -> Section:
    """A chart for each model."""
    groups = run.groups()
    charts, rows, damaged, reasons = [], [], 0, []
    for group in groups[:GROUPS]:
        name = f"{group.header().group}: " if len(groups) > 1 else ""
        try:
            records, bad = read_losses(group)
        except NoisyChannelError as error:
            reasons.append(str(error))
            continue
        damaged += bad
        for role in ROLES:
            curves = {kind: points for kind in ("dev", "train") if (points := records.get((role, kind)))}
            if curves:
                charts.append(_chart(f"{name}{role}", curves))
                rows.append(_row(f"{name}{role}", group, role, curves))
    if not charts:
        return Section(KEY, TITLE, reason=reasons[0] if reasons else "metrics.jsonl has no records of losses.")
    note = "Perplexity per symbol, on a logarithmic axis; lower is better. "
    if dev_is_training(run):
        note += "fit trained these models on all pairs: what is called dev here are training pairs, too. "
    else:
        note += "The model that is kept is the one with the best dev perplexity, where the mark is. "
    note += "Perplexities of an SSNT do not compare with those of seq2seq models: its probabilities sum to less than 1."
    if len(groups) > GROUPS:
        note += f" The first {GROUPS} of {len(groups)} groups are shown."
    if damaged:
        note += f" Lines of metrics.jsonl that are damaged and left out: {damaged}."
    head = ["model", "last step", "best step", "best dev perplexity", "training"]
    body = paragraph(note) + f'<div class="charts">{"".join(charts)}</div>' + table(head, rows)
    return Section(KEY, TITLE, body + caption(f"From metrics.jsonl. {made_by(run)}"))


def read_losses(run: RunDirectory) -> tuple[dict[tuple[str, str], list[tuple[float, float]]], int]:
    """Steps and losses by model and kind, and how many lines are damaged."""
    again = run.starting_over()
    if not run.metrics_file.exists():
        raise NoisyChannelError(f"The run has no {run.metrics_file.name}, which has the losses of its training.")
    found: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
    damaged = 0
    for line in read_content(run.metrics_file, again).splitlines():
        try:
            record = parse_record(line, LossRecord, run.metrics_file, again)
        except NoisyChannelError:
            damaged += 1
            continue
        if record.loss is not None:
            found[record.model, record.kind][float(record.step)] = record.loss
    return {key: sorted(points.items()) for key, points in found.items()}, damaged


def _chart(name: str, curves: dict[str, list[tuple[float, float]]]) -> str:
    series = [Series(kind, [(step, _perplexity(loss)) for step, loss in thinned(p)]) for kind, p in curves.items()]
    marks = []
    if "dev" in curves:
        step, loss = min(curves["dev"], key=lambda point: point[1])
        marks.append(Mark(step, f"best {_perplexity(loss):.3g}"))
    return lines(
        LineChart(name, f"Perplexity of {name} against the step of its training.", "step", "perplexity", series, marks,
                  logarithmic=True)
    )  # fmt: skip


def thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most ``POINTS`` of them, evenly spread, always with the last and the lowest."""
    if len(points) <= POINTS:
        return points
    kept = {*spread(points, POINTS - 2), points[-1], min(points, key=lambda point: point[1])}
    return sorted(kept)


def _row(name: str, run: RunDirectory, role: str, curves: dict[str, list[tuple[float, float]]]) -> list[str]:
    last = max(points[-1][0] for points in curves.values())
    best = min(curves["dev"], key=lambda point: point[1]) if "dev" in curves else None
    state = "ended" if run.model_file(role).exists() else "no model"
    state = "ended by its limit" if run.stopped_file(role).exists() else state
    state = "unfinished" if run.state_file(role).exists() else state
    shown = ["–", "–"] if best is None else [f"{best[0]:,.0f}", f"{_perplexity(best[1]):.4g}"]
    return [name, f"{last:,.0f}", *shown, state]


def _perplexity(loss: float) -> float:
    return min(LARGEST, math.exp(min(loss, 100.0)))
