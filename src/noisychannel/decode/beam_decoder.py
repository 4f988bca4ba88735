"""``BeamDecoder``: a sequence-to-sequence model proposes by beam search, and the other terms rank its outputs again.

It has the interface of ``NoisyChannelDecoder``. The log-probability of the proposing model is the term ``direct``. The
beam itself sees the direct and the length term only, so it keeps at least K2 outputs of each input for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noisychannel.decode.base import BaseDecoder, checked
from noisychannel.decode.beam import beam_search
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.rerank import weighted_sum
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.terms import Ids


class BeamDecoder(BaseDecoder):
    """Beam search with any model that can be stepped, ranked by the objective.

    Args:
        direct: A ``StepModel`` with ``log_prob`` (seq2seq, attention). Proposes, and is a term of the objective.
        channel: Scores the input given the output; needed if its weight is not zero.
        lm: Scores the output; needed if its weight is not zero.
        weights: Of the objective.
        extra: Further terms by name (``decode/terms.py``).
        settings: ``k2`` is the beam size; ``max_length``, ``max_growth``, ``channel_alignment`` and ``allow_unk`` count
            too.
        barred: Symbols that are never proposed, beside PAD, BOS and UNK (such as features).
    """

    def _use(self, weights: Weights, settings: SearchSettings) -> None:
        super()._use(weights, settings)
        scorers = self._scorers()
        self.final = {name: scorer for name, scorer in scorers.items() if name not in ("direct", "length")}

    def decode(
        self,
        inputs: Sequence[Ids],
        n_best: int = 1,
        contexts: Sequence[Ids] | None = None,
        align: bool = True,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each input (ids that end in EOS), decoded as one batch.

        ``contexts`` are symbols before each output (features), for the channel and for source models. ``align`` asks
        for alignments, which only the channel has.
        """
        contexts = checked(inputs, contexts, n_best)
        kept = max(n_best, self.settings.k2) if self.final else n_best
        length = self.weights.length / self.weights.direct if self.weights.direct > 0 else 0.0
        found = beam_search(self._direct, inputs, self.settings, kept, length, self._barred)
        found = [[replace(h, score=weighted_sum(self.weights, h.terms())) for h in best] for best in found]
        found = self.with_final_terms(inputs, contexts, found, n_best)
        return self.aligned(inputs, contexts, found) if align else found
