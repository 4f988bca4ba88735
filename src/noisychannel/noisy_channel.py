"""The models of a run around a decoder: text in, ranked texts out.

from noisychannel import NoisyChannel
model = NoisyChannel.load("runs/demo")
for output in model("Haus", n_best=3):
    print(output.text, output.hypothesis.score)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from noisychannel.data.codec import Codec
from noisychannel.decode.beam_decoder import BeamDecoder
from noisychannel.decode.decoder import NoisyChannelDecoder
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import TERMS, Weights
from noisychannel.decode.online import OnlineDecoder
from noisychannel.decode.settings import SearchSettings
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError, did_you_mean
from noisychannel.reporting import Progress, Reporter, no_progress
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS, System
from noisychannel.weights import UNTUNED, TermSource, own_terms, read_system


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


class NoisyChannel:
    """Models and vocabularies around a decoder."""

    def __init__(
        self,
        input_codec: Codec,
        output_codec: Codec,
        models: Mapping[str, Any],
        weights: Weights = Weights(),  # noqa: B008 (frozen)
        settings: SearchSettings = SearchSettings(),  # noqa: B008 (frozen)
        terms: Mapping[str, Any] | None = None,
    ) -> None:
        """``models``: by role; of direct, attention and seq2seq the first that is there proposes. ``terms``: further
        terms of the objective by name, see ``decode.terms``."""
        self.input_codec, self.output_codec, self.models, self.terms = input_codec, output_codec, models, terms or {}
        self.proposer = next(role for role in PROPOSERS if role in models)
        decoder = NoisyChannelDecoder if self.proposer == "direct" else BeamDecoder
        self.decoder: NoisyChannelDecoder | BeamDecoder = decoder(
            models[self.proposer],
            models.get("channel"),
            models.get("lm"),
            weights,
            settings=settings,
            barred=output_codec.feature_ids,
            extra=self.terms,
        )

    @property
    def weights(self) -> Weights:
        return self.decoder.weights

    @property
    def settings(self) -> SearchSettings:
        return self.decoder.settings

    @staticmethod
    def load(
        run: str | Path,
        system: str | None = None,
        weights: Weights | None = None,
        settings: SearchSettings | None = None,
        device: str = "auto",
        roles: Sequence[str] | Mapping[str, str | Path] | None = None,
        terms: Mapping[str, TermSource] | None = None,
    ) -> NoisyChannel:
        """The models of a run with the weights that were tuned for a system (without a name: the run's default).

        A run that was never tuned decodes with its direct model alone, unless ``weights`` are given.

        Args:
            run: The run directory; its vocabularies are used.
            system: Whose tuned weights and search to use.
            weights: Instead of the tuned ones.
            settings: Instead of the tuned ones.
            device: auto takes a GPU if there is one.
            roles: The models to load, such as ``["direct", "lm"]``, or the run directory of each, so that models of
                several runs with the same vocabularies can be mixed. If not given, those that the weights need.
            terms: Where the further terms come from; those of the system if not given.
        """
        directory = RunDirectory.open(Path(run))
        input_codec, output_codec = directory.codecs()
        tuned = UNTUNED
        if system is not None or weights is None or settings is None or terms is None:
            tuned = read_system(directory, system)
        weights, settings = weights or tuned.weights, settings or tuned.settings
        if roles is None:
            roles = [tuned.system.proposer, *(["channel"] if weights.channel else [])]
            roles += ["lm"] if weights.lm or settings.lm_proposals else []
        homes = dict(roles) if isinstance(roles, Mapping) else dict.fromkeys(roles, directory.path)
        where = choose_device(device)
        models = {}
        for role, home in homes.items():
            other = directory if Path(home) == directory.path else RunDirectory.open(Path(home))
            _check_vocabularies(directory, other, role)
            models[role] = other.load_model(role, where)
        if terms is None:
            known = {**own_terms(directory), **tuned.terms}
            terms = {name: known[name] for name, weight in weights.extra.items() if weight and name in known}
        for name, weight in weights.extra.items():
            if weight and name not in terms:
                suggestion = did_you_mean(name, (*TERMS, *terms))
                raise BadInputError(
                    f"{directory.path}: the weight {name} is {weight}, but there is no such term{suggestion}"
                )
        further = {}
        for name, source in terms.items():
            other = directory if source.run == directory.path else RunDirectory.open(source.run)
            _check_vocabularies(directory, other, name)
            further[name] = other.load_word_list(where) if source.kind == "word_list" else other.load_model("lm", where)
        return NoisyChannel(input_codec, output_codec, models, weights, settings, further)

    def reweighted(self, weights: Weights, settings: SearchSettings | None = None) -> NoisyChannel:
        """The same models with other weights, and another search if one is given."""
        other = object.__new__(NoisyChannel)
        other.__dict__ = {**self.__dict__, "decoder": self.decoder.reweighted(weights, settings)}
        return other

    def __call__(self, text: str, n_best: int = 1, features: Sequence[str] = ()) -> list[Output]:
        """The best outputs of a text."""
        return self.batch([text], n_best, [features])[0]

    def batch(
        self,
        texts: Sequence[str],
        n_best: int = 1,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 32,
        progress: Progress = no_progress,
        align: bool = True,
    ) -> list[list[Output]]:
        """The best outputs of each of many texts; those of similar length are decoded together."""
        tags: Sequence[Sequence[str]] = [()] * len(texts) if features is None else features
        inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, tags, strict=True)]
        contexts = [self.context(tag) for tag in tags]
        decoded: list[list[Output]] = [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda n: (len(contexts[n]), len(inputs[n])))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            best = self.decoder.decode([inputs[n] for n in rows], n_best, [contexts[n] for n in rows], align)
            for n, hypotheses in zip(rows, best, strict=True):
                decoded[n] = [Output(self.output_codec.decode(h.tokens), h) for h in hypotheses]
            progress(len(rows))
        return decoded

    def rerank(self, text: str, outputs: Sequence[str], features: Sequence[str] = ()) -> list[Output]:
        """Given outputs of a text by the same objective, best first; equal ones in the given order."""
        return self.rerank_batch([text], [outputs], [features])[0]

    def rerank_batch(
        self,
        texts: Sequence[str],
        outputs: Sequence[Sequence[str]],
        features: Sequence[Sequence[str]] | None = None,
        align: bool = True,
    ) -> list[list[Output]]:
        """``rerank`` for many texts, the models asked about all of them together."""
        tags: Sequence[Sequence[str]] = [()] * len(texts) if features is None else features
        ids = [[self.output_codec.encode(output)[:-1] for output in given] for given in outputs]
        scored = self.score_ids(texts, ids, tags, align)
        return [
            sorted(map(Output, given, hypotheses), key=lambda output: -output.hypothesis.score)
            for given, hypotheses in zip(outputs, scored, strict=True)
        ]

    def score_ids(
        self,
        texts: Sequence[str],
        outputs: Sequence[Sequence[Sequence[int]]],
        features: Sequence[Sequence[str]],
        align: bool = False,
    ) -> list[list[Hypothesis]]:
        """The objective of given outputs of each text (ids without EOS), in the given order."""
        inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, features, strict=True)]
        return self.decoder.score(inputs, outputs, [self.context(tag) for tag in features], align)

    def online(self, margin: float = 10.0) -> OnlineText:
        """Decode one text while it arrives; see ``OnlineDecoder`` for what ``margin`` (in nats) does.

        The direct model must be unidirectional, and the run must have been trained without features.
        """
        if self.input_codec.features:
            raise ValueError(
                "online decoding takes no features, but this run was trained with them; "
                "decode whole inputs, or train a run without features"
            )
        if not isinstance(self.decoder, NoisyChannelDecoder):
            raise ValueError(f"online decoding needs a direct model; {self.proposer} reads the whole input first")
        return OnlineText(self.input_codec, self.output_codec, OnlineDecoder(self.decoder, margin))

    def context(self, features: Sequence[str]) -> list[int]:
        """The symbols that the channel, and a language model that reads features, read before an output."""
        return self.output_codec.ids((), features)[:-1]

    def input_symbols(self, text: str, features: Sequence[str] = ()) -> list[str]:
        """The symbols of an input as the models see them, features first, without EOS."""
        return [self.input_codec.names[i] for i in self.input_codec.encode(text, features)[:-1]]

    def output_symbols(self, hypothesis: Hypothesis) -> list[str]:
        """The symbols of an output, without EOS."""
        return [self.output_codec.names[i] for i in hypothesis.tokens]


def load_tuned(
    run: RunDirectory,
    system: str | None,
    weights: Weights | None,
    overrides: Mapping[str, Any],
    device: str,
    reporter: Reporter,
) -> NoisyChannel:
    """A system of a run as it was tuned, but for weights and settings that the caller gives."""
    tuned = read_system(run, system)
    if not tuned.record and weights is None and system is None:
        reporter.warn(
            f"{run.path}: not tuned, so the direct model decodes alone; "
            f"for the others, first run noisychannel tune {run.path}"
        )
    try:
        settings = replace(tuned.settings, **overrides)
        model = NoisyChannel.load(run.path, system, weights or tuned.weights, settings, device)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    for warning in run.unfinished(model.models):
        reporter.warn(warning)
    return model


def load_systems(
    run: RunDirectory,
    systems: Sequence[System],
    settings: SearchSettings,
    device: str,
    terms: Mapping[str, TermSource],
    reporter: Reporter,
) -> NoisyChannel:
    """Every model and every further term that some of the systems (of one proposing model) need, loaded once."""
    roles = list(dict.fromkeys(role for system in systems for role in system.roles))
    known = {**own_terms(run), **terms}
    sources = {name: known[name] for system in systems for name in system.extra}
    for warning in run.unfinished(roles):
        reporter.warn(warning)
    try:
        return NoisyChannel.load(run.path, None, Weights(), settings, device, roles, sources)
    except ValueError as error:
        raise BadInputError(str(error)) from error


def _check_vocabularies(run: RunDirectory, other: RunDirectory, name: str) -> None:
    """Refuse models of a run whose ids mean something else."""
    if other is run:
        return
    for side, ours, theirs in zip(("input", "output"), run.codecs(), other.codecs(), strict=True):
        reads_input = name in (*PROPOSERS, "channel")
        if (side == "output" or reads_input) and ours.fingerprint != theirs.fingerprint:
            raise BadInputError(
                f"{other.path}: its {side} vocabulary is not that of {run.path}, so its {name} cannot be used there; "
                f"train it with --data.vocabularies {run.path}"
            )
