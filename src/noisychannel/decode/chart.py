"""The chart search for a batch of sentences: Algorithm 1 of the paper over a table of distinct prefixes.

States depend on the prefix and not on the cell. So the table of one output length holds each distinct prefix once, with
its columns over the input: the direct model's (whole, so that direct scores are exact), the objective (only in the
cells in which it survived), and the channel's. One step takes the table from length j-1 to length j. The steps A1 to
A6 of Algorithm 1 are

    A1, A3   every prefix reaches every cell (columns.reach_both), and the direct model proposes K1 extensions for
             each cell (proposals); the first column differs only in that there is one prefix, the empty one
    A4       distinct extensions become candidates, which point to their prefixes                        _score
    A2, A5   each candidate is scored once, by equation (3); K2 survive in each cell         selection.survivors
    A6       complete candidates (EOS, last column) leave for the answers; the best of all lengths are spelt
             from back-pointers                                            selection.complete, traces.Traces

The distinct survivors make the next table; only they are run through the direct model. Source models are run later
still, in A4 of the next length, and only on the prefixes that are then extended.

Scores are float64; the networks keep their own precision. Slots that a sentence does not fill have objective -inf.

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, N of either that
exist, R prefixes that are extended, K = K1, V output symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.decode.answers import Answers
from noisychannel.decode.columns import ChannelColumn, reach_both
from noisychannel.decode.extensions import Extensions
from noisychannel.decode.lateness import scores_late
from noisychannel.decode.lattices import emissions, read_one_more, step_channel
from noisychannel.decode.memory import Width
from noisychannel.decode.next_words import NextWords, next_words
from noisychannel.decode.packing import Packing, slot_columns, slot_rows
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.proposals import Proposals, RankedScores, propose
from noisychannel.decode.selection import complete, partial_channel, still_open, survivors
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.sources import NextSymbols, SourceStart, next_symbols, require_numbers
from noisychannel.decode.table import Candidates, PrefixTable
from noisychannel.ids import BOS


class ChartStep(NamedTuple):
    """One step of the search, from the prefixes of one length to those of the next."""

    table: PrefixTable | None
    """The survivors that are extended further; None if there are none."""
    answers: Answers
    """The best complete hypotheses so far."""
    proposals: Proposals
    by_direct: int
    """How many places of each cell's proposals are the direct model's; the others are the language model's."""
    candidates: Candidates | None
    """None if nothing was proposed."""
    ended: Answers | None
    """The hypotheses that this step completed, by the rank of their proposals: [B,K]."""
    surviving: Tensor | None
    """O in the cells in which a candidate is among the K2 best, else -inf: [B,Q,I]."""
    open: Tensor
    """Sentences in which the search goes on: [B]."""


def first_table(models: Models, plan: SearchPlan, sentences: Sentences) -> PrefixTable:
    """The empty prefix, which has read nothing: it stands in the first cell."""
    B, I = sentences.inputs.shape
    start = torch.full((B, 1, I), -torch.inf, dtype=torch.float64, device=sentences.inputs.device)
    packing = Packing.of(torch.ones_like(start[:, :, 0], dtype=torch.bool))
    column = channel_state = None
    if models.channel is not None:
        column, channel_state = ChannelColumn.empty(start), models.channel.start_inputs(B)
        for symbol_B in sentences.context.unbind(1):
            read, channel_state = step_channel(models.channel, sentences, packing, symbol_B, channel_state)
            column, _ = read_one_more(models.channel, plan, sentences, packing, column, read)
    start[:, :, 0] = 0.0
    bos_B = torch.full((B,), BOS, device=start.device)
    output, direct_state = models.direct.step_outputs(bos_B, models.direct.start_outputs(B))
    before = sentences.inputs, sentences.lengths, sentences.context
    sources = {name: SourceStart.of(model, *before) for name, model in models.sources.items()}
    return PrefixTable(
        objective=start,
        direct=start,
        terms={name: source.score[:, None] for name, source in sources.items()},
        column=column,
        packing=packing,
        output_scores=packing.spread(output.scores),
        output_states=None,
        output_gate=output.gate,
        direct_state=direct_state,
        channel_state=channel_state,
        source_states={name: source.state for name, source in sources.items()},
        source_parent=packing.sentence,
        unread={name: source.unread for name, source in sources.items()},
        parent=torch.zeros_like(bos_B)[:, None],
        symbol=bos_B[:, None],
    )


