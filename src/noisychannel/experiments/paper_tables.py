"""The tables of the paper with our figures beside them, as Markdown: a part of the page of comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from noisychannel.experiments.blocks import UNFINISHED
from noisychannel.experiments.design import Design
from noisychannel.experiments.merged import row_label
from noisychannel.experiments.registry import EXPERIMENTS
from noisychannel.experiments.rows import SystemRow
from noisychannel.provenance import short_commit

NOT_MEASURED = "not measured"
DIRECT = "direct (bi)"

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
        ("summarisation", "summarisation-small"),
        "The paper: Gigaword, 1.0m and 3.8m pairs. Ours: 503,197 pairs of news, all or 100,000 of them, and another "
        "test set. `summarisation-small` has models of half the size, trained on two CPU cores, and 100,000 pairs "
        "beside the paper's figures of 1.0m. Its direct model mostly writes nothing, so differences from it say "
        "little: compare with direct + bias. [The experiment](experiments/summarisation.md)",
    ),
    PaperTable(
        "Table 4: Chinese–English translation",
        ("translation", "translation-small"),
        "The paper: FBIS, 184k pairs of news, 4.3m English sentences; its test set and variant of BLEU are not stated. "
        "Ours: 183,662 pairs of subtitles (TVsub), 1,961,077 English sentences; `translation-small` has models of half "
        "the size, trained on two CPU cores, and a language model with a learning rate of 1e-3 that reads a quarter of "
        "all English; its rows stand beside those of the paper that have the paper's language model. "
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


def paper_table_lines(table: PaperTable, results: Results) -> Iterator[str]:
    """A table of the paper: each system with the paper's figures and ours, and how ours were measured."""
    yield from ["", f"## {table.title}", "", f"{table.about}."]
    for name in table.experiments:
        design = EXPERIMENTS[name].design
        metrics = [m for m in design.metrics if any(m in figures for figures in design.published.values())]
        records = {row_label(row): row for row in results[name][1]["rows"]} if name in results else {}
        part = f" on {next(iter(results[name][1]['parts']))}" if records and design.average == "separate" else ""
        yield from ["", f"**{name}**, {', '.join(metrics)}{part}", ""]
        yield from header(["system", "paper", "ours", f"paper − {DIRECT}", f"ours − {DIRECT}"], 4)
        rows = _listed(design, records)
        for row in rows:
            figures, record = design.published.get(row.label, {}), records.get(row.label)
            ours = " / ".join(_figure(record["scores"][metric]) for metric in metrics) if record else NOT_MEASURED
            theirs = " / ".join(figures.get(metric, "") for metric in metrics) if figures else ""
            yield line([row.label + ("*" if row.online else ""), theirs, ours, *_differences(design, row, records)])
        if any(row.online for row in rows):
            yield from ["", "\\* can put out the beginning of an output before its input has ended."]
        yield ""
        yield from _commands(design, [row.label for row in rows], records)


def _listed(design: Design, records: Mapping[str, Mapping[str, Any]]) -> list[SystemRow]:
    """The rows of the paper; below each, those measured that differ from it in the language model alone."""
    by_label = {row.label: row for row in design.rows}
    rows = []
    for label in design.published:
        rows.append(by_label[label])
        rows += [row for row in design.rows if row.label in records and _has_other_lm(row, by_label[label])]
    return rows


def _has_other_lm(row: SystemRow, of_paper: SystemRow) -> bool:
    """Whether it is the same system with another language model."""
    if "lm" not in of_paper.used_models() or row.models.get("lm") == of_paper.models["lm"]:
        return False
    return replace(row, name=of_paper.name, models={**row.models, "lm": of_paper.models["lm"]}) == of_paper


def _differences(design: Design, row: SystemRow, records: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """The paper's and our difference from the direct model with as many pairs, in the first metric."""
    metric, by_label = design.metrics[0], {row.label: row for row in design.rows}
    direct = [x for x in design.published if by_label[x].name == DIRECT and by_label[x].pairs == row.pairs]
    if not direct or direct[0] == row.label:
        return "", ""
    theirs = {label: float(figures[metric]) for label, figures in design.published.items()}
    ours = {label: float(record["scores"][metric]["score"]) for label, record in records.items()}
    return _difference(theirs, row.label, direct[0]), _difference(ours, row.label, direct[0])


def _difference(scores: Mapping[str, float], label: str, other: str) -> str:
    """Empty if one of them has no score."""
    return f"{scores[label] - scores[other]:+.2f}" if scores.keys() >= {label, other} else ""


def _commands(design: Design, labels: Sequence[str], records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What has measured the rows, of each version the blocks that they are from; and what measures the others."""
    versions: dict[str, set[str]] = {}
    for record in (records[label] for label in labels if label in records):
        version = f"version {record['noisychannel']} at commit {short_commit(record['commit'])}"
        versions.setdefault(version, set()).add(record["block"].removesuffix(UNFINISHED))
    missing, left = set(), set(labels) - set(records)
    for block, rows in design.blocks.items():
        if found := left & {row.label for row in rows}:
            missing.add(block)
            left -= found
    sentences = [f"Ours: {_command(design, blocks)}, {version}." for version, blocks in versions.items()]
    if missing:
        sentences.append(f"What is not measured: {_command(design, missing)}.")
    yield " ".join(sentences)


def _command(design: Design, blocks: Set[str]) -> str:
    """The blocks are in the order of the design."""
    return f"`noisychannel reproduce {design.name} --blocks {','.join(x for x in design.blocks if x in blocks)}`"


def cited_lines(design: Design) -> Iterator[str]:
    """Table 2: published figures alone."""
    yield from ["", f"## {TABLE_2}", "", "Published figures; we have measured none of these systems.", ""]
    metrics = [m for m in design.metrics if any(m in figures for figures in design.cited.values())]
    yield from header(["system", "/".join(metrics)])
    for name, figures in design.cited.items():
        yield line([name, " / ".join(figures[metric] for metric in metrics)])


def header(titles: Sequence[str], numbers: int = 0) -> Iterator[str]:
    """``numbers``: how many columns after the first are aligned to the right."""
    yield line(titles)
    yield line(["---", *["---:"] * numbers, *["---"] * (len(titles) - 1 - numbers)])


def _figure(scores: Mapping[str, Any]) -> str:
    spread = "" if scores["deviation"] is None else f" ± {scores['deviation']:.2f}"
    return f"{scores['score']:.2f}{spread}"


def line(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"
