"""``noisychannel decode RUN [FILE …]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.table import Table

from noisychannel.alignment import draw_alignment
from noisychannel.arguments import check_at_least, parse_options
from noisychannel.cli.json_lines import json_line
from noisychannel.cli.noticed import Noticed, named
from noisychannel.cli.progress import counting
from noisychannel.cli.warn import tune_first, warn, warn_unfinished
from noisychannel.data.codec import Unknown
from noisychannel.data.files import BadLine, Line, find_files, open_file, read_stream
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Columns, read_pairs
from noisychannel.decode.objective import Weights
from noisychannel.errors import BadInputError
from noisychannel.noisy_channel import NoisyChannel, Output
from noisychannel.runs import RunDirectory
from noisychannel.training.config import parse_config
from noisychannel.weights import read_system

USAGE = """usage: noisychannel decode RUN [FILE …] [--system NAME | --weights 1,0.5,0.3,0.2] [--n_best 5] [--json]

Print the best output of each line of the files (or of standard input), in order. Where the run was trained with
features, a line is the input, a tab, and the features. Weights are those tuned for the run's default system
(noisychannel tune), for --system NAME, or --weights direct,channel,lm,length. A line that cannot be decoded gives an
empty line and a message with its number; the others are decoded. A last line on standard error tells how many outputs
are incomplete (no output reached its end) and which symbols and features were unknown.

--json           a line of JSON for each input: its symbols (features first: alignments count them), what of it is
                 unknown, and hypotheses with their four terms and alignments; direct_is and channel_is tell whether a
                 term is the log-probability of the best alignment (viterbi) or of all alignments (marginal). A number
                 that is not finite is null.
--n_best N       N lines for each input: an output, a tab, and its score; use --json to tell several inputs apart
--explain        for reading: a table of the n best with their terms, and the alignment of the best drawn
--rerank FILE    do not search: print the best (with --n_best the N best) of given outputs: lines of input, tab, output
                 (and tab, features, if the run was trained with features), those of one input together

example:
  echo Haus | noisychannel decode runs/demo --n_best 5
  noisychannel decode runs/demo words.txt --system direct+lm --json
"""

MAX_SYMBOLS = 1000


@dataclass(kw_only=True)
class DecodeOptions:
    """Options of decode.

    Args:
        run: The run directory.
        files: Inputs, one a line, compressed or not; standard input where not given.
        system: Whose tuned weights to use, such as direct, direct+lm, channel+lm, direct+channel+lm.
        weights: direct,channel,lm,length, instead of tuned ones.
        n_best: Outputs for each input.
        k1: Proposals of the direct model for each cell; as tuned where not given.
        k2: Survivors of each cell; as tuned where not given.
        max_length: Longest output in symbols, EOS included.
        max_growth: How many symbols longer than its input an output may be; where neither is given, the longest output
            is twice as long as its input and ten more.
        search: viterbi (the paper) or marginal; as tuned where not given.
        lm_proposals: Further proposals for each cell, by the language model.
        json: Print a line of JSON for each input.
        explain: Print tables for reading.
        rerank: A file of given outputs to rank, instead of searching.
        max_symbols: Inputs longer than this are not decoded, but reported.
        batch_size: Inputs decoded together.
        device: auto takes a GPU where there is one.
    """

    run: str = ""
    files: list[str] = field(default_factory=list)
    system: str | None = None
    weights: str | None = None
    n_best: int = 1
    k1: int | None = None
    k2: int | None = None
    max_length: int | None = None
    max_growth: int | None = None
    search: Literal["viterbi", "marginal"] | None = None
    lm_proposals: int | None = None
    json: bool = False
    explain: bool = False
    rerank: str | None = None
    max_symbols: int = MAX_SYMBOLS
    batch_size: int = 32
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(DecodeOptions, words, ("run", "files*"), USAGE)
    if not options.run:
        raise BadInputError("decode needs a run directory: noisychannel decode runs/demo words.txt")
    check_at_least(1, options, "n_best", "batch_size", "max_symbols")
    model = load_model(options)
    if options.rerank is not None:
        return _rerank(model, options)
    return _Stream(model, options).decode()


def load_model(options: DecodeOptions) -> NoisyChannel:
    """The run's models with the weights and settings the options ask for."""
    directory = RunDirectory.open(Path(options.run))
    directory.codecs()
    tuned = read_system(directory, options.system)
    given = {
        name: value
        for name in ("k1", "k2", "max_length", "max_growth", "search", "lm_proposals")
        if (value := getattr(options, name)) is not None
    }
    search = replace(tuned.settings, **given)
    weights = tuned.weights if options.weights is None else parse_weights(options.weights)
    if not tuned.record and options.weights is None and options.system is None:
        warn(f"{directory.path}: not tuned, so the direct model decodes alone; {tune_first(directory)}")
    try:
        model = NoisyChannel.load(directory.path, weights=weights, settings=search, device=options.device)
        warn_unfinished(directory, model.models)
        return model
    except ValueError as error:
        raise BadInputError(str(error)) from error


