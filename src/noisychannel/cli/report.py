"""``noisychannel report RUN [TEST]``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from noisychannel.arguments import parse_options
from noisychannel.atomic import write_text
from noisychannel.cli.progress import TerminalReporter
from noisychannel.errors import BadInputError, command_line
from noisychannel.packaged import PLACE
from noisychannel.report.options import PageOptions
from noisychannel.report.page import MARK, make_page, shows_items
from noisychannel.report.subject import reason_without_items
from noisychannel.run_files import run_that_owns
from noisychannel.runs import RunDirectory

USAGE = """usage: noisychannel report RUN [TEST] [--output FILE] [--systems direct,direct+channel+lm] [--limit N]

Write one HTML page about a run: its systems with intervals, training curves, how the metric depends on each weight,
where the direct model and the whole objective disagree and who was right, search errors, errors by kind, confused
symbols, alignments, and how accurate the most confident outputs are. The page needs no network and no program but a
browser. Its text is read from the run, and the items are decoded for it.

The items are those of TEST, which has the columns of the training data; without TEST they are the dev data of the run,
on which its weights were tuned, and the page says so. --curve RUN,RUN adds a learning curve of further runs.

--output FILE    where to write the page (default: report.html in the run directory); - is standard output.
                 Only an earlier report is replaced, and one with items only by one with items.

example:
  noisychannel report runs/demo runs/demo-data/test.tsv
  noisychannel report runs/mine --output mine.html --limit 200
"""


@dataclass(frozen=True, kw_only=True)
class ReportCommand(PageOptions):
    """Options of report.

    Args:
        run: The run directory.
        output: Where to write the page.
    """

    run: str = ""
    output: str | None = None


def run(words: list[str]) -> int:
    options = parse_options(ReportCommand, words, ("run", "test"), USAGE)
    if not options.run:
        raise BadInputError("report needs a run directory: noisychannel report runs/demo")
    opened = RunDirectory.open_finished(Path(options.run))
    file = _output_file(opened, options.output)
    reason = reason_without_items(opened, options)
    if reason and file is not None and file.is_file() and shows_items(_beginning(file)):
        raise BadInputError(
            f"--output: {file} is a report with items, and one without would replace it. {reason}; or name another file"
        )
    page = make_page(opened, options, command_line("report", *words), TerminalReporter())
    if file is None:
        sys.stdout.write(page)
    else:
        write_text(file, page)
        print(f"{file}: {len(page.encode()) / 1000:,.0f} kB")
    return 0


def _output_file(run: RunDirectory, name: str | None) -> Path | None:
    """Where the page goes; None is standard output. Refuses to replace anything but an earlier report."""
    if name == "-":
        return None
    if name is None and run.path.resolve() == PLACE.resolve():
        raise BadInputError("--output: the run of the package stays as it is; name a file for the page")
    file = run.path / "report.html" if name is None else Path(name)
    if file.is_dir() or not file.parent.is_dir():
        raise BadInputError(f"--output: {file} cannot be a file; name one in an existing directory")
    if (owner := run_that_owns(file)) is not None:
        raise BadInputError(f"--output: {file} is a file of the run {owner}; name another file")
    if file.is_file() and MARK.encode() not in _beginning(file):
        raise BadInputError(f"--output: {file} exists, and report did not write it; name another file")
    return file


def _beginning(file: Path) -> bytes:
    """Enough of a file to know a report; an empty file may be replaced."""
    try:
        with file.open("rb") as stream:
            return stream.read(100_000) or MARK.encode()
    except OSError as error:
        raise BadInputError(f"--output: {file} cannot be read ({error.strerror}); name another file") from error
