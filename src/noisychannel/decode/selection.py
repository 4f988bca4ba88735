"""Selection: answers, the K2 survivors of each cell, and the sentences in which the search goes on.

Of equal hypotheses of a cell, that of the better proposal comes first, as in Algorithm 1.

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, K = K1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.decode import selection_on_cpu as on_cpu
from noisychannel.decode.answers import Answers
from noisychannel.decode.columns import total
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.table import Candidates, PrefixTable
from noisychannel.ids import EOS


def in_numpy(x: Tensor) -> bool:
    """Whether ``selection_on_cpu`` is faster."""
    return x.device.type == "cpu"


def complete(plan: SearchPlan, sentences: Sentences, candidates: Candidates, length: int) -> Answers:
    """A6: the candidates that end in EOS, with their exact scores, by the rank of their proposals: [B,K]."""
    if in_numpy(candidates.slot):
        return on_cpu.complete(plan, sentences, candidates, length)
    place_BK = sentences.at_last(candidates.place.mT)
    terms = {"direct": sentences.at_last(candidates.direct), **candidates.with_channel(candidates.channel)}
    ended_BQ = (candidates.symbol == EOS).double().log_()  # 0 if it is, else -inf
    every = Answers.of(ended_BQ, terms, length, candidates.slot)
    proposed = every.numbers.gather(2, place_BK.clamp(min=0).expand(len(every.numbers), -1, -1))
    found = Answers(proposed, every.names)
    score_BK = plan.weights.combine(found.terms["direct"], found.terms, length)
    none_BK = (place_BK < 0) | (proposed[0] == -torch.inf) | (proposed[3] == -torch.inf)
    proposed[0] = score_BK.masked_fill_(none_BK, -torch.inf)
    return found


def partial_channel(written_BQI: Tensor, lengths: Tensor) -> Tensor:
    """The channel's score of partial outputs in each cell: [B,Q,I].

    x's EOS may be written only together with y's, so in the last column a partial output explains x without it.
    """
    without_eos = F.pad(written_BQI[..., :-1], (1, 0))
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
    if in_numpy(candidates.slot):
        whole_BQI = on_cpu.objective(plan, candidates, terms, length)
        found = on_cpu.survivors(whole_BQI, candidates.place.numpy(), plan.settings.k2)
        return Survivors(*map(torch.from_numpy, found))
    objective_BQI = plan.weights.combine(candidates.direct, terms, length)
    unreached = (candidates.direct == -torch.inf) | (candidates.symbol == EOS)[:, :, None]
    objective_BQI = objective_BQI.masked_fill(unreached, -torch.inf)
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
    return Answers.of(score, terms, length, slot)
