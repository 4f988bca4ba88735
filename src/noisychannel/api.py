"""The whole thing for a user: text in, ranked texts out.

from noisychannel import NoisyChannel
model = NoisyChannel.load("runs/demo")
for output in model("Haus", n_best=3):
    print(output.text, output.hypothesis.score)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noisychannel.data.codec import Codec
from noisychannel.decode.decoder import NoisyChannelDecoder
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.runs import RunDirectory
from noisychannel.training.world import choose_device
from noisychannel.weights import SearchSettings, read_system


class Output(NamedTuple):
    """One output as text, with its scores and alignments."""

    text: str
    hypothesis: Hypothesis


class NoisyChannel:
    """A run's models and vocabularies around a decoder."""

    def __init__(self, input_codec: Codec, output_codec: Codec, decoder: NoisyChannelDecoder) -> None:
        self.input_codec, self.output_codec, self.decoder = input_codec, output_codec, decoder

    @staticmethod
    def load(
        run_dir: str | Path,
        system: str | None = None,
        weights: Weights | None = None,
        search: SearchSettings | None = None,
        device: str = "auto",
    ) -> NoisyChannel:
        """The models of a run with the weights that were tuned for a system (the run's default where not named).

        A run that was never tuned decodes with its direct model alone, unless ``weights`` are given.
        """
        run = RunDirectory.open(Path(run_dir))
        input_codec, output_codec = run.codecs()
        tuned = read_system(run, system)
        weights, search = weights or tuned.weights, search or tuned.search
        models: dict[str, Any] = {"direct": run.load_model("direct", choose_device(device))}
        for role in ("channel", "lm"):
            needed = getattr(weights, role) or (role == "lm" and search.lm_proposals)
            models[role] = run.load_model(role, choose_device(device)) if needed else None
        decoder = NoisyChannelDecoder(**models, weights=weights, **search.arguments(), barred=output_codec.feature_ids)
        return NoisyChannel(input_codec, output_codec, decoder)

    def __call__(self, text: str, n_best: int = 1, features: Sequence[str] = ()) -> list[Output]:
        """The best outputs of a text."""
        return self.batch([text], n_best, [features])[0]

    def batch(
        self, texts: Sequence[str], n_best: int = 1, features: Sequence[Sequence[str]] | None = None
    ) -> list[list[Output]]:
        """The best outputs of each of many texts, decoded together."""
        tags = [()] * len(texts) if features is None else features
        inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, tags, strict=True)]
        found = self.decoder.decode(inputs, n_best, self._contexts(tags))
        return [[self._output(hypothesis) for hypothesis in best] for best in found]

    def rerank(self, text: str, outputs: Sequence[str], features: Sequence[str] = ()) -> list[Output]:
        """Given outputs of a text by the same objective, best first."""
        ids = [self.output_codec.encode(output)[:-1] for output in outputs]
        texts = {tuple(tokens): output for tokens, output in zip(ids, outputs, strict=True)}
        (found,) = self.decoder.rerank([self.input_codec.encode(text, features)], [ids], self._contexts([features]))
        return [Output(texts[hypothesis.tokens], hypothesis) for hypothesis in found]

    def _contexts(self, tags: Sequence[Sequence[str]]) -> list[list[int]]:
        return [self.output_codec.ids((), features)[:-1] for features in tags]

    def _output(self, hypothesis: Hypothesis) -> Output:
        return Output(self.output_codec.decode(hypothesis.tokens), hypothesis)
