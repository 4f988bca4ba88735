"""Learning curves: scores against amounts of training data, one SVG file for each plot of the design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisychannel.errors import missing_extra
from noisychannel.experiments.design import Design, Plot, SearchPlot
from noisychannel.reporting import Say
from noisychannel.systems import PROPOSERS

Curve = dict[float, float]
"""Amount to score."""
LINEAR_BELOW = 1000
"""On a symlog axis, which has room for zero."""


def write_plots(design: Design, results: Mapping[str, Any], directory: Path, say: Say = print) -> list[Path]:
    """Draw every plot that has at least one curve of two points; the files. It says which plots have none."""
    files, empty = [], []
    plots: list[Plot | SearchPlot] = [*design.plots, *design.search_plots]
    for plot in plots:
        file, score = directory / f"{design.name}-{plot.name}.svg", f"test {design.metrics[0]}"
        points = search_points(plot, results) if isinstance(plot, SearchPlot) else []
        drawn = curves(plot, results) if isinstance(plot, Plot) else {}
        if max([len(points), *map(len, drawn.values())]) < 2:
            empty.append(file.name)
            continue
        directory.mkdir(parents=True, exist_ok=True)
        if isinstance(plot, SearchPlot):
            _draw_search(file, plot, points, score)
        else:
            _draw(file, plot, drawn, score)
        files.append(file)
    if empty:
        say(f"not drawn, because no line has two points yet: {', '.join(empty)}")
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
    """The curve of each line that is measured; a system that does not depend on the amount is the same everywhere."""
    metric = next(iter(results["metrics"]))
    drawn: dict[str, Curve] = {}
    same: set[str] = set()
    for label, base in plot.lines.items():
        rows = [row for row in results["rows"] if row["base"] == base]
        curve: Curve = {}
        # Rows of the plot's own setting last: they replace those of others.
        for row in sorted(rows, key=lambda row: row["setting"] == plot.setting):
            other = "unpaired" if plot.amount == "pairs" else "pairs"
            if row[other] == (None if plot.amount == "pairs" else plot.pairs):
                named = row.get("amounts", {}).get(plot.amount, row[plot.amount])
                amount = _whole_amount(plot, results) if named is None else float(named)
                curve[amount] = row["scores"][metric]["score"]
        if curve:
            drawn[label] = dict(sorted(curve.items()))
        if len(curve) == 1 and plot.amount == "unpaired" and not any(map(_reads_unpaired, rows)):
            same.add(label)
    amounts = sorted({amount for curve in drawn.values() for amount in curve})
    return drawn | {label: dict.fromkeys(amounts, next(iter(drawn[label].values()))) for label in same}


def _reads_unpaired(row: Mapping[str, Any]) -> bool:
    """Whether a row has a model or a term of unpaired outputs."""
    return not set(row["system"].split("+")) <= {"", *PROPOSERS, "channel", "length", "seen", "ngram_pairs"}


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
    figure, axes = pyplot.subplots(figsize=(7, 3.2))
    for label, curve in drawn.items():
        axes.plot(list(curve), list(curve.values()), marker="o", label=label)
    for label, published in plot.cited.items():
        axes.plot(list(published), list(published.values()), marker=".", linestyle="--", linewidth=1, label=label)
    axes.set_xscale(plot.scale, **({"linthresh": LINEAR_BELOW} if plot.scale == "symlog" else {}))
    axes.set(xlabel=plot.label, ylabel=score)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), fontsize="small")  # beside the lines, not over them
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
