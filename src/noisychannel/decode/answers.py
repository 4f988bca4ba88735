"""Answers: complete hypotheses, which have left the chart.

Shapes: B sentences, A answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Answers:
    """Hypotheses of each sentence, best first, [B,A] each; a score of -inf marks an empty place."""

    score: Tensor
    """The objective O."""
    terms: Mapping[str, Tensor]
    """Every term but the length, by name."""
    length: Tensor
    slot: Tensor
    """The prefix before EOS (of a partial output, the prefix itself) in the table of its length."""

    @staticmethod
    def none(terms: Sequence[str], batch: int, size: int, device: torch.device) -> Answers:
        """Empty places only."""
        score, *others = (
            torch.full((batch, size), -torch.inf, dtype=torch.float64, device=device) for _ in range(1 + len(terms))
        )
        pointers = (torch.zeros(batch, size, dtype=torch.long, device=device) for _ in range(2))
        return Answers(score, dict(zip(terms, others, strict=True)), *pointers)

    def merge(self, other: Answers) -> Answers:
        """The best of both, as many as these; of equal ones, these come first."""
        if other.score.device.type == "cpu" and other.is_empty:
            return self
        both = self._with(other, lambda mine, theirs: torch.cat([mine, theirs], dim=1))
        best = both.score.argsort(dim=1, descending=True, stable=True)[:, : self.score.shape[1]]
        return both.each(lambda x: x.gather(1, best))

    @property
    def is_empty(self) -> bool:
        """Whether no sentence has an answer."""
        return not bool((self.score > -torch.inf).any())

    def select(self, rows: Tensor) -> Answers:
        """Those of the given sentences."""
        return self.each(lambda x: x[rows])

    def where_any(self, other: Answers) -> Answers:
        """These answers in the sentences that have one, and the others elsewhere."""
        any_B1 = (self.score > -torch.inf).any(1, keepdim=True)
        return self._with(other, lambda mine, theirs: torch.where(any_B1, mine, theirs))

    def put(self, rows: Tensor, other: Answers) -> None:
        """Overwrite those of the sentences ``rows``."""
        if other is self:
            return

        def overwrite(mine: Tensor, theirs: Tensor) -> Tensor:
            mine[rows] = theirs
            return mine

        self._with(other, overwrite)

    def masked(self, away_BA: Tensor) -> Answers:
        """The given places emptied."""
        return replace(self, score=self.score.masked_fill(away_BA, -torch.inf))

    def each(self, change: Callable[[Tensor], Tensor]) -> Answers:
        """The same change of every tensor."""
        terms = {name: change(term) for name, term in self.terms.items()}
        return Answers(change(self.score), terms, change(self.length), change(self.slot))

    def _with(self, other: Answers, join: Callable[[Tensor, Tensor], Tensor]) -> Answers:
        terms = {name: join(term, other.terms[name]) for name, term in self.terms.items()}
        return Answers(
            join(self.score, other.score), terms, join(self.length, other.length), join(self.slot, other.slot)
        )
