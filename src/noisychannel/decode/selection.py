"""Who stays: answers, the K2 survivors of each cell, and the sentences in which the search goes on.

Of equal hypotheses of a cell that of the better proposal comes first, as it does in Algorithm 1.

Shapes: B sentences, I input positions (cells of one length), P prefixes of the table, Q candidates, K = K1, A answers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.columns import cumulative
from noisychannel.decode.table import Answers, Candidates, Sentences, Settings, Table
from noisychannel.ids import EOS


def complete(settings: Settings, sentences: Sentences, candidates: Candidates, length: int) -> Answers:
    """The candidates that end in EOS, with their exact scores, by the rank of their proposals: [B,K]."""
    direct = sentences.at_last(candidates.direct)
    score = settings.weights.combine(direct, candidates.channel, candidates.lm, length)
    score = score.masked_fill((candidates.symbol != EOS) | (direct == -torch.inf), -torch.inf)
    nothing = torch.zeros_like(score)
    answers = Answers(
        score,
        direct,
        nothing if candidates.channel is None else candidates.channel,
        nothing if candidates.lm is None else candidates.lm,
        torch.full_like(candidates.slot, length),
        candidates.slot,
    )
    place_BK = sentences.at_last(candidates.place.mT)
    ranked = Answers(*(x.gather(1, place_BK.clamp(min=0)) for x in answers))
    return ranked._replace(score=ranked.score.masked_fill(place_BK < 0, -torch.inf))


def partial_channel(written_BQI: Tensor, lengths: Tensor) -> Tensor:
    """The channel's score of partial outputs in each cell.

    x's EOS may be written only together with y's: in the last column a partial output is asked for x without it.
    """
    without_eos = torch.cat([torch.zeros_like(written_BQI[..., :1]), written_BQI[..., :-1]], dim=-1)
    last = torch.arange(written_BQI.shape[2], device=written_BQI.device) == (lengths - 1)[:, None]
    return torch.where(last[:, None], without_eos, written_BQI)


class Survivors(NamedTuple):
    """The candidates that stay in some cell."""

    objective: Tensor
    """O in the cells where a candidate is among the K2 best of those proposed, else -inf: [B,Q,I]."""
    order: Tensor
    """Candidates by the first cell in which they stay and their rank in it, those that stay nowhere last: [B,Q]."""


def survivors(settings: Settings, sentences: Sentences, candidates: Candidates, length: int) -> Survivors:
    """The K2 best of each cell."""
    channel = None if candidates.column is None else partial_channel(candidates.column.written, sentences.lengths)
    lm = None if candidates.lm is None else candidates.lm[:, :, None]
    objective_BQI = settings.weights.combine(candidates.direct, channel, lm, length)
    unreached = (candidates.direct == -torch.inf) | (candidates.symbol == EOS)[:, :, None]
    objective_BQI = objective_BQI.masked_fill(unreached, -torch.inf)

    place = candidates.place.clamp(min=0)
    ranked_BIK = objective_BQI.mT.gather(2, place).masked_fill(candidates.place < 0, -torch.inf)
    best, chosen = (x[..., : settings.k2] for x in ranked_BIK.sort(dim=2, descending=True, stable=True))
    stays, candidate = (best > -torch.inf).flatten(1), place.gather(2, chosen)
    kept_BIQ = torch.zeros_like(objective_BQI.mT, dtype=torch.long)
    kept_BIQ.scatter_add_(2, candidate, stays.view_as(candidate).long())
    # Where in the list of all cells' survivors a candidate stands first.
    nowhere = stays.shape[1]
    met = torch.arange(nowhere, device=place.device).where(stays, nowhere)
    first_BQ = torch.full_like(candidates.slot, nowhere).scatter_reduce_(1, candidate.flatten(1), met, "amin")
    return Survivors(objective_BQI.masked_fill(kept_BIQ.mT == 0, -torch.inf), first_BQ.argsort(dim=1))


def still_open(
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
    direct = cumulative(candidates.direct, settings.over_direct.plus)[..., -1]
    channel = (
        None if candidates.column is None else cumulative(candidates.column.onward, settings.over_channel.plus)[..., -1]
    )
    bound = weights.combine(direct, channel, candidates.lm, 0)
    longest = sentences.max_length[:, None] if weights.length > 0 else length + 1
    bound = bound + weights.length * longest
    survives = (objective_BQI > -torch.inf).any(2)
    return (survives & (bound > answers.score[:, -1:])).any(1)


def best_partial(sentences: Sentences, table: Table, length: int) -> Answers:
    """The best prefix of the table in each sentence, as an answer of its own: [B,1]; score -inf where there is none."""
    I = table.objective.shape[2]
    score, place = table.objective.flatten(1).max(1, keepdim=True)
    slot = place // I

    def there(x_BPI: Tensor) -> Tensor:
        return x_BPI.flatten(1).gather(1, place)

    nothing = torch.zeros_like(score)
    return Answers(
        score,
        there(table.direct),
        nothing if table.column is None else there(partial_channel(table.column.written, sentences.lengths)),
        nothing if table.lm is None else table.lm.gather(1, slot),
        torch.full_like(slot, length),
        slot,
    )
