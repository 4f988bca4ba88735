"""``BeamDecoder``: the same objective with another proposing model, such as seq2seq with attention.

Beam search finds outputs by the proposing model, and the objective, equation (3), ranks them. The term ``direct`` is
the log-probability of the proposing model. If there is no other term than the length, the beam search itself uses the
length bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noisychannel.decode.base import BaseDecoder, checked
from noisychannel.decode.beam import beam_search
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import Refuse
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.terms import Ids
from noisychannel.decode.watch import Watch


class BeamDecoder(BaseDecoder):
    """Ranks the outputs of a beam search by the objective.

    Args:
        direct: A ``StepModel`` with ``log_prob`` (seq2seq, attention). Proposes, and is a term of the objective.
        channel: Scores the input given the output; needed if its weight is not zero.
        lm: Scores the output; needed if its weight is not zero.
        weights: Of the objective.
        extra: Further terms by name (``decode/terms.py``).
        settings: ``k2`` is the beam size, and at least so many outputs of each input are ranked. ``max_length``,
            ``max_growth``, ``channel_alignment``, ``allow_unk`` and ``per_symbol`` are used too.
        barred: Symbols that are never proposed, beside PAD, BOS and UNK (such as features).
        keywords: Settings by name; they replace those of ``settings``.
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
        watch: Watch | None = None,
        refuse: Refuse | None = None,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each input (ids that end in EOS), decoded as one batch.

        ``contexts`` are symbols before each output (features), for the channel and for source models. ``align`` asks
        for alignments, which only the channel has. ``refuse`` is called for an input that needs too much memory.
        """
        if watch is not None:
            raise ValueError("watch: a beam search has no chart to watch; decode with a direct model")
        contexts, weights = checked(inputs, contexts, n_best), self.weights
        alone = weights.direct > 0 and not self.final and not self.settings.per_symbol
        kept = n_best if alone else max(n_best, self.settings.k2)
        length_weight = weights.length / weights.direct if alone else 0.0
        proposed = beam_search(self._direct, inputs, self.settings, kept, length_weight, self.barred, refuse)
        ranked = [[self._scored(hypothesis) for hypothesis in best] for best in proposed]
        if not alone:
            ranked = [sorted(best, key=lambda hypothesis: -hypothesis.score) for best in ranked]
        return self.finished(inputs, contexts, ranked, n_best, align, refuse)

    def _scored(self, hypothesis: Hypothesis) -> Hypothesis:
        """With the score of the terms that the beam search knows; complete outputs get the others later."""
        score = self.weights.direct * hypothesis.direct + self.weights.length * hypothesis.length
        return replace(hypothesis, score=score)
