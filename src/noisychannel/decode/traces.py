"""Traces: the back-pointers of Algorithm 1 (step A6), from prefixes of a table to the symbols they consist of.

Shapes: b sentences that were still being searched, P prefixes of a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from noisychannel.decode.answers import Answers
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.table import PrefixTable


class Trace(NamedTuple):
    """Where the prefixes of one length come from, in host memory."""

    row: dict[int, int]
    """The row of each sentence that was still being searched."""
    parent: npt.NDArray[np.int64]
    """[b,P]."""
    symbol: npt.NDArray[np.int64]
    """[b,P]."""


class Traces:
    """The traces of one search, by length. They are copied to the host when one is first asked for."""

    def __init__(self) -> None:
        self._tensors: list[tuple[Tensor, Tensor, Tensor]] = []
        self._host: list[Trace] = []
        self._known: dict[tuple[int, int, int], tuple[int, ...]] = {}
        """The prefixes that were asked for: who watches a search asks for those that extend them next."""

    def append(self, rows: Tensor, table: PrefixTable) -> None:
        """The table of the next length; ``rows``: its sentences in the batch."""
        self._tensors.append((rows, table.parent, table.symbol))

    def prefix(self, sentence: int, length: int, slot: int) -> tuple[int, ...]:
        """The symbols of a prefix of the given length; ``sentence``: its row in the batch."""
        # Not copied before: each copy waits for the GPU.
        for rows, parent, symbol in self._tensors[len(self._host) : length + 1]:
            by_sentence = {n: row for row, n in enumerate(rows.tolist())}
            self._host.append(Trace(by_sentence, parent.cpu().numpy(), symbol.cpu().numpy()))
        place, tokens = (sentence, length, slot), list[int]()
        while length > 0 and (sentence, length, slot) not in self._known:
            trace = self._host[length]
            row = trace.row[sentence]
            tokens.append(int(trace.symbol[row, slot]))
            slot, length = int(trace.parent[row, slot]), length - 1
        self._known[place] = self._known.get((sentence, length, slot), ()) + tuple(reversed(tokens))
        return self._known[place]

    def hypotheses(
        self, answers: Answers, weights: Weights, complete: bool, sentences: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The answers [B,A] as hypotheses without alignments, in their order; ``sentences``: their rows in the batch.

        Terms of weight zero are left out, except for the direct model's.
        """
        used = {name for name, weight in weights.by_name().items() if weight}
        names = [name for name in answers.terms if name in used or name == "direct"]
        columns = (answers.score, answers.length, answers.slot, *(answers.terms[name] for name in names))
        found: list[list[Hypothesis]] = []
        for sentence, *rows in zip(sentences, *(x.tolist() for x in columns), strict=True):
            best = []
            for score, length, slot, *values in zip(*rows, strict=True):
                if score == -math.inf:
                    continue
                tokens = self.prefix(sentence, length - 1 if complete else length, slot)
                best.append(Hypothesis.of(tokens, score, dict(zip(names, values, strict=True)), length, complete))
            found.append(best)
        return found
