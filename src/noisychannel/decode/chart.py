"""The chart search for a batch of sentences: Algorithm 1 over a table of distinct prefixes.

States depend on the prefix and not on the cell, so the table of one output length holds each distinct prefix once, with
its columns over the input: the direct model's (whole, so that direct scores are exact), the objective (only in the
cells where it survived), and the channel's. One step takes the table from length j-1 to length j:

    1. every prefix reaches every cell                                     columns.Transitions
    2. the direct model proposes K1 extensions for each cell               proposals
    3. distinct extensions become candidates; each is scored once          _score
    4. complete candidates (EOS, last column) leave for the answers; K2 of the others survive in each cell
    5. distinct survivors make the next table; only they are run through the direct model

The language model is run later still, in step 3 of the next length, and only on the prefixes that are then extended.

Scores are float64; the networks keep their own precision.

The networks run on the N prefixes or candidates there are; what is summed and ranked lies in [B,P] or [B,Q] slots, as
many as the sentence with most of them needs (``Packing`` goes from one to the other).

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, K = K1, V output
symbols, X input symbols, G gate size, A answers, R prefixes that are extended. Slots that a sentence does not fill have
objective -inf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisychannel.decode.columns import ChannelColumn, Transitions, advance_channel
from noisychannel.decode.proposals import Listed, Proposals, propose
from noisychannel.decode.selection import complete, still_open, survivors
from noisychannel.decode.table import Answers, Candidates, Known, Models, Packing, Sentences, Settings, Table
from noisychannel.ids import BOS, EOS, inside
from noisychannel.joint import log_normaliser
from noisychannel.models.protocols import ChannelModel, Side, SourceModel, Transducer

EMISSIONS_IN_CACHE = 1 << 20
"""Elements of the [N,I,G] block behind the emission gates, on a CPU: what its caches hold."""
EMISSIONS_AT_ONCE = 1 << 28
"""And elsewhere: bounds memory."""


def read_sentences(
    models: Models, settings: Settings, inputs_BI: Tensor, lengths: Tensor, max_length: Tensor, context_BT: Tensor
) -> Sentences:
    """Run what depends on the input alone."""
    inside_BI = inside(lengths, inputs_BI.shape[1], inputs_BI.device)
    direct = Known.of(models.direct.read_inputs(inputs_BI, lengths.cpu()))
    proposable = settings.proposable(direct.words.scores)
    # EOS may be proposed in the last column only.
    last_BI = torch.arange(inputs_BI.shape[1], device=inside_BI.device) == (lengths - 1)[:, None]
    proposable[:, :, EOS].masked_fill_(~last_BI, -torch.inf)
    channel = None if models.channel is None else Known.of(models.channel.read_outputs(inputs_BI))
    return Sentences(inputs_BI, lengths, inside_BI, max_length, direct, Listed.of(proposable), channel, context_BT)


def first_table(models: Models, settings: Settings, sentences: Sentences) -> Table:
    """The empty prefix, which has read nothing: it stands in the first cell."""
    B, I = sentences.inputs.shape
    start = torch.full((B, 1, I), -torch.inf, dtype=torch.float64, device=sentences.inputs.device)
    packing = Packing.of(torch.ones_like(start[:, :, 0], dtype=torch.bool))
    column = channel_state = None
    if models.channel is not None:
        column, channel_state = ChannelColumn.empty(start), models.channel.start_inputs(B)
        for symbol_B in sentences.context.unbind(1):
            read, channel_state = models.channel.step_inputs(symbol_B, channel_state)
            column, _ = _advance(models.channel, settings, sentences, packing, column, read)
    start[:, :, 0] = 0.0
    bos_B = torch.full((B,), BOS, device=start.device)
    output, direct_state = models.direct.step_outputs(bos_B, models.direct.start_outputs(B))
    lm = lm_state = None
    last_B = bos_B
    if models.lm is not None:
        lm, lm_state = start[:, :, 0].clone(), models.lm.start(B)
        for symbol_B in sentences.context.unbind(1) if models.lm.reads_features else ():
            next_BV, lm_state = models.lm.step(last_B, lm_state)
            lm += next_BV.gather(1, symbol_B[:, None])
            last_B = symbol_B
    return Table(
        objective=start,
        direct=start,
        lm=lm,
        column=column,
        packing=packing,
        output_scores=packing.spread(output.scores),
        output_gate=output.gate,
        direct_state=direct_state,
        channel_state=channel_state,
        lm_state=lm_state,
        lm_parent=packing.sentence,
        parent=torch.zeros_like(last_B)[:, None],
        symbol=last_B[:, None],
    )


def step(
    models: Models, settings: Settings, sentences: Sentences, table: Table, answers: Answers, length: int
) -> tuple[Table | None, Answers]:
    """From the prefixes of ``length`` - 1 to those of ``length``; no table where none is left."""
    emit_NI = _emissions(models.direct, sentences.direct.gate, table.output_gate, table.packing, built_is_output=True)
    transitions = Transitions.of(table.packing.spread(emit_NI))
    normaliser_BIP = log_normaliser(sentences.direct.words, table.output_scores)
    outside_B1I = ~sentences.inside[:, None]
    reach = transitions.reach(table.objective, settings.over_direct).masked_fill(outside_B1I, -torch.inf)
    reach_direct = transitions.reach(table.direct, settings.over_direct).masked_fill(outside_B1I, -torch.inf)
    proposals = propose(reach, sentences.proposable, Listed.of(table.output_scores), normaliser_BIP, settings.k1)
    spoken = None
    if models.lm is not None and settings.lm_proposals:
        spoken = _speak(models.lm, table, torch.arange(len(table.lm_parent), device=reach.device))
        proposals = _with_lm_proposals(settings, sentences, table, reach, spoken[0], proposals)
    candidates = _score(models, settings, sentences, table, proposals, reach_direct, normaliser_BIP, spoken)
    if candidates is None:
        return None, answers
    answers = answers.merge(complete(settings, sentences, candidates, length))
    objective_BQI, order_BQ = survivors(settings, sentences, candidates, length)
    open_B = still_open(settings, sentences, candidates, objective_BQI, answers, length) & (
        sentences.max_length > length
    )
    objective_BQI = objective_BQI.masked_fill(~open_B[:, None, None], -torch.inf)
    return _next_table(models, table, candidates, objective_BQI, order_BQ), answers


def _emissions(
    model: Transducer, known_BIG: Tensor, built_NG: Tensor, packing: Packing, built_is_output: bool
) -> Tensor:
    """The emission logits between every position of x and what is being built, of which N are known: [N,I]."""
    _, I, G = known_BIG.shape
    room = EMISSIONS_IN_CACHE if known_BIG.device.type == "cpu" else EMISSIONS_AT_ONCE
    pieces = []
    for built, sentence in zip(*(x.split(max(1, room // (I * G))) for x in (built_NG, packing.sentence)), strict=True):
        known, one = known_BIG.index_select(0, sentence), built[:, None]
        inputs, outputs = (known, one) if built_is_output else (one, known)
        # Only the gates of the two sides are looked at.
        pieces.append(model.emit_logits(Side(inputs, inputs), Side(outputs, outputs)).flatten(1))
    return torch.cat(pieces)


def _speak(lm: SourceModel[Any], table: Table, rows_R: Tensor) -> tuple[Tensor, Any]:
    """The language model's log p(next symbol) [R,V] after some prefixes of the table, and its states of these."""
    parents, which = table.lm_parent[rows_R].unique(return_inverse=True)
    symbol_R = table.packing.gather(table.symbol)[rows_R]
    next_RV, state = lm.step(symbol_R, table.lm_state.select(parents), which)
    return next_RV, state


