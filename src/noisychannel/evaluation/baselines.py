"""The simplest baselines, made from training pairs.

``identity`` puts out its input, ``first_8`` and ``first_15`` so many words of it, ``memorised`` the most frequent
training output of a known input with the same tags, ``nearest`` that of the known input that shares most words with it,
and ``rules`` inflects: the longest known ending of a lemma says what becomes of it. The rules are our own version of
the non-neural baseline of the SIGMORPHON shared tasks (Cotterell et al., 2017). A lemma and its form are aligned letter
by letter; what sticks out on the left is a prefix, on the right a suffix:

    lemma      s u c h e n            prefix:  (nothing) -> ge
    form   g e s u c h   t            suffix:  en -> t, and with more of the stem: hen -> ht, chen -> cht, …

For each tag set all rules of the training pairs are counted. A new lemma takes the rule of its longest known ending, of
several the most frequent; and the most frequent of the prefix rules that fit its beginning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from noisychannel.data.edits import align
from noisychannel.evaluation.nearest import NearestInput, most_frequent

Pairs: TypeAlias = Iterable[tuple[str, str, Hashable]]
"""Inputs, outputs and tags."""
Answer: TypeAlias = Callable[[str, Hashable], str]
"""The output of an input with its tags."""
Changes: TypeAlias = dict[str, Counter[str]]
"""What a beginning or an ending becomes, and how often."""


def identity(pairs: Pairs) -> Answer:
    """Every input as it is."""
    del pairs
    return lambda text, tags: text


def first_words(number: int) -> Callable[[Pairs], Answer]:
    """The baseline that puts out the first words of each input."""
    return lambda pairs: lambda text, tags: " ".join(text.split()[:number])


def memorised(pairs: Pairs) -> Answer:
    """The most frequent output of an input that was seen with these tags; any other input as it is."""
    seen: dict[tuple[str, Hashable], Counter[str]] = defaultdict(Counter)
    for text, output, tags in pairs:
        seen[text, tags][output] += 1
    best = {known: most_frequent(outputs) for known, outputs in seen.items()}
    return lambda text, tags: best.get((text, tags), text)


def nearest(pairs: Pairs) -> Answer:
    """By ``NearestInput``."""
    return NearestInput(pairs).answer


def rules(pairs: Pairs) -> Answer:
    """By ``SuffixRules``."""
    return SuffixRules(pairs).inflect


BASELINES: dict[str, Callable[[Pairs], Answer]] = {
    "identity": identity,
    "first_8": first_words(8),
    "first_15": first_words(15),
    "memorised": memorised,
    "nearest": nearest,
    "rules": rules,
}
"""By name, simplest first."""
LEARNT = ("memorised", "nearest", "rules")
"""Those that depend on the training pairs."""


class SuffixRules:
    """The rules of training pairs."""

    def __init__(self, pairs: Pairs) -> None:
        self.prefixes: dict[Hashable, Changes] = defaultdict(lambda: defaultdict(Counter))
        self.suffixes: dict[Hashable, Changes] = defaultdict(lambda: defaultdict(Counter))
        for lemma, form, tags in pairs:
            (before, stem, ending), (new_before, new_stem, new_ending) = split(lemma, form)
            for start in range(len(stem) + 1):
                old, new = ("".join(side[start:]) for side in (stem, new_stem))
                self.suffixes[tags][old + ending][new + new_ending] += 1
                old, new = ("".join(side[:start]) for side in (stem, new_stem))
                self.prefixes[tags][before + old][new_before + new] += 1

    def inflect(self, lemma: str, tags: Hashable) -> str:
        """The form; the lemma itself if no rule fits."""
        form = lemma
        endings = self.suffixes.get(tags, {})
        for start in range(len(lemma) + 1):
            if lemma[start:] in endings:
                form = lemma[:start] + most_frequent(endings[lemma[start:]])
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
