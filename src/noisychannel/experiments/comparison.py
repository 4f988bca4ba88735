"""The paper and ours on one page, from the recorded results of all experiments alone.

    noisychannel reproduce comparison --results experiments --page docs/comparison.md

Each table of the paper stands beside our figures, with the command that measures them; then follows what the channel
itself adds, over all experiments (``contrasts``). What has no results is "not measured".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from noisychannel.atomic import write_text
from noisychannel.errors import BadInputError
from noisychannel.experiments.contrasts import Contrast, measure_contrasts
from noisychannel.experiments.design import Design
from noisychannel.experiments.merged import row_label
from noisychannel.experiments.registry import EXPERIMENTS
from noisychannel.reporting import Reporter, Silent
from noisychannel.schemas import Record, parse_record, read_content

CONTRASTS = "comparison.json"
AGAIN = "make it again: noisychannel reproduce comparison"
NOT_MEASURED = "not measured"
DIRECT = "direct (bi)"
SILENT = Silent()

Results = Mapping[str, tuple[Path, dict[str, Any]]]
"""By experiment: the folder of its results, and the merged results."""


class PaperTable(NamedTuple):
    """A table or figure of the paper."""

    title: str
    experiments: tuple[str, ...]
    about: str


TABLES = (
    PaperTable(
        "Table 1: sentence summarisation",
        ("summarisation",),
        "The paper: Gigaword, 1.0m and 3.8m pairs. Ours: 503,197 pairs of news, all or 100,000 of them, and another "
        "test set. [The experiment](experiments/summarisation.md)",
    ),
    PaperTable(
        "Table 4: Chinese–English translation",
        ("translation",),
        "The paper: FBIS, 184k pairs of news, 4.3m English sentences; its test set and variant of BLEU are not stated. "
        "Ours: 183,662 pairs of subtitles (TVsub), 1,961,077 English sentences. "
        "[The experiment](experiments/translation.md)",
    ),
    PaperTable(
        "Figure 1: German inflection",
        ("inflection-nouns", "inflection-verbs"),
        "The same pairs and test items; the paper's unpaired forms are not public. "
        "[The experiment](experiments/inflection.md)",
    ),
)
TABLE_2 = "Table 2: summarisation systems that the paper cites"
TABLE_3 = (
    "Table 3: preferences of people",
    "The paper: of 641 headlines, both bad 188, both good 106, direct better 135, noisy channel better 212. "
    f"Ours: {NOT_MEASURED}.",
)


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
        "If data differ, figures are not comparable line by line; the differences between systems are. Those from the "
        "direct model with as many pairs are in the last two columns (of several metrics, in the first). A figure with "
        "± is a mean over seeds, with the standard deviation."
    )
    for table in TABLES[:1]:
        yield from _table(table, results)
    yield from _cited(EXPERIMENTS["summarisation"].design)
    yield from ["", f"## {TABLE_3[0]}", "", TABLE_3[1]]
    for table in TABLES[1:]:
        yield from _table(table, results)
    yield from _channel(contrasts)


def _table(table: PaperTable, results: Results) -> Iterator[str]:
    yield from ["", f"## {table.title}", "", f"{table.about}."]
    for name in table.experiments:
        design = EXPERIMENTS[name].design
        metrics = [m for m in design.metrics if any(m in figures for figures in design.published.values())]
        rows = {row_label(row): row for row in results[name][1]["rows"]} if name in results else {}
        part = f" on {next(iter(results[name][1]['parts']))}" if rows and design.average == "separate" else ""
        yield from ["", f"**{name}**, {', '.join(metrics)}{part}", ""]
        yield from _header(["system", "paper", "ours", "paper, against direct (bi)", "ours"], 4)
        for label, figures in design.published.items():
            row = rows.get(label)
            ours = " / ".join(_figure(row["scores"][metric]) for metric in metrics) if row else NOT_MEASURED
            gains = _gains(design, label, rows)
            yield _line([label, " / ".join(figures.get(metric, "") for metric in metrics), ours, *gains])
        yield ""
        yield from _commands(design, rows)


def _gains(design: Design, label: str, rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """The paper's and our difference from the direct model with as many pairs, in the first metric."""
    metric, by_label = design.metrics[0], {row.label: row for row in design.rows}
    same = [x for x in design.published if by_label[x].name == DIRECT and by_label[x].pairs == by_label[label].pairs]
    if not same or same[0] == label:
        return "", ""
    paper = f"{float(design.published[label][metric]) - float(design.published[same[0]][metric]):+.2f}"
    if label not in rows or same[0] not in rows:
        return paper, ""
    return paper, f"{rows[label]['scores'][metric]['score'] - rows[same[0]]['scores'][metric]['score']:+.2f}"


