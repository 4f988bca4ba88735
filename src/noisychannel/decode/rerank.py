"""``Reranker``: ranks given outputs by a weighted sum of any scorers, on texts or on ids.

    Reranker({"lm": score_text, "length": count_words}, {"lm": 0.7, "length": 0.3}).rerank(["a text"], [["one", "two"]])

    Reranker(model_scorers(direct=seq2seq, channel=channel, lm=lm), Weights(1.0, channel=0.5, lm=0.7)).rerank(...)

The score is equation (3) with any terms in place of its four; ``NoisyChannelDecoder.score`` and ``rerank`` use it too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from noisychannel.decode.objective import Weights
from noisychannel.decode.terms import AnyScorer, T, reads_contexts


@dataclass(frozen=True, slots=True)
class RankedOutput(Generic[T]):
    """One output with its scores."""

    output: T
    score: float
    """Σ_n w_n·term_n."""
    terms: Mapping[str, float]
    """The score of every scorer, by name."""


class Reranker(Generic[T]):
    """Ranks outputs by a weighted sum of scorers.

    Args:
        scorers: By name. All of them are run and reported, also those of weight zero.
        weights: By name; a scorer without a weight counts nothing.
    """

    def __init__(self, scorers: Mapping[str, AnyScorer[T]], weights: Weights | Mapping[str, float]) -> None:
        by_name = weights.by_name() if isinstance(weights, Weights) else weights
        for name, weight in by_name.items():
            if weight and name not in scorers:
                raise ValueError(
                    f"the weight {name} is {weight}, but there is no scorer {name} (there are: {', '.join(scorers)})"
                )
        self.scorers, self.weights = scorers, by_name

    def rerank(
        self, inputs: Sequence[T], outputs: Sequence[Sequence[T]], contexts: Sequence[T] | None = None
    ) -> list[list[RankedOutput[T]]]:
        """The outputs of each input, best first; equal ones in the given order."""
        scored = self.score(inputs, outputs, contexts)
        return [sorted(ranked, key=lambda output: -output.score) for ranked in scored]

    def score(
        self, inputs: Sequence[T], outputs: Sequence[Sequence[T]], contexts: Sequence[T] | None = None
    ) -> list[list[RankedOutput[T]]]:
        """The outputs of each input in the given order. ``contexts``: one for each input, before its outputs."""
        counts = [len(of_input) for of_input in outputs]
        every_input, every_output = _repeated(inputs, counts), [output for of_input in outputs for output in of_input]
        every_context = None if contexts is None else _repeated(contexts, counts)
        terms = self.terms(every_input, every_output, every_context)
        ranked = (RankedOutput(y, weighted_sum(self.weights, t), t) for y, t in zip(every_output, terms, strict=True))
        return [[next(ranked) for _ in range(count)] for count in counts]

    def terms(
        self, inputs: Sequence[T], outputs: Sequence[T], contexts: Sequence[T] | None = None
    ) -> list[dict[str, float]]:
        """The score of every scorer for each pair of an input and an output."""
        columns: dict[str, Sequence[float]] = {}
        for name, scorer in self.scorers.items():
            columns[name] = (
                scorer(inputs, outputs, contexts) if reads_contexts(scorer) else scorer(inputs, outputs)  # type: ignore[call-arg]
            )
            if not hasattr(columns[name], "__len__"):
                raise ValueError(f"the scorer {name} gave {columns[name]!r}, not a list of scores, one for each output")
            if len(columns[name]) != len(outputs):
                raise ValueError(f"the scorer {name} gave {len(columns[name])} scores for {len(outputs)} outputs")
            bad = next((n for n, score in enumerate(columns[name]) if math.isnan(score)), None)
            if bad is not None:
                raise ValueError(
                    f"the scorer {name} gave NaN for the output {outputs[bad]!r}; a score must be a number"
                )
        return [{name: float(column[n]) for name, column in columns.items()} for n in range(len(outputs))]


def weighted_sum(weights: Weights | Mapping[str, float], terms: Mapping[str, float | None]) -> float:
    """Equation (3) with any terms: Σ_n w_n·term_n. A term of weight zero may be absent or None."""
    by_name = weights.by_name() if isinstance(weights, Weights) else weights
    total = 0.0
    # The length comes last, as in the search: sums of floats depend on the order.
    for name in sorted(by_name, key=lambda name: name == "length"):
        if by_name[name]:
            term = terms[name]
            assert term is not None, f"the term {name} was not computed"
            total += by_name[name] * term
    return total


def _repeated(items: Sequence[T], counts: Sequence[int]) -> list[T]:
    """Each item as often as its input has outputs."""
    return [item for item, count in zip(items, counts, strict=True) for _ in range(count)]
