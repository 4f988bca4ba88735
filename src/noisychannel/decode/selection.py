"""Selection: answers, the K2 survivors of each cell, and the sentences in which the search goes on.

Of equal hypotheses of a cell, that of the better proposal comes first, as in Algorithm 1.

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, K = K1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from noisychannel.decode.answers import Answers
from noisychannel.decode.columns import total
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.table import Candidates, PrefixTable
from noisychannel.ids import EOS


def complete(plan: SearchPlan, sentences: Sentences, candidates: Candidates, length: int) -> Answers:
    """A6: the candidates that end in EOS, with their exact scores, by the rank of their proposals: [B,K]."""
    place_BK = sentences.at_last(candidates.place.mT)
    if place_BK.device.type == "cpu" and not bool((candidates.symbol == EOS).any()):
        B, K = place_BK.shape
        return Answers.none(("direct", *candidates.with_channel(candidates.channel)), B, K, place_BK.device)
    direct = sentences.at_last(candidates.direct)
    terms = candidates.with_channel(candidates.channel)
    score = plan.weights.combine(direct, terms, length)
    score = score.masked_fill((candidates.symbol != EOS) | (direct == -torch.inf), -torch.inf)
    answers = Answers(score, {"direct": direct, **terms}, torch.full_like(candidates.slot, length), candidates.slot)
    return answers.each(lambda x: x.gather(1, place_BK.clamp(min=0))).masked(place_BK < 0)


def partial_channel(written_BQI: Tensor, lengths: Tensor) -> Tensor:
    """The channel's score of partial outputs in each cell: [B,Q,I].

    x's EOS may be written only together with y's, so in the last column a partial output explains x without it.
    """
    without_eos = torch.cat([torch.zeros_like(written_BQI[..., :1]), written_BQI[..., :-1]], dim=-1)
    last = torch.arange(written_BQI.shape[2], device=written_BQI.device) == (lengths - 1)[:, None]
    return torch.where(last[:, None], without_eos, written_BQI)


class Survivors(NamedTuple):
    """The candidates that stay in some cell."""

    objective: Tensor
    """O in the cells in which a candidate is among the K2 best of those proposed, else -inf: [B,Q,I]."""
    order: Tensor
    """Candidates by the first cell in which they stay and their rank in it, those that stay nowhere last: [B,Q]."""


def survivors(plan: SearchPlan, sentences: Sentences, candidates: Candidates, length: int) -> Survivors:
    """A2, A5: the K2 best of each cell, by the objective."""
    channel = None if candidates.column is None else partial_channel(candidates.column.written, sentences.lengths)
    terms = {name: term[:, :, None] for name, term in candidates.terms.items()}
    if channel is not None:
        terms["channel"] = channel
    objective_BQI = plan.weights.combine(candidates.direct, terms, length)
    unreached = (candidates.direct == -torch.inf) | (candidates.symbol == EOS)[:, :, None]
    objective_BQI = objective_BQI.masked_fill(unreached, -torch.inf)

    if objective_BQI.device.type == "cpu":
        return _survivors_on_cpu(objective_BQI, candidates.place, plan.settings.k2)
    place = candidates.place.clamp(min=0)
    ranked_BIK = objective_BQI.mT.gather(2, place).masked_fill(candidates.place < 0, -torch.inf)
    best, chosen = (x[..., : plan.settings.k2] for x in ranked_BIK.sort(dim=2, descending=True, stable=True))
    stays, candidate = (best > -torch.inf).flatten(1), place.gather(2, chosen)
    kept_BIQ = torch.zeros_like(objective_BQI.mT, dtype=torch.long)
    kept_BIQ.scatter_add_(2, candidate, stays.view_as(candidate).long())
    # The first place of each candidate in the list of all cells' survivors.
    nowhere = stays.shape[1]
    met = torch.arange(nowhere, device=place.device).where(stays, nowhere)
    first_BQ = torch.full_like(candidates.slot, nowhere).scatter_reduce_(1, candidate.flatten(1), met, "amin")
    return Survivors(objective_BQI.masked_fill(kept_BIQ.mT == 0, -torch.inf), first_BQ.argsort(dim=1))


def _survivors_on_cpu(objective_BQI: Tensor, place_BIK: Tensor, k2: int) -> Survivors:
    """``survivors`` of this objective. NumPy needs a fraction of PyTorch's time for operations on a few numbers."""
    (B, Q, I), K = objective_BQI.shape, place_BIK.shape[2]
    objective, place = objective_BQI.numpy().reshape(-1), place_BIK.numpy().reshape(B * I, K)
    sentence, cell = np.divmod(np.arange(B * I), I)
    # Where each proposal's objective is, and its candidate among all B·Q.
    candidate = place + (sentence * Q)[:, None]
    where = candidate * I + cell[:, None]
    none = place < 0
    ranked = np.where(none, -np.inf, objective.take(np.where(none, 0, where)))
    chosen = (-ranked).argsort(axis=1, kind="stable")[:, :k2]
    stays = np.flatnonzero(np.take_along_axis(ranked, chosen, 1) > -np.inf)
    chosen += np.arange(0, B * I * K, K)[:, None]
    chosen = chosen.reshape(-1)[stays]
    surviving = np.full_like(objective, -np.inf)
    kept = where.reshape(-1)[chosen]
    surviving[kept] = objective[kept]
    # The first place of each candidate in the list of all cells' survivors: of several assignments the last counts.
    first = np.full(B * Q, B * I * K)
    first[candidate.reshape(-1)[chosen[::-1]]] = stays[::-1]
    order = first.reshape(B, Q).argsort(axis=1, kind="stable")
    return Survivors(torch.from_numpy(surviving).view(B, Q, I), torch.from_numpy(order))


def still_open(
    models: Models,
    plan: SearchPlan,
    sentences: Sentences,
    candidates: Candidates,
    objective_BQI: Tensor,
    answers: Answers,
    length: int,
) -> Tensor:
    """Sentences in which a survivor can still be continued into one of the n best answers: [B].

    Every term of a continuation is bounded by the prefix: the direct score by the total of its column, a source term
    by its present value, and the channel by the total of what it can still write. If a term is not bounded
    (``SearchPlan.bounded``), every sentence stays open.
    """
    weights = plan.weights
    if not plan.bounded(models):
        return torch.ones_like(sentences.lengths, dtype=torch.bool)
    survives = (objective_BQI > -torch.inf).any(2)
    if survives.device.type == "cpu" and not bool((answers.score[:, -1] > -torch.inf).any()):
        return survives.any(1)
    direct = total(candidates.direct, plan.over_direct)
    channel = None
    if candidates.column is not None:
        channel = total(candidates.column.onward, plan.over_channel)
    bound = weights.combine(direct, candidates.with_channel(channel), 0)
    longest = sentences.max_length[:, None] if weights.length > 0 else length + 1
    bound = bound + weights.length * longest
    return (survives & (bound > answers.score[:, -1:])).any(1)


def best_partial(sentences: Sentences, table: PrefixTable, length: int) -> Answers:
    """The best prefix of the table in each sentence, as an answer: [B,1]; score -inf if there is none."""
    I = table.objective.shape[2]
    score, place = table.objective.flatten(1).max(1, keepdim=True)
    slot = place // I

    def there(x_BPI: Tensor) -> Tensor:
        return x_BPI.flatten(1).gather(1, place)

    terms = {"direct": there(table.direct)}
    if table.column is not None:
        terms["channel"] = there(partial_channel(table.column.written, sentences.lengths))
    terms |= {name: term.gather(1, slot) for name, term in table.terms.items()}
    return Answers(score, terms, torch.full_like(slot, length), slot)
