"""What a search asks of its models. Any class with these methods will do.

Shapes: B sentences, I input positions, J output positions, N prefixes stepped together, V symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, Self, TypeVar

from torch import Tensor, nn


class Side(NamedTuple):
    """What one side's states bring to the meeting of h_i and s_j; leading dimensions are free."""

    scores: Tensor
    """a_i = W_h h_i or c_j = W_s s_j + b: [..., V]."""
    gate: Tensor
    """U_h h_i or U_s s_j + d: [..., G]."""


class State(Protocol):
    """The explicit state of N sequences."""

    def select(self, indices: Tensor) -> Self:
        """The states of the sequences ``indices``, in that order, repeats allowed."""
        ...

    def put(self, rows: Tensor, new: Self) -> Self:
        """These states with others in the place of ``rows``."""
        ...


S = TypeVar("S", bound=State)


class Transducer(Protocol):
    """A latent monotone alignment of shifts and emissions between an input and an output (an SSNT)."""

    def read_inputs(self, inputs: Tensor, input_lengths: Tensor) -> Side: ...

    def read_outputs(self, outputs: Tensor) -> Side: ...

    def emit_logits(self, input_side: Side, output_side: Side) -> Tensor: ...

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor: ...

    def viterbi(
        self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor
    ) -> tuple[Tensor, Tensor]: ...


class DirectModel(Transducer, Protocol[S]):
    """q(y | x): its outputs are built step by step."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Tell which device the search is to run on."""
        ...

    def start_outputs(self, n: int) -> S: ...

    def step_outputs(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Side, S]:
        """Append a symbol to each output of ``state`` or, where ``parents`` are given, of its rows."""
        ...


class ChannelModel(Transducer, Protocol[S]):
    """p(x | y): its inputs are built step by step."""

    @property
    def bidirectional(self) -> bool: ...

    def start_inputs(self, n: int) -> S: ...

    def step_inputs(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Side, S]: ...


class SourceModel(Protocol[S]):
    """p(y)."""

    @property
    def reads_features(self) -> bool:
        """Whether it is p(features, y), with the features before y."""
        ...

    def log_prob(self, outputs: Tensor, output_lengths: Tensor) -> Tensor: ...

    def start(self, n: int) -> S: ...

    def step(self, symbols_N: Tensor, state: S, parents_N: Tensor | None = None) -> tuple[Tensor, S]: ...