def _commands(design: Design, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """How to measure the rows of a table, and which version has measured them."""
    blocks, left = [], set(design.published)
    for block, its in design.blocks.items():
        if found := left & {row.label for row in its}:
            blocks.append(block)
            left -= found
    command = f"`noisychannel reproduce {design.name} --blocks {','.join(blocks)}`"
    versions = dict.fromkeys(
        f"version {row['noisychannel']} at commit {row['commit']}"
        for label, row in rows.items()
        if label in design.published
    )
    yield f"{command}{': ' + '; '.join(versions) if versions else ''}."


def _cited(design: Design) -> Iterator[str]:
    yield from ["", f"## {TABLE_2}", "", "Published figures; we have measured none of these systems.", ""]
    metrics = [m for m in design.metrics if any(m in figures for figures in design.cited.values())]
    yield from _header(["system", "/".join(metrics)])
    for name, figures in design.cited.items():
        yield _line([name, " / ".join(figures[metric] for metric in metrics)])


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
    yield from _header(["experiment", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    for name in EXPERIMENTS:
        if name in measured:
            yield _summary(name, [contrast for contrast in contrasts if contrast.experiment == name])
    yield from _when(contrasts)
    for name in EXPERIMENTS:
        if name in measured:
            yield from _listed(name, [contrast for contrast in contrasts if contrast.experiment == name])


def _when(contrasts: Sequence[Contrast]) -> Iterator[str]:
    """The same contrasts by the number of pairs, by the other terms, and by what is left to gain."""
    yield from ["", "When it pays, over all experiments with accuracy, by the number of training pairs of a model:", ""]
    accuracies = [contrast for contrast in contrasts if contrast.metric == "accuracy"]
    yield from _header(["pairs", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    bounds = ((0, 250, "up to 250"), (250, 1_000, "251 to 1,000"), (1_000, 10_000, "1,001 to 10,000"))
    for low, high, title in bounds:
        some = [c for c in accuracies if c.pairs is not None and low < c.pairs <= high]
        if some:
            yield _summary(title, some)
    yield from ["", "By what stands beside the channel:", ""]
    yield from _header(["system without it", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    for system in dict.fromkeys(contrast.system for contrast in accuracies):
        yield _summary(f"`{system}`", [c for c in accuracies if c.system == system])
    yield from ["", "And by the accuracy of everything but the channel:", ""]
    yield from _header(["accuracy without it", "pairs of rows", "mean gain", "smallest, largest", "helps", "hurts"], 5)
    for low, high, title in ((0, 70, "below 70"), (70, 90, "70 to 90"), (90, 101, "90 and more")):
        some = [c for c in accuracies if low <= c.other < high]
        if some:
            yield _summary(title, some)


def _summary(title: str, contrasts: Sequence[Contrast]) -> str:
    gains = [contrast.gain for contrast in contrasts]
    verdicts = [contrast.verdict for contrast in contrasts]
    counts = [str(verdicts.count(verdict)) for verdict in ("helps", "hurts")]
    return _line([title, str(len(gains)), f"{mean(gains):+.2f}", f"{min(gains):+.2f}, {max(gains):+.2f}", *counts])


def _listed(name: str, contrasts: Iterable[Contrast]) -> Iterator[str]:
    listed = list(contrasts)
    yield from ["", f"**{name}**, {listed[0].metric}", ""]
    yield from _header(["system", "without the channel", "with it", "gain", "95 % interval", "the channel"], 4)
    for contrast in listed:
        low, high = contrast.interval
        figures = [f"{contrast.other:.2f}", f"{contrast.score:.2f}", f"{contrast.gain:+.2f}"]
        yield _line([contrast.with_channel, *figures, f"{low:+.2f} to {high:+.2f}", contrast.verdict])


def _header(titles: Sequence[str], numbers: int = 0) -> Iterator[str]:
    """``numbers``: how many columns after the first are aligned to the right."""
    yield _line(titles)
    yield _line(["---", *["---:"] * numbers, *["---"] * (len(titles) - 1 - numbers)])


def _figure(scores: Mapping[str, Any]) -> str:
    spread = "" if scores["deviation"] is None else f" ± {scores['deviation']:.2f}"
    return f"{scores['score']:.2f}{spread}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
