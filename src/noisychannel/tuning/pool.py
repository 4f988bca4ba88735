"""The outputs that the development sentences were decoded to so far, and what any weights would choose among them.

Shapes: N sentences, F candidates of all sentences one after another, W weight vectors, S statistics of the metric,
and T terms in the order of the system's ``terms``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import FloatArray, Metric
from noisychannel.systems import System

IntArray = npt.NDArray[np.int64]

SCORES_AT_ONCE = 1 << 22
"""Objectives held in memory at one time when many weights are evaluated: 32 MiB."""


@dataclass(frozen=True)
class CandidateArrays:
    """The candidates of all sentences as flat arrays, sentence by sentence, each sentence's in the order they came."""

    metric: Metric
    terms_FT: FloatArray
    """A term that the system does not use is zero."""
    statistics_FS: FloatArray
    starts_N: IntArray
    """Where each sentence's candidates begin; every sentence has at least one."""
    sentence_F: IntArray

    def objective(self, weights_T: FloatArray) -> FloatArray:
        """O of every candidate: [..., T] -> [..., F]."""
        # Term by term: the rounding of a matrix product, and so its ties, would depend on how many rows it is given.
        total_F = weights_T[..., 0, None] * self.terms_FT[:, 0]
        for term in range(1, self.terms_FT.shape[1]):
            total_F = total_F + weights_T[..., term, None] * self.terms_FT[:, term]
        return total_F

    def best(self, weights_WT: FloatArray) -> IntArray:
        """For each weight vector the best candidate of each sentence, of equal ones the first: [W, T] -> [W, N]."""
        F = len(self.terms_FT)
        objective_WF = self.objective(weights_WT)
        highest_WN = np.maximum.reduceat(objective_WF, self.starts_N, axis=1)
        place_WF = np.where(objective_WF == highest_WN[:, self.sentence_F], np.arange(F), F)
        return np.minimum.reduceat(place_WF, self.starts_N, axis=1)

    def scores(self, weights_WT: FloatArray) -> FloatArray:
        """The metric of what each weight vector chooses: [W, T] -> [W]."""
        rows = max(1, SCORES_AT_ONCE // len(self.terms_FT))
        totals_WS = [
            self.statistics_FS[self.best(weights_WT[row : row + rows])].sum(1)
            for row in range(0, len(weights_WT), rows)
        ]
        return self.metric.score(np.concatenate(totals_WS), len(self.starts_N))


class CandidatePool:
    """For every development sentence, the distinct outputs that any decoding has found; it only grows.

    Outputs are compared by their tokens, not their text: two segmentations of one text are two hypotheses. Several
    systems can use one pool, one after the other.
    """

    def __init__(
        self,
        metric: Metric,
        references: Sequence[Sequence[str]],
        texts: Sequence[Callable[[tuple[int, ...]], str]],
    ) -> None:
        """``texts``: for each sentence, the way from the ids of an output to its text; vocabularies may differ."""
        if not references:
            raise ValueError("tuning needs at least one development sentence")
        if len(texts) != len(references):
            raise ValueError(
                f"each sentence needs a function from ids to text: {len(references)} sentences, {len(texts)} functions"
            )
        if not getattr(metric, "tunable", True):
            raise BadInputError(f"metric: {metric.name} says how outputs are, not how good; tune on another metric")
        self.metric = metric
        self._references = references
        self._texts = texts
        self._statistics: list[dict[tuple[int, ...], FloatArray]] = [{} for _ in references]
        # By tokens and completeness. A term that is missing was not computed, or is infinite: it cannot be weighed.
        self._terms: list[dict[tuple[tuple[int, ...], bool], dict[str, float]]] = [{} for _ in references]

    def __len__(self) -> int:
        """How many candidates there are, over all sentences."""
        return sum(len(terms) for terms in self._terms)

    @property
    def sentences(self) -> int:
        return len(self._references)

    def add(self, sentence: int, hypotheses: Sequence[Hypothesis]) -> int:
        """Merge outputs of one sentence and return how many are new.

        If the pool has an output already, only its missing terms are added; that counts as new.
        """
        added = 0
        for hypothesis in hypotheses:
            known = self._terms[sentence].setdefault((hypothesis.tokens, hypothesis.complete), {})
            new = {
                name: value
                for name, value in hypothesis.weighed().items()
                if name not in known and value is not None and math.isfinite(value)
            }
            known |= new
            added += bool(new)
        return added

    def statistics(self, sentence: int, tokens: tuple[int, ...]) -> FloatArray:
        """The metric's statistics [S] of one output; computed once."""
        known = self._statistics[sentence]
        if tokens not in known:
            known[tokens] = self.metric.statistics(self._texts[sentence](tokens), self._references[sentence])
        return known[tokens]

    def one_best_statistics(self, n_best_lists: Sequence[Sequence[Hypothesis]]) -> FloatArray:
        """The metric's statistics [N, S] of a decoding of all sentences: of the first hypothesis of each list."""
        return np.stack([self.statistics(n, n_best[0].tokens) for n, n_best in enumerate(n_best_lists)])

    def covers(self, system: System) -> bool:
        """Whether every sentence has a candidate with every term the system uses."""
        return all(self._usable(sentence, system) for sentence in range(self.sentences))

    def under(self, system: System) -> CandidateArrays:
        """The candidates that have every term the system uses."""
        terms, statistics, sizes = [], [], []
        for sentence in range(self.sentences):
            usable = self._usable(sentence, system)
            if not usable:
                needed = ", ".join(_used(system))
                raise ValueError(f"development sentence {sentence + 1}: no output was decoded with the terms {needed}")
            terms += [values_T for _, values_T in usable]
            statistics += [self.statistics(sentence, tokens) for tokens, _ in usable]
            sizes.append(len(usable))
        starts_N = np.cumsum([0, *sizes[:-1]])
        sentence_F = np.repeat(np.arange(len(sizes)), sizes)
        return CandidateArrays(self.metric, np.stack(terms), np.stack(statistics), starts_N, sentence_F)

    def _usable(self, sentence: int, system: System) -> list[tuple[tuple[int, ...], FloatArray]]:
        """The outputs of a sentence that a system can weigh, with their terms [T]; one it does not use is zero.

        The terms of a partial output do not compare with those of a complete one (nothing had to explain the end), so
        partial outputs count only if there is no complete one.
        """
        used, every = _used(system), self._terms[sentence]
        known = [(key, terms) for key, terms in every.items() if terms.keys() >= used.keys()]
        if not any(complete for _, complete in every):
            # Only a partial output, which may lack terms: with no rival they do not matter.
            known = [(key, dict.fromkeys(used, 0.0) | terms) for key, terms in every.items()]
        chosen = [(tokens, terms) for (tokens, complete), terms in known if complete]
        return [
            (tokens, np.array([terms[name] if name in used else 0.0 for name in system.terms], np.float64))
            for tokens, terms in chosen or [(tokens, terms) for (tokens, _), terms in known]
        ]


def _used(system: System) -> dict[str, None]:
    """The names of the terms that a system uses, in order."""
    return dict.fromkeys(name for name, used in zip(system.terms, system.used, strict=True) if used)
