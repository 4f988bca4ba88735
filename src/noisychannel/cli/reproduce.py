"""``noisychannel reproduce EXPERIMENT``: a shell over ``noisychannel.experiments``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from noisychannel.arguments import Count, given_values, parse_options
from noisychannel.cli.progress import TerminalReporter
from noisychannel.cli.stopping import leaving
from noisychannel.data.rows import HUB
from noisychannel.errors import BadInputError
from noisychannel.experiments.comparison import write_comparison
from noisychannel.experiments.plots import require_plots
from noisychannel.experiments.registry import describe_experiments, find_experiments
from noisychannel.experiments.reproducing import estimates_table, file_stem, measure_blocks, write_results
from noisychannel.experiments.settings import Setup

COMPARISON = "comparison"
USAGE = f"""usage: noisychannel reproduce EXPERIMENT [--quick] [--blocks A,B] [--data DIR] [--work DIR] [--results DIR]

Train, tune, decode and score every system of an experiment, and print one table. The experiments:

{describe_experiments()}

An experiment has blocks, which can be run one by one, on different days and machines: each leaves two files in the
results directory, and all blocks found there are merged into the table. Finished work stays in the work directory and
is not repeated. "comparison" measures nothing: it makes a page with the tables of the paper, and ours beside them, from
the results of all experiments. --quick runs a small version in a few minutes on two cores.

examples:
  noisychannel reproduce inflection-nouns --quick --data data
  noisychannel reproduce inflection-nouns --blocks further,curves --results results
  noisychannel reproduce translation --data data --estimate
  noisychannel reproduce inflection-nouns --merge --results results --plots plots
  noisychannel reproduce comparison --results experiments --page docs/comparison.md
"""


@dataclass(kw_only=True)
class ReproduceOptions:
    """Options of reproduce.

    Args:
        experiment: Which one.
        data: The folder of the data; for summarisation also a dataset of the hub (hf:NAME). Default: the
            environment variable NOISYCHANNEL_DATA, else ../shared/data.
        work: Where files and models go. Default: runs/EXPERIMENT.
        results: Where the files of the blocks, the merged JSON and the table go. Default: the work directory.
        blocks: Which blocks to run, separated by commas. Default: all (quick: the first).
        quick: Less data and smaller models: shows that everything works.
        merge: Run nothing; merge the blocks that the results directory has.
        estimate: Run nothing; print how many minutes each block takes, if the experiment has rates.
        page: Of comparison: the Markdown file to write.
        plots: Also write the learning curves as SVG into this directory.
        jobs: Processes at a time. Default: chosen for the machine.
        device: auto takes a GPU if there is one.
    """

    experiment: str = ""
    data: str | None = None
    work: str | None = None
    results: str | None = None
    blocks: str = ""
    quick: bool = False
    merge: bool = False
    estimate: bool = False
    page: str | None = None
    plots: str | None = None
    jobs: Count | None = None
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(ReproduceOptions, words, ("experiment",), USAGE)
    given = given_values(ReproduceOptions, words, ("experiment",))
    for name in ("data", "blocks", "jobs", "device"):
        if options.merge and name in given:
            raise BadInputError(f"--{name} would be ignored: --merge runs nothing; leave one of them out")
    for name in ("blocks", "work", "results", "merge", "plots", "page"):
        if options.estimate and name in given:
            raise BadInputError(f"--{name} would be ignored: --estimate is about all blocks, and runs nothing")
    if options.experiment == COMPARISON:
        for name in given.keys() - {"experiment", "results", "page"}:
            raise BadInputError(f"--{name} would be ignored: comparison takes --results and --page; leave it out")
        page = Path(options.page) if options.page else None
        print(write_comparison(Path(options.results or "experiments"), page, TerminalReporter()), end="")
        return 0
    if options.page:
        raise BadInputError("--page would be ignored: it is for reproduce comparison; leave it out")
    entries = find_experiments(options.experiment)
    if len(entries) > 1 and options.work:
        raise BadInputError(f"--work: {options.experiment} is several experiments; run them one by one")
    if options.plots:
        require_plots()  # refused now rather than after the work
    data = data_folder(options)
    blocks = [name.strip() for name in options.blocks.split(",") if name.strip()]
    for entry in entries:
        work = Path(options.work or f"runs/{file_stem(entry, options.quick)}")
        results = Path(options.results) if options.results else work
        setup = Setup(data, work, options.device, options.jobs, _say, TerminalReporter())
        if options.estimate:
            print(estimates_table(entry, setup, options.quick))
            continue
        if not options.merge:
            with leaving(work.exists):
                measure_blocks(entry, setup, results, blocks, options.quick)
        plots = Path(options.plots) if options.plots else None
        print(write_results(entry, results, options.quick, plots, _say))
    return 0


def data_folder(options: ReproduceOptions) -> Path:
    """Where the data is: the option, the environment or the usual place; nothing is read from it with --merge."""
    key, name = "--data", options.data
    if name is None:
        key, name = "NOISYCHANNEL_DATA", os.environ.get("NOISYCHANNEL_DATA") or None
    if name is not None and not options.merge and not name.startswith(HUB) and not Path(name).is_dir():
        raise BadInputError(f"{key}: {name} is not a directory; name the folder of the data")
    return Path(name or "../shared/data")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
