"""The state of the online search: the input so far, and for each output length a table of surviving prefixes.

The chart's cell (i, j) needs cells (k ≤ i, j-1) only, the direct model's encoder at i only x_1..x_i, the channel's
decoder at i only x_1..x_{i-1}. So the chart can be filled as x arrives, all output lengths for one position at a time.
A table then grows in two directions:

    a symbol is read               every prefix goes on to the new position              lengthened
    a prefix survives first        its columns are computed over all positions so far    extended, then admitted

Both are one computation over the newest T positions: T = 1, or T = I for a prefix that is new.

Shapes: I positions read so far, T the newest of them, P prefixes of a table, Q candidates, R some of these, V output
symbols, X input symbols, G gate size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.decode.columns import ChannelColumn, Transitions, advance_channel
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.rows import joined, side_by_side
from noisychannel.decode.sources import NextSymbols, require_numbers
from noisychannel.ids import BOS
from noisychannel.joint import log_normaliser
from noisychannel.models.protocols import OnlineTransducer, Side, SourceModel
from noisychannel.precision import at_least_float32


class OnlineModels(NamedTuple):
    """The models that score; a model of weight zero is left out."""

    direct: OnlineTransducer[Any]
    channel: OnlineTransducer[Any] | None
    sources: Mapping[str, SourceModel[Any]]


class Reading(NamedTuple):
    """The input so far, as the models see it."""

    symbols: Tensor
    """[I]."""
    direct: Side
    """Position i has read x_1..x_i: [I,V], [I,G]."""
    direct_state: Any
    channel: Side | None
    """Position i has written x_1..x_{i-1}: [I,X], [I,G]."""
    channel_state: Any

    def newest(self, T: int) -> Reading:
        """The last T positions."""
        channel = None if self.channel is None else Side(*(x[-T:] for x in self.channel))
        return self._replace(symbols=self.symbols[-T:], direct=Side(*(x[-T:] for x in self.direct)), channel=channel)


class Prefixes(NamedTuple):
    """Prefixes of one length j: what those one symbol shorter determine of them."""

    parent: Tensor
    """Row of the prefix without its last symbol, in the table of length j-1: [P]."""
    symbol: Tensor
    """The last symbol: [P]."""
    direct: Tensor
    """log q(prefix, z_j = i | x_1..x_i), whole: [P,I]."""
    terms: Mapping[str, Tensor]
    """Each source term: [P]."""
    read: Side | None
    """The channel's side at the last symbol; None for the empty prefix: [P,X], [P,G]."""
    channel_state: Any
    column: ChannelColumn | None
    """[P,I]."""
    leave: Tensor | None
    """The channel's log leave(j, i) at the newest i; None for the empty prefix: [P,1]."""


class OnlineTable(NamedTuple):
    """The prefixes of one length that survived in some cell."""

    prefixes: Prefixes
    objective: Tensor
    """O in the cells in which a prefix survived, else -inf: [P,I]."""
    reach_objective: Tensor
    """S(i) + log e(i) + ⊕_{k≤i} (O(k) - S(k)) at the newest i, over cells k since it was dropped last: [P,1].

    With ``look_ahead`` without the channel's part of O(k)."""
    reach: Tensor
    """The same of the direct column: log q(prefix, the next symbol is emitted at i | x_1..x_i), whole: [P,I]."""
    emit_logit: Tensor
    """Of e(i) after the prefix, at the newest i: [P,1]."""
    normaliser: Tensor
    """log Z(i, prefix) of the next symbol: [P,I]."""
    output: Side
    """The direct model after the prefix: [P,V], [P,G]."""
    direct_state: Any
    sources_run: Tensor
    """Whether the source models have been run; they are when a prefix first proposes: [P]."""
    sources: Mapping[str, NextSymbols]
    """The source models after the prefix or, if not yet run, before its last symbol (the distribution is then 0)."""

    @property
    def live(self) -> Tensor:
        """Which prefixes may still propose: [P]."""
        return self.reach_objective[:, 0] > -torch.inf

    @property
    def past(self) -> Tensor:
        """log q(prefix, and nothing more up to x_i | x_1..x_i) at the newest i; shift / e = exp(-logit): [P]."""
        return (self.reach[:, -1:] - self.emit_logit)[:, 0]


