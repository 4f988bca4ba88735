"""The result of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from noisychannel.decode.objective import TERMS

NOT_SUMS = ("channel", "length", "word_list", "seen")
"""Terms that are no sums over the output's symbols. The channel's is one over those of the input."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output with its scores; a term that was not computed is None."""

    tokens: tuple[int, ...]
    """Output ids, EOS excluded."""
    score: float
    """The objective that the search maximised."""
    direct: float
    """log q(y | x) of the model that proposed it."""
    channel: float | None
    """log p(x | y)."""
    lm: float | None
    """log p(y)."""
    length: int
    """|y|, EOS included."""
    alignment: tuple[int, ...] | None
    """For each output position, EOS included, the input position at which the direct model emitted it."""
    channel_alignment: tuple[int, ...] | None
    """For each input position, EOS included, the output position at which the channel model emitted it."""
    complete: bool
    """False for the best partial output of a search in which no output reached EOS."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further terms of the objective, by name."""
    factor: float = 1.0
    """What the objective multiplies sums over the output's symbols by: |x| / |y| if it weighs terms per symbol."""
    confidence: float | None = None
    """The probability that it is right. A search does not know it; ``NoisyChannel`` adds it."""

    @staticmethod
    def of(tokens: Sequence[int], score: float, terms: Mapping[str, float], length: int, complete: bool) -> Hypothesis:
        """A hypothesis that is not aligned, from the terms that were computed; those without a field are ``extra``."""
        extra = {name: term for name, term in terms.items() if name not in TERMS}
        channel, lm = terms.get("channel"), terms.get("lm")
        return Hypothesis(tuple(tokens), score, terms["direct"], channel, lm, length, None, None, complete, extra)

    def terms(self) -> dict[str, float | None]:
        """Every term by its name, in the order of the weights."""
        first = {"direct": self.direct, "channel": self.channel, "lm": self.lm, "length": float(self.length)}
        return first | dict(self.extra)

    def weighed(self) -> dict[str, float | None]:
        """Every term as the objective weighs it."""
        terms = self.terms()
        if self.factor == 1:
            return terms
        return {
            name: value if value is None or name in NOT_SUMS else self.factor * value for name, value in terms.items()
        }


@dataclass(frozen=True)
class CompleteHypotheses:
    """The complete hypotheses of many inputs in one list, each with its input and context."""

    hypotheses: list[Hypothesis]
    inputs: list[Sequence[int]]
    contexts: list[Sequence[int]]

    @staticmethod
    def of(
        inputs: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> CompleteHypotheses:
        rows = [(n, hypothesis) for n, best in enumerate(found) for hypothesis in best if hypothesis.complete]
        return CompleteHypotheses(
            [hypothesis for _, hypothesis in rows], [inputs[n] for n, _ in rows], [contexts[n] for n, _ in rows]
        )

    @property
    def outputs(self) -> list[Sequence[int]]:
        return [hypothesis.tokens for hypothesis in self.hypotheses]

    @staticmethod
    def put_back(found: Sequence[Sequence[Hypothesis]], changed: Iterable[Hypothesis]) -> list[list[Hypothesis]]:
        """``found`` with its complete hypotheses replaced by ``changed``, in order."""
        new = iter(changed)
        return [[next(new) if hypothesis.complete else hypothesis for hypothesis in best] for best in found]
