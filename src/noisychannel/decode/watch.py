"""Watching a search: what was proposed, what survived, and what was completed, step by step.

    def show(step: SearchStep) -> None:
        for survivor in step.survivors():
            print(step.sentence, step.length, survivor.position, survivor.tokens, survivor.objective)

    decoder.decode(inputs, watch=show)

The hook is called after each output length, once for each sentence in which the search was still going on. Sentences
of a batch are told apart by their place among the inputs, also if the batch is split or shrinks. If a search runs out
of memory it is repeated by halves: a step then replaces any earlier one of the same sentence and length.

A ``SearchStep`` keeps references to the tensors of the step. Its methods copy them to plain Python when they are
called. Without a hook nothing is kept and nothing is computed.

Shapes: B sentences, I input positions, Q candidates, K proposals of a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.selection import partial_channel
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.table import Candidates, PrefixTable
from noisychannel.decode.traces import Traces

if TYPE_CHECKING:
    from noisychannel.decode.chart import ChartStep


class WatchedProposal(NamedTuple):
    """An extension that a model proposed for a cell (steps A1 and A3)."""

    position: int
    """The input position i of the cell, from 0."""
    prefix: tuple[int, ...]
    """The extended hypothesis."""
    symbol: int
    """The proposed symbol; EOS completes the hypothesis."""
    score: float
    """The score by which proposals of a cell are ranked: O(prefix) + log q(extension), best first.

    With ``look_ahead``, O(prefix) has the channel's score of the input before this cell."""
    proposer: str
    """``direct``, or ``lm`` for one of ``lm_proposals``."""


class WatchedSurvivor(NamedTuple):
    """A hypothesis that is among the K2 best of a cell (steps A2 and A5)."""

    position: int
    """The input position i of the cell, from 0."""
    tokens: tuple[int, ...]
    objective: float
    """O in this cell."""
    terms: dict[str, float]
    """Every term of O in this cell, by name; the length too. Empty if terms were not asked for."""


@dataclass(frozen=True)
class SearchStep:
    """One output length of the search of one sentence."""

    sentence: int
    """The place of the sentence among the inputs of ``decode``."""
    length: int
    """The output length j, in symbols; of a completed output EOS is one of them."""
    goes_on: bool
    """Whether any survivor is extended further. If not, they are all dropped: none can still win."""
    _row: int = field(repr=False)
    _tensors: _StepTensors = field(repr=False)

    def proposals(self) -> list[WatchedProposal]:
        """Everything that was proposed, cell by cell, best first."""
        step, proposals = self._tensors, self._tensors.taken.proposals
        found = []
        columns = (x[self._row].tolist() for x in proposals)
        for i, (scores, slots, symbols) in enumerate(zip(*columns, strict=True)):
            for rank, (score, slot, symbol) in enumerate(zip(scores, slots, symbols, strict=True)):
                if score > -torch.inf:
                    proposer = "direct" if rank < step.taken.by_direct else "lm"
                    found.append(WatchedProposal(i, step.prefix(self._row, slot), symbol, score, proposer))
        return found

    def survivors(self, with_terms: bool = True) -> list[WatchedSurvivor]:
        """The hypotheses that survived, cell by cell, best first; also if the search does not go on.

        ``with_terms``: copying every term of every cell takes most of the time.
        """
        step, candidates, surviving = self._tensors, self._tensors.taken.candidates, self._tensors.taken.surviving
        if candidates is None or surviving is None:
            return []
        terms = step.partial_terms(candidates, self._row) if with_terms else {}
        lists = {name: term.tolist() for name, term in terms.items()}
        slots, symbols = (x[self._row].tolist() for x in (candidates.slot, candidates.symbol))
        found, prefixes = [], dict[int, tuple[int, ...]]()
        for i, (objectives, places) in enumerate(
            zip(surviving[self._row].mT.tolist(), candidates.place[self._row].tolist(), strict=True)
        ):
            cell = [q for q in dict.fromkeys(places) if q >= 0 and objectives[q] > -torch.inf]
            for q in sorted(cell, key=lambda q: -objectives[q]):
                slot = slots[q]
                if slot not in prefixes:  # its extensions survive in many cells
                    prefixes[slot] = step.prefix(self._row, slot)
                here = {name: term[q][i] for name, term in lists.items()}
                here |= {"length": float(self.length)} if with_terms else {}
                found.append(WatchedSurvivor(i, (*prefixes[slot], symbols[q]), objectives[q], here))
        return found

    def answers(self) -> list[Hypothesis]:
        """The outputs that this step completed, in the order of their proposals, without alignments."""
        step, ended = self._tensors, self._tensors.taken.ended
        if ended is None:
            return []
        here = torch.tensor([self._row], device=ended.score.device)
        (found,) = step.traces.hypotheses(
            ended.select(here), step.plan.weights, complete=True, sentences=[step.batch_row(self._row)]
        )
        return found


Watch: TypeAlias = Callable[[SearchStep], None]


@dataclass(frozen=True)
class _StepTensors:
    """One step of a batch."""

    plan: SearchPlan
    sentences: Sentences
    rows: Tensor
    """The rows of the sentences in the batch as it was at first: [B]."""
    traces: Traces
    taken: ChartStep
    length: int

    def batch_row(self, row: int) -> int:
        return int(self.rows[row])

    def prefix(self, row: int, slot: int) -> tuple[int, ...]:
        """A prefix of the table that the step extended."""
        return self.traces.prefix(self.batch_row(row), self.length - 1, slot)

    def partial_terms(self, candidates: Candidates, row: int) -> dict[str, Tensor]:
        """Every term of partial outputs in each cell: [Q,I]."""
        direct = candidates.direct[row]
        terms = {"direct": direct}
        if candidates.column is not None:
            here = slice(row, row + 1)
            terms["channel"] = partial_channel(candidates.column.written[here], self.sentences.lengths[here])[0]
        return terms | {name: term[row, :, None].expand_as(direct) for name, term in candidates.terms.items()}


def report(
    watch: Watch,
    plan: SearchPlan,
    sentences: Sentences,
    rows: Tensor,
    traces: Traces,
    table: PrefixTable,
    taken: ChartStep,
    length: int,
) -> None:
    """Call the hook for every sentence whose prefixes were extended in a step."""
    tensors = _StepTensors(plan, sentences, rows, traces, taken, length)
    searched, index, going = (x.tolist() for x in (table.packing.filled.any(1), sentences.input_index, taken.open))
    for row, sentence in enumerate(index):
        if searched[row]:
            watch(SearchStep(sentence, length, going[row], row, tensors))
