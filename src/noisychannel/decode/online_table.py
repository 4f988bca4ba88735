"""What the online search keeps: the input so far, and for each output length a table of the prefixes that survived.

The chart's cell (i, j) needs cells (k ≤ i, j-1) only, the direct model's encoder at i only x_1..x_i, the channel's
decoder at i only x_1..x_{i-1}. So the chart can be filled as x arrives, all output lengths for one position at a time.
A table then grows in two directions:

    a symbol is read             every prefix goes on to the new position              lengthened
    a prefix survives at last    its columns are computed over all positions so far    extended, then admitted

Both are one computation over the newest T positions, begun where the prefix was left: T = 1, or T = I from nothing.

Shapes: I positions read so far, T the newest of them, P prefixes of a table, Q candidates, R some of these, V output
symbols, X input symbols, G gate size.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.decode.columns import ChannelColumn, Transitions, advance_channel
from noisychannel.decode.table import Settings
from noisychannel.ids import BOS
from noisychannel.joint import log_normaliser
from noisychannel.models.lstm import LSTMState
from noisychannel.models.protocols import ChannelModel, DirectModel, Side, SourceModel
from noisychannel.precision import at_least_float32


class OnlineTransducer(DirectModel[LSTMState], ChannelModel[LSTMState], Protocol):
    """A transducer whose inputs and outputs can both be built step by step."""


class OnlineModels(NamedTuple):
    """What scores; a model whose weight is zero is None."""

    direct: OnlineTransducer
    channel: OnlineTransducer | None
    lm: SourceModel[Any] | None


class Reading(NamedTuple):
    """The input so far as the models see it."""

    symbols: Tensor
    """[I]."""
    direct: Side
    """Position i has read x_1..x_i: [I,V], [I,G]."""
    direct_state: LSTMState
    channel: Side | None
    """Position i has written x_1..x_{i-1}: [I,X], [I,G]."""
    channel_state: LSTMState | None

    def newest(self, T: int) -> Reading:
        """The last T positions."""
        channel = None if self.channel is None else Side(*(x[-T:] for x in self.channel))
        return self._replace(symbols=self.symbols[-T:], direct=Side(*(x[-T:] for x in self.direct)), channel=channel)


class Prefixes(NamedTuple):
    """Prefixes of one length j, as far as those one symbol shorter determine them."""

    parent: Tensor
    """Row of the prefix without its last symbol, in the table of length j-1: [P]."""
    symbol: Tensor
    """The last symbol: [P]."""
    direct: Tensor
    """log q(prefix, z_j = i | x_1..x_i), whole: [P,I]."""
    lm: Tensor | None
    """log p(prefix): [P]."""
    read: Side | None
    """What the channel has read, at the last symbol; None of the empty prefix: [P,X], [P,G]."""
    channel_state: LSTMState | None
    column: ChannelColumn | None
    """[P,I]."""
    leave: Tensor | None
    """The channel's log leave(j, i) at the newest i; None of the empty prefix: [P,1]."""


class Table(NamedTuple):
    """The prefixes of one length that survived in some cell."""

    prefixes: Prefixes
    objective: Tensor
    """O in the cells where a prefix survived, else -inf: [P,I]."""
    reach_objective: Tensor
    """S(i) + log e(i) + ⊕_{k≤i} (O(k) - S(k)) at the newest i, over cells k since it was dropped last: [P,1]."""
    reach: Tensor
    """The same of the direct column: log q(prefix, the next symbol is emitted at i | x_1..x_i), whole: [P,I]."""
    emit_logit: Tensor
    """Of e(i) after the prefix, at the newest i: [P,1]."""
    normaliser: Tensor
    """log Z(i, prefix) of the next symbol: [P,I]."""
    output: Side
    """The direct model after the prefix: [P,V], [P,G]."""
    direct_state: LSTMState
    spoken: Tensor
    """Whether the language model was run: it is when a prefix first proposes: [P]."""
    lm_next: Tensor | None
    """What it then says, log p(next symbol): [P,V]."""
    lm_state: Any
    """The state after the prefix or, where it was not yet run, before the prefix's last symbol."""

    @property
    def live(self) -> Tensor:
        """Which prefixes may still propose: [P]."""
        return self.reach_objective[:, 0] > -torch.inf

    @property
    def past(self) -> Tensor:
        """log q(prefix, and nothing more up to x_i | x_1..x_i) at the newest i, where shift / e = exp(-logit): [P]."""
        return (self.reach[:, -1:] - self.emit_logit)[:, 0]


