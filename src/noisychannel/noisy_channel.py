"""The whole thing for a user: text in, ranked texts out.

from noisychannel import NoisyChannel
model = NoisyChannel.load("runs/demo")
for output in model("Haus", n_best=3):
    print(output.text, output.hypothesis.score)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noisychannel.data.codec import Codec
from noisychannel.decode.decoder import NoisyChannelDecoder
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.online import OnlineDecoder
from noisychannel.decode.settings import SearchSettings
from noisychannel.runs import RunDirectory
from noisychannel.training.world import choose_device
from noisychannel.weights import read_system


class Output(NamedTuple):
    """One output as text, with its scores and alignments."""

    text: str
    hypothesis: Hypothesis


class Heard(NamedTuple):
    """What is known of the output when some of the input has arrived."""

    text: str
    """The best output so far."""
    stable: str
    """The beginning of it that will not change any more."""


class OnlineText:
    """One text that arrives in pieces; made by ``NoisyChannel.online``."""

    def __init__(self, input_codec: Codec, output_codec: Codec, decoder: OnlineDecoder) -> None:
        self.input_codec, self.output_codec, self.decoder = input_codec, output_codec, decoder
        self.heard = Heard("", "")

    def read(self, piece: str) -> Heard:
        """Read on: a character, or a word where the run was trained on words or subwords; or several."""
        for symbol in self.input_codec.encode(piece)[:-1]:
            progress = self.decoder.read(symbol)
            stable = progress.tokens[: progress.stable]
            self.heard = Heard(self.output_codec.decode(progress.tokens), self.output_codec.decode(stable))
        return self.heard

    def finish(self, n_best: int = 1) -> list[Output]:
        """The text has ended: its best outputs."""
        return [Output(self.output_codec.decode(found.tokens), found) for found in self.decoder.finish(n_best)]


class NoisyChannel:
    """A run's models and vocabularies around a decoder."""

    def __init__(
        self,
        input_codec: Codec,
        output_codec: Codec,
        models: Mapping[str, Any],
        weights: Weights,
        settings: SearchSettings,
    ) -> None:
        self.input_codec, self.output_codec, self.models = input_codec, output_codec, models
        self.weights, self.settings = weights, settings
        self.decoder = NoisyChannelDecoder(
            **models, weights=weights, settings=settings, barred=output_codec.feature_ids
        )

    @staticmethod
    def load(
        run_dir: str | Path,
        system: str | None = None,
        weights: Weights | None = None,
        settings: SearchSettings | None = None,
        device: str = "auto",
    ) -> NoisyChannel:
        """The models of a run with the weights that were tuned for a system (the run's default where not named).

        A run that was never tuned decodes with its direct model alone, unless ``weights`` are given. Models of
        weight zero are not loaded.
        """
        run = RunDirectory.open(Path(run_dir))
        input_codec, output_codec = run.codecs()
        tuned = read_system(run, system)
        weights, settings = weights or tuned.weights, settings or tuned.settings
        roles = ["direct"]
        roles += ["channel"] if weights.channel else []
        roles += ["lm"] if weights.lm or settings.lm_proposals else []
        models = {role: run.load_model(role, choose_device(device)) for role in roles}
        return NoisyChannel(input_codec, output_codec, models, weights, settings)

    def reweighted(self, weights: Weights, settings: SearchSettings | None = None) -> NoisyChannel:
        """The same models under other weights, and with another search where one is given."""
        return NoisyChannel(self.input_codec, self.output_codec, self.models, weights, settings or self.settings)

    def __call__(self, text: str, n_best: int = 1, features: Sequence[str] = ()) -> list[Output]:
        """The best outputs of a text."""
        return self.batch([text], n_best, [features])[0]

    def batch(
        self,
        texts: Sequence[str],
        n_best: int = 1,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 32,
        progress: Callable[[int], None] = lambda done: None,
        align: bool = True,
    ) -> list[list[Output]]:
        """The best outputs of each of many texts; those of similar length are decoded together."""
        tags: Sequence[Sequence[str]] = [()] * len(texts) if features is None else features
        inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, tags, strict=True)]
        contexts = [self.context(tag) for tag in tags]
        found: list[list[Output]] = [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda n: (len(contexts[n]), len(inputs[n])))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            decoded = self.decoder.decode([inputs[n] for n in rows], n_best, [contexts[n] for n in rows], align)
            for n, best in zip(rows, decoded, strict=True):
                found[n] = [Output(self.output_codec.decode(hypothesis.tokens), hypothesis) for hypothesis in best]
            progress(len(rows))
        return found

    def rerank(self, text: str, outputs: Sequence[str], features: Sequence[str] = ()) -> list[Output]:
        """Given outputs of a text by the same objective, best first; equal ones in the given order."""
        ids = [self.output_codec.encode(output)[:-1] for output in outputs]
        inputs, contexts = [self.input_codec.encode(text, features)], [self.context(features)]
        (scored,) = self.decoder.score(inputs, [ids], contexts)
        return sorted(map(Output, outputs, scored), key=lambda output: -output.hypothesis.score)

    def online(self, margin: float = 10.0) -> OnlineText:
        """Decode one text while it arrives; see ``OnlineDecoder`` for what ``margin`` (in nats) does.

        The direct model must be unidirectional, and the run must have been trained without features.
        """
        if self.input_codec.features:
            raise ValueError(
                "online decoding has no place for features, and this run was trained with them; "
                "decode whole inputs, or train a run without features"
            )
        if self.settings.lm_proposals:
            raise ValueError("lm_proposals must be 0 for online decoding: only the direct model proposes there")
        decoder = OnlineDecoder(self.decoder, margin)
        return OnlineText(self.input_codec, self.output_codec, decoder)

    def context(self, features: Sequence[str]) -> list[int]:
        """What the channel, and a language model that knows features, read before an output."""
        return self.output_codec.ids((), features)[:-1]
