"""Lines in, decoded lines out, in order, with a bounded number of them in memory."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import NamedTuple

import torch

from noisychannel import __version__
from noisychannel.arguments import Count, check_bounds
from noisychannel.data.blank_lines import counted_blanks
from noisychannel.data.files import BadLine, Line
from noisychannel.data.prepare import DataConfig, DataSource
from noisychannel.data.rows import Columns, Row, try_pairs
from noisychannel.decoded_line import DecodedLine, undecoded_line
from noisychannel.errors import NoisyChannelError
from noisychannel.model_processes import ModelProcesses, Work
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.output_file import OutputFile
from noisychannel.refused_lines import RefusedLines, WrongColumns
from noisychannel.remarks import Remarks
from noisychannel.reporting import Advance, plural
from noisychannel.schemas import Record

MAX_SYMBOLS = 1000
"""Longer inputs are not decoded unless the caller allows it."""
BATCHES_AT_ONCE = 8
"""Batches read before any is decoded, so that inputs of similar length go together."""
CHUNKS_AHEAD = 1
"""So many times as many lines are read ahead, so that no process waits for the slowest batch of others."""


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


def content_of(line: Line | BadLine | Row | None) -> str:
    """What of a line of the input decides the results: not the name of its file."""
    match line:
        case Line():
            return line.text
        case Row():
            return json.dumps([line.input, line.output, line.features])
        case _:
            return repr(line and line.number)


def model_checksum(model: NoisyChannel) -> str:
    """Of the vocabularies and of every number in the models and further terms."""
    found = hashlib.sha256(f"{model.input_codec.fingerprint} {model.output_codec.fingerprint}".encode())
    for name, part in sorted({**model.models, **model.terms}.items()):
        for key, tensor in chain(part.named_parameters(), part.named_buffers()):
            found.update(f"{name} {key} {tuple(tensor.shape)} {tensor.dtype}".encode())
            found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


class _Begun(NamedTuple):
    """Lines that the processes are decoding."""

    decoded: list[DecodedLine]
    """A place for each line."""
    items: dict[int, tuple[str, list[str]]]
    """Input and features of those that can be decoded, by place."""
    lines: list[Line]
    """The same as they are in the input."""
    reasons: list[str]
    """Why the others cannot be decoded."""
    work: Work


class Chunk(NamedTuple):
    """Lines that were decoded together."""

    lines: list[DecodedLine]
    read: int
    """Lines of the input that they come from; reranking makes one of several."""


@dataclass(frozen=True)
class DecodingState(Record):
    """What the journal of an output file remembers, so that a resumed decoding ends with the same exit code and
    remarks."""

    failed: int = 0
    """Lines that could not be decoded."""
    wrong_columns: int = 0
    """Those of them with a wrong number of columns."""
    blank: int = 0
    """Blank lines of given outputs that were skipped."""
    remarks: Remarks = field(default_factory=Remarks)


class LineDecoder:
    """Decodes the lines of a stream. A line that cannot be decoded is reported. A blank line has no outputs."""

    def __init__(
        self,
        model: NoisyChannel,
        data: DataConfig,
        options: StreamOptions = StreamOptions(),  # noqa: B008 (frozen)
        report: Callable[[str], None] = print,
        align: bool = False,
        confident: bool = False,
        processes: ModelProcesses | None = None,
    ) -> None:
        """``data``: that of the run, which says whether lines have features. ``align``: whether to find alignments.
        ``confident``: whether to give outputs their confidence. ``processes``: those that search; this one alone if not
        given."""
        self.processes = processes or ModelProcesses(model, 1)
        self.model, self.options, self.report, self.align, self.confident = model, options, report, align, confident
        self.with_features = "features" in DataSource(data).columns.roles
        self.separator = data.feature_separator
        self.refused = RefusedLines("decoded", report)
        self.blank = 0
        """Blank lines of given outputs so far."""
        self.remarks = Remarks()

    def decode(
        self, lines: Iterable[Line | BadLine], one_by_one: bool = False, ahead: bool = False
    ) -> Iterator[DecodedLine]:
        """A decoded line for each line, in order. ``one_by_one``: decode each line before the next is read. ``ahead``:
        read further while copies of the process decode, so that none of them waits; for lines that never wait."""
        return chain.from_iterable(chunk.lines for chunk in self.decode_chunks(lines, one_by_one, ahead))

    def decode_chunks(
        self, lines: Iterable[Line | BadLine], one_by_one: bool = False, ahead: bool = False
    ) -> Iterator[Chunk]:
        """``decode``, with all lines that are decoded together at once. ``ahead``: as in ``decode``."""
        at_once = 1 if one_by_one else self.options.batch_size * BATCHES_AT_ONCE
        begun, most = deque[_Begun](), CHUNKS_AHEAD if ahead and self.processes.processes > 1 else 0
        chunks = chunks_of(lines, at_once)
        while True:
            try:
                chunk = next(chunks, None)
            except NoisyChannelError:
                # What was read before a file that cannot be read is decoded.
                yield from map(self._finish, begun)
                raise
            if chunk:
                begun.append(self._begin(chunk))
            if len(begun) > most or (begun and not chunk):
                yield self._finish(begun.popleft())
            elif not chunk:
                return

    def rerank(self, rows: Iterable[Row | BadLine | None]) -> Iterator[DecodedLine]:
        """Rank given outputs instead of searching; consecutive rows with the same input and features go together."""
        return chain.from_iterable(chunk.lines for chunk in self.rerank_chunks(rows))

    def rerank_chunks(self, rows: Iterable[Row | BadLine | None]) -> Iterator[Chunk]:
        """``rerank``, with all inputs that are ranked together at once. A bad line is reported and left out."""
        groups = self._candidates(rows)
        while some := list(islice(groups, self.options.batch_size)):
            yield Chunk(self._rerank_chunk([group for group, _ in some if group]), sum(read for _, read in some))

    def read_candidates(self, file: str) -> Iterator[Row | BadLine | None]:
        """The rows of a file of given outputs, for ``rerank``."""
        roles = "input,output,features" if self.with_features else "input,output"
        return try_pairs(file, Columns.parse(roles, "--rerank", ("input", "output")), self.separator)

    def decode_into(
        self, file: OutputFile, chunks: Iterable[Chunk], show: Callable[[DecodedLine], str], progress: Advance
    ) -> None:
        """Write every line, as ``show`` gives it, and finish the file. ``chunks`` are of the ``rest`` of its input."""
        so_far = file.state(DecodingState)
        self.refused.number, self.refused.wrong_columns = so_far.failed, so_far.wrong_columns
        self.blank, self.remarks = so_far.blank, so_far.remarks
        for chunk in chunks:
            shown = "".join(f"{show(line)}\n" for line in chunk.lines)
            state = DecodingState(self.refused.number, self.refused.wrong_columns, self.blank, self.remarks)
            file.write(shown, chunk.read, asdict(state))
            progress(len(chunk.lines))

    def summary(self) -> str:
        """What a user should know at the end; empty if there is nothing."""
        blank = counted_blanks(self.blank) if self.blank else ""
        return "; ".join(filter(None, (self.refused.summary(), blank, self.remarks.line())))

    def decided_by(self) -> dict[str, str]:
        """Everything but the input that decides the outputs to the last digit, by name, for an ``OutputFile``."""
        model = self.model
        return {
            "version of noisychannel": __version__,
            "models": model_checksum(model),
            **{f"weight of {name}": str(weight) for name, weight in model.weights.by_name().items()},
            **{name: str(value) for name, value in asdict(model.settings).items()},
            **({"confidence": str(model.confidence)} if self.confident and model.confidence else {}),
            "device": model.decoder.device.type,
            **{name: str(getattr(self.options, name)) for name in ("n_best", "max_symbols", "batch_size")},
        }

    def _candidates(self, rows: Iterable[Row | BadLine | None]) -> Iterator[tuple[list[Row], int]]:
        """The rows of each input, and how many lines were read for them: a bad or empty line is one of those before."""
        group, read = list[Row](), 0
        for row in rows:
            if isinstance(row, BadLine):
                self.refused.add(row.reason)
            elif row is None:
                self.blank += 1
            elif self._fits(row):
                if group and (row.input, row.features) != (group[0].input, group[0].features):
                    yield group, read
                    group, read = [], 0
                group.append(row)
            read += 1
        if read:
            yield group, read

    def _rerank_chunk(self, groups: Sequence[list[Row]]) -> list[DecodedLine]:
        if not groups:
            return []
        given = [{row.output: row.where for row in reversed(group)} for group in groups]  # where it is first
        outputs_of = [list(dict.fromkeys(row.output for row in group)) for group in groups]
        texts, features = [group[0].input for group in groups], [group[0].features for group in groups]
        ranked = self.model.rerank_batch(
            texts,
            outputs_of,
            features,
            self.align,
            refuse=lambda place, reason: self.refused.add(f"{groups[place][0].where}: {reason}"),
        )
        lines = []
        for text, tags, outputs, best in zip(texts, features, given, ranked, strict=True):
            shown = f"{text}\t{self.separator.join(tags)}" if self.with_features else text
            if not best:
                lines.append(DecodedLine(shown))
                continue
            unknown = self.model.input_codec.unknown(text, tags)
            self.remarks.add(next(reversed(outputs.values())), unknown)
            for output, where in reversed(outputs.items()):
                self.remarks.add(where, self.model.output_codec.unknown(output))
            symbols = self.model.input_symbols(text, tags)
            lines.append(DecodedLine(shown, best[: self.options.n_best], unknown, symbols))
        return lines

    def _fits(self, row: Row) -> bool:
        """Whether a row is short enough; else it is reported."""
        sides = ((self.model.input_codec, row.input), (self.model.output_codec, row.output))
        symbols, most = max(len(codec.split(text)) for codec, text in sides), self.options.max_symbols
        if symbols > most:
            self.refused.add(f"{row.where}: {symbols} symbols, more than --max-symbols {most}")
        return symbols <= most

    def _begin(self, chunk: list[Line | BadLine]) -> _Begun:
        """Give the lines of a chunk to the processes. Nothing is reported yet."""
        decoded = [undecoded_line(line) for line in chunk]
        items, reasons = dict[int, tuple[str, list[str]]](), list[str]()
        for n, (line, shown) in enumerate(zip(chunk, decoded, strict=True)):
            if shown.outputs is not None:
                continue
            item = self._item(line)
            if isinstance(item, str):
                reasons.append(item)
            else:
                items[n] = item
        work = self.processes.begin(
            [text for text, _ in items.values()],
            self.options.n_best,
            [features for _, features in items.values()],
            self.options.batch_size,
            align=self.align,
            confident=self.confident,
        )
        lines = [line for n, line in enumerate(chunk) if n in items and isinstance(line, Line)]
        return _Begun(decoded, items, lines, reasons, work)

    def _finish(self, begun: _Begun) -> Chunk:
        """Wait for the outputs of a chunk, and report."""
        model, lines = self.model, begun.lines
        for reason in begun.reasons:
            self.refused.add(reason)
        n_best = self.processes.finish(
            begun.work, lambda place, reason: self.refused.add(f"{lines[place].where}: {reason}")
        )
        for (n, item), line, outputs in zip(begun.items.items(), lines, n_best, strict=True):
            if not outputs:
                continue
            unknown = model.input_codec.unknown(*item)
            self.remarks.add(line.where, unknown, outputs[0].hypothesis.complete)
            begun.decoded[n] = DecodedLine(line.text, outputs, unknown, model.input_symbols(*item))
        return Chunk(begun.decoded, len(begun.decoded))

    def parse(self, line: Line | BadLine) -> tuple[str, list[str]] | None:
        """Input and features of a line; a line that cannot be decoded is reported."""
        item = self._item(line)
        if not isinstance(item, str):
            return item
        self.refused.add(item)
        return None

    def _item(self, line: Line | BadLine) -> tuple[str, list[str]] | str:
        """Input and features of a line; or why it cannot be decoded."""
        if isinstance(line, BadLine):
            return line.reason
        values = line.text.split("\t")
        if len(values) != 1 + self.with_features:
            expected = "an input, a tab and features" if self.with_features else "an input without tabs"
            remedy = "" if self.with_features else "; cut -f1 gives the first column alone"
            return WrongColumns(f"{line.where}: {plural(len(values), 'column')} instead of {expected}{remedy}")
        symbols = len(self.model.input_codec.split(values[0]))
        if symbols > self.options.max_symbols:
            return f"{line.where}: {symbols} symbols, more than --max-symbols {self.options.max_symbols}"
        features = [tag for tag in values[1].split(self.separator) if tag] if self.with_features else []
        return values[0], features


def chunks_of(lines: Iterable[Line | BadLine], size: int) -> Iterator[list[Line | BadLine]]:
    """``size`` lines at a time; what was read before an error is a chunk of its own, then the error is raised."""
    stream, error = iter(lines), None
    while error is None:
        chunk = list[Line | BadLine]()
        try:
            for line in islice(stream, size):
                chunk.append(line)
        except NoisyChannelError as found:
            error = found
        if chunk:
            yield chunk
        elif error is None:
            return
    raise error
