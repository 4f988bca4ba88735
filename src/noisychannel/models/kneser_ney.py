"""The estimation of an n-gram model: interpolated modified Kneser-Ney smoothing.

Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (1999), after Kneser and Ney
(1995). For a context c of k - 1 symbols, c' without its first one, and a symbol w:

    p(w | c) = (a(c w) - D_k(a(c w))) / Σ_v a(c v) + γ(c) p(w | c')        p(w | the empty context's c') = 1 / V
    γ(c)     = Σ_v D_k(a(c v)) / Σ_v a(c v)                               1 if c was never followed by anything

a(g) is how often g was seen, if g has n symbols. If it is shorter, a(g) is the number of different symbols that were
seen before it: a word that is frequent after one word only does not become likely after others. D_k(0) is 0. The
discounts D_k(1), D_k(2) and D_k(3), the last for all larger numbers, come from how many g of k symbols have a(g) = i,
for i = 1..4:

    Y = n_1 / (n_1 + 2 n_2)        D_k(i) = i - (i + 1) Y n_{i+1} / n_i

If some n_i is zero, or a discount is not between 0 and i, which only happens with very little data, they are
0.5, 1 and 1.5. Sequences begin with n - 1 BOS, which are never predicted.

Every k-gram is an edge of a trie, k = 1..n. What is stored of it is log p(last | others), all interpolation done, and
of each context log γ: p of a symbol that was not seen after a context is γ times p after the shorter context.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisychannel.ids import BOS

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

FEW_DATA = (0.5, 1.0, 1.5)
"""The discounts if the counts cannot say."""


class Estimates(NamedTuple):
    """The trie of all k-grams, k = 1..n, its nodes numbered level by level; edge e leads to node e + 1."""

    keys: IntArray
    """Parent · V + symbol of each edge, ascending: [E]."""
    log_prob: FloatArray
    """log p(last symbol | others) of each edge: [E]."""
    log_backoff: FloatArray
    """log γ of each node of fewer than n symbols, the root first: [C]."""


class _Level(NamedTuple):
    """All k-grams of one k."""

    keys: IntArray
    """Parent (its place in the level above) · V + symbol, ascending: [K]."""
    seen: IntArray
    """How often each was seen: [K]."""
    suffix: IntArray
    """The place of the same without its first symbol in the level above: [K]."""


def estimate(ids: npt.NDArray[Any], starts: npt.NDArray[Any], vocab_size: int, order: int) -> Estimates:
    """Of sequences that end in EOS; sequence n is ``ids[starts[n] : starts[n + 1]]``."""
    levels = _levels(ids, starts, vocab_size, order)
    keys, log_probs, log_backoffs = [], [], []
    shorter, first = np.array([1 / vocab_size]), 0
    for k, level in enumerate(levels):
        parent, symbol = level.keys // vocab_size, level.keys % vocab_size
        events = symbol != BOS
        if k + 1 < order:  # different symbols before each, of those k-grams that end in what is predicted
            longer = levels[k + 1]
            predicted = longer.keys % vocab_size != BOS
            counts = np.bincount(longer.suffix[predicted], minlength=len(level.keys))
        else:
            counts = level.seen * events
        taken = np.array([0.0, *discounts(counts)])[np.minimum(counts, 3)]
        contexts = 1 if k == 0 else len(levels[k - 1].keys)
        total, held = (np.bincount(parent, weight, contexts) for weight in (counts, taken))
        backoff = np.divide(held, total, out=np.ones(contexts), where=total > 0)
        rest = np.divide(counts - taken, total[parent], out=np.zeros(len(parent)), where=total[parent] > 0)
        shorter = rest + backoff[parent] * shorter[level.suffix]
        keys.append((first + parent) * vocab_size + symbol)
        log_probs.append(np.log(shorter))
        log_backoffs.append(np.log(backoff))
        first += contexts
    return Estimates(*(np.concatenate(parts) for parts in (keys, log_probs, log_backoffs)))


def discounts(counts: IntArray) -> tuple[float, float, float]:
    """D(1), D(2) and D(3) from the numbers of k-grams that have each count."""
    n = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if (n == 0).any():
        return FEW_DATA
    y = n[0] / (n[0] + 2 * n[1])
    first, second, third = (i - (i + 1) * y * n[i] / n[i - 1] for i in (1, 2, 3))
    if not (0 < first <= 1 and 0 < second <= 2 and 0 < third <= 3):
        return FEW_DATA
    return first, second, third


def _levels(ids: npt.NDArray[Any], starts: npt.NDArray[Any], vocab_size: int, order: int) -> list[_Level]:
    """The k-grams of each k that begin anywhere in the padded sequences."""
    lengths, before = np.diff(starts), order - 1
    ends = np.cumsum(lengths + before)
    padded = np.full(ends[-1] if len(ends) else 0, BOS, np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    padded[np.arange(len(row)) + before * (row + 1)] = ids[starts[0] : starts[-1]] if len(lengths) else ids[:0]
    left = np.repeat(ends, lengths + before) - np.arange(len(padded))  # symbols from here to the end of the sequence
    levels: list[_Level] = []
    node = np.zeros(len(padded) + 1, np.int64)
    for k in range(order):
        places = np.flatnonzero(left > k)
        keys, which, seen = np.unique(
            node[places] * vocab_size + padded[places + k], return_inverse=True, return_counts=True
        )
        suffix = np.zeros(len(keys), np.int64)
        suffix[which] = node[places + 1] if k else 0
        levels.append(_Level(keys, seen, suffix))
        node[places] = which
    return levels
