"""Source terms in the search: the language model and every further term that scores prefixes, all treated alike.

Terms that read the input first (``InputTerm``) differ from source models in their first states only.

A source model is run late: on the prefixes that are extended, when they are extended. Then either its distribution
over the next symbol is known, or it scores the proposed symbols only (``SymbolScoring``).

Shapes: B sentences, N prefixes of a table or candidates, R prefixes that are extended, V symbols, T symbols of a
context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisychannel.ids import BOS
from noisychannel.models.protocols import InputTerm, PrefixTerm, SourceModel, SymbolScoring


class NextSymbols(NamedTuple):
    """A source model after R prefixes."""

    log_prob: Tensor | None
    """log p(next symbol): [R,V]; None if the model scores proposed symbols only."""
    state: Any
    """[R]."""

    def select(self, rows: Tensor) -> NextSymbols:
        """The prefixes ``rows`` only."""
        return NextSymbols(None if self.log_prob is None else self.log_prob[rows], self.state.select(rows))

    def increments(self, model: PrefixTerm, rows_N: Tensor, symbols_N: Tensor) -> Tensor:
        """How much the term grows if symbol n is appended to the prefix ``rows[n]``: [N]."""
        if self.log_prob is not None:
            return self.log_prob[rows_N, symbols_N]
        if not isinstance(model, SymbolScoring):
            raise ValueError(
                f"{type(model).__name__}.step returns None instead of a distribution, and the class has no method score"
            )
        return model.score(self.state.select(rows_N), symbols_N)


class SourceStart(NamedTuple):
    """A source model before the first symbol of each output."""

    score: Tensor
    """Its term of the context if it reads features, else 0: [B]."""
    state: Any
    """[B]."""
    unread: Tensor
    """The last symbol before the output, which it has not read yet: BOS, or the last of the context: [B]."""

    @staticmethod
    def of(model: PrefixTerm, inputs_BI: Tensor, lengths_B: Tensor, context_BT: Tensor) -> SourceStart:
        B, device = len(context_BT), context_BT.device
        score, state = torch.zeros(B, dtype=torch.float64, device=device), started(model, inputs_BI, lengths_B)
        unread, rows = torch.full((B,), BOS, device=device), torch.arange(B, device=device)
        for symbol_B in context_BT.unbind(1) if model.reads_features else ():
            after = NextSymbols(*model.step(unread, state))
            score = score + after.increments(model, rows, symbol_B)
            state, unread = after.state, symbol_B
        return SourceStart(score, state, unread)


def started(model: PrefixTerm, inputs_BI: Tensor, lengths_B: Tensor) -> Any:
    """The state of a model before an output of each input: [B]. A source model does not read the inputs."""
    return model.start_for(inputs_BI, lengths_B) if isinstance(model, InputTerm) else model.start(len(inputs_BI))


def require_numbers(terms: Mapping[str, Tensor]) -> None:
    """Refuse scores of source models that are not numbers: they could not be ranked."""
    for name, scores in terms.items():
        if bool(scores.isnan().any()):
            raise ValueError(f"the term {name} gave NaN for a symbol; a score must be a number")


def require_distribution(model: SourceModel[Any], proposals: int, device: torch.device) -> None:
    """Refuse proposals by a language model that has no distribution over the next symbol."""
    if model.step(torch.full((1,), BOS, device=device), model.start(1))[0] is None:
        raise ValueError(
            f"lm_proposals is {proposals}, but {type(model).__name__} has no distribution to propose from: "
            "its step returns None; set lm_proposals to 0"
        )


def next_symbols(
    models: Mapping[str, PrefixTerm],
    states: Mapping[str, Any],
    parent_R: Tensor,
    unread: Mapping[str, Tensor],
) -> dict[str, NextSymbols]:
    """Run the source models on R prefixes: on the states of their parents and the symbols that these have not read."""
    if not models:
        return {}
    parents, which = parent_R.unique(return_inverse=True)
    return {
        name: NextSymbols(*model.step(unread[name], states[name].select(parents), which))
        for name, model in models.items()
    }
