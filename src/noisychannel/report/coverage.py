"""Coverage and accuracy: how good the outputs are that a system is most sure of."""

from __future__ import annotations

from noisychannel.pages.charts import LineChart, Series, lines, table
from noisychannel.report.section import Section, caption, paragraph
from noisychannel.report.subject import Subject

KEY, TITLE = "coverage", "Coverage and accuracy"


def coverage_section(subject: Subject | None, reason: str) -> Section:
    """Curves of all systems that have confidences."""
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    sure = [result for result in subject.table.results if result.reliability is not None]
    if not sure:
        return Section(
            KEY, TITLE,
            reason="No system has confidences. tune fits them if dev has enough inputs, and enough right outputs.",
        )  # fmt: skip
    series, rows = [], []
    for result in sure:
        found = result.reliability
        assert found is not None
        points = [(float(point.coverage), point.accuracy) for point in found.curve]
        series.append(Series(result.system, points, dots=True))
        rows.append([result.system, f"{found.area:.2f}", f"{100 * found.ece:.1f}", f"{100 * found.ece_by_chance:.1f}",
                     f"{found.brier:.3f}"])  # fmt: skip
    note = (
        "If only the outputs with the highest confidences are used, the others going to a person, this is how many of "
        "them are right. A good confidence gives a line that rises to the left. The table: the mean accuracy along the "
        "line; how far confidences are from the share of right outputs, on average, and what perfect confidences would "
        "show on so many items by chance; and the Brier score, the mean squared distance from 1 (right) or 0 (wrong), "
        "lower is better."
    )
    chart = lines(
        LineChart(
            "accuracy of the most confident outputs",
            "Accuracy of the outputs with the highest confidences against how many of them there are.",
            "coverage, % of the items", "accuracy, %", series,
        )
    )  # fmt: skip
    head = ["system", "mean accuracy", "off by (points)", "by chance alone", "Brier score"]
    body = paragraph(note) + f'<div class="beside">{chart}{table(head, rows)}</div>'
    systems = [system for system in subject.evaluation.decoded if system.label in {result.system for result in sure}]
    return Section(KEY, TITLE, body + caption(subject.caption(*systems)))
