"""Outputs as texts: of a whole input, and of an input that is still arriving."""

from __future__ import annotations

from typing import NamedTuple

from noisychannel.data.codec import Codec
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.online import OnlineDecoder


class Output(NamedTuple):
    """One output as text, with its scores and alignments."""

    text: str
    hypothesis: Hypothesis


class PartialOutput(NamedTuple):
    """What is known of the output when some of the input has been read."""

    text: str
    """The best output so far."""
    stable: str
    """The beginning of it that can no longer change."""


class OnlineText:
    """One text that arrives in pieces; made by ``NoisyChannel.online``."""

    def __init__(self, input_codec: Codec, output_codec: Codec, decoder: OnlineDecoder) -> None:
        self.input_codec, self.output_codec, self.decoder = input_codec, output_codec, decoder
        self.output = PartialOutput("", "")

    def read(self, piece: str) -> PartialOutput:
        """Read on: one or several characters, or words if the run was trained on words or subwords."""
        for symbol in self.input_codec.encode(piece)[:-1]:
            progress = self.decoder.read(symbol)
            stable = progress.tokens[: progress.stable]
            self.output = PartialOutput(self.output_codec.decode(progress.tokens), self.output_codec.decode(stable))
        return self.output

    def finish(self, n_best: int = 1) -> list[Output]:
        """The text has ended: its best outputs."""
        return [Output(self.output_codec.decode(best.tokens), best) for best in self.decoder.finish(n_best)]
