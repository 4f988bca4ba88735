"""A channel whose softmax runs over some words of the input vocabulary: the sentence's own, and the most frequent ones.

After "Language models not just for pre-training: fast online neural noisy channel modeling" (Bhosale et al., 2020). The
normaliser is exact over this set, and less than the whole one, so a channel score in the search is an upper bound of
log p(x | y). Outputs that the search has found are scored again with the whole softmax.

Vocabularies are ordered by frequency, so the most frequent words are the first columns, which all sentences share. Each
sentence has further columns for its own words that are not among these.

Shapes: B sentences, I input positions, Q candidates, N of them that exist, X input symbols, F of them shared by all
sentences, O own symbols of a sentence, C = F + O, H size of a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.decode.packing import Packing
from noisychannel.ids import SPECIAL_SYMBOLS
from noisychannel.models.products import linear
from noisychannel.models.protocols import ChannelModel, SomeInputScores


class ChannelWords(NamedTuple):
    """The words that the channel's softmax runs over, of each sentence."""

    shared: int
    """F: the first symbols of the vocabulary."""
    own: Tensor
    """Ids of further symbols, -1 in places that a sentence does not need: [B,O]."""
    own_rows: Tensor
    """What the channel multiplies a state by to score them: [B,O,H]."""
    target: Tensor
    """The column of each symbol of the input: [B,I]."""

    @staticmethod
    def of(channel: ChannelModel[Any], inputs_BI: Tensor, symbols: int, most_frequent: int) -> ChannelWords:
        """The words of the inputs and the ``most_frequent`` of X ``symbols``; special symbols are always there."""
        scorer = require_some_scores(channel, most_frequent)
        shared = min(symbols, len(SPECIAL_SYMBOLS) + most_frequent)
        sorted_BI = inputs_BI.sort(1).values
        first_BI = (sorted_BI >= shared) & (sorted_BI != F.pad(sorted_BI[:, :-1], (1, 0), value=-1))
        own_BO = torch.full((len(inputs_BI), max(1, int(first_BI.sum(1).max()))), -1, device=inputs_BI.device)
        sentence, place = first_BI.nonzero().unbind(1)
        own_BO[sentence, (first_BI.cumsum(1) - 1)[sentence, place]] = sorted_BI[sentence, place]
        words = ChannelWords(shared, own_BO, scorer.input_words(own_BO.clamp(min=0)), inputs_BI)
        return words._replace(target=words.columns_of(inputs_BI))

    def select(self, rows: Tensor) -> ChannelWords:
        return ChannelWords(self.shared, self.own[rows], self.own_rows[rows], self.target[rows])

    def columns_of(self, symbols_BQ: Tensor) -> Tensor:
        """The column of each symbol; -1 if it has none: [B,Q]."""
        same_BQO = symbols_BQ[:, :, None] == self.own[:, None]
        place_BQ = torch.where(same_BQO.any(2), self.shared + same_BQO.int().argmax(2), -1)
        return torch.where((symbols_BQ >= 0) & (symbols_BQ < self.shared), symbols_BQ, place_BQ)

    def of_inputs(self, scores_BIX: Tensor) -> Tensor:
        """The columns of what was scored over the whole vocabulary: [B,I,X] -> [B,I,C]."""
        own_B1O = self.own.clamp(min=0)[:, None].expand(-1, scores_BIX.shape[1], -1)
        return torch.cat([scores_BIX[..., : self.shared], scores_BIX.gather(2, own_B1O)], dim=2)

    def of_candidates(self, channel: SomeInputScores, states_NH: Tensor, symbols_N: Tensor, packing: Packing) -> Tensor:
        """a_i of candidates whose last symbols were read: [B,Q,C], -inf in places that a sentence does not need."""
        shared_FH = channel.input_words(torch.arange(self.shared, device=states_NH.device))
        shared_BQF = packing.spread(linear(states_NH, shared_FH))
        own_BQO = packing.spread(states_NH) @ self.own_rows.mT
        own_BQO = own_BQO.masked_fill((self.own < 0)[:, None], -torch.inf)
        scores_BQC = torch.cat([shared_BQF, own_BQO], dim=2)
        copied = channel.copied_inputs(states_NH, symbols_N)
        if copied is None:
            return scores_BQC
        symbol_BQ, amount_BQ = (packing.spread(x) for x in copied)
        column_BQ = self.columns_of(torch.where(packing.filled, symbol_BQ, -1))
        amount_BQ = amount_BQ.masked_fill(column_BQ < 0, 0.0).to(scores_BQC.dtype)
        return scores_BQC.scatter_add(2, column_BQ.clamp(min=0)[:, :, None], amount_BQ[:, :, None])


def require_some_scores(channel: object, most_frequent: int) -> SomeInputScores:
    """The channel; one that can only score the whole vocabulary is refused."""
    if not isinstance(channel, SomeInputScores):
        raise ValueError(
            f"channel_words is {most_frequent}, but {type(channel).__name__} scores whole vocabularies only: it has no "
            "method input_words; leave channel_words out"
        )
    return channel
