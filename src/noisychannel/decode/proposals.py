"""The direct model's proposals: the best K1 extensions of each cell, over all prefixes and all symbols.

Since log q ≤ 0, an extension never ranks above the score with which its prefix reaches the cell. Prefixes are therefore
looked at in the order of that score, a few at a time, and a cell is finished as soon as the next one cannot reach its
K1-th best: most (prefix, cell) pairs are never multiplied out over the vocabulary, and the result is exact.

Shapes: B sentences, I cells of one output length, P prefixes, V symbols, R cells still open, M prefixes at a time,
K = K1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOGITS_AT_ONCE = 1 << 24
"""Elements of the [R,M,V] block: bounds memory."""
FIRST_LOOK = 8
"""Extensions looked at for each proposal in the first block; each further block is twice as large."""


class Proposals(NamedTuple):
    """For each cell, best first: [B,I,K] each. A place that nothing fills has score -inf."""

    score: Tensor
    """O(parent) + log q(extension)."""
    prefix: Tensor
    """Slot of the prefix that is extended."""
    symbol: Tensor


def propose(
    reach_BPI: Tensor,
    input_scores_BIV: Tensor,
    output_scores_BPV: Tensor,
    normaliser_BIP: Tensor,
    k1: int,
) -> Proposals:
    """Rank reach(u, i) + log q(w | i, u) over prefixes u and symbols w, separately in each cell i.

    A symbol whose input score is -inf in a cell is not proposed there.
    """
    B, P, I = reach_BPI.shape
    V = input_scores_BIV.shape[2]
    reach_sorted, order = reach_BPI.transpose(1, 2).reshape(B * I, P).sort(dim=1, descending=True)
    input_scores, normaliser = input_scores_BIV.reshape(B * I, V), normaliser_BIP.reshape(B * I, P)
    sentence = torch.arange(B, device=order.device).repeat_interleave(I)

    best = torch.full((B * I, k1), -torch.inf, dtype=reach_BPI.dtype, device=order.device)
    best_prefix = torch.zeros(B * I, k1, dtype=torch.long, device=order.device)
    best_symbol = torch.zeros_like(best_prefix)
    done, look = 0, max(1, FIRST_LOOK * k1 // V)
    while done < P:
        # Rows whose next prefix, were it to extend for nothing, would still come among the best.
        rows = (reach_sorted[:, done] > best[:, -1]).nonzero().squeeze(1)
        if len(rows) == 0:
            break
        M = max(1, min(look, P - done, LOGITS_AT_ONCE // (len(rows) * V)))
        prefix_RM = order[rows, done : done + M]
        word_RMV = input_scores[rows, None] + output_scores_BPV[sentence[rows, None], prefix_RM]
        ahead_RM = reach_sorted[rows, done : done + M] - normaliser[rows].gather(1, prefix_RM)
        score_RMV = word_RMV + ahead_RM[..., None]
        top, place = score_RMV.flatten(1).topk(min(k1, M * V), dim=1)
        merged = torch.cat([best[rows], top.to(best.dtype)], dim=1)
        prefixes = torch.cat([best_prefix[rows], prefix_RM.gather(1, place // V)], dim=1)
        symbols = torch.cat([best_symbol[rows], place % V], dim=1)
        best[rows], chosen = merged.topk(k1, dim=1)
        best_prefix[rows] = prefixes.gather(1, chosen)
        best_symbol[rows] = symbols.gather(1, chosen)
        done, look = done + M, 2 * look
    return Proposals(best.view(B, I, k1), best_prefix.view(B, I, k1), best_symbol.view(B, I, k1))
