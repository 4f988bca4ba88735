"""``BeamDecoder``: the same objective with another proposing model, such as seq2seq with attention.

Beam search finds outputs by the proposing model alone. The objective, equation (3), ranks them. The term ``direct`` is
the log-probability of the proposing model. With no other term than the length, the beam search itself uses the length
bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch

from noisychannel.decode.beam import StepModel, beam_search
from noisychannel.decode.decoder import NoisyChannelDecoder, checked_contexts
from noisychannel.decode.hypothesis import CompleteHypotheses, Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchKeywords, SearchSettings
from noisychannel.decode.terms import FurtherTerm, Ids
from noisychannel.decode.watch import Watch
from noisychannel.models.protocols import ChannelModel, SourceModel


class BeamDecoder(NoisyChannelDecoder):
    """Ranks the outputs of a beam search by the objective; the arguments are those of ``NoisyChannelDecoder``.

    ``settings.k2`` is the beam size, and at least so many outputs of each input are ranked.
    """

    def __init__(
        self,
        proposer: StepModel[Any],
        channel: ChannelModel[Any] | None = None,
        lm: SourceModel[Any] | None = None,
        weights: Weights = Weights(),  # noqa: B008 (frozen)
        *,
        extra: Mapping[str, FurtherTerm] = {},
        settings: SearchSettings = SearchSettings(),  # noqa: B008 (frozen)
        barred: Sequence[int] = (),
        **keywords: Unpack[SearchKeywords],
    ) -> None:
        self._proposer = proposer
        # Only what scores whole outputs is used of the direct model, and the proposing model has that.
        direct: Any = proposer
        super().__init__(direct, channel, lm, weights, extra=extra, settings=settings, barred=barred, **keywords)

    @torch.no_grad()
    def decode(
        self,
        inputs: Sequence[Ids],
        n_best: int = 1,
        contexts: Sequence[Ids] | None = None,
        align: bool = True,
        watch: Watch | None = None,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each input (ids that end in EOS), decoded as one batch."""
        if watch is not None:
            raise ValueError("watch: a beam search has no chart to watch; decode with a direct model")
        contexts = checked_contexts(inputs, contexts)
        weights = self.weights
        alone = weights.direct > 0 and not weights.channel and not weights.lm and not any(weights.extra.values())
        proposed = beam_search(
            self._proposer,
            inputs,
            self.settings,
            n_best if alone else max(n_best, self.settings.k2),
            length_weight=weights.length / weights.direct if alone else 0.0,
            barred=self.plan.barred,
        )
        if alone:
            ranked = [[self._scored(hypothesis) for hypothesis in best] for best in proposed]
        else:
            ranked = self._rank(inputs, contexts, proposed, n_best)
        return self.aligned(inputs, contexts, ranked) if align else ranked

    def _scored(self, hypothesis: Hypothesis) -> Hypothesis:
        score = self.weights.direct * hypothesis.direct + self.weights.length * hypothesis.length
        return replace(hypothesis, score=score)

    def _rank(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], proposed: list[list[Hypothesis]], n_best: int
    ) -> list[list[Hypothesis]]:
        """The complete outputs by the whole objective; a partial output, which stands alone, stays."""
        outputs = [[hypothesis.tokens for hypothesis in best if hypothesis.complete] for best in proposed]
        scored = self.score(inputs, outputs, contexts, align=False)
        ranked = CompleteHypotheses.put_back(proposed, (hypothesis for best in scored for hypothesis in best))
        return [sorted(best, key=lambda hypothesis: -hypothesis.score)[:n_best] for best in ranked]
