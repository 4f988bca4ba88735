"""The tree of a search: the prefixes that survived, and the outputs that were completed.

A prefix survives in cells (input positions); it is one node, with the best of its objectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noisychannel.alignment import END
from noisychannel.decode.watch import SearchStep
from noisychannel.ids import EOS

MOST_NODES = 600
"""Of a tree that is shown; further ones are counted."""

Prefix = tuple[int, ...]


@dataclass
class Node:
    """A prefix. A completed output ends in EOS."""

    score: float
    """The best objective in any cell."""
    rank: int
    """The best place in any cell, from 0."""
    cells: list[int] = field(default_factory=list)
    """The input positions at which it survived; none for a completed output."""


class SearchTrees:
    """Watches the searches of a batch, and keeps what their trees need."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int], dict[Prefix, Node]] = {}

    def __call__(self, step: SearchStep) -> None:
        nodes: dict[Prefix, Node] = {}
        rank, cell = 0, -1
        for survivor in step.survivors(with_terms=False):
            rank, cell = (rank + 1, cell) if survivor.position == cell else (0, survivor.position)
            node = nodes.setdefault(survivor.tokens, Node(survivor.objective, rank))
            node.score, node.rank = max(node.score, survivor.objective), min(node.rank, rank)
            node.cells.append(survivor.position)
        for answer in step.answers():
            nodes[(*answer.tokens, EOS)] = Node(answer.score, 0)
        self._steps[step.sentence, step.length] = nodes  # replaces a step of a search that was repeated by halves

    def nodes(self, sentence: int) -> dict[Prefix, Node]:
        """Every node of a sentence's tree but the root."""
        steps = [nodes for (of, _), nodes in sorted(self._steps.items()) if of == sentence]
        return {prefix: node for nodes in steps for prefix, node in nodes.items()}


def tree_record(
    nodes: Mapping[Prefix, Node], outputs: Sequence[Prefix], names: Sequence[str], most: int = MOST_NODES
) -> dict[str, Any]:
    """A tree for JSON: nodes in an order in which parents come first, the root (the empty prefix) first of all.

    ``outputs``: those that are shown, without EOS. If there are too many nodes, those on the way to them are kept, then
    those with the best places in their cells. ``paths`` has the node of each of the outputs, None if the search did not
    find it.
    """
    ends = [(*output, EOS) for output in outputs]
    kept = _kept(nodes, [end for end in ends if end in nodes], most)
    order = sorted(kept, key=lambda prefix: (len(prefix), -_score(nodes, prefix)))
    place = {(): 0, **{prefix: n for n, prefix in enumerate(order, start=1)}}
    records: list[dict[str, Any]] = [{"parent": None, "symbol": "", "score": None, "cells": [], "complete": False}]
    for prefix in order:
        node = nodes.get(prefix)
        records.append(
            {
                "parent": place[prefix[:-1]],
                "symbol": END if prefix[-1] == EOS else names[prefix[-1]],
                "score": None if node is None else node.score,
                "cells": [] if node is None else sorted(set(node.cells)),
                "complete": prefix[-1] == EOS,
            }
        )
    return {"nodes": records, "left_out": len(nodes) - len(kept), "paths": [place.get(end) for end in ends]}


def _kept(nodes: Mapping[Prefix, Node], ends: Iterable[Prefix], most: int) -> set[Prefix]:
    kept = {end[:n] for end in ends for n in range(1, len(end) + 1)}
    for prefix in sorted(nodes, key=lambda prefix: (nodes[prefix].rank, -nodes[prefix].score)):
        way = {prefix[:n] for n in range(1, len(prefix) + 1)}
        if len(kept | way) > most:
            break
        kept |= way
    return kept


def _score(nodes: Mapping[Prefix, Node], prefix: Prefix) -> float:
    return nodes[prefix].score if prefix in nodes else float("-inf")
