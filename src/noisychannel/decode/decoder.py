"""``NoisyChannelDecoder``: from ids to hypotheses, by the chart search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from noisychannel.decode.base import BaseDecoder, checked
from noisychannel.decode.channel_words import require_some_scores
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import Budget, ModelSizes, Refuse, room_of
from noisychannel.decode.objective import Weights
from noisychannel.decode.parts import search_in_parts
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.scorers import scorer_of
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.sources import require_distribution
from noisychannel.decode.terms import Ids, scores_prefixes
from noisychannel.decode.watch import Watch
from noisychannel.precision import search_products


class NoisyChannelDecoder(BaseDecoder):
    """Searches for the outputs that maximise the objective, equation (3).

    Args:
        direct: A ``DirectModel``. Proposes outputs, and is a term of the objective.
        channel: Scores the input given the (partial) output; needed if its weight is not zero. Unidirectional.
        lm: Scores the output; needed if its weight is not zero.
        weights: Of the objective.
        extra: Further terms by name (``decode/terms.py``); needed if their weights in ``weights.extra`` are not zero.
        settings: How to search.
        barred: Symbols that are never proposed, beside PAD, BOS and UNK (such as features).
        memory_gib: The same as the setting ``memory``.
        keywords: Settings by name, such as ``k1=60``; they replace those of ``settings``.
    """

    def _use(self, weights: Weights, settings: SearchSettings) -> None:
        super()._use(weights, settings)
        used = self._used()
        channel = used.pop("channel", None)
        if settings.lm_proposals:
            if self._lm is None:
                raise ValueError(f"lm_proposals is {settings.lm_proposals}, but no language model (lm) is given")
            self._check_model("lm", self._lm)
            require_distribution(self._lm, settings.lm_proposals, self.device)
            used = {"lm": self._lm, **used}
        sources = {name: term for name, term in used.items() if name == "lm" or scores_prefixes(term)}
        self.models = Models(self._direct, channel, sources)
        if channel is not None and settings.channel_words is not None:
            require_some_scores(channel, settings.channel_words)
        self.final = {name: scorer_of(term, settings) for name, term in used.items() if name not in sources}
        if settings.per_symbol:  # the direct model alone searches
            scorers = self._scorers()
            self.final = {name: scorer for name, scorer in scorers.items() if name not in ("direct", "length")}
        self.plan = SearchPlan(weights, settings, self.barred)
        self.sizes = ModelSizes.of(self.models, settings, self.device)

    @torch.no_grad()
    def decode(
        self,
        inputs: Sequence[Ids],
        n_best: int = 1,
        contexts: Sequence[Ids] | None = None,
        align: bool = True,
        watch: Watch | None = None,
        refuse: Refuse | None = None,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each input, decoded as one batch.

        Args:
            inputs: Ids that end in EOS.
            n_best: How many outputs of each input. If no output reached EOS there is one hypothesis, the best partial
                one, with ``complete=False``.
            contexts: Symbols that stand before each output (features). The channel reads them first, and so does a
                source model with ``reads_features``, whose score is then that of both.
            align: Whether to compute the best alignments, which the search itself does not need.
            watch: Called after each step of the search, see ``decode/watch.py``.
            refuse: Called for an input that needs more memory than the settings allow; it then has no hypotheses. If
                not given, such an input raises ``SearchTooLargeError``.
        """
        contexts = checked(inputs, contexts, n_best)
        if self.settings.per_symbol:
            alone = self.reweighted(Weights(direct=1.0), self.settings.for_direct())
            proposed = alone.decode(inputs, max(n_best, self.settings.k2), contexts, False, watch, refuse)
            return self.finished(inputs, contexts, proposed, n_best, align, refuse)
        found: list[list[Hypothesis]] = [[] for _ in inputs]
        plan = replace(self.plan, budget=self._budget(max(n_best, self.settings.k2) if self.final else n_best))
        for size in sorted({len(context) for context in contexts}):
            rows = [n for n, context in enumerate(contexts) if len(context) == size]
            some = [inputs[n] for n in rows], [contexts[n] for n in rows]
            with search_products(self.settings.products, self.device):
                searched = search_in_parts(self.models, plan, *some, rows, watch, refuse)
            for n, best in zip(rows, searched, strict=True):
                found[n] = best
        return self.finished(inputs, contexts, found, n_best, align, refuse)

    def exact(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Complete outputs of a search in lower precision or with some words only, scored again and ranked by that."""
        some_words = self.settings.channel_words is not None and self.models.channel is not None
        if self.settings.products == "ieee" and not some_words:
            return super().exact(inputs, contexts, found)
        complete = [[hypothesis.tokens for hypothesis in best if hypothesis.complete] for best in found]
        scored = self._score(inputs, complete, contexts, align=False)
        return [
            sorted(again, key=lambda hypothesis: -hypothesis.score) or list(best)
            for again, best in zip(scored, found, strict=True)
        ]

    def _budget(self, n_best: int) -> Budget:
        """The memory of a search for so many answers."""
        return Budget(self.settings, self.sizes, room_of(self.settings, self.device), n_best)
