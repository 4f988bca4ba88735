"""The chart search for a batch of sentences: Algorithm 1 over a table of distinct prefixes.

States depend on the prefix and not on the cell, so the table of one output length holds each distinct prefix once, with
its columns over the input: the direct model's (whole, so that direct scores are exact), the objective (only in the
cells where it survived), and the channel's. One step takes the table from length j-1 to length j:

    1. every prefix reaches every cell                                     columns.Transitions
    2. the direct model proposes K1 extensions for each cell               proposals
    3. distinct extensions become candidates; each is scored once          _score
    4. complete candidates (EOS, last column) leave for the answers; K2 of the others survive in each cell
    5. distinct survivors make the next table; only they are run through the direct and the language model

Scores are float64; the networks keep their own precision.

The networks run on the N prefixes or candidates there are; what is summed and ranked lies in [B,P] or [B,Q] slots, as
many as the sentence with most of them needs (``Packing`` goes from one to the other).

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, K = K1, V output
symbols, X input symbols, G gate size, A answers. Slots that a sentence does not fill have objective -inf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisychannel.decode.columns import ChannelColumn, Transitions, advance_channel
from noisychannel.decode.proposals import Proposals, propose
from noisychannel.decode.table import Answers, Candidates, Models, Packing, Sentences, Settings, Table
from noisychannel.joint import log_normaliser
from noisychannel.models.protocols import ChannelModel, Transducer
from noisychannel.models.ssnt import Side
from noisychannel.symbols import BOS, EOS, inside

EMISSIONS_AT_ONCE = 1 << 24
"""Elements of the [N,I,G] block behind the emission gates: bounds memory."""


def read_sentences(
    models: Models, inputs_BI: Tensor, lengths: Tensor, max_length: Tensor, context_BT: Tensor
) -> Sentences:
    """Run what depends on the input alone."""
    return Sentences(
        inputs_BI,
        lengths,
        inside(lengths, inputs_BI.shape[1], inputs_BI.device),
        max_length,
        models.direct.read_inputs(inputs_BI, lengths.cpu()),
        None if models.channel is None else models.channel.read_outputs(inputs_BI),
        context_BT,
    )


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
    bos = torch.full((B, 1), BOS, device=start.device)
    output, direct_state = models.direct.step_outputs(bos[:, 0], models.direct.start_outputs(B))
    lm_next, lm_state = (None, None) if models.lm is None else models.lm.step(bos[:, 0], models.lm.start(B))
    return Table(
        objective=start,
        direct=start,
        lm=None if models.lm is None else start[:, :, 0].clone(),
        column=column,
        packing=packing,
        output_scores=packing.spread(output.scores),
        output_gate=output.gate,
        lm_next=None if lm_next is None else packing.spread(lm_next),
        direct_state=direct_state,
        lm_state=lm_state,
        channel_state=channel_state,
        parent=torch.zeros_like(bos),
        symbol=bos,
    )


def step(
    models: Models, settings: Settings, sentences: Sentences, table: Table, answers: Answers, length: int
) -> tuple[Table | None, Answers]:
    """From the prefixes of ``length`` - 1 to those of ``length``; no table where none is left."""
    emit_NI = _emissions(models.direct, sentences.direct.gate, table.output_gate, table.packing, built_is_output=True)
    transitions = Transitions.of(table.packing.spread(emit_NI))
    normaliser_BIP = log_normaliser(sentences.direct.scores, table.output_scores)
    outside_B1I = ~sentences.inside[:, None]
    reach = transitions.reach(table.objective, settings.over_direct).masked_fill(outside_B1I, -torch.inf)
    reach_direct = transitions.reach(table.direct, settings.over_direct).masked_fill(outside_B1I, -torch.inf)
    proposals = _propose(settings, sentences, table, reach, normaliser_BIP, length)
    candidates = _score(models, settings, sentences, table, proposals, reach_direct, normaliser_BIP)
    if candidates is None:
        return None, answers
    answers = answers.merge(_complete(settings, sentences, candidates, length))
    objective_BQI = _survivors(settings, sentences, candidates, length)
    open_B = _open(settings, sentences, candidates, objective_BQI, answers, length) & (sentences.max_length > length)
    objective_BQI = objective_BQI.masked_fill(~open_B[:, None, None], -torch.inf)
    return _next_table(models, table, candidates, objective_BQI), answers


def _emissions(
    model: Transducer, known_BIG: Tensor, built_NG: Tensor, packing: Packing, built_is_output: bool
) -> Tensor:
    """The emission logits between every position of x and what is being built, of which N are known: [N,I]."""
    _, I, G = known_BIG.shape
    pieces = []
    for built, sentence in zip(
        *(x.split(max(1, EMISSIONS_AT_ONCE // (I * G))) for x in (built_NG, packing.sentence)), strict=True
    ):
        known, one = known_BIG[sentence], built[:, None]
        inputs, outputs = (known, one) if built_is_output else (one, known)
        # Only the gates of the two sides are looked at.
        pieces.append(model.emit_logits(Side(inputs, inputs), Side(outputs, outputs)).flatten(1))
    return torch.cat(pieces)


def _propose(
    settings: Settings, sentences: Sentences, table: Table, reach_BPI: Tensor, normaliser_BIP: Tensor, length: int
) -> Proposals:
    """The direct model's proposals and, where asked for, the language model's that are not among them."""
    allowed = _allowed(settings, sentences, length)
    input_scores, output_scores = sentences.direct.scores, table.output_scores
    proposals = propose(reach_BPI, input_scores, output_scores, normaliser_BIP, allowed, settings.k1)
    if not settings.lm_proposals or table.lm_next is None:
        return proposals
    nothing_BI1 = torch.zeros_like(input_scores[:, :, :1])
    more = propose(
        reach_BPI, nothing_BI1.expand_as(input_scores), table.lm_next, nothing_BI1.expand_as(normaliser_BIP), allowed,
        settings.lm_proposals,
    )  # fmt: skip
    same_prefix = more.prefix[..., None] == proposals.prefix[..., None, :]
    same_symbol = more.symbol[..., None] == proposals.symbol[..., None, :]
    known = (same_prefix & same_symbol & (proposals.score > -torch.inf)[..., None, :]).any(-1)
    more = more._replace(score=more.score.masked_fill(known, -torch.inf))
    return Proposals(*(torch.cat(pair, dim=2) for pair in zip(proposals, more, strict=True)))


def _allowed(settings: Settings, sentences: Sentences, length: int) -> Tensor:
    """Which symbols may be proposed: EOS in the last column only, and nothing beyond the longest output: [B,I,V]."""
    I = sentences.inputs.shape[1]
    grows_B11 = (sentences.max_length >= length)[:, None, None]
    last_BI = torch.arange(I, device=grows_B11.device) == (sentences.lengths - 1)[:, None]
    is_eos = torch.arange(len(settings.allowed), device=grows_B11.device) == EOS
    return settings.allowed & grows_B11 & (~is_eos | last_BI[:, :, None])


def _score(
    models: Models,
    settings: Settings,
    sentences: Sentences,
    table: Table,
    proposals: Proposals,
    reach_direct: Tensor,
    normaliser_BIP: Tensor,
) -> Candidates | None:
    """Gather the distinct proposals of each sentence, and score each once."""
    B, P, _ = table.objective.shape
    V = table.output_scores.shape[2]
    proposed = proposals.score > -torch.inf
    sentence = torch.arange(B, device=proposed.device)[:, None, None]
    keys = ((sentence * P + proposals.prefix) * V + proposals.symbol)[proposed]
    if len(keys) == 0:
        return None
    distinct, which = keys.unique(return_inverse=True)
    owner = distinct // (P * V)
    count_B = owner.bincount(minlength=B)
    Q = int(count_B.max())
    rank = torch.arange(len(distinct), device=keys.device) - (count_B.cumsum(0) - count_B)[owner]
    slot, symbol = (torch.zeros(B, Q, dtype=torch.long, device=keys.device) for _ in range(2))
    filled = torch.zeros(B, Q, dtype=torch.bool, device=keys.device)
    slot[owner, rank], symbol[owner, rank], filled[owner, rank] = distinct // V % P, distinct % V, True
    packing = Packing.of(filled)
    place = torch.full_like(proposals.prefix, -1)
    place[proposed] = rank[which]

    # log q of the extension in every cell, not only where it was proposed.
    word_BQI = sentences.direct.scores.gather(2, symbol[:, None].expand(-1, proposed.shape[1], -1)).mT
    word_BQ = table.output_scores[sentence[:, :, 0], slot, symbol]
    norm_BQI = normaliser_BIP.gather(2, slot[:, None].expand(-1, proposed.shape[1], -1)).mT
    direct = _rows(reach_direct, slot) + (word_BQI + word_BQ[:, :, None] - norm_BQI).double()
    direct = direct.masked_fill(~filled[:, :, None], -torch.inf)

    lm = None
    if table.lm is not None and table.lm_next is not None:
        lm = table.lm.gather(1, slot) + table.lm_next[sentence[:, :, 0], slot, symbol].double()

    column = channel = channel_state = None
    if models.channel is not None and table.column is not None:
        parents = table.packing.row.gather(1, slot)[filled]
        read, channel_state = models.channel.step_inputs(symbol[filled], table.channel_state.select(parents))
        before = ChannelColumn(*(_rows(x, slot) for x in table.column))
        column, leave = _advance(models.channel, settings, sentences, packing, before, read)
        channel = sentences.at_last(leave)
    return Candidates(slot, symbol, direct, lm, column, channel, channel_state, packing, place)


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
    from_input = written.scores.gather(2, inputs_BI[:, :, None]).mT
    word_logp_BQI = from_candidate + from_input - log_normaliser(scores_BQX, written.scores)
    emit_NI = _emissions(channel, written.gate, read.gate, packing, built_is_output=False)
    return advance_channel(before, packing.spread(emit_NI), word_logp_BQI, settings.over_channel)


def _complete(settings: Settings, sentences: Sentences, candidates: Candidates, length: int) -> Answers:
    """The candidates that end in EOS, with their exact scores."""
    direct = sentences.at_last(candidates.direct)
    score = settings.weights.combine(direct, candidates.channel, candidates.lm, length)
    score = score.masked_fill((candidates.symbol != EOS) | (direct == -torch.inf), -torch.inf)
    nothing = torch.zeros_like(score)
    return Answers(
        score,
        direct,
        nothing if candidates.channel is None else candidates.channel,
        nothing if candidates.lm is None else candidates.lm,
        torch.full_like(candidates.slot, length),
        candidates.slot,
    )


def partial_channel(written_BQI: Tensor, lengths: Tensor) -> Tensor:
    """The channel's score of partial outputs in each cell.

    x's EOS may be written only together with y's: in the last column a partial output is asked for x without it.
    """
    without_eos = torch.cat([torch.zeros_like(written_BQI[..., :1]), written_BQI[..., :-1]], dim=-1)
    last = torch.arange(written_BQI.shape[2], device=written_BQI.device) == (lengths - 1)[:, None]
    return torch.where(last[:, None], without_eos, written_BQI)


def _survivors(settings: Settings, sentences: Sentences, candidates: Candidates, length: int) -> Tensor:
    """O of the candidates in the cells where they are among the K2 best of those proposed, else -inf: [B,Q,I]."""
    channel = None if candidates.column is None else partial_channel(candidates.column.written, sentences.lengths)
    lm = None if candidates.lm is None else candidates.lm[:, :, None]
    objective_BQI = settings.weights.combine(candidates.direct, channel, lm, length)
    unreached = (candidates.direct == -torch.inf) | (candidates.symbol == EOS)[:, :, None]
    objective_BQI = objective_BQI.masked_fill(unreached, -torch.inf)

    place = candidates.place.clamp(min=0)
    ranked_BIK = objective_BQI.mT.gather(2, place).masked_fill(candidates.place < 0, -torch.inf)
    best, chosen = ranked_BIK.topk(settings.k2, dim=2)
    kept_BIQ = torch.zeros_like(objective_BQI.mT, dtype=torch.long)
    kept_BIQ.scatter_add_(2, place.gather(2, chosen), (best > -torch.inf).long())
    return objective_BQI.masked_fill(kept_BIQ.mT == 0, -torch.inf)


def _open(
    settings: Settings,
    sentences: Sentences,
    candidates: Candidates,
    objective_BQI: Tensor,
    answers: Answers,
    length: int,
) -> Tensor:
    """Sentences in which a survivor can still be continued into one of the n best answers: [B].

    All three log-probabilities of a continuation are bounded by the prefix: the direct score by its column's total,
    the language model's by the prefix's own, and the channel's by what it has not yet lost when it reads on.
    """
    weights = settings.weights
    if min(weights.direct, weights.channel, weights.lm) < 0:
        return torch.ones_like(sentences.lengths, dtype=torch.bool)
    direct = settings.over_direct(candidates.direct)[..., -1]
    channel = None if candidates.column is None else settings.over_channel(candidates.column.onward)[..., -1]
    bound = weights.combine(direct, channel, candidates.lm, 0)
    longest = sentences.max_length[:, None] if weights.length > 0 else length + 1
    bound = bound + weights.length * longest
    survives = (objective_BQI > -torch.inf).any(2)
    return (survives & (bound > answers.score[:, -1:])).any(1)


def _next_table(models: Models, table: Table, candidates: Candidates, objective_BQI: Tensor) -> Table | None:
    """The distinct survivors, with their networks run one step further."""
    alive = (objective_BQI > -torch.inf).any(2)
    count_B = alive.sum(1)
    P = int(count_B.max())
    if P == 0:
        return None
    picked = alive.byte().argsort(dim=1, descending=True, stable=True)[:, :P]
    packing = Packing.of(torch.arange(P, device=picked.device) < count_B[:, None])
    parent, symbol = candidates.slot.gather(1, picked), candidates.symbol.gather(1, picked)
    parents, symbols = table.packing.row.gather(1, parent)[packing.filled], symbol[packing.filled]
    output, direct_state = models.direct.step_outputs(symbols, table.direct_state.select(parents))
    lm_next = lm_state = None
    if models.lm is not None:
        lm_next, lm_state = models.lm.step(symbols, table.lm_state.select(parents))
        lm_next = packing.spread(lm_next)
    channel_state = None
    if candidates.channel_state is not None:
        own = candidates.packing.row.gather(1, picked)[packing.filled]
        channel_state = candidates.channel_state.select(own)
    return Table(
        objective=_rows(objective_BQI, picked),
        direct=_rows(candidates.direct, picked),
        lm=None if candidates.lm is None else candidates.lm.gather(1, picked),
        column=None if candidates.column is None else ChannelColumn(*(_rows(x, picked) for x in candidates.column)),
        packing=packing,
        output_scores=packing.spread(output.scores),
        output_gate=output.gate,
        lm_next=lm_next,
        direct_state=direct_state,
        lm_state=lm_state,
        channel_state=channel_state,
        parent=parent,
        symbol=symbol,
    )


def _rows(x_BPI: Tensor, slots_BQ: Tensor) -> Tensor:
    """The rows of the given slots: [B,P,I] -> [B,Q,I]."""
    return x_BPI.gather(1, slots_BQ[:, :, None].expand(-1, -1, x_BPI.shape[2]))