def picked(x: Any, rows: Tensor) -> Any:
    """The given rows of a table, or of a part of one."""
    if x is None:
        return None
    if isinstance(x, Tensor):
        return x[rows]
    return x.select(rows) if isinstance(x, LSTMState) else type(x)(*(picked(part, rows) for part in x))


def joined(one: Any, other: Any) -> Any:
    """The rows of one table (or of a part of one), then those of another."""
    if one is None:
        return None
    if isinstance(one, Tensor):
        return torch.cat([one, other])
    join = _side_by_side if isinstance(one, LSTMState) else joined
    return type(one)(*(join(*parts) for parts in zip(one, other, strict=True)))


def _side_by_side(one: Tensor, other: Tensor) -> Tensor:
    """Columns over more positions, or states [L,N,H] of more sequences."""
    return torch.cat([one, other], dim=1)


def read_on(models: OnlineModels, before: Reading | None, symbol: int) -> Reading:
    """One symbol more."""
    x_1 = torch.tensor([symbol], device=next(models.direct.parameters()).device)
    state = models.direct.start_inputs(1) if before is None else before.direct_state
    direct, state = models.direct.step_inputs(x_1, state)
    direct = direct._replace(scores=at_least_float32(direct.scores))
    channel = channel_state = None
    if models.channel is not None:
        channel_state = models.channel.start_outputs(1) if before is None else before.channel_state
        assert channel_state is not None
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


def first_table(models: OnlineModels, settings: Settings, reading: Reading) -> Table:
    """The empty prefix when the first symbol has been read: it stands in the first cell, and only there."""
    start = torch.zeros(1, 1, dtype=torch.float64, device=reading.symbols.device)
    bos = torch.full_like(reading.symbols, BOS)
    column = channel_state = lm_next = lm_state = None
    if models.channel is not None:
        column, channel_state = ChannelColumn.empty(start), models.channel.start_inputs(1)
    if models.lm is not None:
        lm_next, lm_state = models.lm.step(bos, models.lm.start(1))
    lm = None if models.lm is None else start[0]
    prefixes = Prefixes(torch.zeros_like(bos), bos, start, lm, None, channel_state, column, None)
    output, direct_state = models.direct.step_outputs(bos, models.direct.start_outputs(1))
    reach, logit, normaliser = _met(models, settings, reading, output, start, torch.full_like(start, -torch.inf))
    return Table(prefixes, start, reach, reach, logit, normaliser, output, direct_state, bos == BOS, lm_next, lm_state)


def lengthened(models: OnlineModels, settings: Settings, reading: Reading, before: Table | None, table: Table) -> Table:
    """The columns taken on to the newest position, where no prefix has survived as yet.

    ``before`` is the table of prefixes one symbol shorter, already lengthened; None where ``table`` is the first.
    """
    prefixes, newest = table.prefixes, reading.newest(1)
    nowhere = torch.full_like(table.emit_logit, -torch.inf)
    if before is None:
        direct, leave = nowhere, None
        column = None if prefixes.column is None else ChannelColumn.empty(nowhere)
    else:
        direct = _emitted(newest, before, prefixes.parent, prefixes.symbol)
        column, leave = _written(models, settings, newest, before, prefixes, prefixes.leave)
    if column is not None and prefixes.column is not None:
        onward, written = (_side_by_side(*parts) for parts in zip(prefixes.column[:2], column[:2], strict=True))
        column = ChannelColumn(onward, written, prefixes.column.start)
    reach, logit, normaliser = _met(models, settings, newest, table.output, direct, table.past[:, None])
    past_objective = table.reach_objective - table.emit_logit
    return table._replace(
        prefixes=prefixes._replace(direct=_side_by_side(prefixes.direct, direct), column=column, leave=leave),
        objective=_side_by_side(table.objective, nowhere),
        reach_objective=past_objective + F.logsigmoid(logit),
        reach=_side_by_side(table.reach, reach),
        emit_logit=logit,
        normaliser=_side_by_side(table.normaliser, normaliser),
    )