def _with_lm_proposals(
    settings: Settings, sentences: Sentences, table: Table, reach_BPI: Tensor, lm_NV: Tensor, proposals: Proposals
) -> Proposals:
    """The direct model's proposals and those of the language model that are not among them."""
    lm_BPV = table.packing.spread(lm_NV)
    anywhere_BIV = torch.where(sentences.proposable.scores > -torch.inf, 0.0, -torch.inf).to(lm_BPV.dtype)
    no_normaliser = lm_BPV.new_zeros(()).expand(*anywhere_BIV.shape[:2], lm_BPV.shape[1])
    more = propose(reach_BPI, Listed.of(anywhere_BIV), Listed.of(lm_BPV), no_normaliser, settings.lm_proposals)
    same_prefix = more.prefix[..., None] == proposals.prefix[..., None, :]
    same_symbol = more.symbol[..., None] == proposals.symbol[..., None, :]
    known = (same_prefix & same_symbol & (proposals.score > -torch.inf)[..., None, :]).any(-1)
    more = more._replace(score=more.score.masked_fill(known, -torch.inf))
    return Proposals(*(torch.cat(pair, dim=2) for pair in zip(proposals, more, strict=True)))


def _score(
    models: Models,
    settings: Settings,
    sentences: Sentences,
    table: Table,
    proposals: Proposals,
    reach_direct: Tensor,
    normaliser_BIP: Tensor,
    spoken: tuple[Tensor, Any] | None,
) -> Candidates | None:
    """Gather the distinct proposals of each sentence, and score each once.

    ``spoken`` is what the language model says after every prefix, where that is known already.
    """
    B, P, _ = table.objective.shape
    V = table.output_scores.shape[2]
    proposed = (proposals.score > -torch.inf).nonzero().unbind(1)
    sentence, I = torch.arange(B, device=proposals.score.device)[:, None, None], proposals.score.shape[1]
    keys = ((sentence * P + proposals.prefix) * V + proposals.symbol)[proposed]
    if len(keys) == 0:
        return None
    distinct, which = keys.unique(return_inverse=True)
    owner = distinct // (P * V)
    count_B = owner.bincount(minlength=B)
    Q = int(count_B.max())
    rank = torch.arange(len(distinct), device=keys.device) - (count_B.cumsum(0) - count_B)[owner]
    slot, symbol = (torch.zeros(B, Q, dtype=torch.long, device=keys.device) for _ in range(2))
    slot[owner, rank], symbol[owner, rank] = distinct // V % P, distinct % V
    packing = Packing.at(owner, rank, slot.shape)
    place = torch.full_like(proposals.prefix, -1)
    place[proposed] = rank[which]
    prefixes, family = (distinct // V).unique_consecutive(return_inverse=True)
    rows = table.packing.row.flatten()[prefixes]

    # log q of the extension in every cell, not only where it was proposed.
    word_BQI = sentences.direct.words.scores.gather(2, symbol[:, None].expand(-1, I, -1)).mT
    word_BQ = table.output_scores[sentence[:, :, 0], slot, symbol]
    norm_BQI = normaliser_BIP.gather(2, slot[:, None].expand(-1, I, -1)).mT
    direct = _rows(reach_direct, slot) + (word_BQI + word_BQ[:, :, None] - norm_BQI).double()
    direct = direct.masked_fill(~packing.filled[:, :, None], -torch.inf)

    lm = lm_state = None
    if models.lm is not None and table.lm is not None:
        next_RV, lm_state = _speak(models.lm, table, rows) if spoken is None else _narrowed(spoken, rows)
        lm = table.lm.gather(1, slot) + packing.spread(next_RV[family, distinct % V].double())

    column = channel = channel_state = None
    if models.channel is not None and table.column is not None:
        parents = table.channel_state.select(rows)
        read, channel_state = models.channel.step_inputs(distinct % V, parents, family)
        before = ChannelColumn(*(_rows(x, slot) for x in table.column))
        column, leave = _advance(models.channel, settings, sentences, packing, before, read)
        channel = sentences.at_last(leave)
    return Candidates(
        slot, symbol, direct, lm, column, channel, channel_state, lm_state, rows, family, packing, place
    )  # fmt: skip


def _narrowed(spoken: tuple[Tensor, Any], rows: Tensor) -> tuple[Tensor, Any]:
    return spoken[0][rows], spoken[1].select(rows)


def _advance(
    channel: ChannelModel[Any],
    settings: Settings,
    sentences: Sentences,
    packing: Packing,
    before: ChannelColumn,
    read: Side,
) -> tuple[ChannelColumn, Tensor]:
    """The channel's columns when it has read one more symbol, and its leave at the new position: [B,Q,I]."""
    assert sentences.channel is not None
    written, inputs_BI = sentences.channel, sentences.inputs
    scores_BQX = packing.spread(read.scores)
    from_candidate = scores_BQX.gather(2, inputs_BI[:, None].expand(-1, scores_BQX.shape[1], -1))
    from_input = written.words.scores.gather(2, inputs_BI[:, :, None]).mT
    word_logp_BQI = from_candidate + from_input - log_normaliser(scores_BQX, written.words)
    emit_NI = _emissions(channel, written.gate, read.gate, packing, built_is_output=False)
    return advance_channel(before, packing.spread(emit_NI), word_logp_BQI, settings.over_channel)


def _next_table(
    models: Models, table: Table, candidates: Candidates, objective_BQI: Tensor, order_BQ: Tensor
) -> Table | None:
    """The distinct survivors, with the direct model run one step further."""
    alive = (objective_BQI > -torch.inf).any(2)
    count_B = alive.sum(1)
    P = int(count_B.max())
    if P == 0:
        return None
    # In a sentence that is searched no further none is alive; in the others the survivors come first in the order.
    picked = order_BQ[:, :P]
    packing = Packing.of(torch.arange(P, device=picked.device) < count_B[:, None])
    parent, symbol = candidates.slot.gather(1, picked), candidates.symbol.gather(1, picked)
    own = packing.gather(candidates.packing.row.gather(1, picked))
    extended = candidates.family[own]
    output, direct_state = models.direct.step_outputs(
        packing.gather(symbol), table.direct_state.select(candidates.rows), extended
    )
    return Table(
        objective=_rows(objective_BQI, picked),
        direct=_rows(candidates.direct, picked),
        lm=None if candidates.lm is None else candidates.lm.gather(1, picked),
        column=None if candidates.column is None else ChannelColumn(*(_rows(x, picked) for x in candidates.column)),
        packing=packing,
        output_scores=packing.spread(output.scores),
        output_gate=output.gate,
        direct_state=direct_state,
        channel_state=None if candidates.channel_state is None else candidates.channel_state.select(own),
        lm_state=candidates.lm_state,
        lm_parent=extended,
        parent=parent,
        symbol=symbol,
    )


def _rows(x_BPI: Tensor, slots_BQ: Tensor) -> Tensor:
    """The rows of the given slots: [B,P,I] -> [B,Q,I]."""
    return x_BPI.gather(1, slots_BQ[:, :, None].expand(-1, -1, x_BPI.shape[2]))
