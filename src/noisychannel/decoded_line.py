"""A line of the input with its outputs, and how it is shown as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from noisychannel.data.blank_lines import is_blank
from noisychannel.data.codec import Unknown
from noisychannel.data.files import BadLine, Line
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output


@dataclass(frozen=True)
class DecodedLine:
    """One line of the input and its outputs."""

    text: str | None
    """The whole line; None if it is not text."""
    outputs: list[Output] | None = None
    """The best first; None if the line cannot be decoded; none if it is blank."""
    unknown: Unknown = Unknown([], [])  # noqa: RUF009 (never changed)
    """What of the input the models do not know."""
    input_symbols: Sequence[str] = ()
    """As the models see them, features first, without EOS: what alignments point to."""

    def is_unsure(self, below: float) -> bool | None:
        """Whether the best output should be checked: its confidence is lower than that, or unknown. None if there is no
        output to check: the line is blank, or cannot be decoded."""
        if not self.outputs:
            return None
        best = self.outputs[0].confidence
        return best is None or best < below

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
    """An output as JSON: its text, its confidence, its terms and what they are, its alignments."""
    record = asdict(output.hypothesis)
    del record["tokens"]
    settings = model.settings
    direct_is = settings.search if model.proposer == "direct" else model.proposer
    channel_is = None if output.hypothesis.channel is None else settings.channel_alignment
    unknown = list(output.unknown)
    first = {"output": output.text, "confidence": output.confidence}
    return {**first, **record, "unknown": unknown, "direct_is": direct_is, "channel_is": channel_is}


def undecoded_line(line: Line | BadLine) -> DecodedLine:
    """A line before it is decoded; a blank one stays as it is."""
    if isinstance(line, BadLine):
        return DecodedLine(None)
    return DecodedLine(line.text, [] if is_blank(line) else None)