def extended(
    models: OnlineModels, settings: Settings, reading: Reading, before: Table, parent: Tensor, symbol: Tensor
) -> Prefixes:
    """Prefixes of ``before``, after which the language model has spoken, with one more symbol each; [Q] both."""
    shorter = before.prefixes
    direct = _emitted(reading, before, parent, symbol)
    lm = read = channel_state = start = None
    if shorter.lm is not None and before.lm_next is not None:
        lm = shorter.lm[parent] + before.lm_next[parent, symbol].double()
    if models.channel is not None and shorter.channel_state is not None and shorter.column is not None:
        read, channel_state = models.channel.step_inputs(symbol, shorter.channel_state.select(parent))
        start = shorter.column.start[parent]
    prefixes = Prefixes(parent, symbol, direct, lm, read, channel_state, None, None)
    column, leave = _written(models, settings, reading, before, prefixes, start)
    return prefixes._replace(column=column, leave=leave)


def admitted(models: OnlineModels, settings: Settings, reading: Reading, before: Table, prefixes: Prefixes) -> Table:
    """New prefixes as rows of a table, with the direct model run one step further; they have survived nowhere yet."""
    parent = prefixes.parent
    output, direct_state = models.direct.step_outputs(prefixes.symbol, before.direct_state.select(parent))
    nowhere = torch.full_like(prefixes.direct, -torch.inf)
    reach, logit, normaliser = _met(models, settings, reading, output, prefixes.direct, nowhere[:, :1])
    return Table(
        prefixes=prefixes,
        objective=nowhere,
        reach_objective=nowhere[:, :1],
        reach=reach,
        emit_logit=logit,
        normaliser=normaliser,
        output=output,
        direct_state=direct_state,
        spoken=torch.zeros_like(parent, dtype=torch.bool),
        lm_next=None if before.lm_next is None else torch.zeros_like(before.lm_next[parent]),
        lm_state=None if before.lm_state is None else before.lm_state.select(parent),
    )


def surviving(settings: Settings, table: Table, rows: Tensor, objective_R: Tensor) -> Table:
    """The prefixes ``rows`` survive in the newest cell, with the given O."""
    here = torch.full_like(table.reach_objective, -torch.inf).index_copy(0, rows, objective_R[:, None])
    reach_objective = settings.over_direct.plus(table.reach_objective, here + F.logsigmoid(table.emit_logit))
    return table._replace(objective=_side_by_side(table.objective[:, :-1], here), reach_objective=reach_objective)


def _emitted(newest: Reading, before: Table, parent: Tensor, symbol: Tensor) -> Tensor:
    """log q(prefix, z_j = i) = reach(parent, i) + log p(symbol | i, parent), over the newest T positions: [P,T]."""
    T = len(newest.symbols)
    word_PT = newest.direct.scores[:, symbol].mT + before.output.scores[parent, symbol][:, None]
    return before.reach[parent, -T:] + (word_PT - before.normaliser[parent, -T:]).double()


def _written(
    models: OnlineModels, settings: Settings, newest: Reading, before: Table, prefixes: Prefixes, leave: Tensor | None
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
        ChannelColumn(onward, so_far, leave), models.channel.emit_logits(read, written), words, settings.over_channel
    )
    return column, leave_PT[:, -1:]


def _met(
    models: OnlineModels, settings: Settings, newest: Reading, output: Side, direct_PT: Tensor, past_P1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """After prefixes, over the newest T positions: their reach [P,T], the last emission logit [P,1], log Z [P,T].

    ``past`` is the score of having emitted the prefix and shifted past all positions before them.
    """
    logit_PT = models.direct.emit_logits(newest.direct, output).mT.double()
    first_P1 = settings.over_direct.plus(past_P1, direct_PT[:, :1])
    reach_PT = Transitions.of(logit_PT).reach(_side_by_side(first_P1, direct_PT[:, 1:]), settings.over_direct)
    normaliser_PT = log_normaliser(newest.direct.scores[None], output.scores[None])[0].mT
    return reach_PT, logit_PT[:, -1:], normaliser_PT
