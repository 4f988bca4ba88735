"""Lines in, decoded lines out, in order, with a bounded number of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, islice
from typing import Any

from noisychannel.arguments import Count, check_bounds
from noisychannel.data.codec import Unknown
from noisychannel.data.files import BadLine, Line
from noisychannel.data.prepare import DataConfig, DataSource
from noisychannel.data.rows import Columns, Row, read_pairs
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.remarks import Remarks

MAX_SYMBOLS = 1000
"""Longer inputs are not decoded unless the caller allows it."""
BATCHES_AT_ONCE = 8
"""Batches read before any is decoded, so that inputs of similar length go together."""


@dataclass(frozen=True)
class DecodedLine:
    """One line of the input and its outputs."""

    text: str | None
    """The whole line; None if it is not text."""
    outputs: list[Output] | None = None
    """The best first; None if the line cannot be decoded."""
    unknown: Unknown = Unknown([], [])  # noqa: RUF009 (never changed)
    """What of the input the models do not know."""
    input_symbols: Sequence[str] = ()
    """As the models see them, features first, without EOS: what alignments point to."""

    def record(self, model: NoisyChannel) -> dict[str, Any]:
        """For a line of JSON."""
        if self.outputs is None:
            return {"input": self.text, "hypotheses": None}
        return {
            "input": self.text,
            "input_symbols": list(self.input_symbols),
            "unknown_symbols": self.unknown.symbols,
            "unknown_features": self.unknown.features,
            "hypotheses": [output_record(output, model) for output in self.outputs],
        }


def output_record(output: Output, model: NoisyChannel) -> dict[str, Any]:
    """An output as JSON: its text, its terms and what they are, its alignments."""
    record = asdict(output.hypothesis)
    del record["tokens"]
    settings = model.settings
    direct_is = settings.search if model.proposer == "direct" else model.proposer
    channel_is = None if output.hypothesis.channel is None else settings.channel_alignment
    return {"output": output.text, **record, "direct_is": direct_is, "channel_is": channel_is}


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How to decode lines.

    Args:
        n_best: Outputs for each input.
        max_symbols: Inputs longer than this are not decoded, but reported.
        batch_size: Inputs decoded together.
    """

    n_best: Count = 1
    max_symbols: Count = MAX_SYMBOLS
    batch_size: Count = 32

    def __post_init__(self) -> None:
        check_bounds(self)


class LineDecoder:
    """Decodes the lines of a stream. A line that cannot be decoded is reported and has no outputs."""

    def __init__(
        self,
        model: NoisyChannel,
        data: DataConfig,
        options: StreamOptions = StreamOptions(),  # noqa: B008 (frozen)
        report: Callable[[str], None] = print,
        align: bool = False,
    ) -> None:
        """``data``: that of the run, which says whether lines have features. ``align``: whether to find alignments."""
        self.model, self.options, self.report, self.align = model, options, report, align
        self.with_features = "features" in DataSource(data).columns.roles
        self.separator = data.feature_separator
        self.failed = 0
        """Lines that could not be decoded so far."""
        self.remarks = Remarks()

    def decode(self, lines: Iterable[Line | BadLine], one_by_one: bool = False) -> Iterator[DecodedLine]:
        """A decoded line for each line, in order. ``one_by_one``: decode each line before the next is read."""
        stream, at_once = iter(lines), 1 if one_by_one else self.options.batch_size * BATCHES_AT_ONCE
        while chunk := list(islice(stream, at_once)):
            yield from self._decode_chunk(chunk)

    def rerank(self, rows: Iterable[Row]) -> Iterator[DecodedLine]:
        """Rank given outputs instead of searching; consecutive rows with the same input and features go together."""
        groups = (
            (text, features, {row.output: row.where for row in group})
            for (text, features), group in groupby(rows, key=lambda row: (row.input, row.features))
        )
        while some := list(islice(groups, self.options.batch_size)):
            texts, features, outputs = [x for x, _, _ in some], [x for _, x, _ in some], [list(x) for _, _, x in some]
            ranked = self.model.rerank_batch(texts, outputs, features, self.align)
            for (text, tags, given), best in zip(some, ranked, strict=True):
                unknown = self.model.input_codec.unknown(text, tags)
                self.remarks.add(next(iter(given.values())), unknown)
                for output, where in given.items():
                    self.remarks.add(where, self.model.output_codec.unknown(output))
                symbols = self.model.input_symbols(text, tags)
                yield DecodedLine(text, best[: self.options.n_best], unknown, symbols)

    def read_candidates(self, file: str) -> Iterator[Row]:
        """The rows of a file of given outputs, for ``rerank``."""
        roles = "input,output,features" if self.with_features else "input,output"
        return read_pairs([file], Columns.parse(roles, "--rerank", ("input", "output")), self.separator)

    def _decode_chunk(self, chunk: list[Line | BadLine]) -> list[DecodedLine]:
        model = self.model
        decoded = [DecodedLine(line.text if isinstance(line, Line) else None) for line in chunk]
        parsed = {n: item for n, line in enumerate(chunk) if (item := self._parse(line)) is not None}
        texts, features = [item[0] for item in parsed.values()], [item[1] for item in parsed.values()]
        n_best = model.batch(texts, self.options.n_best, features, self.options.batch_size, align=self.align)
        for (n, item), outputs in zip(parsed.items(), n_best, strict=True):
            line, unknown = chunk[n], model.input_codec.unknown(*item)
            assert isinstance(line, Line)
            self.remarks.add(line.where, unknown, outputs[0].hypothesis.complete)
            decoded[n] = DecodedLine(line.text, outputs, unknown, model.input_symbols(*item))
        return decoded

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
        features = [tag for tag in values[1].split(self.separator) if tag] if self.with_features else []
        return values[0], features

    def _refuse(self, message: str) -> None:
        self.failed += 1
        self.report(message)
