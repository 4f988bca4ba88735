"""``NoisyChannelDecoder``: from ids to hypotheses."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import nn

from noisychannel.decode.hypothesis import CompleteHypotheses, Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.parts import search_in_parts
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.rerank import Reranker
from noisychannel.decode.scorers import best_alignments, model_scorers, scorer_of
from noisychannel.decode.sentences import check_inputs, read_sentences
from noisychannel.decode.settings import SearchKeywords, SearchSettings
from noisychannel.decode.sources import require_distribution
from noisychannel.decode.terms import AnyScorer, FurtherTerm, Ids, scores_prefixes
from noisychannel.decode.watch import Watch
from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.models.finite import non_finite_parameter
from noisychannel.models.protocols import ChannelModel, DirectModel, SourceModel


class NoisyChannelDecoder:
    """Searches for the outputs that maximise the objective, equation (3).

    Args:
        direct: Proposes outputs, and is a term of the objective.
        channel: Scores the input given the (partial) output; needed if its weight is not zero. Unidirectional.
        lm: Scores the output; needed if its weight is not zero.
        weights: Of the objective.
        extra: Further terms by name (``decode/terms.py``); needed if their weights in ``weights.extra`` are not zero.
        settings: How to search.
        barred: Symbols that are never proposed, beside PAD, BOS and UNK (such as features).
        memory_gib: The same as the setting ``memory``.
        keywords: Settings by name, such as ``k1=60``; they replace those of ``settings``.
    """

    def __init__(
        self,
        direct: DirectModel[Any],
        channel: ChannelModel[Any] | None = None,
        lm: SourceModel[Any] | None = None,
        weights: Weights = Weights(),  # noqa: B008 (frozen)
        *,
        extra: Mapping[str, FurtherTerm] = {},
        settings: SearchSettings = SearchSettings(),  # noqa: B008 (frozen)
        barred: Sequence[int] = (),
        memory_gib: float | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> None:
        if memory_gib is not None:
            keywords["memory"] = memory_gib
        if channel is not None and channel.bidirectional:
            raise ValueError(
                "the channel reads the output while it is being built, so it cannot be bidirectional; "
                "train one with bidirectional=False"
            )
        self._direct, self._channel, self._lm, self._extra = direct, channel, lm, extra
        self._barred = frozenset(barred)
        self._checked: set[str] = set()
        self._use(weights, replace(settings, **keywords))

    def reweighted(self, weights: Weights, settings: SearchSettings | None = None) -> NoisyChannelDecoder:
        """The same models with other weights, and other settings if they are given. Models are not checked again."""
        decoder = copy.copy(self)
        decoder._use(weights, settings or self.settings)
        return decoder

    def _use(self, weights: Weights, settings: SearchSettings) -> None:
        self.weights, self.settings = weights, settings
        given = {"channel": self._channel, "lm": self._lm, **self._extra}
        used = {name: weight for name, weight in weights.by_name().items() if weight}
        for name, weight in used.items():
            if name not in ("direct", "length") and given.get(name) is None:
                raise ValueError(f"the weight {name} is {weight}, but no {name} model is given")
        if settings.lm_proposals and self._lm is None:
            raise ValueError(f"lm_proposals is {settings.lm_proposals}, but no language model (lm) is given")
        sources = {} if self._lm is None or not ("lm" in used or settings.lm_proposals) else {"lm": self._lm}
        further = {name: self._extra[name] for name in weights.extra if name in used}
        sources |= {name: term for name, term in further.items() if scores_prefixes(term)}
        self._final: dict[str, AnyScorer[Ids]] = {
            name: scorer_of(term) for name, term in further.items() if name not in sources
        }
        self.models = Models(self._direct, self._channel if "channel" in used else None, sources)
        for name, model in {"direct": self._direct, "channel": self.models.channel, **sources, **further}.items():
            self._check_model(name, model)
        if settings.lm_proposals:
            require_distribution(sources["lm"], settings.lm_proposals, next(self._direct.parameters()).device)
        barred = self._barred | {PAD, BOS} | (set() if settings.allow_unk else {UNK})
        self.plan = SearchPlan(weights, settings, barred)

    def _check_model(self, name: str, model: object) -> None:
        """Refuse NaN and infinite weights; each model is checked once."""
        if not isinstance(model, nn.Module):
            return
        model.eval()  # no dropout during a search
        if name not in self._checked and (parameter := non_finite_parameter(model)) is not None:
            raise ValueError(
                f"the {name} model has NaN or infinite weights ({parameter}); its training diverged: train it "
                "again with a lower learning rate"
            )
        self._checked.add(name)

    @torch.no_grad()
    def decode(
        self,
        inputs: Sequence[Ids],
        n_best: int = 1,
        contexts: Sequence[Ids] | None = None,
        align: bool = True,
        watch: Watch | None = None,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each input (ids that end in EOS), decoded as one batch.

        Args:
            inputs: Ids that end in EOS.
            n_best: How many outputs of each input. If no output reached EOS there is one hypothesis, the best partial
                one, with ``complete=False``.
            contexts: Symbols that stand before each output (features). The channel reads them first, and so does a
                source model with ``reads_features``, whose score is then that of both.
            align: Whether to compute the best alignments, which the search itself does not need.
            watch: Called after each step of the search, see ``decode/watch.py``.
        """
        if n_best < 1:
            raise ValueError(f"n_best must be at least 1, but is {n_best}")
        contexts = checked_contexts(inputs, contexts)
        found: list[list[Hypothesis]] = [[] for _ in inputs]
        kept = max(n_best, self.settings.k2) if self._final else n_best
        for size in sorted({len(context) for context in contexts}):
            rows = [n for n, context in enumerate(contexts) if len(context) == size]
            some = [inputs[n] for n in rows], [contexts[n] for n in rows]
            sentences = read_sentences(self.models, self.plan, *some, input_index=rows)
            for n, best in zip(rows, search_in_parts(self.models, self.plan, sentences, kept, watch), strict=True):
                found[n] = best
        found = self.with_final_terms(inputs, contexts, found, n_best)
        return self.aligned(inputs, contexts, found) if align else found

    def rerank(
        self,
        inputs: Sequence[Ids],
        outputs: Sequence[Sequence[Ids]],
        contexts: Sequence[Ids] | None = None,
        align: bool = True,
    ) -> list[list[Hypothesis]]:
        """Given outputs of each input (ids without EOS), scored by the same objective, best first."""
        scored = self.score(inputs, outputs, contexts, align)
        return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in scored]

    def score(
        self,
        inputs: Sequence[Ids],
        outputs: Sequence[Sequence[Ids]],
        contexts: Sequence[Ids] | None = None,
        align: bool = True,
    ) -> list[list[Hypothesis]]:
        """Given outputs of each input (ids without EOS), scored by the same objective, in the given order."""
        contexts = checked_contexts(inputs, contexts)
        lm = self._lm if self.weights.lm else None
        further = {name: self._extra[name] for name, weight in self.weights.extra.items() if weight}
        scorers = model_scorers(self._direct, self.models.channel, lm, further, self.settings)
        scored = [
            [
                Hypothesis(
                    tokens=tuple(ranked.output),
                    score=ranked.score,
                    direct=ranked.terms["direct"],
                    channel=ranked.terms.get("channel"),
                    lm=ranked.terms.get("lm"),
                    length=len(ranked.output) + 1,
                    alignment=None,
                    channel_alignment=None,
                    complete=True,
                    extra={name: ranked.terms[name] for name in further},
                )
                for ranked in of_input
            ]
            for of_input in Reranker(scorers, self.weights).score(inputs, outputs, contexts)
        ]
        return self.aligned(inputs, contexts, scored) if align else scored

    def with_final_terms(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: list[list[Hypothesis]], n_best: int
    ) -> list[list[Hypothesis]]:
        """Add the terms that score whole outputs only, and rank again. A partial output stays as it is."""
        if not self._final:
            return [best[:n_best] for best in found]
        whole = CompleteHypotheses.of(inputs, contexts, found)
        terms = Reranker(self._final, {}).terms(whole.inputs, whole.outputs, whole.contexts)
        ranked = whole.put_back(found, map(self._with_terms, whole.hypotheses, terms))
        return [sorted(best, key=lambda hypothesis: -hypothesis.score)[:n_best] for best in ranked]

    def _with_terms(self, hypothesis: Hypothesis, terms: Mapping[str, float]) -> Hypothesis:
        score, extra = hypothesis.score, {**hypothesis.extra, **terms}
        for name, term in terms.items():
            score += self.weights.extra[name] * term
        return replace(
            hypothesis, score=score, extra={name: extra[name] for name in self.weights.extra if name in extra}
        )

    def aligned(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Add the best alignments of the complete hypotheses."""
        whole = CompleteHypotheses.of(inputs, contexts, found)
        outputs = [(*tokens, EOS) for tokens in whole.outputs]
        alignments: Sequence[tuple[int, ...] | None] = [None] * len(outputs)
        channel_alignments = alignments
        if hasattr(self.models.direct, "viterbi"):
            alignments = best_alignments(self.models.direct, whole.inputs, outputs)
        if self.models.channel is not None:
            read = [(*context, *ids) for context, ids in zip(whole.contexts, outputs, strict=True)]
            channel_alignments = best_alignments(self.models.channel, read, whole.inputs)
        rows = zip(whole.hypotheses, alignments, channel_alignments, strict=True)
        return whole.put_back(found, (replace(h, alignment=z, channel_alignment=c) for h, z, c in rows))


def checked_contexts(inputs: Sequence[Ids], contexts: Sequence[Ids] | None) -> Sequence[Ids]:
    """Refuse bad inputs; the contexts, empty ones if none are given."""
    check_inputs(inputs)
    if contexts is None:
        return [()] * len(inputs)
    if len(contexts) != len(inputs):
        raise ValueError(f"there are {len(inputs)} inputs, but {len(contexts)} contexts")
    return contexts
