"""``proposals`` on a CPU, in NumPy, whose operations on a few numbers take a fraction of the time that PyTorch's take.

Prefixes whose bound reaches a threshold of the cell are scored by all symbols, and what is below the threshold is
dropped. Of a small vocabulary the threshold is the K1-th best extension of the prefix with the highest bound. Of a
large one it is known before (``next_words``); most extensions are far below it, and are never scored in full precision.

Shapes: B sentences, I cells of one output length, P prefixes, V symbols, C = B·I cells, N = B·P prefixes of all
sentences, K = K1. Extensions are in the order of cells, slots and symbols.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

SLACK = 1e-4
"""Nats by which rounding may make a bound wrong."""
ROUNDING = 8
"""The same in units of the last place of the largest score, which counts if weights are huge."""
AT_ONCE = 64
"""Rows of scores of a large vocabulary that are looked at together: they should stay in the cache."""
KEPT = 1 << 20
"""Extensions above the threshold, after which only the K1 best of each cell are kept."""


class Words(NamedTuple):
    """What extensions are scored with."""

    reach: Any
    """[B,I,P]."""
    normaliser: Any
    """log Z: [B,I,P]."""
    log_q: Any
    """The largest of any symbol: [B,I,P]."""
    by_cell: Any
    """[C,V]."""
    by_prefix: Any
    """[N,V]."""

    def slack(self) -> float:
        """How much higher than a bound an extension may be, because of rounding."""
        finite = self.reach[self.reach > -np.inf]
        largest = np.abs(finite).max() if len(finite) else 0.0
        return SLACK + ROUNDING * float(np.finfo(self.reach.dtype).eps) * float(largest)

    def bound(self, slack: float) -> Any:
        """No extension of a prefix ranks above it: [C,P]."""
        B, I, P = self.reach.shape
        bound: Any = (self.reach + np.minimum(self.log_q, 0.0)).reshape(B * I, P) + slack
        return bound

    def ahead(self) -> Any:
        """reach - log Z, cell by cell: [C·P]."""
        return (self.reach - self.normaliser).reshape(-1)


class Extensions(NamedTuple):
    """Some extensions, one in each place."""

    cell: Any
    prefix: Any
    """Slot among the P."""
    symbol: Any
    score: Any

    def best(self, k1: int, cells: int) -> tuple[Extensions, Any]:
        """The K1 best of each cell, cell by cell, and the rank of each. Equal ones stay in their order."""
        order = np.lexsort((-self.score, self.cell))
        cell = self.cell.take(order)
        rank = np.arange(len(cell)) - np.searchsorted(cell, np.arange(cells)).take(cell)
        among = np.flatnonzero(rank < k1)
        return Extensions(*(x.take(order.take(among)) for x in self)), rank.take(among)

    def table(self, k1: int, cells: int) -> tuple[Any, Any, Any]:
        """Scores, prefixes and symbols of the K1 best: [C·K] each; an empty place has score -inf."""
        best, rank = self.best(k1, cells)
        place = best.cell * k1 + rank
        size = cells * k1
        score, prefix, symbol = np.full(size, -np.inf, best.score.dtype), np.zeros(size, int), np.zeros(size, int)
        score[place], prefix[place], symbol[place] = best.score, best.prefix, best.symbol
        return score, prefix, symbol


def above_threshold(words: Words, k1: int, at_once: int) -> Extensions | None:
    """The extensions that may be among the K1 best; None if more than ``at_once`` would be scored together."""
    _, I, P = words.reach.shape
    C, V = words.by_cell.shape
    if at_once < C * V:
        return None
    bound, ahead = words.bound(words.slack()), words.ahead()
    # What precedes the prefixes of a cell's sentence among all N.
    cells = np.arange(C)
    first = cells // I * P
    highest = bound.argmax(1)
    best = words.by_cell + words.by_prefix.take(first + highest, 0) + ahead.take(cells * P + highest)[:, None]
    least = np.partition(best, V - k1, 1)[:, V - k1] if k1 <= V else np.full(C, -np.inf)
    wanted = np.flatnonzero((bound >= least[:, None]) & (bound > -np.inf))
    if len(wanted) * V > at_once:
        return None
    cell, prefix = np.divmod(wanted, P)
    scores = words.by_cell.take(cell, 0) + words.by_prefix.take(first.take(cell) + prefix, 0)
    scores = scores + ahead.take(wanted)[:, None]
    enough = np.flatnonzero((scores >= least.take(cell)[:, None]) & (scores > -np.inf))
    row, symbol = np.divmod(enough, V)
    return Extensions(cell.take(row), prefix.take(row), symbol, scores.take(enough))


def above_least(words: Words, least: Any, slack: float, k1: int) -> Extensions:
    """The same for a large vocabulary, given a score that the K1-th best of each cell has at least: [C]."""
    _, I, P = words.reach.shape
    C, V = words.by_cell.shape
    bound, ahead = words.bound(slack), words.ahead()
    wanted = np.flatnonzero((bound >= least[:, None]) & (bound > -np.inf))
    found, number = [_none(ahead)], 0
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        cell, prefix = np.divmod(some, P)
        scores = words.by_cell.take(cell, 0)
        scores += words.by_prefix.take(cell // I * P + prefix, 0)
        enough = np.flatnonzero(scores >= (least.take(cell) - ahead.take(some) - slack).astype(scores.dtype)[:, None])
        row, symbol = np.divmod(enough, V)
        score = scores.take(enough) + ahead.take(some.take(row))
        high = np.flatnonzero((score >= least.take(cell.take(row))) & (score > -np.inf))
        row = row.take(high)
        found.append(Extensions(cell.take(row), prefix.take(row), symbol.take(high), score.take(high)))
        number += len(high)
        if number > KEPT:
            best, _ = _joined(found).best(k1, C)
            found, number = [best], 0
    return _joined(found)


def _none(like: Any) -> Extensions:
    nothing = np.zeros(0, int)
    return Extensions(nothing, nothing, nothing, np.zeros(0, like.dtype))


def _joined(found: list[Extensions]) -> Extensions:
    return Extensions(*map(np.concatenate, zip(*found, strict=True)))
