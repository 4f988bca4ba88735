"""The learning curves of an inflection experiment as two plots.

    python experiments/inflection/plot.py experiments/inflection/results/inflection-nouns.json docs/experiments

Needs matplotlib (pip install 'noisychannel[plots]'). Writes EXPERIMENT-unpaired.svg and EXPERIMENT-pairs.svg.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

FULL, DIRECT, RULES = "direct + channel + LM + bias (bi), better LM", "direct (bi)", "longest-suffix rules"
Curve = dict[float, float]


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    results = json.loads(source.read_text(encoding="utf-8"))
    rows = {(row["setting"], row["name"]): row for row in results["rows"]}
    unpaired = list(results["data"]["unpaired"]["strict"].values())
    pairs = list(results["data"]["pairs"].values())
    full = curve(rows, FULL, "unpaired") | {sum(unpaired) / len(unpaired): rows["strict", FULL]["accuracy"]}
    flat = {name: dict.fromkeys(full, rows["paper", name]["accuracy"]) for name in (RULES, DIRECT)}
    name = results["experiment"]
    curves = {"full": full, "rules": flat[RULES], "direct": flat[DIRECT]}
    plot(target / f"{name}-unpaired.svg", "unpaired forms of each type", curves, "symlog")
    mean_pairs = sum(pairs) / len(pairs)
    full = curve(rows, FULL, "pairs") | {mean_pairs: rows["strict", FULL]["accuracy"]}
    rules, direct = (
        curve(rows, system, "pairs") | {mean_pairs: rows["paper", system]["accuracy"]} for system in (RULES, DIRECT)
    )
    plot(target / f"{name}-pairs.svg", "pairs of each type", {"full": full, "rules": rules, "direct": direct}, "log")


def curve(rows: dict[tuple[str, str], Any], name: str, what: str) -> Curve:
    """By amount, the accuracies of the rows NAME, AMOUNT WHAT in the strict setting."""
    pattern = re.compile(rf"{re.escape(name)}, (\d+) {what}")
    found = {key: pattern.fullmatch(key[1]) for key in rows if key[0] == "strict"}
    return {float(match[1]): rows[key]["accuracy"] for key, match in found.items() if match}


def plot(file: Path, label: str, curves: dict[str, Curve], scale: str) -> None:
    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for name, points in curves.items():
        xs = sorted(points)
        axes.plot(xs, [points[x] for x in xs], marker="o", label=name)
    axes.set_xscale(scale, **({"linthresh": 1000} if scale == "symlog" else {}))
    axes.set(xlabel=label, ylabel="test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
