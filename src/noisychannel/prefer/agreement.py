"""How far raters agree, and whether one of two systems is preferred beyond chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction

Labels = Sequence[Hashable]
"""The labels that raters gave one item, each rater once."""


def pairwise_agreement(items: Iterable[Labels]) -> float | None:
    """The share of pairs of raters of one item who chose the same label; None if no item has two raters."""
    same = pairs = 0
    for labels in items:
        same += sum(math.comb(count, 2) for count in Counter(labels).values())
        pairs += math.comb(len(labels), 2)
    return same / pairs if pairs else None


def krippendorff_alpha(items: Iterable[Labels]) -> float | None:
    """Krippendorff's alpha for nominal labels; raters may have left items out.

    An item of m >= 2 labels contributes each ordered pair of them with the weight 1/(m − 1). With o_cc the weight of
    pairs that agree on c, n_c how often c occurs in such items, and n their sum:

        alpha = 1 − D_o / D_e,   D_o = 1 − Σ_c o_cc / n,   D_e = 1 − Σ_c n_c (n_c − 1) / (n (n − 1))

    None if no item has two raters, or if all labels are the same: then chance alone would agree, too.
    """
    agreeing, totals = Fraction(0), Counter[Hashable]()
    for labels in items:
        if len(labels) < 2:
            continue
        counts = Counter(labels)
        agreeing += Fraction(sum(count * (count - 1) for count in counts.values()), len(labels) - 1)
        totals += counts
    n = totals.total()
    if len(totals) < 2:
        return None
    observed = 1 - agreeing / n
    expected = 1 - Fraction(sum(count * (count - 1) for count in totals.values()), n * (n - 1))
    return float(1 - observed / expected)


def sign_test(one: int, other: int) -> float:
    """The two-sided exact p-value of so many preferences for either side, if chance preferred both alike."""
    n = one + other
    tail, term = 0, 1  # term: n over i
    for i in range(min(one, other) + 1):
        tail += term
        term = term * (n - i) // (i + 1)
    return float(min(Fraction(1), Fraction(2 * tail, 1 << n)))


def exact_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper–Pearson interval of a share: no share outside it would give so extreme a count this often."""
    alpha = (1 - level) / 2
    low = 0.0 if successes == 0 else _solve(lambda p: _upper_tail(successes, trials, p) - alpha)
    high = 1.0 if successes == trials else _solve(lambda p: alpha - _upper_tail(trials - successes, trials, 1 - p))
    return low, high


def _upper_tail(successes: int, trials: int, p: float) -> float:
    """The probability of at least so many successes."""
    if p in (0.0, 1.0):
        return p if successes else 1.0
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(p)
        + (trials - k) * math.log1p(-p)
        for k in range(successes, trials + 1)
    ]
    return math.fsum(map(math.exp, logs))


def _solve(rising: Callable[[float], float]) -> float:
    """Where a rising function of a share is zero."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
