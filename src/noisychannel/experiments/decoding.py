"""Decoding held-out items with the models of a row, which may come from several runs.

An n-best list that is kept has the text of each output, its terms and whether it is complete; never its ids, because
every run may have a vocabulary of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.decoding import with_all_terms
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.experiments.experiment import ModelSet
from noisychannel.experiments.items import Item
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.schemas import InfiniteRecord

DIGITS = 4
"""Decimals of the terms that are kept, in nats."""


class NBestEntry(NamedTuple):
    """One output of an n-best list, as it is kept."""

    text: str
    terms: dict[str, float]
    """By name; a term that was not computed is absent."""
    complete: bool = True

    @staticmethod
    def of(output: Output) -> NBestEntry:
        terms = output.hypothesis.terms().items()
        rounded = {name: round(value, DIGITS) for name, value in terms if value is not None}
        return NBestEntry(output.text, rounded, output.hypothesis.complete)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        terms = {"terms": self.terms} if self.terms else {}
        return {"text": self.text, **terms, **({} if self.complete else {"complete": False})}


@dataclass(frozen=True)
class EntryRecord(InfiniteRecord):
    """An output of an n-best list in JSON."""

    text: str
    terms: dict[str, float] = field(default_factory=dict)
    complete: bool = True

    def entry(self) -> NBestEntry:
        return NBestEntry(self.text, self.terms, self.complete)


NBestLists = list[list[NBestEntry]]
"""For each item, its best outputs, best first."""


class PartLists(NamedTuple):
    """A decoding of all parts."""

    parts: list[NBestLists]
    seconds: float
    """Of decoding alone: without loading, tuning or scoring."""

    def best_texts(self) -> list[str]:
        """The best output of each item, part after part."""
        return [best[0].text for lists in self.parts for best in lists]


def load(models: ModelSet, weights: Weights, settings: SearchSettings, device: str) -> NoisyChannel:
    """The models, ready to decode."""
    run = models.roles[0][1]
    return NoisyChannel.load(
        run, weights=weights, settings=settings, device=device, roles=dict(models.roles), terms=dict(models.terms)
    )


def features_of(models: ModelSet, items: Sequence[Item]) -> list[tuple[str, ...]]:
    """The features that the models read with each item."""
    return [item.features if models.reads_features else () for item in items]


def decode_items(
    model: NoisyChannel, texts: Sequence[str], features: Sequence[tuple[str, ...]], n_best: int, batch_size: int
) -> list[list[Output]]:
    """The best outputs of each input. Equal inputs are decoded once.

    In lists of several outputs every model scores every output, even a model whose weight is zero.
    """
    asked = list(zip(texts, features, strict=True))
    distinct = list(dict.fromkeys(asked))
    inputs, tags = [text for text, _ in distinct], [tag for _, tag in distinct]
    outputs = model.batch(inputs, n_best, tags, batch_size, align=False)
    if n_best > 1:
        filled = with_all_terms(model, HeldOut("", inputs, tags, []), outputs)
        outputs = [
            [output._replace(hypothesis=hypothesis) for output, hypothesis in zip(best, hypotheses, strict=True)]
            for best, hypotheses in zip(outputs, filled, strict=True)
        ]
    by_input = dict(zip(distinct, outputs, strict=True))
    return [by_input[key] for key in asked]


@dataclass(frozen=True)
class DecodingTask:
    """The items of all parts, to be decoded under given weights. A process can be told to do it."""

    models: tuple[ModelSet, ...]
    """One set for each part."""
    items: tuple[tuple[Item, ...], ...]
    weights: Weights
    settings: SearchSettings
    n_best: int
    batch_size: int
    device: str
    keep_terms: bool = True

    def decode(self) -> PartLists:
        return kept(self.decode_outputs(), self.keep_terms)

    def decode_outputs(self) -> tuple[list[list[list[Output]]], float]:
        """With ids, for each part and item; and the seconds. Neighbouring parts of the same models are decoded as one,
        so that an input of both is decoded once."""
        parts: list[list[list[Output]]] = []
        seconds = 0.0
        try:
            for models, group in groupby(zip(self.models, self.items, strict=True), key=itemgetter(0)):
                of_parts = [items for _, items in group]
                model = load(models, self.weights, self.settings, self.device)
                began = time.perf_counter()
                items = list(chain.from_iterable(of_parts))
                texts, features = [item.input for item in items], features_of(models, items)
                decoded = iter(decode_items(model, texts, features, self.n_best, self.batch_size))
                parts += [list(islice(decoded, len(of_part))) for of_part in of_parts]
                seconds += time.perf_counter() - began
        finally:
            torch.cuda.empty_cache()  # other processes use the same GPU
        return parts, seconds


def kept(outputs: tuple[list[list[list[Output]]], float], terms: bool = True) -> PartLists:
    """A decoding as it is kept, with or without the terms of its outputs."""
    parts, seconds = outputs
    lists = [[[NBestEntry.of(output) for output in best] for best in of_part] for of_part in parts]
    if not terms:
        lists = [[[entry._replace(terms={}) for entry in best] for best in of_part] for of_part in lists]
    return PartLists(lists, seconds)
