"""One experiment from its name to its results: run blocks, merge all blocks there are, write JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from noisychannel.atomic import write_text
from noisychannel.errors import BadInputError
from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.plots import write_plots
from noisychannel.experiments.registry import ExperimentEntry
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.running import block_estimate, run_blocks
from noisychannel.experiments.settings import Setup
from noisychannel.reporting import Say


def measure_blocks(
    entry: ExperimentEntry, setup: Setup, results: Path, blocks: Sequence[str] = (), quick: bool = False
) -> None:
    """Run blocks and write their files into ``results``: those named, else the quick ones if quick, else all."""
    design = entry.design
    chosen = blocks or (design.quick_blocks if quick else ()) or tuple(design.blocks)
    for name in chosen:
        if name not in design.blocks:
            raise BadInputError(f"{design.name} has no block {name!r}; its blocks are {', '.join(design.blocks)}")
    run_blocks(entry.make(setup, quick), chosen, results, file_stem(entry, quick))


def estimates_table(entry: ExperimentEntry, setup: Setup, quick: bool = False) -> str:
    """How many minutes each block takes, as Markdown. Nothing is measured, and nothing stays in the work directory."""
    with TemporaryDirectory() as folder:
        experiment = entry.make(replace(setup, work=Path(folder)), quick)
        estimates = {name: block_estimate(experiment, name) for name in entry.design.blocks if experiment.rows(name)}
    lines = [
        f"| `{name}` | {estimate.minutes[0]} | {estimate.minutes[2]} | {estimate.minutes[3]} |"
        for name, estimate in estimates.items()
        if estimate is not None
    ]
    if not lines:
        raise BadInputError(f"{entry.design.name} has no estimates; leave --estimate out")
    head = ["| block | minutes | training | tuning and decoding |", "| --- | ---: | ---: | ---: |"]
    device = next(estimate.device for estimate in estimates.values() if estimate is not None)
    return "\n".join([f"{entry.design.name}, estimated minutes on {device}, each block alone:", "", *head, *lines])


def write_results(
    entry: ExperimentEntry, results: Path, quick: bool = False, plots: Path | None = None, say: Say = print
) -> str:
    """Merge the block files in ``results`` into EXPERIMENT.json and EXPERIMENT.md; the Markdown.

    Nothing is measured, and no data is needed.
    """
    stem = file_stem(entry, quick)
    merged = merge(entry.design, read_blocks(results, stem, say))
    report = "\n".join(markdown(merged))
    write_text(results / f"{stem}.json", json.dumps(merged, ensure_ascii=False, indent=1) + "\n")
    write_text(results / f"{stem}.md", report + "\n")
    if plots is not None:
        write_plots(entry.design, merged, plots, say)
    return report


def file_stem(entry: ExperimentEntry, quick: bool) -> str:
    """The beginning of the names of result files."""
    return entry.design.name + ("-quick" if quick else "")
