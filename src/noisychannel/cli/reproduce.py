"""``noisychannel reproduce EXPERIMENT``."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from noisychannel.atomic import write_text
from noisychannel.cli.options import parse_options
from noisychannel.errors import BadInputError
from noisychannel.reproduce.inflection import FULL, QUICK, Inflection, Part
from noisychannel.reproduce.inflection_experiment import PARTS, QUICK_PARTS, ExperimentPart, run_experiment
from noisychannel.reproduce.inflection_report import markdown

USAGE = """usage: noisychannel reproduce EXPERIMENT [--quick] [--data DIR] [--work DIR] [--results DIR]

The experiments are inflection-nouns and inflection-verbs: train, tune and test every system of the paper's inflection
experiment (The Neural Noisy Channel, Figure 1) and more, and write one table. Whatever is finished is kept in the work
directory, and a repeated command goes on from there. On a GPU the whole takes some minutes; --quick does a small part
of it in a few minutes on two cores.

The data: a folder with morphology/durrett2013 and morphology/unpaired; see docs/experiments/inflection.md.

example:
  noisychannel reproduce inflection-nouns --quick --data data
"""

EXPERIMENTS: dict[str, Part] = {"inflection-nouns": "noun", "inflection-verbs": "verb"}


@dataclass(kw_only=True)
class ReproduceOptions:
    """Options of reproduce.

    Args:
        experiment: inflection-nouns or inflection-verbs.
        data: The folder of the data; the environment variable NOISYCHANNEL_DATA, else ../shared/data, where not given.
        work: Where files and models go; runs/EXPERIMENT where not given.
        results: Where the results go, as JSON and Markdown; into the work directory where not given.
        quick: Two types, few pairs, small models: shows that everything works.
        parts: Which parts: the paper's table, further systems, learning curves; all where not given (quick: the table).
        jobs: Processes at a time; chosen for the machine where not given.
        device: auto takes a GPU where there is one.
    """

    experiment: str = ""
    data: str | None = None
    work: str | None = None
    results: str | None = None
    quick: bool = False
    parts: list[ExperimentPart] = field(default_factory=list)
    jobs: int | None = None
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(ReproduceOptions, words, ("experiment",), USAGE)
    if options.experiment not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise BadInputError(f"unknown experiment {options.experiment!r}; there are {known}")
    name = options.experiment + ("-quick" if options.quick else "")
    data = Path(options.data or os.environ.get("NOISYCHANNEL_DATA") or "../shared/data")
    work = Path(options.work or f"runs/{name}")
    part = EXPERIMENTS[options.experiment]
    experiment = Inflection(
        part, data, work, QUICK if options.quick else FULL[part], options.device, options.jobs, _say
    )
    results = run_experiment(experiment, options.parts or (QUICK_PARTS if options.quick else PARTS))
    directory = Path(options.results) if options.results else work
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / f"{name}.json", json.dumps(results, ensure_ascii=False, indent=1) + "\n")
    table = "\n".join(markdown(results))
    write_text(directory / f"{name}.md", table + "\n")
    print(table)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
