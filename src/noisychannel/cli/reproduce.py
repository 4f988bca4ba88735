"""``noisychannel reproduce EXPERIMENT``."""

from __future__ import annotations

import json
import lzma
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from noisychannel.arguments import parse_options
from noisychannel.atomic import write_bytes, write_text
from noisychannel.errors import BadInputError
from noisychannel.experiments import sigmorphon, wiktionary
from noisychannel.experiments.inflection import ExperimentPart, Inflection, Scale, Setup
from noisychannel.experiments.inflection_experiment import QUICK_PARTS, run_experiment
from noisychannel.experiments.inflection_report import markdown
from noisychannel.experiments.sigmorphon import Sigmorphon
from noisychannel.experiments.wiktionary import Wiktionary

USAGE = """usage: noisychannel reproduce EXPERIMENT [--quick] [--data DIR] [--work DIR] [--results DIR]

Train, tune and test every system of the paper's inflection experiment (The Neural Noisy Channel, Figure 1) and more,
and write one table. The experiments:

  inflection-nouns, inflection-verbs
      the paper's data, German Wiktionary tables: one set of models for each type
  inflection-sigmorphon2017, inflection-sigmorphon2023
      German of the shared tasks (2017: the medium training set): one model for all, with the tags as its features;
      inflection-sigmorphon is both

Whatever is finished is kept in the work directory, and a repeated command goes on from there. On a GPU the whole takes
some minutes; --quick does a small part of it in a few minutes on two cores.

The data: a folder with morphology/unpaired, and morphology/durrett2013, morphology/sigmorphon2017 or
morphology/sigmorphon2023; see docs/experiments/inflection.md.

example:
  noisychannel reproduce inflection-nouns --quick --data data
"""


class Experiment(NamedTuple):
    """What the name of an experiment stands for."""

    of: Callable[[Setup], Inflection]
    full: Scale
    quick: Scale


EXPERIMENTS = {
    "inflection-nouns": Experiment(partial(Wiktionary, "noun"), wiktionary.FULL["noun"], wiktionary.QUICK),
    "inflection-verbs": Experiment(partial(Wiktionary, "verb"), wiktionary.FULL["verb"], wiktionary.QUICK),
    "inflection-sigmorphon2017": Experiment(partial(Sigmorphon, 2017), sigmorphon.FULL[2017], sigmorphon.QUICK),
    "inflection-sigmorphon2023": Experiment(partial(Sigmorphon, 2023), sigmorphon.FULL[2023], sigmorphon.QUICK),
}


SEVERAL = {"inflection-sigmorphon": ("inflection-sigmorphon2017", "inflection-sigmorphon2023")}
"""One after the other."""


@dataclass(kw_only=True)
class ReproduceOptions:
    """Options of reproduce.

    Args:
        experiment: Which one.
        data: The folder of the data; the environment variable NOISYCHANNEL_DATA, else ../shared/data, where not given.
        work: Where files and models go; runs/EXPERIMENT where not given.
        results: Where the results go, as JSON and Markdown; into the work directory where not given.
        quick: Few pairs (of two types), small models: shows that everything works.
        parts: Which parts: the paper's table, further systems, learning curves (the last two not for sigmorphon); all
            where not given (quick: the table).
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
    names = SEVERAL.get(options.experiment, (options.experiment,))
    for name in names:
        if name not in EXPERIMENTS:
            known = ", ".join([*EXPERIMENTS, *SEVERAL])
            raise BadInputError(f"unknown experiment {name!r}; there are {known}")
    if options.jobs is not None and options.jobs < 1:
        raise BadInputError(f"--jobs: must be at least 1, but is {options.jobs}")
    if len(names) > 1 and options.work:
        raise BadInputError(f"--work: {options.experiment} is several experiments, each with a directory of its own")
    for name in names:
        _reproduce(name, options)
    return 0


def _reproduce(experiment: str, options: ReproduceOptions) -> None:
    chosen = EXPERIMENTS[experiment]
    name = experiment + ("-quick" if options.quick else "")
    data = Path(options.data or os.environ.get("NOISYCHANNEL_DATA") or "../shared/data")
    work = Path(options.work or f"runs/{name}")
    scale = chosen.quick if options.quick else chosen.full
    results = run_experiment(
        chosen.of(Setup(data, work, scale, options.device, options.jobs, _say)),
        options.parts or (QUICK_PARTS if options.quick else None),
    )
    directory = Path(options.results) if options.results else work
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / f"{name}.json", json.dumps(results.figures, ensure_ascii=False, indent=1) + "\n")
    outputs = "".join(f"{line}\n" for line in results.outputs)
    write_bytes(directory / f"{name}.outputs.tsv.xz", lzma.compress(outputs.encode()))
    table = "\n".join(markdown(results.figures))
    write_text(directory / f"{name}.md", table + "\n")
    print(table)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
