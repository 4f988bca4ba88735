"""Steps A1 and A3 of Algorithm 1: the best K1 extensions of each cell, over all prefixes and all symbols, exactly.

Two bounds save most of the work. Let a_i[w] + c_u[w] be the logit of symbol w after prefix u in cell i, Z their sum,
and â, ĉ the largest of each:

    1. log q ≤ min(0, â_i + ĉ_u - log Z(i,u)). An extension never ranks above the score with which its prefix reaches
       the cell plus this bound. Prefixes are ranked in the order of the bound, a few at a time. A cell is finished as
       soon as the next prefix cannot reach its K1-th best.
    2. Of a large vocabulary only the L best symbols of a_i and the L best of c_u are scored. Any other symbol ranks no
       higher than a_i's L-th plus c_u's L-th; if that could still reach the K1-th best, all symbols are scored.

A CPU, for which finding out costs little, needs no such order for a small vocabulary: the K1-th best extension of the
prefix with the highest bound is a threshold. Prefixes whose bound reaches it are scored, those of all cells together,
and what is below it is dropped.

Of a large vocabulary, such a threshold is known before (``next_words``). On a CPU the prefixes whose bound reaches it
are scored by all symbols: that takes less time than finding the best symbols of every prefix. A GPU with kernels keeps
extensions above the threshold, too. If more of them are above it than there is room for, the K1-th best of those that
were kept is the next threshold.

Extensions of equal score rank by their prefix's slot, then by their symbol. Ties are rare, so the search uses topk,
which promises no order of equal values. It asks for one more than K1, and cells with a tie are ranked again.

Shapes: B sentences, I cells of one output length, P prefixes, V symbols, C = B·I cells, R cells still open, M prefixes
at a time, L symbols of a list, N prefixes of all sentences, K = K1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from noisychannel import kernels
from noisychannel.decode import proposals_on_cpu as on_cpu
from noisychannel.decode.lateness import LARGE
from noisychannel.decode.proposals_on_cpu import ROUNDING, SLACK
from noisychannel.precision import SearchProducts

LOGITS_AT_ONCE = 1 << 24
"""Elements of the [R,M,V] block, at most: bounds memory."""
FIRST_LOOK = 8
"""Extensions scored for each proposal in the first block; each further block is twice as large."""
FIRST_LOOK_ON_GPU = 256
"""The same on a GPU, for which launching a block takes longer than scoring it."""
LISTED = 256
"""L; a vocabulary that is not large (``lateness``) is scored whole."""
COLLECTED = 48
"""Extensions above a threshold that there is room for, for each proposal."""
ROUGH_SLACK: Mapping[SearchProducts, float] = {"ieee": SLACK, "tf32": 5e-3, "bf16": 5e-2}
"""The same of a bound with a normaliser: it may be too small by as much, and log q above 0."""


class Proposals(NamedTuple):
    """The proposals of each cell, best first: [B,I,K] each. An empty place has score -inf."""

    score: Tensor
    """O(parent) + log q(extension); for O(parent) see ``look_ahead``."""
    prefix: Tensor
    """Slot of the prefix that is extended."""
    symbol: Tensor


class RankedScores(NamedTuple):
    """Scores of symbols, with the best of them in order."""

    scores: Tensor
    """[...,V]."""
    best: Tensor
    """[...,L]; without a list only the best one, [...,1]."""
    symbols: Tensor | None
    """[...,L]; None without a list, as for a small vocabulary."""

    @staticmethod
    def of(scores: Tensor, largest: Tensor | None = None) -> RankedScores:
        """``largest``: of each row, [...,1], if it is known."""
        if scores.shape[-1] < LARGE:
            return RankedScores(scores, scores.amax(-1, keepdim=True) if largest is None else largest, None)
        return RankedScores(scores, *scores.topk(LISTED, dim=-1))

    @staticmethod
    def of_outputs(scores: Tensor) -> RankedScores:
        """With a list if ``propose`` needs one."""
        if not (_collects(scores) or _filters(scores)):
            return RankedScores.of(scores)
        return RankedScores(scores, scores.amax(-1, keepdim=True), None)

    def select(self, rows: Tensor) -> RankedScores:
        return RankedScores(self.scores[rows], self.best[rows], None if self.symbols is None else self.symbols[rows])

    def flat(self) -> RankedScores:
        """The two leading dimensions as one."""
        symbols = None if self.symbols is None else self.symbols.flatten(0, 1)
        return RankedScores(self.scores.flatten(0, 1), self.best.flatten(0, 1), symbols)


def propose(
    reach_BPI: Tensor,
    inputs_BIV: RankedScores,
    outputs_BPV: RankedScores,
    normaliser_BIP: Tensor,
    k1: int,
    at_once: int | None = None,
    slack: Tensor | None = None,
    least_BI: Tensor | None = None,
) -> Proposals:
    """Rank reach(u, i) + log q(w | i, u) over prefixes u and symbols w, separately in each cell i.

    A symbol whose input score is -inf in a cell is not proposed there. Of equal extensions, that of the first slot and
    then of the first symbol comes first. A cell has at most P·V extensions, so no more places if ``k1`` is larger.
    ``at_once``: elements of the [R,M,V] block, if it must be smaller than ``LOGITS_AT_ONCE``. ``slack``: at least
    ``slack_of(reach)``, if it is known. ``least``: a score below the K1-th best of each cell, if one is known.
    """
    B, P, I = reach_BPI.shape
    V = inputs_BIV.scores.shape[2]
    k1 = min(k1, P * V)
    at_once = LOGITS_AT_ONCE if at_once is None else min(at_once, LOGITS_AT_ONCE)
    small = inputs_BIV.symbols is None and outputs_BPV.scores.dtype != torch.bfloat16
    filters = outputs_BPV.symbols is None and _filters(outputs_BPV.scores)
    if filters and (least_BI is None or k1 > LISTED):
        # Without a threshold the lists are needed after all.
        outputs_BPV, filters = RankedScores.of(outputs_BPV.scores), False
    if filters or (small and reach_BPI.device.type == "cpu"):
        words = _words(reach_BPI, inputs_BIV, outputs_BPV, normaliser_BIP)
        if filters and least_BI is not None:
            more = float(slack_of(reach_BPI, "ieee") if slack is None else slack)
            found: on_cpu.Extensions | None = on_cpu.above_least(words, least_BI.numpy().reshape(-1), more, k1)
        else:
            found = on_cpu.above_threshold(words, k1, at_once)
        if found is not None:
            return Proposals(*(torch.from_numpy(x).view(B, I, k1) for x in found.table(k1, B * I)))
    log_q_BIP = inputs_BIV.best[..., :1] + outputs_BPV.best[..., 0][:, None] - normaliser_BIP
    bound_CP = (reach_BPI.mT + log_q_BIP.clamp(max=0.0)).reshape(B * I, P)
    bound_CP += slack_of(reach_BPI, "ieee") if slack is None else slack
    bound_CP, order_CP = bound_CP.sort(dim=1, descending=True)
    ahead_CP = (reach_BPI.mT - normaliser_BIP).reshape(B * I, P).gather(1, order_CP)
    first_C1 = P * torch.arange(B, device=order_CP.device).repeat_interleave(I)[:, None]
    cells = _Cells(bound_CP, order_CP + first_C1, ahead_CP, inputs_BIV.flat(), outputs_BPV.flat())
    if _collects(outputs_BPV.scores):
        best = _collected(cells, None if least_BI is None else least_BI.flatten(), k1 + 1, at_once)
    else:
        best = _block_by_block(cells, k1, at_once)

    tied = best.tied().nonzero().squeeze(1)
    best = _Best(*(x[:, :k1] for x in best))
    if len(tied):
        # Every extension that equals one of the best has a prefix whose bound is above the K1-th.
        M = max(1, int((bound_CP[tied] > best.score[tied, -1:]).sum(1).max()))
        for rows in tied.split(max(1, at_once // (M * V))):
            prefix_RM, place = cells.prefix[rows, :M].sort(dim=1)
            block = _Block(rows, prefix_RM, ahead_CP[rows, :M].gather(1, place), cells.inputs, cells.outputs)
            best.put(rows, block.in_order(best.score[rows, -1:], k1))
    return Proposals(*(x.reshape(B, I, k1) for x in (best.score, best.prefix % P, best.symbol)))


class _Cells(NamedTuple):
    """All cells, and the prefixes of each in the order of their bounds."""

    bound: Tensor
    """No extension of a prefix ranks above it: [C,P]."""
    prefix: Tensor
    """Among all B·P: [C,P]."""
    ahead: Tensor
    """reach - log Z: [C,P]."""
    inputs: RankedScores
    """[C,V]."""
    outputs: RankedScores
    """[B·P,V]."""

    def block(self, rows: Tensor, first: int, number: int) -> _Block:
        """Some cells, with some of their prefixes."""
        some = slice(first, first + number)
        return _Block(rows, self.prefix[rows, some], self.ahead[rows, some], self.inputs, self.outputs)


def _block_by_block(cells: _Cells, k1: int, at_once: int) -> _Best:
    """The best K1 + 1 of each cell, a few prefixes at a time."""
    (C, P), V = cells.bound.shape, cells.inputs.scores.shape[1]
    has_lists = cells.inputs.symbols is not None
    width = 2 * LISTED if has_lists else V
    best = _Best.none(C, k1 + 1, cells.ahead)
    first_look = FIRST_LOOK if cells.ahead.device.type == "cpu" else FIRST_LOOK_ON_GPU
    done, look = 0, max(1, first_look * k1 // width)
    while done < P:
        # Cells whose next prefix may still be among the best.
        rows = (cells.bound[:, done] > best.score[:, k1 - 1]).nonzero().squeeze(1)
        if len(rows) == 0:
            break
        M = max(1, min(look, P - done, at_once // V, at_once // (len(rows) * width)))
        block, before = cells.block(rows, done, M), best.select(rows)
        after = before.merge(block.listed(k1 + 1) if has_lists else block.everything(k1 + 1))
        if has_lists:
            # A symbol that is on neither list may still be among the best: score all symbols.
            missed = (block.unlisted() > after.score[:, k1 - 1]).nonzero().squeeze(1)
            for some in missed.split(max(1, at_once // (M * V))) if len(missed) else ():
                after.put(some, before.select(some).merge(block.select(some).everything(k1 + 1)))
        best.put(rows, after)
        done, look = done + M, 2 * look
    return best


def _collects(outputs: Tensor) -> bool:
    """Whether extensions by these scores are ranked by ``_collected``."""
    return outputs.shape[-1] >= LARGE and outputs.dtype != torch.float64 and kernels.usable(outputs)


def _collected(cells: _Cells, least_C: Tensor | None, number: int, at_once: int) -> _Best:
    """The best ``number`` extensions of each cell, among those that a kernel finds above a threshold.

    Until the end a prefix is its place in the order of the bounds.
    """
    from noisychannel.kernels import search as fused

    places = COLLECTED * number
    words = cells.inputs.scores, cells.outputs.scores
    C, V = words[0].shape
    best = _Best.none(C, number, cells.ahead)
    if least_C is None:
        least_C = torch.full_like(best.score[:, 0], -torch.inf)
    every = torch.arange(C, device=least_C.device)
    # Four numbers for each place: scores and places, and what ranking them needs.
    for rows in every.split(max(1, at_once // (4 * places))):
        least_R = least_C[rows]
        while len(rows):
            before, least_R1 = best.select(rows), least_R[:, None]
            # What was found above the threshold is found again, even if rounding made the bound of its prefix wrong.
            again_R = (before.prefix + 1).masked_fill(before.score <= least_R1, 0).amax(1)
            reached_R = torch.maximum((cells.bound[rows] > least_R1).sum(1), again_R)
            score, place, found_R = fused.collect(
                *words, cells.prefix[rows], cells.ahead[rows], reached_R, rows, least_R, places
            )
            score, chosen = score.topk(number, dim=1)
            place = place.gather(1, chosen)
            above = _Best(score, place // V, place % V)
            # What equals the threshold was found before it was the threshold.
            equal = before.score == least_R1
            after = before._replace(score=before.score.masked_fill(~equal, -torch.inf)).merge(above)
            best.put(rows, after)
            crowded = (found_R > places).nonzero().squeeze(1)
            rows, least_R = rows[crowded], after.score[crowded, -1]
    return best._replace(prefix=cells.prefix.gather(1, best.prefix))


def _filters(outputs: Tensor) -> bool:
    """Whether extensions by these scores are ranked by a threshold on a CPU, if one is known."""
    return outputs.shape[-1] >= LARGE and outputs.device.type == "cpu" and outputs.dtype == torch.float32


def _words(reach_BPI: Tensor, inputs: RankedScores, outputs: RankedScores, normaliser_BIP: Tensor) -> on_cpu.Words:
    (B, P, I), V = reach_BPI.shape, inputs.scores.shape[2]
    normaliser = normaliser_BIP.numpy()
    log_q = inputs.best[..., :1].numpy() + outputs.best.numpy().reshape(B, 1, P) - normaliser
    by_cell, by_prefix = inputs.scores.numpy().reshape(B * I, V), outputs.scores.numpy().reshape(B * P, V)
    return on_cpu.Words(reach_BPI.numpy().swapaxes(1, 2), normaliser, log_q, by_cell, by_prefix)


def slack_of(reach_BPI: Tensor, products: SearchProducts) -> Tensor:
    """How much higher than a bound an extension may be, because of rounding."""
    largest = reach_BPI.masked_fill(reach_BPI.isinf(), 0.0).abs().amax()
    return ROUGH_SLACK[products] + ROUNDING * torch.finfo(reach_BPI.dtype).eps * largest


class _Best(NamedTuple):
    """The best extensions of some cells, best first: [R,K] each."""

    score: Tensor
    prefix: Tensor
    symbol: Tensor

    @staticmethod
    def none(cells: int, k1: int, like: Tensor) -> _Best:
        score = torch.full((cells, k1), -torch.inf, dtype=like.dtype, device=like.device)
        return _Best(score, *(torch.zeros(cells, k1, dtype=torch.long, device=like.device) for _ in range(2)))

    def select(self, rows: Tensor) -> _Best:
        return _Best(*(x[rows] for x in self))

    def put(self, rows: Tensor, other: _Best) -> None:
        """Overwrite the cells ``rows``; ``other`` may have fewer places."""
        for mine, theirs in zip(self, other, strict=True):
            mine[rows, : theirs.shape[1]] = theirs

    def tied(self) -> Tensor:
        """Cells in which two of the best are equal: [R]."""
        return ((self.score[:, 1:] == self.score[:, :-1]) & (self.score[:, 1:] > -torch.inf)).any(1)

    def merge(self, other: _Best) -> _Best:
        """The best of both, as many as in these."""
        score, prefix, symbol = (torch.cat(pair, dim=1) for pair in zip(self, other, strict=True))
        score, chosen = score.topk(self.score.shape[1], dim=1)
        return _Best(score, prefix.gather(1, chosen), symbol.gather(1, chosen))


class _Block(NamedTuple):
    """Some cells, and some prefixes of each."""

    rows: Tensor
    """[R]."""
    prefix_RM: Tensor
    """Among all B·P."""
    ahead_RM: Tensor
    """reach - log Z."""
    inputs: RankedScores
    outputs: RankedScores

    def select(self, some: Tensor) -> _Block:
        return _Block(self.rows[some], self.prefix_RM[some], self.ahead_RM[some], self.inputs, self.outputs)

    def everything(self, k1: int) -> _Best:
        """The best extensions by all symbols."""
        score_RN = self._scores()
        score, place = score_RN.topk(min(k1, score_RN.shape[1]), dim=1)
        return self._extensions(score, place)

    def in_order(self, last_R1: Tensor, k1: int) -> _Best:
        """The K1 best extensions by all symbols, equal ones in the order of the block's prefixes and of the symbols.

        ``last`` is the score of the K1-th best. Extensions above it are in, and then as many equal ones as fit.
        """
        score_RN = self._scores()
        above, equal = score_RN > last_R1, (score_RN == last_R1) & (last_R1 > -torch.inf)
        room_R1 = k1 - above.sum(1, keepdim=True)
        score_RN = score_RN.masked_fill(~(above | (equal & (equal.cumsum(1) <= room_R1))), -torch.inf)
        place = score_RN.topk(min(k1, score_RN.shape[1]), dim=1).indices.sort(dim=1).values
        score, order = score_RN.gather(1, place).sort(dim=1, descending=True, stable=True)
        return self._extensions(score, place.gather(1, order))

    def _scores(self) -> Tensor:
        """The scores of all extensions, prefix by prefix: [R,M·V]."""
        words_RMV = self.inputs.scores[self.rows, None] + self.outputs.scores[self.prefix_RM]
        return (words_RMV + self.ahead_RM[..., None]).to(self.ahead_RM.dtype).flatten(1)

    def _extensions(self, score: Tensor, place: Tensor) -> _Best:
        """The extensions at the given places of ``_scores``."""
        V = self.inputs.scores.shape[1]
        return _Best(score, self.prefix_RM.gather(1, place // V), place % V)

    def listed(self, k1: int) -> _Best:
        """The best extensions by symbols that are on the cell's list or on the prefix's."""
        assert self.inputs.symbols is not None
        assert self.outputs.symbols is not None
        row_R11, prefix_RM1 = self.rows[:, None, None], self.prefix_RM[..., None]
        by_cell_RML = self.inputs.symbols[self.rows, None].expand(-1, prefix_RM1.shape[1], -1)
        by_prefix_RML = self.outputs.symbols[self.prefix_RM]
        from_cell = self.inputs.best[self.rows, None] + self.outputs.scores[prefix_RM1, by_cell_RML]
        from_prefix = self.inputs.scores[row_R11, by_prefix_RML] + self.outputs.best[self.prefix_RM]
        on_both = torch.zeros_like(self.inputs.scores[self.rows], dtype=torch.bool)
        on_both = on_both.scatter_(1, self.inputs.symbols[self.rows], True)
        on_both_RML = on_both.gather(1, by_prefix_RML.flatten(1)).view_as(by_prefix_RML)
        scores = torch.cat([from_cell, from_prefix.masked_fill(on_both_RML, -torch.inf)], dim=2)
        scores_RN = (scores + self.ahead_RM[..., None]).flatten(1)
        symbols_RN = torch.cat([by_cell_RML, by_prefix_RML], dim=2).flatten(1)
        score, place = scores_RN.topk(min(k1, scores_RN.shape[1]), dim=1)
        prefix = self.prefix_RM.gather(1, place // scores.shape[2])
        return _Best(score.to(self.ahead_RM.dtype), prefix, symbols_RN.gather(1, place))

    def unlisted(self) -> Tensor:
        """No extension by any other symbol ranks above this: [R]."""
        bound_RM = self.inputs.best[self.rows, -1:] + self.outputs.best[self.prefix_RM, -1] + self.ahead_RM
        return bound_RM.amax(1) + SLACK