def step(
    models: Models, plan: SearchPlan, sentences: Sentences, table: PrefixTable, answers: Answers, length: int
) -> ChartStep:
    """From the prefixes of ``length`` - 1 to those of ``length``."""
    _require_memory(plan, sentences, table, length)
    emit_NI = emissions(models.direct, sentences.direct.gate, table.output_gate, table.packing, built_is_output=True)
    looks_ahead = plan.settings.look_ahead and table.column is not None and length > 1
    objective = _without_channel(plan, sentences, table) if looks_ahead else table.objective
    reach, reach_direct = reach_both(
        table.packing.spread(emit_NI), objective, table.direct, sentences.lengths, plan.over_direct, sentences.padded
    )
    if looks_ahead:
        reach = reach + _ahead(plan, table)
    # A1, A3: the K1 best extensions of each cell.
    words = next_words(
        models.direct, plan, sentences, table, reach, partial(_require_memory, plan, sentences, table, length)
    )
    proposals = propose(
        words.reach(reach),
        sentences.proposable,
        words.scores,
        words.normaliser,
        plan.settings.k1,
        plan.logits_at_once,
        words.slack,
        words.least,
    )
    proposals = proposals._replace(prefix=words.slots(proposals.prefix))
    by_direct, known = proposals.score.shape[2], None
    if plan.settings.lm_proposals:
        known = next_symbols(models.sources, table.source_states, table.source_parent, table.unread)
        proposals = _with_lm_proposals(plan, sentences, table, reach, known["lm"], proposals)
    candidates = _score(models, plan, sentences, table, proposals, reach_direct, words, known, length)
    if candidates is None:
        nowhere = torch.zeros_like(sentences.lengths, dtype=torch.bool)
        return ChartStep(None, answers, proposals, by_direct, None, None, None, nowhere)
    ended = complete(plan, sentences, candidates, length)
    answers = answers.merge(ended)
    surviving_BQI, order_BQ = survivors(plan, sentences, candidates, length)
    open_B = still_open(models, plan, sentences, candidates, surviving_BQI, answers, length) & (
        sentences.max_length > length
    )
    objective_BQI = surviving_BQI.masked_fill(~open_B[:, None, None], -torch.inf)
    after = _next_table(models, plan, sentences, table, candidates, objective_BQI, order_BQ)
    return ChartStep(after, answers, proposals, by_direct, candidates, ended, surviving_BQI, open_B)


def _without_channel(plan: SearchPlan, sentences: Sentences, table: PrefixTable) -> Tensor:
    """The objective of each prefix in the cells in which it survived, but for the channel's part: [B,P,I]."""
    assert table.column is not None
    return table.objective - plan.channel_part(partial_channel(table.column.written, sentences.lengths))


def _ahead(plan: SearchPlan, table: PrefixTable) -> Tensor:
    """With ``look_ahead``: the channel's part for prefixes that move to a cell, [B,P,I].

    A prefix must explain what was read before the symbol of that cell, and the extension may explain the symbol.
    """
    assert table.column is not None
    return plan.channel_part(F.pad(table.column.written[..., :-1], (1, 0)))


def _require_memory(
    plan: SearchPlan,
    sentences: Sentences,
    table: PrefixTable,
    length: int,
    scored: int = 0,
    proposals: int = 0,
    candidates: int = 0,
) -> None:
    """Refuse a step that is too wide, before its tensors are allocated, as far as its width is known."""
    B, P, I = table.objective.shape
    if plan.budget is None or plan.budget.always_fits(I, B):
        return
    proposals = proposals or Width.of_step(plan.settings, sentences.symbols, I, P).proposals
    late = table.output_scores is None
    plan.budget.require_step(Width(I, P, proposals, candidates, scored if late else None), length, B)


def _with_lm_proposals(
    plan: SearchPlan,
    sentences: Sentences,
    table: PrefixTable,
    reach_BPI: Tensor,
    lm: NextSymbols,
    proposals: Proposals,
) -> Proposals:
    """The direct model's proposals, and those of the language model that are not among them."""
    assert lm.log_prob is not None, "checked by the decoder"
    lm_BPV = table.packing.spread(lm.log_prob)
    anywhere_BIV = torch.where(sentences.proposable.scores > -torch.inf, 0.0, -torch.inf).to(lm_BPV.dtype)
    no_normaliser = lm_BPV.new_zeros(()).expand(*anywhere_BIV.shape[:2], lm_BPV.shape[1])
    count = plan.settings.lm_proposals
    more = propose(
        reach_BPI,
        RankedScores.of(anywhere_BIV),
        RankedScores.of(lm_BPV),
        no_normaliser,
        count,
        plan.logits_at_once,
    )
    same_prefix = more.prefix[..., None] == proposals.prefix[..., None, :]
    same_symbol = more.symbol[..., None] == proposals.symbol[..., None, :]
    twice = (same_prefix & same_symbol & (proposals.score > -torch.inf)[..., None, :]).any(-1)
    more = more._replace(score=more.score.masked_fill(twice, -torch.inf))
    return Proposals(*(torch.cat(pair, dim=2) for pair in zip(proposals, more, strict=True)))