def parse_weights(text: str) -> Weights:
    """``direct,channel,lm,length`` as four numbers, or by name: ``direct=1,lm=0.5``."""
    names = ("direct", "channel", "lm", "length")
    items = [item.strip() for item in text.split(",")]
    try:
        if all("=" in item for item in items):
            pairs = dict(item.split("=", 1) for item in items)
            unknown = [name for name in pairs if name not in names]
            if unknown:
                raise BadInputError(f"--weights: {unknown[0]!r} names no model; there are {', '.join(names)}")
            return Weights.of({"direct": 0.0, **{name: float(value) for name, value in pairs.items()}})
        if len(items) == len(names):
            return Weights.of(dict(zip(names, map(float, items), strict=True)))
    except BadInputError:
        raise
    except ValueError as error:
        raise BadInputError(f"--weights: {error}") from error
    raise BadInputError(f"--weights: give four numbers ({','.join(names)}) or direct=1,lm=0.5, not {text!r}")


class Decoded(NamedTuple):
    """What became of one input."""

    outputs: list[Output]
    unknown: Unknown
    """What of the input the models do not know."""
    input_symbols: list[str]
    """As the models see them, features first, without EOS: what alignments point to."""


class _Stream:
    """Lines in, outputs out, a bounded number of them in memory, in order."""

    def __init__(self, model: NoisyChannel, options: DecodeOptions) -> None:
        self.model, self.options = model, options
        data = parse_config(Path(options.run) / "config.yaml").data
        self.with_features = "features" in DataSource(data).columns.roles
        self.separator = data.feature_separator
        self.failed = 0
        self.noticed = Noticed()

    def decode(self) -> int:
        lines = self._lines()
        # A person at the keyboard should not have to type a batch before seeing anything.
        interactive = not self.options.files and sys.stdin.isatty()
        chunk_size = 1 if interactive else self.options.batch_size * 8
        with counting("decode", self._count(), enabled=not sys.stdout.isatty()) as progress:
            while chunk := list(islice(lines, chunk_size)):
                for line, decoded in zip(chunk, self._decode_chunk(chunk), strict=True):
                    text = line.text if isinstance(line, Line) else None
                    show(text, decoded, self.model, self.options)
                    if isinstance(line, Line) and decoded is not None:
                        complete = decoded.outputs[0].hypothesis.complete
                        self.noticed.add(line.where, decoded.unknown, complete)
                sys.stdout.flush()
                progress(len(chunk))
        if said := self.noticed.line():
            warn(said)
        return 1 if self.failed else 0

    def _count(self) -> int | None:
        """How many lines there will be, where somebody watches and the files can be read twice."""
        if not self.options.files or not sys.stderr.isatty():
            return None
        total = 0
        for file in find_files(self.options.files):
            if not file.is_file():
                return None
            with open_file(file) as stream:
                total += sum(1 for _ in read_stream(stream, file))
        return total

    def _lines(self) -> Iterator[Line | BadLine]:
        if not self.options.files:
            yield from read_stream(sys.stdin.buffer, Path("standard input"))
            return
        for file in find_files(self.options.files):
            with open_file(file) as stream:
                yield from read_stream(stream, file)

    def _decode_chunk(self, chunk: list[Line | BadLine]) -> list[Decoded | None]:
        """What became of each line, None if it cannot be decoded."""
        results: list[Decoded | None] = [None] * len(chunk)
        parsed: dict[int, tuple[str, list[str]]] = {}
        for n, line in enumerate(chunk):
            if (item := self._parse(line)) is not None:
                parsed[n] = item
        texts, features = [item[0] for item in parsed.values()], [item[1] for item in parsed.values()]
        decoded = self.model.batch(texts, self.options.n_best, features, self.options.batch_size)
        for (n, item), outputs in zip(parsed.items(), decoded, strict=True):
            results[n] = Decoded(outputs, self.model.input_codec.unknown(*item), seen_symbols(self.model, *item))
        return results

    def _parse(self, line: Line | BadLine) -> tuple[str, list[str]] | None:
        """Input and features of a line; a line that cannot be decoded is reported."""
        if isinstance(line, BadLine):
            self._refuse(line.reason)
            return None
        values = line.text.split("\t")
        if len(values) != 1 + self.with_features:
            expected = "an input, a tab and features" if self.with_features else "an input without tabs"
            self._refuse(f"{line.where}: {len(values)} columns, but {expected} is expected")
            return None
        symbols = len(self.model.input_codec.split(values[0]))
        if symbols > self.options.max_symbols:
            self._refuse(f"{line.where}: {symbols} symbols, more than --max_symbols {self.options.max_symbols}")
            return None
        features = [f for f in values[1].split(self.separator) if f] if self.with_features else []
        return values[0], features

    def _refuse(self, message: str) -> None:
        self.failed += 1
        warn(message)


