"""One cell of the chart, filled when its position of the input has been read.

What the batch search does once for all cells of a length is done here for the newest cell of it:

    1. the direct model proposes K1 extensions of the prefixes that reach the cell               _proposals
    2. those that are in the table of their length have their scores, the others get theirs      _with_lm, extended
    3. K2 survive in the cell, and those of them that are new join the table                     admitted, surviving

Shapes: I positions read so far, P prefixes of a table, Q candidates, R survivors, V output symbols.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.online_table import (
    OnlineModels,
    Prefixes,
    Reading,
    Table,
    admitted,
    extended,
    joined,
    picked,
    surviving,
)
from noisychannel.decode.proposals import Listed, propose
from noisychannel.decode.table import Settings
from noisychannel.ids import EOS


class Cell(NamedTuple):
    """A cell when it is filled."""

    before: Table
    """The prefixes one symbol shorter; the language model has spoken after those that proposed."""
    after: Table | None
    """The prefixes of the cell's length, newcomers included; None where there are none."""
    candidates: Prefixes
    """Everything proposed."""


def fill_cell(
    models: OnlineModels,
    settings: Settings,
    reading: Reading,
    proposable_11V: Listed,
    before: Table,
    after: Table | None,
    length: int,
    last: bool,
) -> Cell:
    """The newest column's cell of one length; both tables have been taken on to that column.

    ``proposable`` are the direct model's scores of the symbols that the column may propose.
    """
    parent, symbol = _proposals(settings, proposable_11V, before)
    before = _with_lm(models, before, parent)
    place = _places(after, parent, symbol)
    known = place >= 0
    candidates: Prefixes = extended(models, settings, reading, before, parent[~known], symbol[~known])
    if after is not None:
        candidates = joined(picked(after.prefixes, place[known]), candidates)
        # In the order of the proposals again, by which ties are broken.
        candidates = picked(candidates, torch.cat([known.nonzero(), (~known).nonzero()]).squeeze(1).argsort())

    direct, channel = candidates.direct[:, -1], partial_channel(candidates, candidates.direct.shape[1] - 1, last)
    objective_Q = settings.weights.combine(direct, channel, candidates.lm, length)
    objective_Q = objective_Q.masked_fill((candidates.symbol == EOS) | (direct == -torch.inf), -torch.inf)
    objective_R, chosen = (x[: settings.k2] for x in objective_Q.sort(descending=True, stable=True))
    chosen, objective_R = chosen[objective_R > -torch.inf], objective_R[objective_R > -torch.inf]
    rows, new = place[chosen], chosen[place[chosen] < 0]
    if len(new):
        rows[rows < 0] = torch.arange(len(new), device=new.device) + (0 if after is None else len(after.objective))
        newcomers = admitted(models, settings, reading, before, picked(candidates, new))
        after = newcomers if after is None else joined(after, newcomers)
    if after is not None:
        after = surviving(settings, after, rows, objective_R)
    return Cell(before, after, candidates)


def _proposals(settings: Settings, proposable_11V: Listed, before: Table) -> tuple[Tensor, Tensor]:
    """The best K1 extensions of the newest column's cell: rows of ``before`` and symbols, [Q] each."""
    rows = before.live.nonzero().squeeze(1)
    found = propose(
        before.reach_objective[rows][None],
        proposable_11V,
        Listed.of(before.output.scores[rows][None]),
        before.normaliser[rows, -1][None, None],
        settings.k1,
    )
    proposed = found.score[0, 0] > -torch.inf
    return rows[found.prefix[0, 0][proposed]], found.symbol[0, 0][proposed]


def _with_lm(models: OnlineModels, table: Table, rows: Tensor) -> Table:
    """The table, the language model having been run on the prefixes ``rows``, unless it has been before."""
    rows = rows[~table.spoken[rows]].unique()
    if models.lm is None or table.lm_next is None or table.lm_state is None or len(rows) == 0:
        return table
    next_RV, state = models.lm.step(table.prefixes.symbol[rows], table.lm_state.select(rows))
    return table._replace(
        spoken=table.spoken.index_fill(0, rows, True),
        lm_next=table.lm_next.index_copy(0, rows, next_RV),
        lm_state=table.lm_state.put(rows, state),
    )


def _places(table: Table | None, parent_Q: Tensor, symbol_Q: Tensor) -> Tensor:
    """The rows of prefixes in the table of their length, -1 of those that are not there: [Q]."""
    if table is None:
        return torch.full_like(parent_Q, -1)
    same_QP = (parent_Q[:, None] == table.prefixes.parent) & (symbol_Q[:, None] == table.prefixes.symbol)
    return torch.where(same_QP.any(1), same_QP.long().argmax(1), -1)


def partial_channel(prefixes: Prefixes, i: int, last: bool) -> Tensor | None:
    """The channel's score of partial outputs in the cell of position i (from 0): [P].

    x's EOS may be written only together with y's: in the last column a partial output is asked for x without it.
    """
    if prefixes.column is None:
        return None
    at = i - 1 if last else i
    return prefixes.column.written[:, at] if at >= 0 else torch.zeros_like(prefixes.direct[:, 0])