def _score(
    models: Models,
    plan: SearchPlan,
    sentences: Sentences,
    table: PrefixTable,
    proposals: Proposals,
    reach_direct: Tensor,
    words: NextWords,
    known: Mapping[str, NextSymbols] | None,
    length: int,
) -> Candidates | None:
    """A4: gather the distinct proposals of each sentence, and compute the terms of each once.

    ``known``: the source models after every prefix, if they have been run already.
    """
    found = Extensions.of(proposals, table.objective.shape[1], sentences.symbols)
    if found is None:
        return None
    slot, symbol, packing, symbol_N, family = found.slot, found.symbol, found.packing, found.symbol_N, found.family_N
    _require_memory(plan, sentences, table, length, words.number, proposals.score.shape[2], slot.shape[1])
    rows = table.packing.row.flatten().index_select(0, found.prefix_R)

    # log q of the extension in every cell, not only in those for which it was proposed.
    place_BQ = words.places(slot)
    word_BQ = packing.spread(words.scores.scores[packing.sentence, packing.gather(place_BQ), symbol_N])
    word_BQI = slot_columns(sentences.direct.words.scores, symbol).mT + word_BQ[:, :, None]
    direct = slot_rows(reach_direct, slot) + (word_BQI - slot_columns(words.normaliser, place_BQ).mT).double()
    if not packing.is_whole:
        direct = direct.masked_fill(~packing.filled[:, :, None], -torch.inf)

    if known is None:
        unread = {name: symbols[rows] for name, symbols in table.unread.items()}
        following = next_symbols(models.sources, table.source_states, table.source_parent[rows], unread)
    else:
        following = {name: source.select(rows) for name, source in known.items()}
    terms = {
        name: table.terms[name].gather(1, slot)
        + packing.spread(following[name].increments(model, family, symbol_N).double())
        for name, model in models.sources.items()
    }
    require_numbers(terms)
    column = channel = channel_state = None
    if models.channel is not None and table.column is not None:
        parents = table.channel_state.select(rows)
        read, channel_state = step_channel(models.channel, sentences, packing, symbol_N, parents, family)
        before = ChannelColumn(*(slot_rows(x, slot) for x in table.column))
        column, leave = read_one_more(models.channel, plan, sentences, packing, before, read)
        channel = sentences.at_last(leave)
    return Candidates(
        slot=slot,
        symbol=symbol,
        direct=direct,
        terms=terms,
        column=column,
        channel=channel,
        channel_state=channel_state,
        source_states={name: source.state for name, source in following.items()},
        rows=rows,
        family=family,
        packing=packing,
        place=found.place,
    )


def _next_table(
    models: Models,
    plan: SearchPlan,
    sentences: Sentences,
    table: PrefixTable,
    candidates: Candidates,
    objective_BQI: Tensor,
    order_BQ: Tensor,
) -> PrefixTable | None:
    """The distinct survivors, with the direct model run one step further."""
    alive = (objective_BQI > -torch.inf).any(2)
    count_B = alive.sum(1)
    P = int(count_B.max())
    if P == 0:
        return None
    # No candidate of a sentence that is closed is alive; in the others the survivors come first in the order.
    picked = order_BQ[:, :P]
    if count_B.shape[0] == 1:
        packing = Packing.whole(P, picked.device)
    else:
        packing = Packing.of(torch.arange(P, device=picked.device) < count_B[:, None])
    parent, symbol = candidates.slot.gather(1, picked), candidates.symbol.gather(1, picked)
    own = packing.gather(candidates.packing.row.gather(1, picked))
    extended, last_symbol_N = candidates.family[own], packing.gather(symbol)
    parents = table.direct_state.select(candidates.rows)
    output_scores = output_states = None
    if scores_late(models.direct, plan.settings, sentences.symbols):
        output_states, gate, direct_state = models.direct.advance_outputs(last_symbol_N, parents, extended)
    else:
        output, direct_state = models.direct.step_outputs(last_symbol_N, parents, extended)
        output_scores, gate = packing.spread(output.scores), output.gate
    column = candidates.column
    return PrefixTable(
        objective=slot_rows(objective_BQI, picked),
        direct=slot_rows(candidates.direct, picked),
        terms={name: term.gather(1, picked) for name, term in candidates.terms.items()},
        column=None if column is None else ChannelColumn(*(slot_rows(x, picked) for x in column)),
        packing=packing,
        output_scores=output_scores,
        output_states=output_states,
        output_gate=gate,
        direct_state=direct_state,
        channel_state=None if candidates.channel_state is None else candidates.channel_state.select(own),
        source_states=candidates.source_states,
        source_parent=extended,
        unread=dict.fromkeys(candidates.terms, last_symbol_N),
        parent=parent,
        symbol=symbol,
    )
