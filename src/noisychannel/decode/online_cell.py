"""One cell of the chart, filled when its position of the input has been read.

The batch search takes the steps of Algorithm 1 for all cells of a length at once; here they are taken for the newest
cell of a length:

    A1, A3   the direct model proposes K1 extensions of the prefixes that reach the cell          _proposals
    A4       extensions that are new get their scores                                             _run_sources, extended
    A2, A5   K2 survive in the cell, and those of them that are new join the table                admitted, surviving

Shapes: I positions read so far, P prefixes of a table, Q candidates, R survivors, V output symbols.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.online_table import (
    OnlineModels,
    OnlineTable,
    Prefixes,
    Reading,
    admitted,
    extended,
    surviving,
)
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.proposals import RankedScores, propose
from noisychannel.decode.rows import joined, picked
from noisychannel.decode.sources import NextSymbols
from noisychannel.ids import EOS


class Cell(NamedTuple):
    """A filled cell."""

    before: OnlineTable
    """The prefixes one symbol shorter; source models have been run on those that proposed."""
    after: OnlineTable | None
    """The prefixes of the cell's length, new ones included; None if there are none."""
    candidates: Prefixes
    """Everything proposed."""


def fill_cell(
    models: OnlineModels,
    plan: SearchPlan,
    reading: Reading,
    proposable_11V: RankedScores,
    before: OnlineTable,
    after: OnlineTable | None,
    length: int,
    last: bool,
) -> Cell:
    """The newest column's cell of one length; both tables reach that column.

    ``proposable`` are the direct model's scores of the symbols that may be proposed in the column.
    """
    parent, symbol = _proposals(plan, proposable_11V, before)
    before = _run_sources(models, before, parent)
    place = _places(after, parent, symbol)
    known = place >= 0
    candidates: Prefixes = extended(models, plan, reading, before, parent[~known], symbol[~known])
    if after is not None:
        candidates = joined(picked(after.prefixes, place[known]), candidates)
        # In the order of the proposals again, by which ties are broken.
        candidates = picked(candidates, torch.cat([known.nonzero(), (~known).nonzero()]).squeeze(1).argsort())

    direct = candidates.direct[:, -1]
    terms = with_channel(candidates, partial_channel(candidates, candidates.direct.shape[1] - 1, last))
    objective_Q = plan.weights.combine(direct, terms, length)
    objective_Q = objective_Q.masked_fill((candidates.symbol == EOS) | (direct == -torch.inf), -torch.inf)
    objective_R, chosen = (x[: plan.settings.k2] for x in objective_Q.sort(descending=True, stable=True))
    chosen, objective_R = chosen[objective_R > -torch.inf], objective_R[objective_R > -torch.inf]
    rows, new = place[chosen], chosen[place[chosen] < 0]
    if len(new):
        rows[rows < 0] = torch.arange(len(new), device=new.device) + (0 if after is None else len(after.objective))
        newcomers = admitted(models, plan, reading, before, picked(candidates, new))
        after = newcomers if after is None else joined(after, newcomers)
    if after is not None:
        taken_along = objective_R
        if _looks_ahead(plan, after):
            taken_along = objective_R - plan.channel_part(terms["channel"][chosen])
        after = surviving(plan, after, rows, objective_R, taken_along)
    return Cell(before, after, candidates)


def _looks_ahead(plan: SearchPlan, table: OnlineTable) -> bool:
    """Whether the channel's part of the objective is that of the cell a prefix moves to; the empty one has none."""
    return bool(plan.settings.look_ahead) and table.prefixes.column is not None and table.prefixes.read is not None


def _proposals(plan: SearchPlan, proposable_11V: RankedScores, before: OnlineTable) -> tuple[Tensor, Tensor]:
    """The best K1 extensions of the newest column's cell: rows of ``before`` and symbols, [Q] each."""
    rows = before.live.nonzero().squeeze(1)
    reach_R1 = before.reach_objective[rows]
    if _looks_ahead(plan, before):
        # As in a last column: without the newest symbol, which the extension may explain.
        explained = partial_channel(before.prefixes, before.objective.shape[1] - 1, last=True)
        assert explained is not None
        reach_R1 = reach_R1 + plan.channel_part(explained)[rows, None]
    found = propose(
        reach_R1[None],
        proposable_11V,
        RankedScores.of(before.output.scores[rows][None]),
        before.normaliser[rows, -1][None, None],
        plan.settings.k1,
    )
    proposed = found.score[0, 0] > -torch.inf
    return rows[found.prefix[0, 0][proposed]], found.symbol[0, 0][proposed]


def _run_sources(models: OnlineModels, table: OnlineTable, rows: Tensor) -> OnlineTable:
    """The table after the source models have been run on the prefixes ``rows``, unless they have been before."""
    rows = rows[~table.sources_run[rows]].unique()
    if not models.sources or len(rows) == 0:
        return table
    sources = {}
    for name, model in models.sources.items():
        before = table.sources[name]
        log_prob, state = model.step(table.prefixes.symbol[rows], before.state.select(rows))
        if before.log_prob is not None and log_prob is not None:
            log_prob = before.log_prob.index_copy(0, rows, log_prob)
        sources[name] = NextSymbols(log_prob, before.state.put(rows, state))
    return table._replace(sources_run=table.sources_run.index_fill(0, rows, True), sources=sources)


def _places(table: OnlineTable | None, parent_Q: Tensor, symbol_Q: Tensor) -> Tensor:
    """The rows of prefixes in the table of their length, -1 for those that are not there: [Q]."""
    if table is None:
        return torch.full_like(parent_Q, -1)
    same_QP = (parent_Q[:, None] == table.prefixes.parent) & (symbol_Q[:, None] == table.prefixes.symbol)
    return torch.where(same_QP.any(1), same_QP.long().argmax(1), -1)


def partial_channel(prefixes: Prefixes, i: int, last: bool) -> Tensor | None:
    """The channel's score of partial outputs in the cell of position i (from 0): [P].

    x's EOS may be written only together with y's, so in the last column a partial output explains x without it.
    """
    if prefixes.column is None:
        return None
    at = i - 1 if last else i
    return prefixes.column.written[:, at] if at >= 0 else torch.zeros_like(prefixes.direct[:, 0])


def with_channel(prefixes: Prefixes, channel: Tensor | None) -> dict[str, Tensor]:
    """The source terms of prefixes, and this term of the channel: [P] each."""
    return dict(prefixes.terms) if channel is None else {"channel": channel, **prefixes.terms}
