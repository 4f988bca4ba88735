"""The paper and ours on one page, from the recorded results of all experiments alone.

    noisychannel reproduce comparison --results experiments --page docs/comparison.md

Each table of the paper stands beside our figures, with the command that measures them; then follows what the channel
itself adds, over all experiments (``contrasts``). What has no results is "not measured".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from noisychannel.atomic import write_text
from noisychannel.errors import BadInputError
from noisychannel.experiments.contrasts import Contrast, measure_contrasts
from noisychannel.experiments.paper_tables import (
    TABLE_3,
    TABLES,
    Results,
    cited_lines,
    header,
    line,
    paper_table_lines,
)
from noisychannel.experiments.registry import EXPERIMENTS
from noisychannel.reporting import Reporter, Silent
from noisychannel.schemas import Record, parse_record, read_content

CONTRASTS = "comparison.json"
AGAIN = "make it again: noisychannel reproduce comparison"
SILENT = Silent()


def read_results(folder: Path) -> Results:
    """The merged results of every experiment in ``folder/*/results``."""
    if not folder.is_dir():
        raise BadInputError(f"{folder}: no such directory; name that of the recorded results with --results")
    found = {}
    for name in EXPERIMENTS:
        for file in sorted(folder.glob(f"*/results/{name}.json")):
            found[name] = file.parent, json.loads(read_content(file, AGAIN))
    return found


@dataclass(frozen=True)
class ContrastsRecord(Record):
    """comparison.json."""

    contrasts: list[Contrast]


