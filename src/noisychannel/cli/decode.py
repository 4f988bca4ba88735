"""``noisychannel decode RUN [FILE …]``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from noisychannel.arguments import given_values, parse_options
from noisychannel.cli.json_lines import json_line
from noisychannel.cli.progress import TerminalReporter
from noisychannel.data.files import count_inputs, read_inputs
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.explanation import explain
from noisychannel.loading import load_tuned
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.runs import RunDirectory
from noisychannel.streams import DecodedLine, LineDecoder, StreamOptions

USAGE = """usage: noisychannel decode RUN [FILE …] [--system NAME | --weights 1,0.5,0.3,0.2] [--n_best 5] [--json]

Print the best output of each line of the files (or of standard input), in order. If the run was trained with features,
a line is the input, a tab, and the features. The weights are those tuned for the run's default system (noisychannel
tune), for --system NAME, or --weights direct,channel,lm,length. A line that cannot be decoded gives an empty line and a
message with its number; the others are decoded. A last line on standard error says how many outputs are incomplete (no
output reached its end) and which symbols and features were unknown.

--json           a line of JSON for each input: its symbols (features first: alignments count them), what of it is
                 unknown, and hypotheses with all terms of the objective and alignments; direct_is and channel_is say
                 whether a term is the log-probability of the best alignment (viterbi) or of all alignments
                 (marginal). A number that is not finite is null.
--n_best N       N lines for each input: an output, a tab, and its score; use --json to tell several inputs apart
--explain        for reading: a table of the n best with their terms, and the alignment of the best
--rerank FILE    do not search: print the best (with --n_best the N best) of given outputs: lines of input, tab, output
                 (and tab, features, if the run was trained with features), those of one input together

example:
  echo Haus | noisychannel decode runs/demo --n_best 5
  noisychannel decode runs/demo words.txt --system direct+lm --json
"""


POSITIONAL = ("run", "files*")


@dataclass(frozen=True, kw_only=True)
class DecodeCommand(StreamOptions, SearchSettings):
    """Options of decode. Settings of the search that are not given are those of the tuned system.

    Args:
        run: The run directory.
        files: Inputs, one a line, compressed or not; standard input if not given.
        system: Whose tuned weights to use, such as direct, direct+lm, channel+lm, direct+channel+lm, attention.
        weights: direct,channel,lm,length, or by name (direct=1,lm=0.5,word_list=3), instead of tuned ones.
        json: Print a line of JSON for each input.
        explain: Print tables for reading.
        rerank: A file of given outputs to rank, instead of searching.
        device: auto takes a GPU if there is one.
    """

    run: str = ""
    files: list[str] = field(default_factory=list)
    system: str | None = None
    weights: str | None = None
    json: bool = False
    explain: bool = False
    rerank: str | None = None
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(DecodeCommand, words, POSITIONAL, USAGE, unset=SearchSettings.among(vars(SearchSettings())))
    if not options.run:
        raise BadInputError("decode needs a run directory: noisychannel decode runs/demo words.txt")
    reporter, directory = TerminalReporter(), RunDirectory.open(Path(options.run))
    try:
        weights = None if options.weights is None else Weights.parse(options.weights)
    except ValueError as error:
        raise BadInputError(f"--weights: {error}") from error
    given = SearchSettings.among(given_values(DecodeCommand, words, POSITIONAL))
    model = load_tuned(directory, options.system, weights, given, options.device, reporter)
    decoder = LineDecoder(model, directory.data_config, options, reporter.warn, align=options.json or options.explain)
    if options.rerank is not None:
        lines, total = decoder.rerank(decoder.read_candidates(options.rerank)), None
    else:
        # A person at the keyboard sees the output of each line at once.
        interactive = not options.files and sys.stdin.isatty()
        lines = decoder.decode(read_inputs(options.files), one_by_one=interactive)
        total = count_inputs(options.files) if sys.stderr.isatty() else None
    with reporter.counting("decode", total, enabled=not sys.stdout.isatty()) as progress:
        for line in lines:
            print(shown(line, model, options), flush=True)
            progress(1)
    if remarks := decoder.remarks.line():
        reporter.warn(remarks)
    return 1 if decoder.failed else 0


def shown(line: DecodedLine, model: NoisyChannel, options: DecodeCommand) -> str:
    """A decoded line as the options ask for it."""
    if options.json:
        return json_line(line.record(model))
    if line.outputs is None:
        return ""
    if options.explain:
        return explain(line, model)
    if options.n_best == 1:
        return line.outputs[0].text
    return "\n".join(f"{output.text}\t{output.hypothesis.score:.4f}" for output in line.outputs)
