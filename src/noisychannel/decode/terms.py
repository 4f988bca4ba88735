"""The terms of the objective: the four of equation (3), and further ones by name.

    direct       log q(y | x): proposes outputs, too                          a ``DirectModel``
    channel      log p(x | y)                                                 a ``ChannelModel``
    lm           log p(y)                                                     a ``SourceModel``
    length       |y|, EOS included
    any name     a further term, see below

A further term joins in one of two ways:

    in the search    a ``SourceModel`` scores prefixes (it has ``reads_features``, ``start`` and ``step``), so every
                     candidate carries its term, as it carries that of the language model. Examples: a second language
                     model; the density ratio (a language model of the paired outputs, with a negative weight); a
                     word list. An ``InputTerm`` has ``start_for`` in place of ``start``: it reads the input first.
                     Example: counts of the training pairs.
    when ranking     any other term scores whole outputs. The search keeps at least K2 answers of each input, adds the
                     term to them, and ranks them again. Such a term is a ``Scorer``, or a model with ``log_prob``
                     of inputs and outputs.

Terms are not normalised, and may be negative or positive. ``Weights.extra`` holds the weights, ``Hypothesis.extra``
the values. A term of weight zero is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, TypeVar

from noisychannel.models.protocols import ConditionalModel, InputTerm, PrefixTerm, SourceModel

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
Ids: TypeAlias = Sequence[int]


class Scorer(Protocol[T_contra]):
    """Scores pairs of an input and a whole output, which are texts or ids. Any function of this form is one.

    Ids are given as to ``NoisyChannelDecoder``: inputs end in EOS, outputs are without it.
    """

    def __call__(self, inputs: Sequence[T_contra], outputs: Sequence[T_contra], /) -> Sequence[float]:
        """One score for each pair; both sequences are equally long."""
        ...


class ContextScorer(Protocol[T_contra]):
    """A scorer that reads what stands before each output (features), too."""

    @property
    def reads_contexts(self) -> Literal[True]: ...

    def __call__(
        self, inputs: Sequence[T_contra], outputs: Sequence[T_contra], contexts: Sequence[T_contra] | None, /
    ) -> Sequence[float]:
        """One score for each pair; ``contexts`` are as many, or None if there are none."""
        ...


AnyScorer: TypeAlias = Scorer[T] | ContextScorer[T]
FurtherTerm: TypeAlias = PrefixTerm | ConditionalModel | AnyScorer[Ids]
"""What the decoder accepts as a further term."""


def reads_contexts(scorer: AnyScorer[T]) -> TypeGuard[ContextScorer[T]]:
    """Whether a scorer wants the contexts as its third argument."""
    return bool(getattr(scorer, "reads_contexts", False))


def scores_prefixes(term: object) -> TypeGuard[PrefixTerm]:
    """Whether a further term joins the search."""
    return isinstance(term, InputTerm) or is_source(term)


def is_source(term: object) -> TypeGuard[SourceModel[Any]]:
    """Whether a further term scores prefixes of y without the input."""
    return all(hasattr(term, name) for name in ("reads_features", "start", "step"))
