"""Dividing the items of a decoding among processes, and putting together what they return.

One search keeps neither a GPU busy, because it mostly waits for the host, nor more than one core of a CPU. So all
processes decode every row: the last one of a block, too, and the one that waits until all others are tuned. One process
does what needs all outputs of an item: reranking, ensembles, and the scores of references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from noisychannel.experiments.experiment import ModelSet
from noisychannel.experiments.items import Item

T = TypeVar("T")

FEWEST = 64
"""Different inputs for each share, on average: fewer do not pay for loading the models."""

Share = tuple[tuple[int, ...], ...]
"""For each part, the numbers of some of its items."""


def divide(models: Sequence[ModelSet], items: Sequence[Sequence[Item]], number: int) -> list[Share]:
    """At most so many shares, and none for fewer than ``FEWEST`` inputs. Each item is in one, and equal inputs are in
    the same.

    ``models``: those of each part. If there are as many as shares, each is in one share; else all are in all shares.
    """
    places: dict[tuple[ModelSet, str, tuple[str, ...]], list[tuple[int, int]]] = {}
    for part, (of_part, some) in enumerate(zip(models, items, strict=True)):
        for n, item in enumerate(some):
            features = item.features if of_part.reads_features else ()
            places.setdefault((of_part, item.input, features), []).append((part, n))
    number = max(1, min(number, len(places) // FEWEST))
    inputs = Counter(of_part for of_part, _, _ in places)
    homes = _homes(inputs, number) if len(inputs) >= number else {}
    order = {of_part: n for n, of_part in enumerate(inputs)}
    # Of neighbours in this order each share gets one, so that all have inputs of all lengths.
    by_length = sorted(places, key=lambda key: (order[key[0]], len(key[1])))
    shares: list[list[list[int]]] = [[[] for _ in items] for _ in range(number)]
    for n, key in enumerate(by_length):
        share = shares[homes.get(key[0], n % number)]
        for part, place in places[key]:
            share[part].append(place)
    return [tuple(tuple(sorted(of_part)) for of_part in share) for share in shares]


def _homes(inputs: Mapping[ModelSet, int], number: int) -> dict[ModelSet, int]:
    """The share of each model: of all in turn, the largest first, the share that has fewest inputs so far."""
    sizes = [0] * number
    homes: dict[ModelSet, int] = {}
    for of_part in sorted(inputs, key=lambda of_part: -inputs[of_part]):
        homes[of_part] = sizes.index(min(sizes))
        sizes[homes[of_part]] += inputs[of_part]
    return homes


def select(items: Sequence[Sequence[T]], share: Share) -> tuple[tuple[T, ...], ...]:
    """The items of a share, part by part."""
    return tuple(tuple(of_part[n] for n in numbers) for of_part, numbers in zip(items, share, strict=True))


def join(shares: Sequence[Share], results: Sequence[Sequence[Sequence[T]]]) -> list[list[T]]:
    """What each share has for its items, in the order of all items: part by part."""
    parts: list[list[T]] = []
    for part in range(len(shares[0])):
        found: dict[int, T] = {}
        for share, result in zip(shares, results, strict=True):
            found |= dict(zip(share[part], result[part], strict=True))
        parts.append([found[n] for n in range(len(found))])
    return parts
