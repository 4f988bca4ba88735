"""The models of a run around a decoder: text in, ranked texts out.

from noisychannel import NoisyChannel
model = NoisyChannel.load("runs/demo")
for output in model("Haus", n_best=3):
    print(output.text, output.hypothesis.score, output.confidence)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from noisychannel.confidence import Confidence
from noisychannel.data.codec import Codec
from noisychannel.decode.beam_decoder import BeamDecoder
from noisychannel.decode.decoder import NoisyChannelDecoder
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import Refuse
from noisychannel.decode.objective import Weights, check_kind
from noisychannel.decode.online import OnlineDecoder
from noisychannel.decode.parts import together_or_alone
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.terms import Ids
from noisychannel.decode.watch import Watch
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError, shortened
from noisychannel.model_sources import load_models, load_terms, needed_terms, same_sources
from noisychannel.outputs import OnlineText, Output, Speller
from noisychannel.reporting import Advance, no_progress
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS
from noisychannel.weights import UNTUNED, TermSource, read_system


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
        proposer: str = "",
        confidence: Confidence | None = None,
    ) -> None:
        """``models``: by role. ``terms``: further terms of the objective by name, see ``decode.terms``. ``proposer``:
        the role of the model that proposes; the first of direct, attention and seq2seq that is there if not given.
        ``confidence``: what was fitted for these weights, models and settings, if anything."""
        self.input_codec, self.output_codec, self.models, self.terms = input_codec, output_codec, models, terms or {}
        self.proposer = proposer or first_proposer(models)
        self.confidence = confidence
        self.speller = Speller(input_codec, output_codec, models[self.proposer])
        decoder = NoisyChannelDecoder if self.proposer == "direct" else BeamDecoder
        self.decoder: NoisyChannelDecoder | BeamDecoder = decoder(
            models[self.proposer],
            models.get("channel"),
            models.get("lm"),
            weights,
            settings=self._complete(settings),
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
        run: str | Path | RunDirectory,
        system: str | None = None,
        weights: Weights | None = None,
        settings: SearchSettings | None = None,
        device: str = "auto",
        roles: Sequence[str] | Mapping[str, str | Path] | None = None,
        terms: Mapping[str, TermSource] | None = None,
    ) -> NoisyChannel:
        """The models of a run with the weights that were tuned for a system (without a name: the run's default).

        A run that was never tuned decodes with its direct model alone, unless ``weights`` are given. Outputs have a
        confidence if weights, models and terms are the tuned ones, and the search is the tuned one or a wider one.

        Args:
            run: The run directory; its vocabularies are used.
            system: Whose tuned weights and search to use.
            weights: Instead of the tuned ones.
            settings: Instead of the tuned ones.
            device: auto takes a GPU if there is one.
            roles: The models to load, such as ``["direct", "lm"]``, or the run directory of each, so that models of
                several runs with the same vocabularies can be mixed. If not given, those that the weights need.
            terms: Where further terms come from, beside those that the run and its tuned systems have.
        """
        for name, given, cls in (("weights", weights, Weights), ("settings", settings, SearchSettings)):
            if given is not None:
                check_kind(name, given, cls)
        for name, source in (terms or {}).items():
            check_kind(f"terms: {name}", source, TermSource)
        if isinstance(roles, str):
            raise ValueError(f"roles: give a list, such as {[roles]}, not one text")
        directory = run if isinstance(run, RunDirectory) else RunDirectory.open_finished(Path(run))
        input_codec, output_codec = directory.codecs()
        tuned = UNTUNED
        if system is not None or weights is None or settings is None:
            tuned = read_system(directory, system)
        proposer = tuned.system.proposer
        if weights is not None and system is None:
            present = [role for role in PROPOSERS if directory.has_model(role)] if roles is None else roles
            proposer = first_proposer(present)
        weights, settings = weights or tuned.weights, settings or tuned.settings
        if roles is None:
            roles = [proposer, *(["channel"] if weights.channel else [])]
            roles += ["lm"] if weights.lm or settings.lm_proposals else []
        homes = dict(roles) if isinstance(roles, Mapping) else dict.fromkeys(roles, directory.path)
        if proposer not in homes:
            raise BadInputError(f"roles: {', '.join(homes)} lacks the proposing model {proposer}")
        where = choose_device(device)
        models = load_models(directory, homes, where)
        sources = needed_terms(directory, tuned, weights, terms)
        further = load_terms(directory, sources, where)
        model = NoisyChannel(input_codec, output_codec, models, weights, settings, further, proposer)
        same_models = proposer == tuned.system.proposer and same_sources(directory, homes, sources, tuned)
        if weights == tuned.weights and same_models and model.settings.finds_all_of(model._complete(tuned.settings)):
            model.confidence = tuned.confidence
        return model

    def reweighted(
        self, weights: Weights, settings: SearchSettings | None = None, confidence: Confidence | None = None
    ) -> NoisyChannel:
        """The same models with other weights, and another search if one is given. ``confidence`` belongs to weights and
        search: there is none unless it is given."""
        other = object.__new__(NoisyChannel)
        settings = None if settings is None else self._complete(settings)
        decoder = self.decoder.reweighted(weights, settings)
        other.__dict__ = {**self.__dict__, "decoder": decoder, "confidence": confidence}
        return other

    def _complete(self, settings: SearchSettings) -> SearchSettings:
        """Unless the settings say whether UNK may be proposed: yes if a word of the input takes its place."""
        check_kind("settings", settings, SearchSettings)
        return settings if settings.allow_unk is not None else replace(settings, allow_unk=self.speller.copies)

    def __call__(self, text: str, n_best: int = 1, features: Sequence[str] = ()) -> list[Output]:
        """The best outputs of a text."""
        return self.batch([text], n_best, [features])[0]

    def batch(
        self,
        texts: Sequence[str],
        n_best: int = 1,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 32,
        progress: Advance = no_progress,
        align: bool = True,
        refuse: Refuse | None = None,
        confident: bool = True,
        watch: Watch | None = None,
    ) -> list[list[Output]]:
        """The best outputs of each of many texts; those of similar length are decoded together.

        ``confident``: give each output its confidence if the system has one. The search then keeps longer lists.

        ``refuse`` is called with the place of a text that needs more memory than the settings allow, and the reason;
        that text has no outputs. If it is not given, such a text raises ``SearchTooLargeError``.

        ``watch`` is called after each step of the search, see ``decode/watch.py``; its sentences are places of texts.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number of at least 1, but is {batch_size!r}")
        tags = self._tags(texts, features)
        inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, tags, strict=True)]
        contexts = [self.context(tag) for tag in tags]
        decoded: list[list[Output]] = [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda n: (len(contexts[n]), len(inputs[n])))
        starts = list(range(0, len(order), batch_size))
        random.Random(0).shuffle(starts)  # long inputs take longer: so every part of the work is like the whole
        for start in starts:
            rows = order[start : start + batch_size]
            some, before = [inputs[n] for n in rows], [contexts[n] for n in rows]
            refused = _of_rows(refuse, rows)
            kept = self._kept(n_best) if confident else n_best
            best = self.decoder.decode(some, kept, before, align and kept == n_best, _steps_of(watch, rows), refused)
            spelt = self.speller.spell([texts[n] for n in rows], some, best, self.settings, refused)
            if confident and self.confidence is not None:
                unknown = [self.unknown_symbols(texts[n], tags[n]) for n in rows]
                judged = with_confidence(spelt, self.confidence, unknown, self._kept(1))
                spelt = [outputs[:n_best] for outputs in judged]
            if align and kept != n_best:
                spelt = self._aligned(some, before, spelt, refused)
            for n, outputs in zip(rows, spelt, strict=True):
                decoded[n] = outputs
            progress(len(rows))
        return decoded

    def _kept(self, n_best: int) -> int:
        """How many outputs a search keeps: for a confidence as many as it was fitted on."""
        if self.confidence is None:
            return n_best
        # A beam search ranks as many outputs as it keeps, but at least k2: more could change which is the best.
        searched = self.proposer == "direct" and not self.settings.per_symbol
        most = self.confidence.n_best if searched else min(self.confidence.n_best, self.settings.k2)
        return max(n_best, most)

    def _aligned(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], outputs: Sequence[list[Output]], refuse: Refuse | None
    ) -> list[list[Output]]:
        """Outputs of a search that did not align them."""

        def align(part: slice) -> list[list[Output]]:
            found = [[output.hypothesis for output in best] for best in outputs[part]]
            aligned = self.decoder.aligned(inputs[part], contexts[part], found)
            return [
                [output._replace(hypothesis=hypothesis) for output, hypothesis in zip(best, hypotheses, strict=True)]
                for best, hypotheses in zip(outputs[part], aligned, strict=True)
            ]

        return together_or_alone(align, len(inputs), refuse)

    def rerank(self, text: str, outputs: Sequence[str], features: Sequence[str] = ()) -> list[Output]:
        """Given outputs of a text by the same objective, best first; equal ones in the given order."""
        return self.rerank_batch([text], [outputs], [features])[0]

    def rerank_batch(
        self,
        texts: Sequence[str],
        outputs: Sequence[Sequence[str]],
        features: Sequence[Sequence[str]] | None = None,
        align: bool = True,
        refuse: Refuse | None = None,
    ) -> list[list[Output]]:
        """``rerank`` for many texts, the models asked about all of them together.

        ``refuse`` is called as in ``batch``, for a text with an output that needs more memory than the settings allow.
        """
        tags = self._tags(texts, features)
        if len(outputs) != len(texts) or any(isinstance(given, str) for given in outputs):
            raise ValueError(f"outputs: give a list of texts for each of the {len(texts)} inputs")
        for given in outputs:
            _check_texts("outputs", given)
        ids = [[self.output_codec.encode(output)[:-1] for output in given] for given in outputs]
        scored = self.score_ids(texts, ids, tags, align, refuse)
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
        refuse: Refuse | None = None,
    ) -> list[list[Hypothesis]]:
        """The objective of given outputs of each text (ids without EOS), in the given order; ``refuse`` as in
        ``batch``."""
        inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, features, strict=True)]
        return self.decoder.score(inputs, outputs, [self.context(tag) for tag in features], align, refuse)

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
        return OnlineText(self.speller, OnlineDecoder(self.decoder, margin), self.settings)

    def _tags(self, texts: Sequence[str], features: Sequence[Sequence[str]] | None) -> Sequence[Sequence[str]]:
        """The features of each text; none if they are not given. Refuses what is no text, or cannot be used."""
        if isinstance(texts, str):
            raise ValueError("texts: give a list of texts, not one text")
        _check_texts("texts", texts)
        if features is None:
            return [()] * len(texts)
        if len(features) != len(texts) or any(isinstance(tags, str) for tags in features):
            raise ValueError(f"features: give a list of features for each of the {len(texts)} texts")
        for tags in features:
            _check_texts("features", tags)
            if tags and not self.input_codec.features:
                raise BadInputError(
                    f"features: this run was trained without features, so it cannot use {shortened(tags[0])}; "
                    "leave them out"
                )
        return features

    def context(self, features: Sequence[str]) -> list[int]:
        """The symbols that the channel, and a language model that reads features, read before an output."""
        return self.output_codec.ids((), features)[:-1]

    def unknown_symbols(self, text: str, features: Sequence[str] = ()) -> int:
        """How many symbols of an input, with its features, the models do not know and no output can copy."""
        unknown = self.input_codec.unknown(text, features)
        copied = self.speller.copies and self.settings.allow_unk
        return len(unknown.features) + (0 if copied else len(unknown.symbols))

    def input_symbols(self, text: str, features: Sequence[str] = ()) -> list[str]:
        """The symbols of an input as the models see them, features first, without EOS."""
        return [self.input_codec.names[i] for i in self.input_codec.encode(text, features)[:-1]]

    def output_symbols(self, output: Output) -> list[str]:
        """The symbols of an output, without EOS; in place of UNK the word that was copied."""
        tokens, words = output.hypothesis.tokens, output.text.split()
        copied = self.speller.copies and len(words) == len(tokens)  # unless some UNK leaves no trace
        return words if copied else [self.output_codec.names[i] for i in tokens]


