"""Learning curves: scores against amounts of training data, one SVG file for each plot of the design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisychannel.errors import missing_extra
from noisychannel.experiments.design import Design, Plot, SearchPlot

Curve = dict[float, float]
"""Amount to score."""
LINEAR_BELOW = 1000
"""On a symlog axis, which has room for zero."""


def write_plots(design: Design, results: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw every plot that has at least one curve of two points; the files."""
    files = []
    for plot in design.plots:
        drawn = curves(plot, results)
        if any(len(curve) > 1 for curve in drawn.values()):
            directory.mkdir(parents=True, exist_ok=True)
            files.append(directory / f"{design.name}-{plot.name}.svg")
            _draw(files[-1], plot, drawn, f"test {design.metrics[0]}")
    for search_plot in design.search_plots:
        points = search_points(search_plot, results)
        if len(points) > 1:
            directory.mkdir(parents=True, exist_ok=True)
            files.append(directory / f"{design.name}-{search_plot.name}.svg")
            _draw_search(files[-1], search_plot, points, f"test {design.metrics[0]}")
    return files


class SearchPoint(NamedTuple):
    """A row of a plot of searches."""

    amount: float
    score: float
    milliseconds: float
    """Of decoding an item."""


def search_points(plot: SearchPlot, results: Mapping[str, Any]) -> list[SearchPoint]:
    """The rows of a plot that are measured, by the setting of their search."""
    metric, points = next(iter(results["metrics"])), []
    for row in results["rows"]:
        label = f"{row['setting']}: {row['name']}" if row["setting"] else row["name"]
        if label in plot.rows:
            scores = row["scores"][metric]
            items = sum(results["data"]["test"][part] for part in scores["parts"])
            seconds = float(np.mean(list(row["seconds"].values())))
            points.append(SearchPoint(row["search"][plot.setting], scores["score"], 1000 * seconds / items))
    return sorted(points)


def curves(plot: Plot, results: Mapping[str, Any]) -> dict[str, Curve]:
    """The curve of each line; a system that does not depend on the amount is the same everywhere."""
    metric, whole = next(iter(results["metrics"])), _whole_amount(plot, results)
    drawn: dict[str, Curve] = {}
    for label, base in plot.lines.items():
        rows = [row for row in results["rows"] if row["base"] == base]
        curve: Curve = {}
        # Rows of the plot's own setting last: they replace those of others.
        for row in sorted(rows, key=lambda row: row["setting"] == plot.setting):
            other = "unpaired" if plot.amount == "pairs" else "pairs"
            if row[other] == (None if plot.amount == "pairs" else plot.pairs):
                amount = whole if row[plot.amount] is None else float(row[plot.amount])
                curve[amount] = row["scores"][metric]["score"]
        drawn[label] = dict(sorted(curve.items()))
    amounts = sorted({amount for curve in drawn.values() for amount in curve})
    flat = {label: curve for label, curve in drawn.items() if len(curve) == 1}
    return drawn | {label: dict.fromkeys(amounts, next(iter(curve.values()))) for label, curve in flat.items()}


def _whole_amount(plot: Plot, results: Mapping[str, Any]) -> float:
    """All the data there is: the mean over parts."""
    data = results["data"][plot.amount]
    return float(np.mean(list((data[plot.setting] if plot.amount == "unpaired" else data).values())))


def _draw_search(file: Path, plot: SearchPlot, points: Sequence[SearchPoint], score: str) -> None:
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    amounts = [point.amount for point in points]
    axes.plot(amounts, [point.score for point in points], marker="o", label=score)
    axes.set_xscale("log")
    axes.set(xlabel=plot.label, ylabel=score)
    axes.grid(alpha=0.3)
    time = axes.twinx()
    time.plot(amounts, [point.milliseconds for point in points], marker=".", linestyle="--", color="tab:orange")
    time.set(ylabel="ms to decode an item (dashed)", yscale="log")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def require_plots() -> Any:
    """The module that draws; refused if it is not installed. Ask before work that would be lost."""
    try:
        return import_module("matplotlib")
    except ImportError:
        raise missing_extra("matplotlib", "plots", "a plot") from None


def _pyplot() -> Any:
    require_plots().use("svg")
    return import_module("matplotlib.pyplot")


def _draw(file: Path, plot: Plot, drawn: Mapping[str, Curve], score: str) -> None:
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for label, curve in drawn.items():
        axes.plot(list(curve), list(curve.values()), marker="o", label=label)
    for label, published in plot.cited.items():
        axes.plot(list(published), list(published.values()), marker=".", linestyle="--", linewidth=1, label=label)
    axes.set_xscale(plot.scale, **({"linthresh": LINEAR_BELOW} if plot.scale == "symlog" else {}))
    axes.set(xlabel=plot.label, ylabel=score)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
