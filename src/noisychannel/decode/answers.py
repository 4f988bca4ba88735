"""Answers: complete hypotheses, which have left the chart.

Everything about an answer is one row of numbers, so that answers are joined, ranked and picked in one operation.

Shapes: B sentences, A answers, F = 3 + the number of terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Answers:
    """Hypotheses of each sentence, best first; a score of -inf marks an empty place."""

    numbers: Tensor
    """The objective O, the length, the slot, and the terms, in float64: [F,B,A]. Whole numbers are exact in it."""
    names: tuple[str, ...]
    """Of the terms: every one but the length."""

    @property
    def score(self) -> Tensor:
        """The objective O: [B,A]."""
        return self.numbers[0]

    @property
    def length(self) -> Tensor:
        return self.numbers[1].long()

    @property
    def slot(self) -> Tensor:
        """The prefix before EOS (of a partial output, the prefix itself) in the table of its length."""
        return self.numbers[2].long()

    @property
    def terms(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.numbers[3:], strict=True))

    @staticmethod
    def of(score_BA: Tensor, terms: Mapping[str, Tensor], length: int, slot_BA: Tensor) -> Answers:
        """Answers of one length."""
        lengths = torch.full_like(score_BA, length)
        return Answers(torch.stack([score_BA, lengths, slot_BA.to(score_BA.dtype), *terms.values()]), tuple(terms))

    @staticmethod
    def none(terms: Sequence[str], batch: int, size: int, device: torch.device) -> Answers:
        """Empty places only."""
        numbers = torch.full((3 + len(terms), batch, size), -torch.inf, dtype=torch.float64, device=device)
        numbers[1:3] = 0.0
        return Answers(numbers, tuple(terms))

    def merge(self, other: Answers) -> Answers:
        """The best of both, as many as these; of equal ones, these come first."""
        if other.score.device.type == "cpu" and other.is_empty:
            return self
        both = torch.cat([self.numbers, other.numbers], dim=2)
        best = both[0].argsort(dim=1, descending=True, stable=True)[:, : self.numbers.shape[2]]
        return Answers(both.gather(2, best.expand(len(both), -1, -1)), self.names)

    @property
    def is_empty(self) -> bool:
        """Whether no sentence has an answer."""
        return not bool((self.score > -torch.inf).any())

    def select(self, rows: Tensor) -> Answers:
        """Those of the given sentences."""
        return Answers(self.numbers[:, rows], self.names)

    def where_any(self, other: Answers) -> Answers:
        """These answers in the sentences that have one, and the others elsewhere."""
        any_B1 = (self.score > -torch.inf).any(1, keepdim=True)
        return Answers(torch.where(any_B1, self.numbers, other.numbers), self.names)

    def put(self, rows: Tensor, other: Answers) -> None:
        """Overwrite those of the sentences ``rows``."""
        if other is not self:
            self.numbers[:, rows] = other.numbers
