"""``complete`` and ``survivors`` of ``selection`` in NumPy.

A step of a search on a CPU chooses among a few hundred numbers. NumPy needs a fraction of PyTorch's time for each
operation on so few.

Shapes: B sentences, I cells of one output length, Q candidates, K = K1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from noisychannel.decode.answers import Answers
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.table import Candidates
from noisychannel.ids import EOS

Scores = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def complete(plan: SearchPlan, sentences: Sentences, candidates: Candidates, length: int) -> Answers:
    """``selection.complete``."""
    place_BK = sentences.at_last(candidates.place.mT).numpy()
    (B, K), Q = place_BK.shape, candidates.symbol.shape[1]
    candidate = (place_BK + Q * np.arange(B)[:, None]).reshape(-1)
    ended = np.flatnonzero((place_BK.reshape(-1) >= 0) & (candidates.symbol.numpy().take(candidate) == EOS))
    which = candidate.take(ended)
    terms = {"direct": sentences.at_last(candidates.direct), **candidates.with_channel(candidates.channel)}
    values = {name: term.numpy().take(which) for name, term in terms.items()}
    score = plan.weights.combine(values["direct"], values, length)
    score[values["direct"] == -np.inf] = -np.inf
    numbers = np.zeros((3 + len(terms), B * K))
    numbers[0] = -np.inf
    numbers[1] = length
    numbers[0, ended] = score
    numbers[2, ended] = candidates.slot.numpy().take(which)
    for row, value in enumerate(values.values(), 3):
        numbers[row, ended] = value
    return Answers(torch.from_numpy(numbers).view(-1, B, K), tuple(terms))


def objective(plan: SearchPlan, candidates: Candidates, terms: Mapping[str, Tensor], length: int) -> Scores:
    """O of every candidate in every cell, -inf if it ends there or does not reach it: [B,Q,I]."""
    direct = candidates.direct.numpy()
    O = plan.weights.combine(direct, {name: term.numpy() for name, term in terms.items()}, length)
    O[direct == -np.inf] = -np.inf
    O[candidates.symbol.numpy() == EOS] = -np.inf
    return O


def survivors(objective_BQI: Scores, place_BIK: Ids, k2: int) -> tuple[Scores, Ids]:
    """O in the cells in which a candidate stays, and the order of those that stay, see ``selection.Survivors``."""
    (B, Q, I), K = objective_BQI.shape, place_BIK.shape[2]
    objective, place = objective_BQI.reshape(-1), place_BIK.reshape(B * I, K)
    sentence, cell = np.divmod(np.arange(B * I), I)
    # Where each proposal's objective is, and its candidate among all B·Q.
    candidate = place + (sentence * Q)[:, None]
    where = candidate * I + cell[:, None]
    none = place < 0
    where[none] = 0
    ranked = -objective.take(where)
    ranked[none] = np.inf
    chosen = ranked.argsort(axis=1, kind="stable")[:, :k2] + np.arange(0, B * I * K, K)[:, None]
    stays = np.flatnonzero(ranked.take(chosen) < np.inf)
    chosen = chosen.take(stays)
    surviving = np.full_like(objective, -np.inf)
    kept = where.take(chosen)
    surviving[kept] = objective.take(kept)
    # The first place of each candidate in the list of all cells' survivors: of several assignments the last counts.
    first = np.full(B * Q, B * I * K)
    first[candidate.take(chosen)[::-1]] = stays[::-1]
    return surviving.reshape(B, Q, I), first.reshape(B, Q).argsort(axis=1, kind="stable")
