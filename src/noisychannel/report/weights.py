"""How the metric depends on each weight: the n-best lists of dev ranked again, one weight varied, the others fixed.

A search with other weights would also find other outputs, so far from the tuned weights the curves are bounds of what
these lists offer. Tuning works in the same way, and decodes again (``tuning/loop.py``).

Shapes: W values of a weight, N items, S statistics of the metric, T terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisychannel.decode.objective import Weights
from noisychannel.evaluation.decoding import with_all_terms
from noisychannel.evaluation.metrics import FloatArray, Metric
from noisychannel.evaluation.significance import curve_intervals
from noisychannel.pages.axes import number
from noisychannel.pages.charts import LineChart, Mark, Series, lines, table
from noisychannel.report.section import Section, caption, paragraph
from noisychannel.report.subject import Subject
from noisychannel.systems import FreeWeight, System
from noisychannel.tuning.pool import CandidateArrays, CandidatePool

KEY, TITLE = "weights", "How the metric depends on each weight"
VALUES = 81
"""Of a weight: the points of a curve."""


@dataclass(frozen=True)
class WeightCurve:
    """The metric for each value of one weight."""

    name: str
    tuned: float
    values: FloatArray
    scores: FloatArray
    intervals: FloatArray
    """Their 95 % bootstrap intervals [W, 2]."""
    differences: FloatArray
    """Those of the differences from the tuned value [W, 2]."""

    def as_good(self, higher_is_better: bool) -> tuple[float, float]:
        """The values around the tuned one whose metric is not worse, as far as the items can tell."""
        worse = self.differences[:, 1] < 0 if higher_is_better else self.differences[:, 0] > 0
        centre = int(np.argmin(np.abs(self.values - self.tuned)))
        low = high = centre
        while low > 0 and not worse[low - 1]:
            low -= 1
        while high < len(worse) - 1 and not worse[high + 1]:
            high += 1
        return float(self.values[low]), float(self.values[high])


def weights_section(subject: Subject | None, reason: str, samples: int, seed: int) -> Section:
    """A curve for each free weight of the system that is shown."""
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    tuned = subject.shown.tuned[0]
    system, metric = tuned.system, subject.table.metrics[0]
    if not system.free:
        return Section(KEY, TITLE, reason=f"{tuned.name} has no weights that could be varied.")
    if any(other.weights != tuned.weights for other in subject.shown.tuned):
        return Section(KEY, TITLE, reason="The groups of the run have different weights.")
    if not getattr(metric, "tunable", True):
        return Section(KEY, TITLE, reason=f"{metric.name} says how outputs are, not how good they are.")
    pool = make_pool(subject, metric)
    if not pool.covers(system):
        return Section(KEY, TITLE, reason="Some items have no output with every term.")
    candidates = pool.under(system)
    curves = [
        weight_curve(candidates, system, tuned.weights, free, subject.evaluation.units, samples, seed)
        for free in system.free
    ]
    note = (
        f"Each line shows {_name(metric)} if one weight had another value and the others stayed as they were tuned; "
        "the mark is the tuned value, the band the 95 % interval. A flat line says that the weight hardly matters; a "
        "peak, that it does. In the grey part, the difference from the tuned value may be chance (paired bootstrap). "
        f"For this, the best outputs of every system ({len(candidates.terms_FT):,} in all) are ranked again; so at the "
        "tuned value a line can differ from the table, if other systems find outputs that this one's search missed."
    )
    if subject.split != "dev":
        note += " There are no dev data for this, so it shows test data: do not choose weights by it."
    charts = "".join(_chart(curve, metric, subject.split) for curve in curves)
    body = paragraph(note) + f'<div class="charts">{charts}</div>' + _history(subject)
    drawn = f"Bootstrap: {samples} samples, seed {seed}, {metric.name} {metric.signature}."
    return Section(KEY, TITLE, body + caption(f"{subject.caption(subject.shown)} {drawn}"))


def make_pool(subject: Subject, metric: Metric) -> CandidatePool:
    """The outputs of all systems of one proposing model, with every term."""
    evaluation, shown = subject.evaluation, subject.shown
    texts: list[dict[tuple[int, ...], str]] = [{} for _ in subject.held_out.inputs]
    pool = CandidatePool(metric, subject.held_out.references, [known.__getitem__ for known in texts])
    for decoded in evaluation.decoded:
        if decoded.models[0].proposer != shown.models[0].proposer:
            continue
        first = 0
        for group, model, outputs in zip(evaluation.groups, shown.models, decoded.outputs, strict=True):
            for n, best in enumerate(outputs, start=first):
                texts[n] |= {output.hypothesis.tokens: output.text for output in best}
            for n, hypotheses in enumerate(with_all_terms(model, group.held_out, outputs), start=first):
                pool.add(n, hypotheses)
            first += len(outputs)
    return pool


def weight_curve(
    candidates: CandidateArrays,
    system: System,
    weights: Weights,
    free: FreeWeight,
    units: Sequence[object],
    samples: int,
    seed: int,
) -> WeightCurve:
    """Vary one weight. The tuned value is one of those that are tried."""
    term, tuned_T = system.terms.index(free.name), system.vector(weights)
    values_W = grid(float(tuned_T[term]), free)
    weights_WT = np.repeat(tuned_T[None], len(values_W), axis=0)
    weights_WT[:, term] = values_W
    statistics_WNS = candidates.statistics_FS[candidates.best(weights_WT)]
    centre = int(np.argmin(np.abs(values_W - tuned_T[term])))
    intervals = curve_intervals(candidates.metric, statistics_WNS, centre, samples, seed, groups=list(units))
    scores_W = candidates.metric.score(statistics_WNS.sum(1), len(candidates.starts_N))
    return WeightCurve(free.name, float(tuned_T[term]), values_W, scores_W, *intervals)


def grid(tuned: float, free: FreeWeight) -> FloatArray:
    """Values from no weight to at least twice the tuned one, which is among them; a length bias goes both ways."""
    reach = max(abs(tuned), abs(free.start), 0.25)
    low, high = tuned - 1.5 * reach, tuned + 1.5 * reach
    if math.isfinite(free.floor):
        low = free.floor
    if math.isfinite(free.ceiling):
        high = free.ceiling
    return np.unique(np.append(np.linspace(low, high, VALUES - 1), tuned))


def _chart(curve: WeightCurve, metric: Metric, split: str) -> str:
    points = list(zip(curve.values.tolist(), curve.scores.tolist(), strict=True))
    band = [(float(low), float(high)) for low, high in curve.intervals]
    good = curve.as_good(metric.higher_is_better)
    description = (
        f"{_name(metric)} on {split} data against the weight of {curve.name}. Between {number(good[0])} and "
        f"{number(good[1])} the items cannot tell it from the tuned weight, {number(curve.tuned)}."
    )
    chart = LineChart(
        f"{curve.name}: about as good from {good[0]:.3g} to {good[1]:.3g}",
        description,
        f"weight of {curve.name}",
        _name(metric),
        [Series(_name(metric), points, band)],
        [Mark(curve.tuned, f"tuned {curve.tuned:.3g}")],
        good,
    )
    return lines(chart)


def _name(metric: Metric) -> str:
    return metric.name.replace("_", " ")


def _history(subject: Subject) -> str:
    """What tuning tried."""
    tuned = subject.shown.tuned[0]
    steps = tuned.record.get("history") or ()
    names = list(tuned.weights.by_name())
    rows = []
    for step in steps:
        weights = step["weights"]
        rows.append([*(f"{weights.get(name, 0.0):.3g}" for name in names), f"{step['decoded_score']:.2f}"])
    if not rows:
        return ""
    metric = str(tuned.record.get("metric", "score"))
    return (
        f"<details><summary>Weights that tuning tried on the dev data ({len(rows)})</summary>"
        f"{table([*names, f'{metric} on dev'], rows, numbers_from=0)}</details>"
    )