def read_on(models: OnlineModels, before: Reading | None, symbol: int) -> Reading:
    """Read one more symbol."""
    x_1 = torch.tensor([symbol], device=next(models.direct.parameters()).device)
    state = models.direct.start_inputs(1) if before is None else before.direct_state
    direct, state = models.direct.step_inputs(x_1, state)
    direct = direct._replace(scores=at_least_float32(direct.scores))
    channel = channel_state = None
    if models.channel is not None:
        channel_state = models.channel.start_outputs(1) if before is None else before.channel_state
        last_1 = torch.full_like(x_1, BOS) if before is None else before.symbols[-1:]
        channel, channel_state = models.channel.step_outputs(last_1, channel_state)
        channel = channel._replace(scores=at_least_float32(channel.scores))
    if before is None:
        return Reading(x_1, direct, state, channel, channel_state)
    return Reading(
        symbols=joined(before.symbols, x_1),
        direct=joined(before.direct, direct),
        direct_state=state,
        channel=joined(before.channel, channel),
        channel_state=channel_state,
    )


def first_table(models: OnlineModels, plan: SearchPlan, reading: Reading) -> OnlineTable:
    """The empty prefix when the first symbol has been read: it stands in the first cell, and only there."""
    start = torch.zeros(1, 1, dtype=torch.float64, device=reading.symbols.device)
    bos = torch.full_like(reading.symbols, BOS)
    column = channel_state = None
    if models.channel is not None:
        column, channel_state = ChannelColumn.empty(start), models.channel.start_inputs(1)
    sources = {name: NextSymbols(*model.step(bos, model.start(1))) for name, model in models.sources.items()}
    terms = dict.fromkeys(sources, start[0])
    prefixes = Prefixes(torch.zeros_like(bos), bos, start, terms, None, channel_state, column, None)
    output, direct_state = models.direct.step_outputs(bos, models.direct.start_outputs(1))
    reach, logit, normaliser = _met(models, plan, reading, output, start, torch.full_like(start, -torch.inf))
    return OnlineTable(prefixes, start, reach, reach, logit, normaliser, output, direct_state, bos == BOS, sources)


def lengthened(
    models: OnlineModels, plan: SearchPlan, reading: Reading, before: OnlineTable | None, table: OnlineTable
) -> OnlineTable:
    """The columns over one position more, in which no prefix has survived yet.

    ``before`` is the table of prefixes one symbol shorter, already lengthened; None if ``table`` is the first.
    """
    prefixes, newest = table.prefixes, reading.newest(1)
    nowhere = torch.full_like(table.emit_logit, -torch.inf)
    if before is None:
        direct, leave = nowhere, None
        column = None if prefixes.column is None else ChannelColumn.empty(nowhere)
    else:
        direct = _emitted(newest, before, prefixes.parent, prefixes.symbol)
        column, leave = _written(models, plan, newest, before, prefixes, prefixes.leave)
    if column is not None and prefixes.column is not None:
        onward, written = (side_by_side(*parts) for parts in zip(prefixes.column[:2], column[:2], strict=True))
        column = ChannelColumn(onward, written, prefixes.column.start)
    reach, logit, normaliser = _met(models, plan, newest, table.output, direct, table.past[:, None])
    past_objective = table.reach_objective - table.emit_logit
    return table._replace(
        prefixes=prefixes._replace(direct=side_by_side(prefixes.direct, direct), column=column, leave=leave),
        objective=side_by_side(table.objective, nowhere),
        reach_objective=past_objective + F.logsigmoid(logit),
        reach=side_by_side(table.reach, reach),
        emit_logit=logit,
        normaliser=side_by_side(table.normaliser, normaliser),
    )


def extended(
    models: OnlineModels, plan: SearchPlan, reading: Reading, before: OnlineTable, parent: Tensor, symbol: Tensor
) -> Prefixes:
    """Prefixes of ``before``, on which the source models have been run, with one more symbol each; [Q] both."""
    shorter = before.prefixes
    direct = _emitted(reading, before, parent, symbol)
    terms = {
        name: shorter.terms[name][parent] + before.sources[name].increments(model, parent, symbol).double()
        for name, model in models.sources.items()
    }
    require_numbers(terms)
    read = channel_state = start = None
    if models.channel is not None and shorter.channel_state is not None and shorter.column is not None:
        read, channel_state = models.channel.step_inputs(symbol, shorter.channel_state.select(parent))
        start = shorter.column.start[parent]
    prefixes = Prefixes(parent, symbol, direct, terms, read, channel_state, None, None)
    column, leave = _written(models, plan, reading, before, prefixes, start)
    return prefixes._replace(column=column, leave=leave)