def with_confidence(
    outputs: Sequence[Sequence[Output]], confidence: Confidence, unknown: Sequence[int], most: int | None = None
) -> list[list[Output]]:
    """Lists of outputs with their confidences; ``unknown`` and ``most`` as in ``Confidence.of_lists``."""
    found = [[output.hypothesis for output in best] for best in outputs]
    values = confidence.of_lists([[output.text for output in best] for best in outputs], found, unknown, most)
    return [
        [
            output._replace(hypothesis=replace(output.hypothesis, confidence=value))
            for output, value in zip(best, of_list, strict=True)
        ]
        for best, of_list in zip(outputs, values, strict=True)
    ]


def _of_rows(refuse: Refuse | None, rows: Sequence[int]) -> Refuse | None:
    """Called with a place among ``rows`` instead of one among all texts."""
    return None if refuse is None else lambda place, reason: refuse(rows[place], reason)


def _steps_of(watch: Watch | None, rows: Sequence[int]) -> Watch | None:
    """Called with steps of texts instead of steps of ``rows``."""
    return None if watch is None else lambda step: watch(replace(step, sentence=rows[step.sentence]))


def first_proposer(roles: Iterable[str]) -> str:
    """The model that proposes, of these roles."""
    present = [role for role in PROPOSERS if role in set(roles)]
    if not present:
        raise BadInputError(f"no model proposes outputs; train one of {', '.join(PROPOSERS)}")
    return present[0]


def _check_texts(name: str, texts: Sequence[str]) -> None:
    """Refuse what is no text, and characters that no line of a file can have."""
    for text in texts:
        if not isinstance(text, str):
            raise BadInputError(f"{name}: must be text, but one is {shortened(text)}")
        if "\0" in text:
            raise BadInputError(f"{name}: must not contain a NUL character, but one is {shortened(text)}")