def show(text: str | None, decoded: Decoded | None, model: NoisyChannel, options: DecodeOptions) -> None:
    """The outputs of one input as the options ask; None if there are none because the line was bad."""
    if options.json:
        print(json_line({"input": text, **({"hypotheses": None} if decoded is None else input_record(decoded, model))}))
    elif decoded is None or text is None:
        print()
    elif options.explain:
        explain(text, decoded, model)
    else:
        for output in decoded.outputs:
            print(output.text if options.n_best == 1 else f"{output.text}\t{output.hypothesis.score:.4f}")


def seen_symbols(model: NoisyChannel, text: str, features: Sequence[str] = ()) -> list[str]:
    """The symbols of an input as the models see them, features first, without EOS."""
    return [model.input_codec.names[i] for i in model.input_codec.encode(text, features)[:-1]]


def input_record(decoded: Decoded, model: NoisyChannel) -> dict[str, Any]:
    """What became of an input as JSON."""
    return {
        "input_symbols": decoded.input_symbols,
        "unknown_symbols": decoded.unknown.symbols,
        "unknown_features": decoded.unknown.features,
        "hypotheses": [output_record(output, model) for output in decoded.outputs],
    }


def output_record(output: Output, model: NoisyChannel) -> dict[str, Any]:
    """An output as JSON: its text, its terms and what they are, its alignments."""
    record = asdict(output.hypothesis)
    del record["tokens"]
    channel_is = None if output.hypothesis.channel is None else model.settings.channel_alignment
    return {"output": output.text, **record, "direct_is": model.settings.search, "channel_is": channel_is}


def explain(text: str, decoded: Decoded, model: NoisyChannel) -> None:
    """The n best with their terms, and the best one's alignment drawn."""
    table = Table(title=text, title_justify="left")
    for column in ("output", "score", "direct", "channel", "lm", "length"):
        table.add_column(column, justify="left" if column == "output" else "right")
    for output in decoded.outputs:
        h = output.hypothesis
        terms = ["–" if x is None else f"{x:.3f}" for x in (h.score, h.direct, h.channel, h.lm)]
        table.add_row(output.text + ("" if h.complete else " …"), *terms, str(h.length))
    Console(highlight=False).print(table, markup=False)
    print("weights: " + ", ".join(f"{name} {weight:.3g}" for name, weight in model.weights.by_name().items()))
    for kind, found in decoded.unknown._asdict().items():
        if found:
            print(f"unknown {kind}, read as <unk>: {named(found)}")
    best = decoded.outputs[0].hypothesis
    if not best.complete:
        print("incomplete (…): the search found no end")
    if best.alignment is not None:
        symbols = [model.output_codec.names[i] for i in best.tokens]
        print(draw_alignment(decoded.input_symbols, symbols, best.alignment))
    print()


def _rerank(model: NoisyChannel, options: DecodeOptions) -> int:
    """Rank the outputs of a file; consecutive lines with the same input (and features) belong together."""
    data = parse_config(Path(options.run) / "config.yaml").data
    with_features = "features" in DataSource(data).columns.roles
    roles = "input,output,features" if with_features else "input,output"
    columns = Columns.parse(roles, "--rerank", ("input", "output"))
    rows = read_pairs([str(options.rerank)], columns, data.feature_separator)
    noticed = Noticed()
    for (text, features), group in groupby(rows, key=lambda row: (row.input, row.features)):
        given = {row.output: row.where for row in group}
        unknown = model.input_codec.unknown(text, features)
        ranked = model.rerank(text, list(given), features)[: options.n_best]
        show(text, Decoded(ranked, unknown, seen_symbols(model, text, features)), model, options)
        noticed.add(next(iter(given.values())), unknown)
        for output, where in given.items():
            noticed.add(where, model.output_codec.unknown(output))
    if said := noticed.line():
        warn(said)
    return 0