def admitted(
    models: OnlineModels, plan: SearchPlan, reading: Reading, before: OnlineTable, prefixes: Prefixes
) -> OnlineTable:
    """New prefixes as rows of a table, with the direct model run one step further. They have survived nowhere yet."""
    parent = prefixes.parent
    output, direct_state = models.direct.step_outputs(prefixes.symbol, before.direct_state.select(parent))
    nowhere = torch.full_like(prefixes.direct, -torch.inf)
    reach, logit, normaliser = _met(models, plan, reading, output, prefixes.direct, nowhere[:, :1])
    return OnlineTable(
        prefixes=prefixes,
        objective=nowhere,
        reach_objective=nowhere[:, :1],
        reach=reach,
        emit_logit=logit,
        normaliser=normaliser,
        output=output,
        direct_state=direct_state,
        sources_run=torch.zeros_like(parent, dtype=torch.bool),
        sources={name: _not_yet_run(before.sources[name], parent) for name in models.sources},
    )


def _not_yet_run(before: NextSymbols, parent: Tensor) -> NextSymbols:
    """A source model's row for new prefixes: the state of the parent, and no distribution yet."""
    log_prob, state = before.select(parent)
    return NextSymbols(None if log_prob is None else torch.zeros_like(log_prob), state)


def surviving(
    plan: SearchPlan, table: OnlineTable, rows: Tensor, objective_R: Tensor, taken_along_R: Tensor
) -> OnlineTable:
    """The prefixes ``rows`` survive in the newest cell, with the given O, and the part of it that they take along."""
    nowhere = torch.full_like(table.reach_objective, -torch.inf)
    here, along = (nowhere.index_copy(0, rows, x[:, None]) for x in (objective_R, taken_along_R))
    reach_objective = plan.over_direct.plus(table.reach_objective, along + F.logsigmoid(table.emit_logit))
    return table._replace(objective=side_by_side(table.objective[:, :-1], here), reach_objective=reach_objective)


def _emitted(newest: Reading, before: OnlineTable, parent: Tensor, symbol: Tensor) -> Tensor:
    """log q(prefix, z_j = i) = reach(parent, i) + log p(symbol | i, parent), over the newest T positions: [P,T]."""
    T = len(newest.symbols)
    word_PT = newest.direct.scores[:, symbol].mT + before.output.scores[parent, symbol][:, None]
    return before.reach[parent, -T:] + (word_PT - before.normaliser[parent, -T:]).double()


def _written(
    models: OnlineModels,
    plan: SearchPlan,
    newest: Reading,
    before: OnlineTable,
    prefixes: Prefixes,
    leave: Tensor | None,
) -> tuple[ChannelColumn | None, Tensor | None]:
    """The channel's column over the newest T positions, [P,T], and its leave at the last, [P,1].

    ``leave`` is that at the position before them, from which the recursion goes on.
    """
    shorter, read, written = before.prefixes.column, prefixes.read, newest.channel
    if models.channel is None or shorter is None or read is None or written is None or leave is None:
        return None, None
    T = len(newest.symbols)
    words = read.scores[:, newest.symbols] + written.scores.gather(1, newest.symbols[:, None]).mT
    words = words - log_normaliser(read.scores[None], written.scores[None])[0]
    onward, so_far = (x[prefixes.parent, -T:] for x in shorter[:2])
    column, leave_PT = advance_channel(
        ChannelColumn(onward, so_far, leave), models.channel.emit_logits(read, written), words, plan.over_channel
    )
    return column, leave_PT[:, -1:]


def _met(
    models: OnlineModels, plan: SearchPlan, newest: Reading, output: Side, direct_PT: Tensor, past_P1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """After prefixes, over the newest T positions: their reach [P,T], the last emission logit [P,1], log Z [P,T].

    ``past`` is the score of having emitted the prefix and shifted past all positions before them.
    """
    logit_PT = models.direct.emit_logits(newest.direct, output).mT.double()
    first_P1 = plan.over_direct.plus(past_P1, direct_PT[:, :1])
    reach_PT = Transitions.of(logit_PT).reach(side_by_side(first_P1, direct_PT[:, 1:]), plan.over_direct)
    normaliser_PT = log_normaliser(newest.direct.scores[None], output.scores[None])[0].mT
    return reach_PT, logit_PT[:, -1:], normaliser_PT
