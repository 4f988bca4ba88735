"""``noisychannel evaluate RUN FILE``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from noisychannel.arguments import parse_options
from noisychannel.atomic import write_text
from noisychannel.cli.progress import TerminalReporter
from noisychannel.data.files import find_files
from noisychannel.data.rows import HUB
from noisychannel.data.standard_input import DASH
from noisychannel.errors import BadInputError
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.run_files import run_that_owns
from noisychannel.runs import RunDirectory

USAGE = """usage: noisychannel evaluate RUN FILE [--metrics accuracy,edit_distance] [--baselines identity,rules]

Decode the inputs of FILE with every tuned system of the run and print one table: each metric with its 95 % bootstrap
interval and its p-value against the direct model with the same search (paired bootstrap), the length of the outputs
relative to the references, and the speed. FILE (- is standard input) has the columns of the training data; or it has
inputs, and --outputs names the parallel files of references, one or several. Each group of a run decodes its own items,
and the table covers all groups; name the directory of a group for one alone.

Items with the same input (all forms of a lemma) are not independent: the bootstrap draws them together. Name
something else with --resample-by: line, output, features, group, or a column named -NAME in --columns.

example:
  noisychannel evaluate runs/demo runs/demo-data/test.tsv --metrics accuracy,edit_distance
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateCommand(EvaluateOptions):
    """Options of evaluate.

    Args:
        run: The run directory.
        json: Also write the results there, with all inputs, references and outputs.
    """

    run: str = ""
    json: str | None = None


def _check_results(file: Path, inputs: list[str]) -> None:
    """Refuse to replace what is evaluated, or a file of a run, by the results."""
    if file.is_dir() or not file.parent.is_dir():
        raise BadInputError(f"--json: {file} cannot be a file; name one in an existing directory")
    evaluated = [name for name in inputs if name != DASH and not name.startswith(HUB)]
    if file.is_file() and any(file.samefile(other) for other in find_files(evaluated)):
        raise BadInputError(f"--json: {file} is a file that is evaluated; name another file")
    if (owner := run_that_owns(file)) is not None:
        raise BadInputError(f"--json: {file} is a file of the run {owner}; name another file")


def run(words: list[str]) -> int:
    options = parse_options(EvaluateCommand, words, ("run", "file"), USAGE)
    if not options.run or not options.file:
        raise BadInputError("evaluate needs a run directory and a test set: noisychannel evaluate runs/demo test.tsv")
    if options.json is not None:
        _check_results(Path(options.json), [options.file, *options.outputs])
    table = evaluate_run(RunDirectory.open(Path(options.run)), options, TerminalReporter())
    print(table.table())
    if options.json is not None:
        record = json.dumps(table.record(), ensure_ascii=False, indent=1, allow_nan=False)
        write_text(Path(options.json), record + "\n")
    return 0
