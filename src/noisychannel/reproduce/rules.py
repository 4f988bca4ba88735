"""Inflection by rules: the longest known ending of a lemma says what becomes of it.

Our own version of the non-neural baseline of the SIGMORPHON shared tasks (Cotterell et al., 2017). A lemma and its form
are aligned letter by letter; what sticks out on the left is a prefix, on the right a suffix:

    lemma      s u c h e n            prefix:  (nothing) -> ge
    form   g e s u c h   t            suffix:  en -> t, and with more of the stem: hen -> ht, chen -> cht, …

For each tag set all rules of the training pairs are counted. A new lemma takes the rule of its longest known ending, of
several the most frequent; and the most frequent of the prefix rules that fit its beginning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache

from noisychannel.reproduce.inflection_data import TaggedPair

GAP = ""
Changes = dict[str, Counter[str]]
"""What a beginning or an ending becomes, and how often."""


class SuffixRules:
    """The rules of training pairs."""

    def __init__(self, pairs: Iterable[TaggedPair]) -> None:
        self.prefixes: dict[str, Changes] = defaultdict(lambda: defaultdict(Counter))
        self.suffixes: dict[str, Changes] = defaultdict(lambda: defaultdict(Counter))
        for pair in pairs:
            (before, stem, ending), (new_before, new_stem, new_ending) = split(pair.lemma, pair.form)
            for start in range(len(stem) + 1):
                old, new = ("".join(side[start:]) for side in (stem, new_stem))
                self.suffixes[pair.tags][old + ending][new + new_ending] += 1
                old, new = ("".join(side[:start]) for side in (stem, new_stem))
                self.prefixes[pair.tags][before + old][new_before + new] += 1

    def inflect(self, lemma: str, tags: str) -> str:
        """The form; the lemma itself where no rule fits."""
        form = lemma
        endings = self.suffixes.get(tags, {})
        for start in range(len(lemma) + 1):
            if lemma[start:] in endings:
                form = lemma[:start] + _most_frequent(endings[lemma[start:]])
                break
        beginnings = self.prefixes.get(tags, {})
        fitting = [
            (count, -len(old), old, new)
            for old in (form[:end] for end in range(len(form) + 1))
            if old in beginnings
            for new, count in beginnings[old].items()
        ]
        if fitting:
            _, _, old, new = max(fitting)
            form = new + form[len(old) :]
        return form


def split(lemma: str, form: str) -> tuple[tuple[str, list[str], str], tuple[str, list[str], str]]:
    """Prefix, stem and suffix of both; the stems are aligned letter by letter, with gaps."""
    pairs = align(lemma, form)
    matched = [n for n, (a, b) in enumerate(pairs) if a == b]
    start, end = (matched[0], matched[-1] + 1) if matched else (0, 0)
    sides = []
    for side in range(2):
        letters = [pair[side] for pair in pairs]
        sides.append(("".join(letters[:start]), letters[start:end], "".join(letters[end:])))
    return sides[0], sides[1]


def align(lemma: str, form: str) -> list[tuple[str, str]]:
    """Letters of both in pairs, with gaps: as few changes as can be, a replaced letter counting a bit more than a gap.

    Of equally good alignments the one that pairs letters as far to the left as it can.
    """

    @cache
    def cost(i: int, j: int) -> float:
        """Of the rest of both."""
        if i == len(lemma) or j == len(form):
            return float(len(lemma) - i + len(form) - j)
        here = 0.0 if lemma[i] == form[j] else 1.1
        return min(here + cost(i + 1, j + 1), 1 + cost(i + 1, j), 1 + cost(i, j + 1))

    pairs, i, j = [], 0, 0
    while i < len(lemma) or j < len(form):
        rest = cost(i, j)
        both = i < len(lemma) and j < len(form)
        if both and rest == (0.0 if lemma[i] == form[j] else 1.1) + cost(i + 1, j + 1):
            pairs.append((lemma[i], form[j]))
            i, j = i + 1, j + 1
        elif i < len(lemma) and rest == 1 + cost(i + 1, j):
            pairs.append((lemma[i], GAP))
            i += 1
        else:
            pairs.append((GAP, form[j]))
            j += 1
    return pairs


def _most_frequent(changes: Counter[str]) -> str:
    """Of equals the shortest, then the first in the alphabet."""
    return min(changes, key=lambda new: (-changes[new], len(new), new))
