"""The direct model's scores of the next symbol, after those prefixes that may be extended.

A projection to a large vocabulary is the largest part of a step of the direct model, and few prefixes of a table are
extended: the others reach every cell with a score that is too low. log q ≤ 0, so no extension ranks above the score
with which its prefix reaches the cell. The scores are therefore computed in two rounds:

    1. of the prefix that reaches each cell best. Its K1-th best extension by the cell's listed symbols is a lower
       bound of the cell's K1-th proposal;
    2. of every prefix that reaches some cell above this bound.

No other prefix can be among the proposals, so the search finds the same. A small vocabulary is scored after all
prefixes, which takes fewer steps, and so it is if the language model proposes too.

Shapes: B sentences, I cells of one output length, P prefixes of the table, N of them that exist, M prefixes that are
scored, Q candidates, V symbols, L symbols of a cell's list.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.packing import Packing, slot_rows
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.proposals import RankedScores, slack_of
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.table import PrefixTable
from noisychannel.joint import Scaled, log_normaliser
from noisychannel.models.protocols import DirectModel, LateOutputScores


class NextWords(NamedTuple):
    """Scores after M prefixes of each sentence."""

    scores: RankedScores
    """[B,M,V]."""
    normaliser: Tensor
    """log Z: [B,I,M]."""
    chosen: Chosen | None
    """Which prefixes; None for all of the table."""
    slack: Tensor | None
    """``slack_of`` the scores with which the table reaches its cells, unless it is what ``propose`` assumes."""
    least: Tensor | None
    """A score below the K1-th proposal of each cell, if it was needed: [B,I]."""

    @property
    def number(self) -> int:
        """M."""
        return self.scores.scores.shape[1]

    def reach(self, reach_BPI: Tensor) -> Tensor:
        """The rows of these prefixes, -inf in places that are not filled: [B,M,I]."""
        if self.chosen is None:
            return reach_BPI
        return slot_rows(reach_BPI, self.chosen.slot).masked_fill(~self.chosen.packing.filled[:, :, None], -torch.inf)

    def slots(self, places: Tensor) -> Tensor:
        """From places among the M to slots of the table: [B,I,K]."""
        if self.chosen is None:
            return places
        return self.chosen.slot.gather(1, places.flatten(1)).view_as(places)

    def places(self, slots_BQ: Tensor) -> Tensor:
        """From slots of the table to places among the M: [B,Q]."""
        return slots_BQ if self.chosen is None else self.chosen.place.gather(1, slots_BQ)


class Chosen(NamedTuple):
    """Some prefixes of a table, in the order of their slots."""

    packing: Packing
    """[B,M]."""
    slot: Tensor
    """Of each in the table, 0 if the place is not filled: [B,M]."""
    place: Tensor
    """Of each prefix of the table among the chosen; of one that is not chosen, any: [B,P]."""
    row: Tensor
    """Of each chosen prefix among the N of the table."""

    @staticmethod
    def of(chosen_BP: Tensor, table: PrefixTable) -> Chosen:
        sentence, slot = chosen_BP.nonzero().unbind(1)
        place_BP = (chosen_BP.cumsum(1) - 1).clamp(min=0)
        packing = Packing.at(sentence, place_BP[sentence, slot], (len(chosen_BP), int(place_BP.amax()) + 1))
        slot_BM = torch.zeros_like(packing.row)
        slot_BM[sentence, packing.slot] = slot
        return Chosen(packing, slot_BM, place_BP, table.packing.row[sentence, slot])


def next_words(
    direct: DirectModel[Any],
    plan: SearchPlan,
    sentences: Sentences,
    table: PrefixTable,
    reach_BPI: Tensor,
    require_memory: Callable[[int], None],
) -> NextWords:
    """The scores after every prefix that may be among the K1 best of a cell, given how well it reaches the cells.

    ``require_memory`` is called with a number of prefixes before they are scored.
    """
    if table.output_scores is not None:
        # A kernel on a GPU needs the scores only.
        scaled = Scaled.of(table.output_scores) if table.output_scores.device.type == "cpu" else None
        normaliser_BIP = log_normaliser(
            sentences.direct.words, table.output_scores if scaled is None else scaled, plan.settings.products
        )
        ranked = RankedScores.of(table.output_scores, None if scaled is None else scaled.max)
        products = plan.settings.products
        slack = None if products == "ieee" else slack_of(reach_BPI, products)
        return NextWords(ranked, normaliser_BIP, None, slack, None)
    assert isinstance(direct, LateOutputScores)
    best_BI, slot_BI = reach_BPI.max(dim=1)
    slots_P = torch.arange(reach_BPI.shape[1], device=slot_BI.device)
    # A cell that nothing reaches has slot 0, too: it must not hide that slot from the cells that it is the best of.
    first_BP = ((slot_BI[:, None] == slots_P[:, None]) & (best_BI > -torch.inf)[:, None]).any(2)
    slack = slack_of(reach_BPI, plan.settings.products)
    score = partial(_scored, direct, plan, sentences, table, require_memory)
    least_BI = _least(score, plan, sentences, first_BP, best_BI, slot_BI) - slack
    needed_BP = (reach_BPI > least_BI[:, None]).any(2) & table.packing.filled
    scores_BMV, normaliser_BIM, chosen = score(needed_BP)
    return NextWords(RankedScores.of_outputs(scores_BMV), normaliser_BIM, chosen, slack, least_BI)


def _scored(
    direct: LateOutputScores[Any],
    plan: SearchPlan,
    sentences: Sentences,
    table: PrefixTable,
    require_memory: Callable[[int], None],
    chosen_BP: Tensor,
) -> tuple[Tensor, Tensor, Chosen]:
    """Scores [B,M,V] and normalisers [B,I,M] of some prefixes."""
    assert table.output_states is not None
    chosen = Chosen.of(chosen_BP, table)
    require_memory(chosen.slot.shape[1])
    scores_BMV = chosen.packing.spread(direct.output_scores(table.output_states[chosen.row]))
    return scores_BMV, log_normaliser(sentences.direct.words, scores_BMV, plan.settings.products), chosen


def _least(
    score: Callable[[Tensor], tuple[Tensor, Tensor, Chosen]],
    plan: SearchPlan,
    sentences: Sentences,
    first_BP: Tensor,
    best_BI: Tensor,
    slot_BI: Tensor,
) -> Tensor:
    """A score that the K1-th proposal of each cell has at least, by one prefix for each cell: [B,I]."""
    listed = sentences.proposable.symbols
    assert listed is not None
    if plan.settings.k1 > listed.shape[2]:
        return torch.full_like(best_BI, -torch.inf)
    scores_BMV, normaliser_BIM, chosen = score(first_BP)
    place_BI = chosen.place.gather(1, slot_BI)
    sentence = torch.arange(len(listed), device=listed.device)[:, None, None]
    words_BIL = sentences.proposable.best + scores_BMV[sentence, place_BI[..., None], listed]
    ahead_BI = best_BI - normaliser_BIM.gather(2, place_BI[..., None]).squeeze(2)
    return words_BIL.topk(plan.settings.k1, dim=2).values[..., -1] + ahead_BI
