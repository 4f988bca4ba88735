"""``noisychannel score RUN [FILE]``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from noisychannel.arguments import parse_options
from noisychannel.cli.progress import TerminalReporter
from noisychannel.data.blank_lines import counted_blanks
from noisychannel.data.files import count_inputs
from noisychannel.data.rows import HUB, Columns, try_pairs
from noisychannel.data.standard_input import check_read_once
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError
from noisychannel.json_lines import json_line
from noisychannel.models.registry import Role
from noisychannel.runs import RunDirectory
from noisychannel.scoring import PairScorer, ScoreOptions

USAGE = """usage: noisychannel score RUN [FILE] [--models lm] [--columns input,output] [--device cpu]

Print, for each tab-separated pair of FILE (or of standard input), one line of JSON: the symbols the models see,
the log-probability under each model of the run (natural logarithm, EOS included; direct, seq2seq, attention and
transformer: of the output given the input; channel: of the input given the output; lm: of the output), and the best
alignments. direct and channel sum over all alignments; direct_viterbi and channel_viterbi are the log-probabilities
with the best alignment alone, which is what decode calls direct unless it searches with --search marginal. A number
that is not finite is null. alignment[j] is the input position at which the direct model emits output symbol j;
channel_alignment[i] is the output position at which the channel emits input symbol i (features, if
any, come before the output and are counted). A line that cannot be scored gives a record of nulls and a message with
its number (of many such lines, the first); the others are scored. Blank lines are skipped and counted.

example:
  printf 'Haus\\tHäusern\\n' | noisychannel score runs/demo
"""


@dataclass(frozen=True, kw_only=True)
class ScoreCommand(ScoreOptions):
    """Options of score.

    Args:
        run: The run directory.
        file: Tab-separated pairs, compressed or not; standard input if not given.
        models: Which models to ask; all of the run if not given.
        columns: What the columns are; those of the run's training data if not given.
        device: auto takes a GPU if there is one.
    """

    run: str = ""
    file: str = "-"
    models: list[Role] = field(default_factory=list)
    columns: str | None = None
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(ScoreCommand, words, ("run", "file"), USAGE)
    if not options.run:
        raise BadInputError("score needs a run directory: noisychannel score runs/demo pairs.tsv")
    check_read_once([options.file])
    reporter, directory = TerminalReporter(), RunDirectory.open_finished(Path(options.run))
    data = directory.data_config
    columns = Columns.parse(options.columns or data.columns, "--columns", ("input", "output"))
    scorer = PairScorer(directory, choose_device(options.device), options.models, options, reporter.warn)
    for warning in directory.unfinished(scorer.models):
        reporter.warn(warning)
    total = None if options.file.startswith(HUB) else count_inputs([options.file])
    with reporter.counting("score", total, enabled=not sys.stdout.isatty()) as progress:
        scored = 0
        for record in scorer.score(try_pairs(options.file, columns, data.feature_separator)):
            print(json_line(record))
            progress(1)
            scored += 1
    blank = counted_blanks(scorer.blank) if scorer.blank else ""
    for remark in filter(None, (scorer.refused.summary(), blank, scorer.remarks.line())):
        reporter.warn(remark)
    if not scored:
        reporter.warn("there were no lines to score")
    return 1 if scorer.refused.number else 0
