"""``noisychannel decode RUN [FILE …]``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from noisychannel.arguments import Bounds, Count, Positive, given_values, parse_options
from noisychannel.cli.progress import TerminalReporter
from noisychannel.cli.prompt import at_keyboard, prompted
from noisychannel.data.files import BadLine, Line, count_inputs, read_inputs
from noisychannel.data.standard_input import DASH, check_read_once
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.decoded_line import DecodedLine
from noisychannel.errors import BadInputError, command_line
from noisychannel.explanation import explain
from noisychannel.json_lines import json_line
from noisychannel.loading import load_tuned
from noisychannel.model_processes import ModelProcesses
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.output_file import OutputFile
from noisychannel.outputs import Output
from noisychannel.processes import loaded_for_good
from noisychannel.reporting import Reporter, Silent
from noisychannel.runs import RunDirectory
from noisychannel.simultaneous import MARGIN, OnlineLines, OnlineStep, online_records
from noisychannel.streams import LineDecoder, StreamOptions, content_of
from noisychannel.systems import check_used, unused_settings
from noisychannel.weights import read_system, read_systems

USAGE = """usage: noisychannel decode RUN [FILE …] [--system NAME] [--weights 1,0.5,0.3,0.2] [--n-best 5] [--json]

Print the best output of each line of the files (or of standard input, which is also -), in order; a blank line gives a
blank line. On a terminal, type an input and see its output. If the run was trained with features, a line is the input,
a tab, and the features. The weights are those tuned for the default system of the run (tune), those of --system
NAME, or --weights direct,channel,lm,length. With both, NAME still decides which model proposes and how it searches. A
line that cannot be decoded gives an empty line and a message with its number (only the first, if they have a wrong
number of columns, and at most 20 others); the others are decoded. A last line on standard error says how many outputs
are incomplete (no output reached its end) and which symbols and features were unknown.

--json           a line of JSON for each input: its symbols (features first: alignments count them), what of it is
                 unknown, and hypotheses with all terms of the objective and alignments; direct_is and channel_is say
                 whether a term is the log-probability of the best alignment (viterbi) or of all alignments
                 (marginal). A number that is not finite is null.
--n-best N       N lines for each input: the input (with its features), an output, and its score, with tabs between
                 them
--confidence     add a column: the probability that the output is right, as it was calibrated on dev when the run was
                 tuned. JSON always has it.
--unsure P       add a last column: ? if the confidence is below P, for outputs that a person should check, else
                 nothing; in JSON the key unsure, null for a line without outputs
--explain        for reading: a table of the n best with their terms, and the alignment of the best
--online         read each input symbol by symbol, and print a line after each: what was read, the best output so far,
                 and the beginning of it that can no longer change, with tabs between them. In the last line of an input
                 ␄ follows what was read, and the output is the final one. With --json the lines of an input are its
                 steps. Needs a direct model that is not bidirectional, and no features. --margin 3: commit early.
--rerank FILE    do not search: print the best (with --n-best the N best) of given outputs: lines of input, tab, output
                 (and tab, features, if the run was trained with features), those of one input together
--output FILE    write to FILE instead of standard output. If the command is interrupted or killed, repeat it with
                 --resume: FILE is continued, and in the end has the same bytes as if nothing had happened. It is also
                 continued if the input has grown. FILE.journal keeps how far it is, and how it was made.

example:
  echo Haus | noisychannel decode runs/demo --n-best 5
  noisychannel decode runs/demo words.txt --system direct+lm --json
  noisychannel decode runs/demo words.txt --output words.out --resume
  echo Haus | noisychannel decode runs/uni --online
  noisychannel decode runs/demo words.txt --confidence --unsure 0.5
