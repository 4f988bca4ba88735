"""``noisychannel evaluate RUN FILE``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from noisychannel.arguments import parse_options
from noisychannel.atomic import write_text
from noisychannel.cli.progress import TerminalReporter
from noisychannel.data.files import find_files
from noisychannel.data.rows import HUB
from noisychannel.data.standard_input import DASH
from noisychannel.errors import BadInputError
from noisychannel.evaluation.item_outputs import as_json_lines, as_tsv
from noisychannel.evaluation.metrics import METRICS, REPORTED
from noisychannel.evaluation.report import ReportOptions, is_report, report_run
from noisychannel.run_files import run_that_owns
from noisychannel.runs import RunDirectory

USAGE = f"""usage: noisychannel evaluate RUN FILE [--metrics accuracy,edit_distance] [--baselines identity,rules]
                                      [--against RUN2] [--outputs FILE] [--json FILE]

Decode the inputs of FILE with every tuned system of the run and print one table: each metric with its 95 % bootstrap
interval and its p-value against the direct model with the same search (paired bootstrap), the length of the outputs
relative to the references, and the speed. FILE (- is standard input) has the columns of the training data; or it has
inputs, and --references names the parallel files of references, one or several. Each group of a run decodes its own
items, and the table covers all groups; name the directory of a group for one alone.

metrics: {", ".join((*METRICS, *REPORTED))}.

If a metric is accuracy or edit_distance, below the table: how accurate the most confident outputs of the system that
decode uses are, if it has confidences, and its errors, grouped by kind, with examples.

Items with the same input (all forms of a lemma) are not independent: the bootstrap draws them together. Name
something else with --resample-by: line, output, features, group, or a column named -NAME in --columns.

--outputs FILE   write what each system makes of each item, whether it is right, and its confidence: tab-separated,
                 with a head, or lines of JSON if FILE ends in .jsonl. - is standard output; the report then goes
                 to standard error. An existing file is not replaced.
--against RUN2   decode the same items with the default system of RUN2 (and with --systems, if it has them), too: both
                 scores, their difference with its interval and p-value, and items that only one of them gets right
--json FILE      write everything for a program: all figures, errors, outputs and the comparison; - as above

example:
  noisychannel evaluate runs/demo runs/demo-data/test.tsv --metrics accuracy,edit_distance
  noisychannel evaluate runs/demo runs/demo-data/test.tsv --outputs outputs.tsv
  noisychannel evaluate runs/summarisation test.article.txt --references test.title.txt --metrics rouge1,length_ratio
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateCommand(ReportOptions):
    """Options of evaluate.

    Args:
        run: The run directory.
        outputs: Write the outputs of each item there.
        json: Also write the results there, with all inputs, references and outputs.
    """

    run: str = ""
    outputs: str | None = None
    json: str | None = None


def _check_results(option: str, name: str, inputs: list[str]) -> None:
    """Refuse to replace what is evaluated, or a file of a run, by the results."""
    file = Path(name)
    if name == "-":
        return
    if file.is_dir() or not file.parent.is_dir():
        raise BadInputError(f"--{option}: {file} cannot be a file; name one in an existing directory")
    evaluated = [source for source in inputs if source != DASH and not source.startswith(HUB)]
    if file.is_file() and any(file.samefile(other) for other in find_files(evaluated)):
        raise BadInputError(f"--{option}: {file} is a file that is evaluated; name another file")
    if (owner := run_that_owns(file)) is not None:
        raise BadInputError(f"--{option}: {file} is a file of the run {owner}; name another file")


def _check_replaced(option: str, name: str) -> None:
    """Refuse to replace outputs, as decode does, and by a record what is no record.

    Until version 0.4 --outputs named files of references.
    """
    file = Path(name)
    if not file.is_file() or not file.stat().st_size:
        return
    if option == "outputs":
        raise BadInputError(
            f"--outputs: {file} exists; remove it, or name another file to write to (files of references are given "
            "with --references)"
        )
    try:
        ours = is_report(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        ours = False
    except OSError as error:
        raise BadInputError(f"--json: {file} cannot be read ({error.strerror}); name another file") from error
    if not ours:
        raise BadInputError(
            f"--json: {file} exists, and evaluate --json did not write it; name another file to write to"
        )


def run(words: list[str]) -> int:
    options = parse_options(EvaluateCommand, words, ("run", "file"), USAGE)
    if not options.run or not options.file:
        raise BadInputError("evaluate needs a run directory and a test set: noisychannel evaluate runs/demo test.tsv")
    written = {name: file for name in ("json", "outputs") if (file := getattr(options, name)) is not None}
    for name, file in written.items():
        _check_results(name, file, [options.file, *options.references])
        _check_replaced(name, file)
    if len({Path(file).resolve() for file in written.values()}) < len(written):
        raise BadInputError(f"--json and --outputs are both {options.json}; name two files")
    report = report_run(RunDirectory.open_finished(Path(options.run)), options, TerminalReporter())
    print(report.text(), file=sys.stderr if "-" in written.values() else sys.stdout)
    if options.outputs is not None:
        lines = as_json_lines if options.outputs.endswith((".jsonl", ".json")) else as_tsv
        _write(options.outputs, lines(report.table))
    if options.json is not None:
        _write(options.json, json.dumps(report.record(), ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    return 0


def _write(name: str, content: str) -> None:
    """Into a file, or to standard output."""
    if name == "-":
        sys.stdout.write(content)
    else:
        write_text(Path(name), content)
