"""Simultaneous decoding of lines: how the output grows while the input is read, symbol by symbol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from noisychannel.data.files import BadLine, Line
from noisychannel.decode.memory import SearchTooLargeError
from noisychannel.decoded_line import DecodedLine, undecoded_line
from noisychannel.errors import BadInputError
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.streams import LineDecoder

END = "␄"
"""Stands for the end of an input that has been read."""

MARGIN = 10.0
"""In nats. With a smaller one more of an output is stable early, but the best output may be lost."""


@dataclass(frozen=True)
class OnlineStep:
    """What is known of the output when some of the input has been read."""

    read: str
    """The input so far."""
    output: str
    """The best output so far."""
    stable: str
    """The beginning of it that can no longer change."""
    line: DecodedLine | None = None
    """The decoded line, if the input has ended."""

    def text(self) -> str:
        """A line of text: what was read, the best output so far, and what of it is stable, with tabs between them.

        At the end of an input, ␄ follows what was read. A line that was not decoded is empty.
        """
        if self.line is None:
            return f"{self.read}\t{self.output}\t{self.stable}"
        return f"{self.read}{END}\t{self.output}\t{self.stable}" if self.line.outputs else ""

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {"read": self.read, "output": self.output, "stable": self.stable}


class OnlineLines:
    """Decodes the lines of a stream while their symbols arrive. ``decoder`` counts and reports as it always does."""

    def __init__(self, decoder: LineDecoder, margin: float = MARGIN) -> None:
        """``margin``: outputs that are so many nats behind the best are dropped; see ``OnlineDecoder``."""
        self.decoder, self.model, self.margin = decoder, decoder.model, margin
        check_online(self.model)

    def decode(self, lines: Iterable[Line | BadLine]) -> Iterator[OnlineStep]:
        """A step for each symbol of each line, and a last one with the decoded line."""
        for line in lines:
            undecoded = undecoded_line(line)
            parsed = self.decoder.parse(line) if undecoded.outputs is None else None
            if parsed is None or isinstance(line, BadLine):
                yield OnlineStep(undecoded.text or "", "", "", undecoded)
                continue
            try:
                yield from self._read(line, parsed[0])
            except SearchTooLargeError as error:
                self.decoder.refused.add(f"{line.where}: {error}")
                yield OnlineStep(line.text, "", "", undecoded)

    def _read(self, line: Line, text: str) -> Iterator[OnlineStep]:
        online, read = self.model.online(self.margin), ""
        between = "" if self.model.input_codec.config.units == "characters" else " "
        for piece in text if not between else text.split():
            read += (between if read else "") + piece
            partial = online.read(piece)
            yield OnlineStep(read, partial.text, partial.stable)
        outputs = online.finish()
        unknown = self.model.input_codec.unknown(text)
        self.decoder.remarks.add(line.where, unknown, outputs[0].hypothesis.complete)
        best = outputs[0].text
        yield OnlineStep(read, best, best, DecodedLine(text, outputs, unknown, self.model.input_symbols(text)))


def check_online(model: NoisyChannel) -> None:
    """Refuse a system that cannot write before it has read everything."""
    if getattr(model.models.get("direct"), "bidirectional", False) and model.proposer == "direct":
        raise BadInputError(
            "--online: the direct model of this run is bidirectional, so it reads the whole input before it writes; "
            "train one with --direct.bidirectional false"
        )
    try:
        model.online()
    except ValueError as error:
        raise BadInputError(f"--online: {error}") from error


def online_records(steps: Iterable[OnlineStep], model: NoisyChannel) -> Iterator[dict[str, Any]]:
    """A record for each input, for a line of JSON: that of ``decode``, and the steps."""
    so_far: list[dict[str, Any]] = []
    for step in steps:
        if step.line is None:
            so_far.append(step.record())
        else:
            yield {**step.line.record(model), "steps": so_far}
            so_far = []