"""


T = TypeVar("T")

POSITIONAL = ("run", "files*")
UNSURE = "?"
"""The mark of outputs that should be checked."""
NO_LINES = "there were no lines to decode"
WIDTH_IN_FILES = 160
"""Of tables for reading in files and pipes; on a terminal they are as wide as it is."""


@dataclass(frozen=True, kw_only=True)
class DecodeCommand(StreamOptions, SearchSettings):
    """Options of decode. Settings of the search that are not given are those of the tuned system.

    Args:
        run: The run directory.
        files: Inputs, one a line, compressed or not; standard input if not given.
        system: Whose tuned weights and search to use, such as direct, direct+lm, channel+lm, direct+channel+lm or
            attention.
        weights: direct,channel,lm,length, or by name (direct=1,lm=0.5,word_list=3), instead of tuned ones.
        json: Print a line of JSON for each input.
        explain: Print tables for reading.
        online: Show how the output grows while the input is read.
        margin: With --online: drop outputs that are so many nats behind the best; 10 if not given. A smaller one makes
            more of an output stable early, but may lose the best one.
        confidence: Add a column with the probability that each output is right.
        unsure: Mark outputs whose confidence is below this.
        rerank: A file of given outputs to rank, instead of searching.
        output: Write to this file instead of standard output. An existing file is not replaced.
        resume: Continue the output file; what is complete stays as it is.
        jobs: Processes that decode batches of lines at the same time. If not set, on Linux and a CPU one for each core,
            at most 8, and else one. Outputs are the same; on a GPU scores may differ in their last digits.
        device: auto takes a GPU if there is one.
    """

    run: str = ""
    files: list[str] = field(default_factory=list)
    system: str | None = None
    weights: str | None = None
    json: bool = False
    explain: bool = False
    online: bool = False
    margin: Positive | None = None
    confidence: bool = False
    unsure: Annotated[float, Bounds(least=0, most=1)] | None = None
    rerank: str | None = None
    output: str | None = None
    resume: bool = False
    jobs: Count | None = None
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(DecodeCommand, words, POSITIONAL, USAGE, unset=SearchSettings.among(vars(SearchSettings())))
    if not options.run:
        raise BadInputError("decode needs a run directory: noisychannel decode runs/demo words.txt")
    check_together(options)
    reporter, directory = TerminalReporter(), RunDirectory.open_finished(Path(options.run))
    output = None if options.output is None else OutputFile(Path(options.output), options.resume)
    given = given_values(DecodeCommand, words, POSITIONAL)
    model = load(directory, options, given, reporter)
    check_confidence(options, directory, model, reporter)
    detailed = options.json or options.explain
    confident = detailed or options.confidence or options.unsure is not None
    again = partial(load_again, options, given)
    with loaded_for_good(), ModelProcesses(model, options.jobs, again) as processes:
        decoder = LineDecoder(model, directory.data_config, options, reporter.warn, detailed, confident, processes)
        if options.online:
            print_steps(decoder, options, reporter)
        elif output is None:
            print_lines(decoder, options, reporter)
        else:
            write_lines(decoder, output, options, reporter)
    if summary := decoder.summary():
        reporter.warn(summary)
    return 1 if decoder.refused.number else 0


def check_together(options: DecodeCommand) -> None:
    """Refuse options of which one would be ignored, and a standard input that cannot be read."""
    if options.rerank is not None and options.files:
        raise BadInputError(f"--rerank reads {options.rerank} alone; leave out {options.files[0]}, or --rerank")
    if options.json and options.explain:
        raise BadInputError("--json and --explain exclude each other; leave one of them out")
    check_online_options(options)
    if options.explain and (options.confidence or options.unsure is not None):
        raise BadInputError("--explain shows every confidence; leave out --confidence and --unsure")
    if options.rerank is not None and (options.confidence or options.unsure is not None):
        raise BadInputError("--rerank: given outputs have no confidence; leave out --confidence and --unsure")
    if options.resume and options.output is None:
        raise BadInputError("--resume continues a file; name it with --output FILE")
    check_read_once([options.rerank] if options.rerank is not None else options.files or [DASH])


def check_online_options(options: DecodeCommand) -> None:
    """Refuse what simultaneous decoding does not do."""
    if options.margin is not None and not options.online:
        raise BadInputError("--margin would be ignored: it is for --online; leave it out")
    for name, value in {
        "--rerank": options.rerank is not None,
        "--explain": options.explain,
        "--output": options.output is not None,
        "--n-best": options.n_best > 1,
        "--confidence": options.confidence,
        "--unsure": options.unsure is not None,
    }.items():
        if options.online and value:
            raise BadInputError(f"--online and {name} exclude each other; leave one of them out")


def check_confidence(options: DecodeCommand, directory: RunDirectory, model: NoisyChannel, reporter: Reporter) -> None:
    """Refuse to promise confidences that the system does not have; say if another search has lost them."""
    if model.confidence is not None:
        return
    if options.confidence or options.unsure is not None:
        raise BadInputError(f"{options.run}: {why_no_confidence(options, directory)}")
    searched = options.rerank is None and not options.online and options.weights is None
    if (options.json or options.explain) and searched and read_system(directory, options.system).confidence is not None:
        reporter.warn("outputs have no confidence: it was fitted for another search; leave out settings of the search")


def why_no_confidence(options: DecodeCommand, directory: RunDirectory) -> str:
    """Why the system that was asked for has no confidence, and what has one."""
    asked = read_system(directory, options.system)
    sure = [name for name, system in read_systems(directory).items() if system.confidence is not None]
    if asked.name in sure:
        return (
            "only a tuned system has a confidence, with its own weights and its own or a wider search; leave out "
            "--weights and settings of the search"
        )
    if sure:
        why = "an earlier version tuned it" if asked.record else "nothing of it was tuned"
        return f"{asked.name} has no confidence, because {why}; choose with --system from {', '.join(sure)}"
    return f"only a tuned system has a confidence; tune the run: {command_line('tune', options.run)}"


def load(directory: RunDirectory, options: DecodeCommand, given: Mapping[str, Any], reporter: Reporter) -> NoisyChannel:
    """The system that the options ask for; settings that it does not use are refused."""
    try:
        weights = None if options.weights is None else Weights.parse(options.weights)
    except ValueError as error:
        raise BadInputError(f"--weights: {error}") from error
    settings = SearchSettings.among(given)
    model = load_tuned(directory, options.system, weights, settings, options.device, reporter)
    reranks, per_symbol = options.rerank is not None, model.settings.per_symbol
    check_used(settings, unused_settings([model.proposer], bool(model.weights.channel), reranks, per_symbol))
    return model


def load_again(options: DecodeCommand, given: Mapping[str, Any]) -> NoisyChannel:
    """The same system in another process. What there is to say about it has been said."""
    return load(RunDirectory.open_finished(Path(options.run)), options, given, Silent())


def print_lines(decoder: LineDecoder, options: DecodeCommand, reporter: TerminalReporter) -> None:
    """Each line as soon as it is decoded; a person at the keyboard sees the output of each line at once."""
    interactive = is_typed(options)
    if options.rerank is not None:
        lines, total = decoder.rerank(decoder.read_candidates(options.rerank)), None
    else:
        lines = decoder.decode(read_lines(decoder, options), one_by_one=interactive, ahead=are_files(options))
        total = None if interactive else count_inputs(options.files)
    with reporter.counting("decode", total, enabled=not sys.stdout.isatty()) as progress:
        for line in told_if_none(lines, reporter):
            print(shown(line, decoder.model, options), flush=True)
            progress(1)


def read_lines(decoder: LineDecoder, options: DecodeCommand) -> Iterator[Line | BadLine]:
    """The inputs, of files or of a person who is told what to type."""
    lines = read_inputs(options.files)
    if not is_typed(options):
        return lines
    return prompted(lines, "an input, a tab and its features" if decoder.with_features else "an input")


def is_typed(options: DecodeCommand) -> bool:
    """Whether a person types the inputs."""
    return options.files in ([], [DASH]) and at_keyboard()


def are_files(options: DecodeCommand) -> bool:
    """Whether all inputs are there already; lines of a pipe may wait for earlier outputs."""
    return bool(options.files) and all(Path(file).is_file() for file in options.files)


def print_steps(decoder: LineDecoder, options: DecodeCommand, reporter: Reporter) -> None:
    """How each output grows, at once; with JSON, a line for each input."""
    steps = OnlineLines(decoder, options.margin or MARGIN).decode(read_lines(decoder, options))
    texts = map(json_line, online_records(steps, decoder.model)) if options.json else map(OnlineStep.text, steps)
    for text in told_if_none(texts, reporter):
        print(text, flush=True)


def told_if_none(items: Iterable[T], reporter: Reporter) -> Iterator[T]:
    """The items. An input without lines has no outputs, which can look like a fault."""
    count = 0
    for count, item in enumerate(items, start=1):  # noqa: B007 (used below)
        yield item
    if not count:
        reporter.warn(NO_LINES)


def write_lines(decoder: LineDecoder, output: OutputFile, options: DecodeCommand, reporter: TerminalReporter) -> None:
    """Into the output file, from where it was left."""
    shape = "json" if options.json else "tables" if options.explain else "text"
    shape += "" if options.unsure is None else f", unsure below {options.unsure}"
    shape += ", with confidence" if options.confidence and not options.json else ""
    decided_by = decoder.decided_by() | {"format": shape, "use of --rerank": str(options.rerank is not None)}
    show = partial(shown, model=decoder.model, options=options)
    total = count_inputs(options.files) if options.rerank is None else None
    with (
        output.begin(decided_by) as file,
        reporter.counting("decode", total, start=(before := file.journal.lines)) as progress,
    ):
        if options.rerank is None and is_typed(options):
            print("type inputs, a line each; Ctrl-D ends", file=sys.stderr)
        if options.rerank is not None:
            chunks = decoder.rerank_chunks(file.rest(decoder.read_candidates(options.rerank), content_of))
        else:
            chunks = decoder.decode_chunks(file.rest(read_inputs(options.files), content_of), ahead=are_files(options))
        decoder.decode_into(file, chunks, show, progress)
    if not file.journal.lines:
        reporter.warn(NO_LINES)
    if before and before == file.journal.lines:
        reporter.warn(f"{options.output}: is complete; there was nothing left to do")


def shown(line: DecodedLine, model: NoisyChannel, options: DecodeCommand) -> str:
    """A decoded line as the options ask for it."""
    if options.json:
        unsure = {} if options.unsure is None else {"unsure": line.is_unsure(options.unsure)}
        return json_line(line.record(model) | unsure)
    if not line.outputs:
        return ""
    if options.explain:
        return explain(line, model, None if options.output is None and sys.stdout.isatty() else WIDTH_IN_FILES)
    if options.n_best == 1:
        return line.outputs[0].text + confidence_columns(line.outputs[0], options)
    return "\n".join(
        f"{line.text}\t{output.text}\t{output.hypothesis.score:.4f}{confidence_columns(output, options)}"
        for output in line.outputs
    )


def confidence_columns(output: Output, options: DecodeCommand) -> str:
    """The columns that ``--confidence`` and ``--unsure`` add to a line of text."""
    value = output.confidence or 0.0
    columns = [f"{value:.4f}"] if options.confidence else []
    columns += [] if options.unsure is None else [UNSURE if value < options.unsure else ""]
    return "".join(f"\t{column}" for column in columns)