def write_comparison(folder: Path, page: Path | None, reporter: Reporter = SILENT) -> str:
    """Measure the contrasts of all results in a folder, write comparison.json there, and the page; the page."""
    results = read_results(folder)
    if not results:
        raise BadInputError(f"{folder}: has no */results/EXPERIMENT.json; name the recorded results with --results")
    contrasts: list[Contrast] = []
    with reporter.counting("compare, experiments", len(results)) as advance:
        for name, (where, merged) in results.items():
            contrasts += measure_contrasts(EXPERIMENTS[name].design, merged, where)
            advance(1)
    record = {"contrasts": [contrast.record() for contrast in contrasts]}
    write_text(folder / CONTRASTS, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    text = "\n".join(comparison_lines(results, contrasts)) + "\n"
    if page is not None:
        write_text(page, text)
    return text


def read_contrasts(folder: Path) -> list[Contrast]:
    """Those that ``write_comparison`` wrote."""
    file = folder / CONTRASTS
    return parse_record(read_content(file, AGAIN), ContrastsRecord, file, AGAIN).contrasts


# --- the page


def comparison_lines(results: Results, contrasts: Sequence[Contrast]) -> Iterator[str]:
    """The lines of the page."""
    yield "# The paper, and ours beside it"
    yield ""
    yield (
        "Every table of the paper with our figures, and what the channel itself adds in every experiment of this "
        "repository. Made from the recorded results by"
    )
    yield ""
    yield "```"
    yield "noisychannel reproduce comparison --results experiments --page docs/comparison.md"
    yield "```"
    yield ""
    yield (
        "Most of the data are not the paper's, so compare the differences between systems, not the figures. The last "
        "two columns give the difference from the direct model trained on the same number of pairs, in the first "
        "metric. A row without a figure of the paper is the system above it with another language model. A figure with "
        "± is a mean over seeds, with the standard deviation."
    )
    yield from paper_table_lines(TABLES[0], results)
    yield from cited_lines(EXPERIMENTS["summarisation"].design)
    yield from ["", f"## {TABLE_3[0]}", "", TABLE_3[1]]
    for table in TABLES[1:]:
        yield from paper_table_lines(table, results)
    yield from _channel(contrasts)


def _channel(contrasts: Sequence[Contrast]) -> Iterator[str]:
    yield from ["", "## What the channel adds", ""]
    yield (
        "Two systems that differ in the channel alone, both tuned: the full one, and everything but the channel. Every "
        "such pair of rows in the recorded results is here. The interval is that of the gain (95 %, bootstrap over "
        "test items, all seeds together). The channel *helps* if the interval is above zero, and *hurts* if below."
    )
    measured = {contrast.experiment for contrast in contrasts}
    waiting = [name for name in EXPERIMENTS if name not in measured]
    if waiting:
        yield ""
        yield f"Not measured: {', '.join(waiting)}."
    yield ""
    yield from header(["experiment", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    for name in EXPERIMENTS:
        if name in measured:
            yield _summary(name, [contrast for contrast in contrasts if contrast.experiment == name])
    yield from _when(contrasts)
    for name in EXPERIMENTS:
        if name in measured:
            yield from _listed(name, [contrast for contrast in contrasts if contrast.experiment == name])


def _when(contrasts: Sequence[Contrast]) -> Iterator[str]:
    """The same contrasts by the number of pairs, by the other terms, and by what is left to gain."""
    verdicts = [contrast.verdict for contrast in contrasts]
    yield ""
    yield (
        f"Over all experiments, the channel helps in {verdicts.count('helps')} of {len(contrasts)} pairs of rows, "
        f"hurts in {verdicts.count('hurts')}, and makes no difference that these tests could show in the others."
    )
    accuracies = [contrast for contrast in contrasts if contrast.metric == "accuracy"]
    sentences = sorted(
        (contrast for contrast in contrasts if contrast not in accuracies), key=lambda contrast: contrast.pairs or 0
    )
    if sentences:
        yield from ["", "Outputs that are sentences, by the number of training pairs:", ""]
        yield from header(["pairs", "experiment", "without the channel", "gain", "95 % interval", "the channel"], 1)
        for c in sentences:
            pairs = "" if c.pairs is None else f"{c.pairs:,}"
            gain, interval = f"{c.gain:+.2f} {c.metric}", f"{c.interval[0]:+.2f} to {c.interval[1]:+.2f}"
            yield line([pairs, c.experiment, c.without, gain, interval, c.verdict])
    yield from ["", "When it pays, over all experiments with accuracy, by the number of training pairs of a model:", ""]
    yield from header(["pairs", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    bounds = ((0, 250, "up to 250"), (250, 1_000, "251 to 1,000"), (1_000, 10_000, "1,001 to 10,000"))
    for low, high, title in bounds:
        some = [c for c in accuracies if c.pairs is not None and low < c.pairs <= high]
        if some:
            yield _summary(title, some)
    yield from ["", "By what stands beside the channel:", ""]
    yield from header(["system without it", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    for system in dict.fromkeys(contrast.system for contrast in accuracies):
        yield _summary(f"`{system}`", [c for c in accuracies if c.system == system])
    yield from ["", "And by the accuracy of everything but the channel:", ""]
    yield from header(["accuracy without it", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    for low, high, title in ((0, 70, "below 70"), (70, 90, "70 to 90"), (90, 101, "90 and more")):
        some = [c for c in accuracies if low <= c.other < high]
        if some:
            yield _summary(title, some)


def _summary(title: str, contrasts: Sequence[Contrast]) -> str:
    gains = [contrast.gain for contrast in contrasts]
    verdicts = [contrast.verdict for contrast in contrasts]
    counts = [str(verdicts.count(verdict)) for verdict in ("helps", "hurts")]
    return line([title, str(len(gains)), f"{mean(gains):+.2f}", f"{min(gains):+.2f}, {max(gains):+.2f}", *counts])


def _listed(name: str, contrasts: Iterable[Contrast]) -> Iterator[str]:
    listed = list(contrasts)
    yield from ["", f"**{name}**, {listed[0].metric}", ""]
    yield from header(["system", "without the channel", "with it", "gain", "95 % interval", "the channel"], 4)
    for contrast in listed:
        low, high = contrast.interval
        figures = [f"{contrast.other:.2f}", f"{contrast.score:.2f}", f"{contrast.gain:+.2f}"]
        yield line([contrast.with_channel, *figures, f"{low:+.2f} to {high:+.2f}", contrast.verdict])
