"""Sentences per second of the search, and how its cost grows.

    noisychannel bench --suites decode [--device cpu|cuda]
    python benchmarks/decode.py [--device cpu|cuda] [--run RUN --words FILE]
                                [--parts rates,reference,growth,precision,channel_words,processes,counts,profile]

Settings, random weights:

    characters   K1 60, K2 30, inputs of 10 to 14 symbols, outputs of at most 14, V 60; direct (bidirectional) and
                 channel 1×128, language model 2×512: the paper's morphology
    words        K1 20, K2 10, inputs of 50 symbols, outputs of at most 25, V 20,000; all models 1×256
    words-30k    the same with V 30,000
    headlines    K1 20, K2 10, inputs of 26 symbols, outputs of at most 12, V 30,000; direct (bidirectional) and channel
                 1×256, language model 2×1024: the paper's summarisation at the length of headlines

A length weight makes every search run to the longest output. ``--run`` adds the characters setting with the models and
tuned weights of a trained run, on the first column of ``--words``.

"direct" searches with the direct model alone, "full" with all three models. The literal reference is Algorithm 1 as the
paper writes it, one sentence at a time; for words it is given ten input and two output symbols only, since all would
take it days, and is compared with our search of as many. Variants run interleaved, round after round; medians are
shown. ``bench.precision`` (also for channel_words), ``bench.together`` (processes), ``bench.counts`` and
``bench.profile`` explain the last parts. Searches of words may use 100 GiB of a GPU, so that the batch is not divided.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from noisychannel import SSNT, LanguageModel, NoisyChannel, NoisyChannelDecoder, Weights
from noisychannel.bench import counts, precision, profile, together
from noisychannel.bench.timing import median_seconds, where_and_when
from noisychannel.decode.beam_decoder import BeamDecoder
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import EOS
from noisychannel.precision import SearchProducts

# The length weight keeps every search going to the longest output: random models would rather say nothing.
FULL = Weights(direct=1.0, channel=0.5, lm=0.5, length=20.0)
DIRECT = Weights(length=20.0)

Decoder: TypeAlias = NoisyChannelDecoder | BeamDecoder


@dataclass(frozen=True)
class Setting:
    name: str
    k1: int
    k2: int
    shortest: int
    longest: int
    max_length: int
    V: int
    hidden: int
    lm_hidden: int
    lm_layers: int
    bidirectional: bool
    memory: float | None = None
    """GiB on a GPU."""

    def models(self, device: str) -> dict[str, Any]:
        torch.manual_seed(0)
        models = {
            "direct": SSNT(self.V, self.V, self.hidden, bidirectional=self.bidirectional),
            "channel": SSNT(self.V, self.V, self.hidden),
            "lm": LanguageModel(self.V, self.lm_hidden, self.lm_layers),
        }
        return {role: model.to(device).eval() for role, model in models.items()}

    def inputs(self, count: int) -> list[list[int]]:
        """Ids, EOS included in the length."""
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(self.shortest, self.longest + 1, (count,), generator=generator).tolist()
        return [[*torch.randint(4, self.V, (n - 1,), generator=generator).tolist(), EOS] for n in lengths]

    def decoder(self, models: dict[str, Any], weights: Weights) -> NoisyChannelDecoder:
        on_gpu = next(models["direct"].parameters()).is_cuda
        settings = SearchSettings(
            k1=self.k1, k2=self.k2, max_length=self.max_length, memory=self.memory if on_gpu else None
        )
        return NoisyChannelDecoder(**models, weights=weights, settings=settings)


CHARACTERS = Setting("characters", 60, 30, 10, 14, 14, 60, 128, 512, 2, bidirectional=True)
WORDS = Setting("words", 20, 10, 50, 50, 25, 20_000, 256, 256, 1, bidirectional=False, memory=100.0)
WORDS_30K = replace(WORDS, name="words-30k", V=30_000)
HEADLINES = Setting("headlines", 20, 10, 26, 26, 12, 30_000, 256, 1024, 2, bidirectional=True, memory=100.0)
LITERAL_WORDS = replace(WORDS, shortest=10, longest=10, max_length=2)


def sharing(setting: Setting, device: str, products: SearchProducts, processes: int) -> NoisyChannelDecoder:
    """The full search of one process among so many on a device."""
    share = None if setting.memory is None else setting.memory / processes
    decoder = replace(setting, memory=share).decoder(setting.models(device), FULL)
    return decoder.reweighted(FULL, decoder.settings.changed(products=products))


def rates(name: str, pair: Sequence[Decoder], inputs: list[list[int]], batch: int, rounds: int) -> str:
    """One row: sentences per second of direct and full."""
    direct, full = pair

    def decode(decoder: Decoder) -> Callable[[], object]:
        batches = [inputs[n : n + batch] for n in range(0, len(inputs), batch)]
        return lambda: [decoder.decode(ids, align=False) for ids in batches]

    seconds = median_seconds({"direct": decode(direct), "full": decode(full)}, rounds)
    d, f = (len(inputs) / seconds[key] for key in ("direct", "full"))
    return f"| {name} | {batch} | {d:.2f} | {f:.2f} | {d / f:.1f} |"


def against_reference(setting: Setting, device: str) -> str:
    """One row: one sentence, full objective, both ways."""
    models, x = setting.models("cpu"), setting.inputs(1)[0]
    reference = ReferenceDecoder(
        **models, weights=FULL, k1=setting.k1, k2=setting.k2, max_length=setting.max_length, recombine=False
    )
    start = time.perf_counter()
    reference.decode(x)
    slow = time.perf_counter() - start
    decoder = setting.decoder({role: model.to(device) for role, model in models.items()}, FULL)
    many = setting.inputs(64)
    one, batch = median_seconds(
        {"one": lambda: decoder.decode([x], align=False), "batch": lambda: decoder.decode(many, align=False)}, 3
    ).values()
    return (
        f"| {setting.name} | {setting.max_length} | {slow:.1f} | {one:.3f} | {slow / one:.0f} "
        f"| {batch / 64:.3f} | {slow * 64 / batch:.0f} |"
    )


def growth(setting: Setting, device: str, batch: int, rounds: int) -> list[str]:
    """Rows: the cost of a sentence when one size doubles, as a multiple of what it was."""
    larger = {
        "I": replace(setting, shortest=2 * setting.shortest, longest=2 * setting.longest),
        "K1": replace(setting, k1=2 * setting.k1),
        "K2": replace(setting, k1=2 * setting.k1, k2=2 * setting.k2),
        "V": replace(setting, V=2 * setting.V),
    }
    variants: dict[str, Callable[[], object]] = {}
    for name, changed in {"base": setting, **larger}.items():
        models, inputs = changed.models(device), changed.inputs(batch)
        for system, weights in (("direct", DIRECT), ("full", FULL)):
            decoder = changed.decoder(models, weights)
            variants[f"{name} {system}"] = lambda decoder=decoder, inputs=inputs: decoder.decode(inputs, align=False)  # type: ignore[misc]
    seconds = median_seconds(variants, rounds)
    labels = {"I": "I", "K1": "K1 (K2 as it was)", "K2": "K1 and K2", "V": "V"}
    return [
        f"| {setting.name} | {label} | "
        + " | ".join(f"{seconds[f'{name} {s}'] / seconds[f'base {s}']:.2f}" for s in ("direct", "full"))
        + " |"
        for name, label in labels.items()
    ]


def trained(run: str, words: str, device: str) -> tuple[list[Decoder], list[list[int]], Weights]:
    """Decoders of a run at the paper's K1 and K2, and the inputs."""
    model = NoisyChannel.load(run, system="direct+channel+lm", device=device)
    search = SearchSettings(k1=CHARACTERS.k1, k2=CHARACTERS.k2)
    decoders = [model.reweighted(weights, search).decoder for weights in (Weights(), model.weights)]
    lines = Path(words).read_text(encoding="utf-8").splitlines()
    inputs = [model.input_codec.encode(line.split("\t")[0]) for line in lines]
    return decoders, sorted(inputs, key=len), model.weights


