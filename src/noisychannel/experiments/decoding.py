"""Decoding held-out items with the models of a row, which may come from several runs.

An n-best list that is kept has the text of each output, its terms and whether it is complete, and if asked for the
alignment of the best; never its ids, because every run may have a vocabulary of its own.

A process keeps the models of its last tasks: the next one often needs them again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.content import Aligned, aligned_words
from noisychannel.evaluation.decoding import with_all_terms
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.experiments.experiment import ModelSet
from noisychannel.experiments.items import Item
from noisychannel.experiments.shares import Share, divide, select
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.schemas import InfiniteRecord

DIGITS = 4
"""Decimals of the terms that are kept, in nats."""
KEPT_BYTES = 1 << 30
"""Of models that a process keeps, beside those that it needs."""


class NBestEntry(NamedTuple):
    """One output of an n-best list, as it is kept."""

    text: str
    terms: dict[str, float]
    """By name; a term that was not computed is absent."""
    complete: bool = True
    aligned: tuple[int, ...] | None = None
    """For each symbol, the number of the input's word that it is aligned to, see ``evaluation.content``; None if that
    is not kept, or if the proposing model has no alignments."""

    @staticmethod
    def of(output: Output) -> NBestEntry:
        terms = output.hypothesis.terms().items()
        rounded = {name: round(value, DIGITS) for name, value in terms if value is not None}
        return NBestEntry(output.text, rounded, output.hypothesis.complete)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        terms = {"terms": self.terms} if self.terms else {}
        aligned = {} if self.aligned is None else {"aligned": self.aligned}
        return {"text": self.text, **terms, **({} if self.complete else {"complete": False}), **aligned}


@dataclass(frozen=True)
class EntryRecord(InfiniteRecord):
    """An output of an n-best list in JSON."""

    text: str
    terms: dict[str, float] = field(default_factory=dict)
    complete: bool = True
    aligned: tuple[int, ...] | None = None

    def entry(self) -> NBestEntry:
        return NBestEntry(self.text, self.terms, self.complete, self.aligned)


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


_kept: OrderedDict[object, tuple[NoisyChannel, int]] = OrderedDict()
"""Models that were loaded, with the bytes of their files; those that were used last are at the end."""


def load(models: ModelSet, weights: Weights, settings: SearchSettings, device: str) -> NoisyChannel:
    """The models, ready to decode. Further terms of weight zero are not among them."""
    files = [file.stat() for file in models.files()]
    times = tuple(file.st_mtime_ns for file in files)
    terms = frozenset(name for name, weight in weights.extra.items() if weight)
    key = models, times, terms, device
    if key not in _kept:
        run, roles = models.roles[0][1], dict(models.roles)
        model = NoisyChannel.load(
            run, weights=weights, settings=settings, device=device, roles=roles, terms=dict(models.terms)
        )
        _kept[key] = model, sum(file.st_size for file in files)
    _kept.move_to_end(key)
    while sum(size for _, size in _kept.values()) > KEPT_BYTES and len(_kept) > 1:
        _kept.popitem(last=False)
    return _kept[key][0].reweighted(weights, settings)


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
    keep_alignments: bool = False
    """Whether the best output of each item is kept with its alignment."""
    loaded_for: Weights | None = None
    """Weights whose further terms are computed, also if ``weights`` are zero for them; ``weights`` if None."""

    def divided(self, number: int) -> list[tuple[Share, DecodingTask]]:
        """At most so many tasks that decode everything together, each with its share of the items."""
        shares = divide(self.models, self.items, number)
        return [(share, replace(self, items=select(self.items, share))) for share in shares]

    def decode(self) -> PartLists:
        return kept(self.decode_outputs(), self.keep_terms)

    def decode_outputs(self) -> Decoded:
        """With ids, for each part and item. Neighbouring parts of the same models are decoded as one, so that an input
        of both is decoded once."""
        parts: list[list[list[Output]]] = []
        aligned: list[list[Aligned | None]] = []
        seconds = 0.0
        try:
            for models, group in groupby(zip(self.models, self.items, strict=True), key=itemgetter(0)):
                of_parts = [items for _, items in group]
                items = list(chain.from_iterable(of_parts))
                if not items:
                    parts, aligned = parts + [[] for _ in of_parts], aligned + [[] for _ in of_parts]
                    continue
                model = load(models, self.loaded_for or self.weights, self.settings, self.device)
                model = model.reweighted(self.weights)
                began = time.perf_counter()
                texts, features = [item.input for item in items], features_of(models, items)
                outputs = decode_items(model, texts, features, self.n_best, self.batch_size)
                seconds += time.perf_counter() - began
                positions: list[Aligned | None] = [None] * len(items)
                if self.keep_alignments:
                    positions = aligned_words(model, texts, features, [best[0].hypothesis.tokens for best in outputs])
                decoded, found = iter(outputs), iter(positions)
                parts += [list(islice(decoded, len(of_part))) for of_part in of_parts]
                aligned += [list(islice(found, len(of_part))) for of_part in of_parts]
        finally:
            torch.cuda.empty_cache()  # other processes use the same GPU
        return Decoded(parts, seconds, aligned)


class Decoded(NamedTuple):
    """A decoding of all parts, with ids."""

    parts: list[list[list[Output]]]
    """For each part and item, the best outputs."""
    seconds: float
    aligned: list[list[Aligned | None]]
    """For each part and item, the alignment of the best output, if it was asked for."""


def kept(decoded: Decoded, terms: bool = True) -> PartLists:
    """A decoding as it is kept, with or without the terms of its outputs."""
    lists = [[[NBestEntry.of(output) for output in best] for best in of_part] for of_part in decoded.parts]
    if not terms:
        lists = [[[entry._replace(terms={}) for entry in best] for best in of_part] for of_part in lists]
    for of_part, of_aligned in zip(lists, decoded.aligned, strict=True):
        for best, positions in zip(of_part, of_aligned, strict=True):
            best[0] = best[0]._replace(aligned=positions)
    return PartLists(lists, decoded.seconds)
