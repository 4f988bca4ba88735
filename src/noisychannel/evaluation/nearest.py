"""A translation memory as a baseline: the output of the known input that is most like the new one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class _Memory(NamedTuple):
    """The known inputs with one set of tags."""

    inputs: list[str]
    places: dict[str, NDArray[np.int64]]
    """Which inputs have a word."""
    rarity: dict[str, float]
    """How much a word counts."""
    norms: NDArray[np.float64]

    @classmethod
    def of(cls, inputs: Iterable[str]) -> _Memory:
        known = list(dict.fromkeys(inputs))
        places = defaultdict(list)
        for n, text in enumerate(known):
            for word in set(text.split()):
                places[word].append(n)
        rarity = {word: math.log(1 + len(known) / len(found)) for word, found in places.items()}
        norms = np.array([math.sqrt(sum(rarity[word] ** 2 for word in set(text.split()))) for text in known])
        return cls(known, {word: np.array(found) for word, found in places.items()}, rarity, norms)

    def nearest(self, text: str) -> str | None:
        """The input with the highest cosine, of equals the first; None if no word of the text is known."""
        words = [word for word in sorted(set(text.split())) if word in self.places]
        if not words:
            return None
        shared = np.zeros(len(self.inputs))
        for word in words:
            shared[self.places[word]] += self.rarity[word] ** 2
        return self.inputs[int(np.argmax(shared / np.maximum(self.norms, 1e-9)))]


class NearestInput:
    """Words are what spaces separate. The rarer a word among the known inputs, the more it counts: the cosine is that
    of vectors with log(1 + inputs / inputs with the word) for each word, however often an input has it."""

    def __init__(self, pairs: Iterable[tuple[str, str, Hashable]]) -> None:
        self.outputs: dict[Hashable, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for text, output, tags in pairs:
            self.outputs[tags][text][output] += 1
        self.memories = {tags: _Memory.of(known) for tags, known in self.outputs.items()}

    def answer(self, text: str, tags: Hashable) -> str:
        """The most frequent output of the input itself if it is known, else of the nearest one with the same tags; the
        input as it is if no word of it is known."""
        known = self.outputs.get(tags, {})
        found = text if text in known else self.memories[tags].nearest(text) if known else None
        return text if found is None else most_frequent(known[found])


def most_frequent(outputs: Counter[str]) -> str:
    """Of equals the shortest, then the first in the alphabet."""
    return min(outputs, key=lambda new: (-outputs[new], len(new), new))