@dataclass(kw_only=True)
class DecodeBench:
    """What to measure."""

    device: str
    parts: Sequence[str] = ("rates", "reference", "growth")
    settings: Sequence[str] = ("characters", "words")
    """Also words-30k and headlines."""
    batches: Sequence[int] = (1, 64)
    rounds: int = 3
    run: str | None = None
    """A trained and tuned run, for the characters setting."""
    words: str | None = None
    """Inputs for it: the first column of a file."""
    products: SearchProducts = "tf32"
    """What stands beside ieee in the parts precision and profile, and what the part processes searches in."""
    processes: Sequence[int] = (1, 2, 4)
    """How many, in the part processes."""

    def report(self) -> Iterator[str]:
        """The tables, as lines of Markdown."""
        settings = [setting for setting in (CHARACTERS, WORDS, WORDS_30K, HEADLINES) if setting.name in self.settings]
        yield f"decode: {where_and_when(self.device)}"
        if "rates" in self.parts:
            yield "\nSentences per second.\n"
            yield "| setting | batch | direct | full | direct / full |\n| --- | ---: | ---: | ---: | ---: |"
            yield from self._rates(settings)
        if "precision" in self.parts:
            yield "\nPrecision of the search, against ieee; scores are in nats.\n"
            yield precision.HEADER.format("products")
            for setting in settings:
                yield from self._precision(setting)
        if "channel_words" in self.parts:
            yield "\nWords of the channel's softmax in the search, against all; scores are in nats.\n"
            yield precision.HEADER.format("words")
            for setting in settings:
                yield from self._channel_words(setting)
        if "processes" in self.parts:
            yield "\nSentences per second of several processes on one device, full.\n"
            yield together.HEADER
            for setting in settings:
                make = partial(sharing, setting, self.device, self.products)
                inputs = setting.inputs(max(self.batches))
                yield from together.rows(setting.name, self.products, make, inputs, self.rounds, self.processes)
        if "counts" in self.parts:
            for setting in settings:
                models, inputs = setting.models(self.device), setting.inputs(max(self.batches))
                yield from counts.report(setting.name, setting.decoder(models, FULL), inputs, setting.hidden)
        if "profile" in self.parts:
            for setting in settings:
                yield from self._profile(setting)
        if "reference" in self.parts:
            yield "\nSeconds per sentence of the literal reference and of the full search, one at a time and 64.\n"
            yield "| setting | longest output | reference | one | times faster | in 64 | times faster |"
            yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
            for setting in settings:
                if setting in (CHARACTERS, WORDS):
                    yield against_reference(LITERAL_WORDS if setting is WORDS else setting, self.device)
        if "growth" in self.parts:
            yield "\nCost of a sentence when a size doubles, as a multiple of what it was.\n"
            yield "| setting | doubled | direct | full |\n| --- | --- | ---: | ---: |"
            for setting in settings:
                yield from growth(setting, self.device, 16 if self.device == "cpu" else 64, self.rounds)

    def _ending(self, setting: Setting) -> tuple[dict[str, Any], list[list[int]]]:
        """Models whose outputs end, and inputs."""
        models, inputs = setting.models(self.device), setting.inputs(max(self.batches))
        with torch.no_grad():
            models["direct"].output_word.bias[EOS] += math.log(setting.V)
        return models, inputs

    def _channel_words(self, setting: Setting) -> Iterator[str]:
        models, inputs = self._ending(setting)
        yield from precision.channel_word_rows(setting.name, setting.decoder(models, FULL), inputs, self.rounds)

    def _precision(self, setting: Setting) -> Iterator[str]:
        models, inputs = self._ending(setting)
        for system, weights in (("direct", DIRECT), ("full", FULL)):
            decoder = setting.decoder(models, weights)
            yield from precision.rows(setting.name, system, decoder, inputs, self.rounds, self.products)

    def _profile(self, setting: Setting) -> Iterator[str]:
        models, inputs = setting.models(self.device), setting.inputs(max(self.batches))
        for products in dict.fromkeys(("ieee", self.products)):
            decoder = setting.decoder(models, FULL)
            decoder = decoder.reweighted(FULL, decoder.settings.changed(products=products))
            yield from profile.report(f"{setting.name}, full, {products}", decoder, inputs, self.device)

    def _rates(self, settings: Sequence[Setting]) -> Iterator[str]:
        for setting in settings:
            models = setting.models(self.device)
            pair: list[Decoder] = [setting.decoder(models, weights) for weights in (DIRECT, FULL)]
            for batch in self.batches:
                yield rates(setting.name, pair, setting.inputs(max(4, batch)), batch, self.rounds)
        if self.run is not None and self.words is not None:
            pair, inputs, weights = trained(self.run, self.words, self.device)
            for batch in self.batches:
                some = inputs if len(inputs) <= 4 * batch else inputs[:: len(inputs) // (4 * batch)]
                yield rates(f"characters, trained ({len(some)} words)", pair, some, batch, self.rounds)
            yield f"\nTrained: {weights}."
