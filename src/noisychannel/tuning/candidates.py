"""What the development sentences have been decoded to so far, and what any weights would choose among it.

Shapes: N sentences, F candidates of all sentences one after another, W weight vectors, S statistics of the metric,
and 4 terms in the order of ``TERMS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.metrics import FloatArray, Metric
from noisychannel.tuning.systems import TERMS, System

IntArray = npt.NDArray[np.int64]

SCORES_AT_ONCE = 1 << 22
"""Objectives held in memory at one time when many weights are evaluated: 32 MiB."""


@dataclass(frozen=True)
class Candidates:
    """The candidates of all sentences as flat arrays, sentence by sentence, each sentence's in the order they came."""

    metric: Metric
    terms_F4: FloatArray
    """A term that the system bars is zero."""
    statistics_FS: FloatArray
    starts_N: IntArray
    """Where each sentence's candidates begin; every sentence has at least one."""
    sentence_F: IntArray

    def objective(self, weights_4: FloatArray) -> FloatArray:
        """O of every candidate: [..., 4] -> [..., F]."""
        # Term by term: the rounding of a matrix product, and so its ties, would depend on how many rows it is given.
        total_F = weights_4[..., 0, None] * self.terms_F4[:, 0]
        for term in range(1, len(TERMS)):
            total_F = total_F + weights_4[..., term, None] * self.terms_F4[:, term]
        return total_F

    def best(self, weights_W4: FloatArray) -> IntArray:
        """For each weight vector the best candidate of each sentence, of equal ones the first: [W, 4] -> [W, N]."""
        F = len(self.terms_F4)
        objective_WF = self.objective(weights_W4)
        highest_WN = np.maximum.reduceat(objective_WF, self.starts_N, axis=1)
        place_WF = np.where(objective_WF == highest_WN[:, self.sentence_F], np.arange(F), F)
        return np.minimum.reduceat(place_WF, self.starts_N, axis=1)

    def scores(self, weights_W4: FloatArray) -> FloatArray:
        """The metric of what each weight vector chooses: [W, 4] -> [W]."""
        rows = max(1, SCORES_AT_ONCE // len(self.terms_F4))
        totals_WS = [
            self.statistics_FS[self.best(weights_W4[row : row + rows])].sum(1)
            for row in range(0, len(weights_W4), rows)
        ]
        return self.metric.score(np.concatenate(totals_WS), len(self.starts_N))


class CandidatePool:
    """For every development sentence, the distinct outputs that any decoding has found; it only grows.

    Outputs are told apart by their tokens, not their text: two segmentations of one text are two hypotheses of the
    search. One pool may serve several systems, one after the other.
    """

    def __init__(
        self, metric: Metric, references: Sequence[Sequence[str]], text: Callable[[int, tuple[int, ...]], str]
    ) -> None:
        """``text``: what the tokens of an output of a sentence say (sentences may have vocabularies of their own)."""
        if not references:
            raise ValueError("tuning needs at least one development sentence")
        self.metric = metric
        self._references = references
        self._text = text
        self._statistics: list[dict[tuple[int, ...], FloatArray]] = [{} for _ in references]
        # By tokens and completeness; nan is a term that was not computed, or is infinite and so can be given no weight.
        self._terms: list[dict[tuple[tuple[int, ...], bool], FloatArray]] = [{} for _ in references]

    def __len__(self) -> int:
        """How many candidates there are, over all sentences."""
        return sum(len(terms) for terms in self._terms)

    @property
    def sentences(self) -> int:
        return len(self._references)

    def add(self, sentence: int, hypotheses: Sequence[Hypothesis]) -> int:
        """Merge outputs of one sentence and return how many are news.

        Of an output that is there already only terms that were missing are taken, and that counts as news.
        """
        added = 0
        for hypothesis in hypotheses:
            terms = [getattr(hypothesis, name) for name in TERMS]
            terms_4 = np.array([np.nan if term is None else term for term in terms], np.float64)
            terms_4[~np.isfinite(terms_4)] = np.nan
            known_4 = self._terms[sentence].setdefault((hypothesis.tokens, hypothesis.complete), np.full(4, np.nan))
            news_4 = np.isnan(known_4) & ~np.isnan(terms_4)
            known_4[news_4] = terms_4[news_4]
            added += bool(news_4.any())
        return added

    def statistics(self, sentence: int, tokens: tuple[int, ...]) -> FloatArray:
        """The metric's statistics [S] of one output; computed once."""
        known = self._statistics[sentence]
        if tokens not in known:
            known[tokens] = self.metric.statistics(self._text(sentence, tokens), self._references[sentence])
        return known[tokens]

    def one_best_score(self, n_best_lists: Sequence[Sequence[Hypothesis]]) -> float:
        """The metric of a decoding of all sentences: of the first hypothesis of each list."""
        totals_S = sum(self.statistics(n, n_best[0].tokens) for n, n_best in enumerate(n_best_lists))
        return float(self.metric.score(np.asarray(totals_S), self.sentences))

    def covers(self, system: System) -> bool:
        """Whether every sentence has a candidate with every term the system uses."""
        return all(self._usable(sentence, system) for sentence in range(self.sentences))

    def under(self, system: System) -> Candidates:
        """The candidates that have every term the system uses."""
        used_4 = np.array(system.used)
        terms, statistics, sizes = [], [], []
        for sentence in range(self.sentences):
            usable = self._usable(sentence, system)
            if not usable:
                needed = ", ".join(name for name, used in zip(TERMS, system.used, strict=True) if used)
                raise ValueError(f"development sentence {sentence + 1}: no output was decoded with the terms {needed}")
            terms += [np.where(used_4, terms_4, 0.0) for _, terms_4 in usable]
            statistics += [self.statistics(sentence, tokens) for tokens, _ in usable]
            sizes.append(len(usable))
        starts_N = np.cumsum([0, *sizes[:-1]])
        sentence_F = np.repeat(np.arange(len(sizes)), sizes)
        return Candidates(self.metric, np.stack(terms), np.stack(statistics), starts_N, sentence_F)

    def _usable(self, sentence: int, system: System) -> list[tuple[tuple[int, ...], FloatArray]]:
        """The outputs of a sentence that a system can weigh, with their terms.

        A partial output's terms do not compare with a complete one's (nothing was asked to explain the end), so partial
        outputs stand in only where there is no complete one.
        """
        used_4 = np.array(system.used)
        known = [
            (key, terms_4) for key, terms_4 in self._terms[sentence].items() if not np.isnan(terms_4[used_4]).any()
        ]
        complete = [(tokens, terms_4) for (tokens, is_complete), terms_4 in known if is_complete]
        return complete or [(tokens, terms_4) for (tokens, _), terms_4 in known]
