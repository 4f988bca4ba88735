"""The methods that a search calls on its models. Any class that has them can be used.

Shapes: B sentences, I input positions, J output positions, N sequences stepped together, V symbols, G gate size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from torch import Tensor, nn


class Side(NamedTuple):
    """One side's part of the sums in which h_i and s_j meet; leading dimensions are free."""

    scores: Tensor
    """a_i = W_h h_i or c_j = W_s s_j + b: [..., V]."""
    gate: Tensor
    """U_h h_i or U_s s_j + d: [..., G]."""


class State(Protocol):
    """The explicit state of N sequences, one row each."""

    def select(self, indices: Tensor) -> Self:
        """The rows ``indices``, in that order; a row may be repeated."""
        ...

    def put(self, rows: Tensor, new: Self) -> Self:
        """These states with the rows ``rows`` replaced by ``new``."""
        ...

    def concat(self, other: Self) -> Self:
        """These rows, then those of ``other``."""
        ...


S = TypeVar("S", bound=State)


class Transducer(Protocol):
    """A latent monotone alignment of shifts and emissions between an input and an output (an SSNT)."""

    @property
    def bidirectional(self) -> bool:
        """Whether the encoder needs the whole input before its first state."""
        ...

    def read_inputs(self, inputs: Tensor, input_lengths: Tensor) -> Side: ...

    def read_outputs(self, outputs: Tensor) -> Side: ...

    def emit_logits(self, input_side: Side, output_side: Side) -> Tensor: ...

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor: ...

    def viterbi(
        self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor
    ) -> tuple[Tensor, Tensor]: ...


class DirectModel(Transducer, Protocol[S]):
    """q(y | x). The search builds its outputs step by step."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """The search runs on the device of the first parameter."""
        ...

    def start_outputs(self, n: int) -> S: ...

    def step_outputs(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Side, S]:
        """Append a symbol to each output of ``state`` or, if ``parents`` are given, to each of these rows."""
        ...


@runtime_checkable
class LateOutputScores(Protocol[S]):
    """A direct model that can step without scoring the vocabulary: the search then scores only prefixes that it may
    extend. Both methods together are ``step_outputs``."""

    def advance_outputs(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Tensor, Tensor, S]:
        """As ``step_outputs``, but what ``output_scores`` needs [N,H] in place of the scores; the gate [N,G]; the
        state."""
        ...

    def output_scores(self, states: Tensor) -> Tensor:
        """c_j: [..., H] -> [..., V]."""
        ...


class ChannelModel(Transducer, Protocol[S]):
    """p(x | y). The search builds its inputs step by step."""

    def start_inputs(self, n: int) -> S: ...

    def step_inputs(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Side, S]:
        """Append a symbol to each input of ``state`` or, if ``parents`` are given, to each of these rows."""
        ...


@runtime_checkable
class LateInputScores(Protocol[S]):
    """The same of a channel: both methods together are ``step_inputs``."""

    def advance_inputs(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Tensor, Tensor, S]:
        """As ``step_inputs``, but what ``input_scores`` needs [N,H] in place of the scores; the gate [N,G]; the
        state."""
        ...

    def input_scores(self, states: Tensor, symbols: Tensor) -> Tensor:
        """a_i of the positions at which these symbols were read: [..., H], [...] -> [..., V]."""
        ...


@runtime_checkable
class SomeInputScores(Protocol):
    """A channel with ``LateInputScores`` whose scores are products of a state with one row for each symbol: any symbols
    can be scored by themselves."""

    def advance_inputs(
        self, symbols_N: Tensor, state: Any, parents_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Any]:
        """As in ``LateInputScores``."""
        ...

    def input_words(self, symbols: Tensor) -> Tensor:
        """What a state is multiplied by to score these symbols: [...] -> [..., H]."""
        ...

    def copied_inputs(self, states_NH: Tensor, symbols_N: Tensor) -> tuple[Tensor, Tensor] | None:
        """The symbol that gets a score for copying after each of these was read, -1 for none, and that score: [N] each;
        None if the model does not copy."""
        ...


@runtime_checkable
class GatheredEmissions(Protocol):
    """A transducer that computes the emission logits of many prefixes without gathering their inputs' gates.

    It is used on a CPU, and on a GPU if ``kernels.usable``. Prefixes of one sequence come one after the other."""

    def gathered_emit_logits(self, known_BIG: Tensor, sentence_N: Tensor, built_NG: Tensor) -> Tensor:
        """Between all positions of sequence ``sentence[n]`` and the n-th of the other side: [N,I]."""
        ...


class OnlineTransducer(DirectModel[S], ChannelModel[S], Protocol[S]):
    """A direct model or channel whose inputs and outputs can both be built step by step."""


class ConditionalModel(Protocol):
    """p(y | x) of whole outputs: SSNT, seq2seq, attention."""

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor: ...


class Attending(Protocol):
    """p(y | x) with attention, which says where each output symbol comes from."""

    @property
    def attends(self) -> bool: ...

    def attended(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """For each output symbol an input position: ids [B,I], [B], [B,J], [B] -> [B,J], -1 past the end."""
        ...


class SourceModel(Protocol[S]):
    """p(y), or any other term of y alone that grows symbol by symbol.

    A model that can score single symbols may also have ``SymbolScoring.score``; its ``step`` may then return None in
    place of the distribution. The increments of the term must not be positive: the search stops early on that
    condition. A model with positive increments must have an attribute ``may_rise`` that is true.
    """

    @property
    def reads_features(self) -> bool:
        """Whether it is p(features, y), with the features before y."""
        ...

    def log_prob(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """The term of whole outputs, EOS included: ids [B,J], [B] -> [B]."""
        ...

    def start(self, n: int) -> S:
        """The state of ``n`` outputs that have read nothing, not even BOS."""
        ...

    def step(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Tensor | None, S]:
        """Append a symbol (BOS first) to each output: log p(next symbol) [N,V] or None, and the new state."""
        ...


@runtime_checkable
class InputTerm(Protocol[S]):
    """A term of y given x that grows symbol by symbol, such as counts of the training pairs.

    It joins the search like a ``SourceModel``, and the same holds for its increments. ``log_prob`` is that of a
    ``ConditionalModel``.
    """

    @property
    def reads_features(self) -> bool:
        """False: features are part of the input."""
        ...

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor: ...

    def start_for(self, inputs: Tensor, input_lengths: Tensor) -> S:
        """The state of an output of each input that has read nothing, not even BOS: ids [B,I], [B]."""
        ...

    def step(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Tensor | None, S]:
        """Append a symbol (BOS first) to each output: the growth by each next symbol [N,V] or None, and the new
        state."""
        ...


@runtime_checkable
class Attesting(Protocol):
    """A term that knows outputs of an input, which are ranked even if the search did not find them."""

    def attested(self, inputs: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
        """Outputs of an input (with EOS), without EOS, the likeliest first; at most ``most``."""
        ...


@runtime_checkable
class SymbolScoring(Protocol):
    """A source model that scores the proposed symbols only, such as an n-gram model or a word list."""

    def score(self, state: State, symbols_N: Tensor) -> Tensor:
        """How much the term grows if symbol n is appended to row n of the state: [N]. The state does not change."""
        ...


PrefixTerm: TypeAlias = SourceModel[Any] | InputTerm[Any]
"""What can score prefixes during a search."""
