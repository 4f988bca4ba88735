"""Learning curves: runs of the same task, trained on more or fewer pairs, on the same items."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from noisychannel.errors import command_line
from noisychannel.evaluation.against import default_system
from noisychannel.evaluation.table import MetricValue
from noisychannel.pages.charts import LineChart, Series, lines, table
from noisychannel.report.options import PageOptions
from noisychannel.report.section import Section, caption, paragraph
from noisychannel.report.subject import Remembering, Subject, make_subject, run_name, seed_of
from noisychannel.runs import RunDirectory

KEY, TITLE = "learning", "Learning curve"


def learning_section(
    run: RunDirectory, subject: Subject | None, reason: str, options: PageOptions, reporter: Remembering
) -> Section:
    """The systems that decode uses, and the direct models, against the number of training pairs."""
    if not options.curve:
        names = [run_name(run), *(["TEST"] if not options.test else [options.test])]
        return Section(
            KEY, TITLE,
            reason="It needs runs of the same task with fewer or more pairs: "
            f"{command_line('report', *names, '--curve', 'RUN,RUN')}",
        )  # fmt: skip
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    measured = [(run, subject)]
    for name in options.curve:
        other = RunDirectory.open_finished(Path(name))
        measured.append((other, _measured(other, options, reporter)))
    metric = subject.table.metrics[0].name
    points: dict[str, list[tuple[float, MetricValue]]] = {}
    rows = []
    for one, found in sorted(measured, key=lambda pair: training_pairs(pair[0])):
        pairs = training_pairs(one)
        for line, system in (("direct model", found.base), ("default system", found.shown)):
            if system is not None:
                value = found.table.result(system.label).measured[metric]
                points.setdefault(line, []).append((float(pairs), value))
                interval = f"[{value.low:.2f}, {value.high:.2f}]"
                version = one.header().noisychannel
                rows.append(
                    [str(one.path), system.label, f"{pairs:,}", f"{value.score:.2f}", interval, seed_of(one), version]
                )
    series = [
        Series(line, [(pairs, v.score) for pairs, v in values], [(v.low, v.high) for _, v in values], dots=True)
        for line, values in points.items()
    ]
    chart = LineChart(
        f"{metric} and training pairs", f"{metric} on the same test items against the number of training pairs.",
        "training pairs", metric, series,
    )  # fmt: skip
    head = ["run", "system", "training pairs", metric, "95 % interval", "seed", "version"]
    note = "The bands are 95 % bootstrap intervals. Runs may differ in more than their pairs: see their config.yaml."
    body = paragraph(note) + f'<div class="beside">{lines(chart)}{table(head, rows, numbers_from=2)}</div>'
    return Section(KEY, TITLE, body + caption(subject.caption()))


def training_pairs(run: RunDirectory) -> int:
    """How many pairs a run was trained on, over all groups."""
    return sum(group.header().data.train.get("lines", 0) for group in run.groups())


def _measured(run: RunDirectory, options: PageOptions, reporter: Remembering) -> Subject:
    return make_subject(run, replace(options, systems=[default_system(run)], baselines=[], curve=[]), reporter)
