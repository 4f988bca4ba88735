"""Folds and splits of pairs. An input is never on both sides: all its pairs are held out together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from noisychannel.data.rows import Row

ALL = "all"
"""The name of the part whose models are the result."""


@dataclass(frozen=True)
class Part:
    """Pairs to train on, and pairs that are held out from it."""

    name: str
    train: tuple[Row, ...]
    held_out: tuple[Row, ...]


def make_parts(pairs: Sequence[Row], folds: int, dev_pairs: int, seed: int) -> list[Part]:
    """The parts whose models are trained; the last one is the result.

    With folds: each without one fold, then one with all pairs and nothing held out. Without: one, with dev held out.
    """
    if not folds:
        held_out = split_off(pairs, dev_pairs, seed)
        return [Part(ALL, *_divided(pairs, held_out))]
    assigned = assign_folds(pairs, folds, seed)
    parts = [
        Part(f"fold{n + 1}", *_divided(pairs, {k for k, fold in enumerate(assigned) if fold == n}))
        for n in range(folds)
    ]
    return [*parts, Part(ALL, tuple(pairs), ())]


def assign_folds(pairs: Sequence[Row], folds: int, seed: int) -> list[int]:
    """The fold of each pair: of equal size as far as possible, and the pairs of each tag set in different folds."""
    by_input: dict[str, list[int]] = defaultdict(list)
    for n, row in enumerate(pairs):
        by_input[row.input].append(n)
    groups = list(by_input.values())
    Random(seed).shuffle(groups)
    groups.sort(key=len, reverse=True)  # large ones first, while every fold has room
    room = [-(-len(pairs) // folds)] * folds
    tags: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(folds)]
    assigned = [0] * len(pairs)
    for group in groups:
        own = [pairs[n].features for n in group]
        fits = [fold for fold in range(folds) if room[fold] >= len(group)] or [room.index(max(room))]
        best = min(fits, key=lambda fold: (sum(tags[fold][each] for each in own), -room[fold], fold))
        room[best] -= len(group)
        tags[best].update(own)
        for n in group:
            assigned[n] = best
    return assigned


def split_off(pairs: Sequence[Row], wanted: int, seed: int) -> set[int]:
    """The numbers of about so many pairs, with all pairs of their inputs."""
    by_input: dict[str, list[int]] = defaultdict(list)
    for n, row in enumerate(pairs):
        by_input[row.input].append(n)
    groups = list(by_input.values())
    Random(seed).shuffle(groups)
    chosen: set[int] = set()
    for group in groups:
        if len(chosen) + len(group) <= wanted:  # an input with very many pairs stays on the other side
            chosen.update(group)
    return chosen


def _divided(pairs: Sequence[Row], held_out: set[int]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    train = tuple(row for n, row in enumerate(pairs) if n not in held_out)
    return train, tuple(row for n, row in enumerate(pairs) if n in held_out)
