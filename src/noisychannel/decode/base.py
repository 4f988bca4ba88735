"""``BaseDecoder``: what the chart decoder and the beam decoder share, the models and the objective of whole outputs."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

import torch
from torch import nn

from noisychannel.decode.hypothesis import CompleteHypotheses, Hypothesis
from noisychannel.decode.memory import Refuse
from noisychannel.decode.objective import Weights, check_kind
from noisychannel.decode.parts import together_or_alone
from noisychannel.decode.rerank import Reranker, weighted_sum
from noisychannel.decode.scorers import best_alignments, model_scorers
from noisychannel.decode.sentences import check_inputs, check_n_best
from noisychannel.decode.settings import SearchKeywords, SearchSettings
from noisychannel.decode.terms import AnyScorer, FurtherTerm, Ids
from noisychannel.decode.watch import Watch
from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.models.finite import non_finite_parameter
from noisychannel.models.protocols import Attesting, ChannelModel, SourceModel


class BaseDecoder(ABC):
    """Models, weights and settings; ``NoisyChannelDecoder`` and ``BeamDecoder`` add the search."""

    final: Mapping[str, AnyScorer[Ids]]
    """The terms that join after the search, by name."""

    def __init__(
        self,
        direct: Any,
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
        self._barred = frozenset({PAD, BOS, *barred})
        self._checked: set[str] = set()
        self._use(weights, replace(settings, **keywords))

    def reweighted(self, weights: Weights, settings: SearchSettings | None = None) -> Self:
        """The same models with other weights, and other settings if they are given. Models are not checked again."""
        decoder = copy.copy(self)
        decoder._use(weights, settings or self.settings)
        return decoder

    def _use(self, weights: Weights, settings: SearchSettings) -> None:
        """Set weights and settings, and refuse those that do not fit the models."""
        check_kind("weights", weights, Weights)
        check_kind("settings", settings, SearchSettings)
        self.weights, self.settings = weights, settings
        given = {"channel": self._channel, "lm": self._lm, **self._extra}
        for name, weight in weights.by_name().items():
            if weight and name not in ("direct", "length") and given.get(name) is None:
                raise ValueError(f"the weight {name} is {weight}, but no {name} model is given")
        for name, model in {"direct": self._direct, **self._used()}.items():
            self._check_model(name, model)

    def _used(self) -> dict[str, Any]:
        """The models whose weights are not zero, without the direct model."""
        given = {"channel": self._channel, "lm": self._lm, **self._extra}
        return {name: given[name] for name, weight in self.weights.by_name().items() if weight and name in given}

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

    @property
    def barred(self) -> frozenset[int]:
        """The symbols that may not be proposed."""
        return self._barred if self.settings.allow_unk else self._barred | {UNK}

    @abstractmethod
    def decode(
        self,
        inputs: Sequence[Ids],
        n_best: int = 1,
        contexts: Sequence[Ids] | None = None,
        align: bool = True,
        watch: Watch | None = None,
        refuse: Refuse | None = None,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each input (ids that end in EOS), decoded as one batch."""

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
        refuse: Refuse | None = None,
    ) -> list[list[Hypothesis]]:
        """Given outputs of each input (ids without EOS), scored by the same objective, in the given order.

        ``refuse`` is called for an input with an output that needs too much memory; such an input gets no hypotheses.
        """
        before = checked(inputs, contexts)
        return together_or_alone(
            lambda part: self._score(inputs[part], outputs[part], before[part], align), len(inputs), refuse
        )

    def _score(
        self, inputs: Sequence[Ids], outputs: Sequence[Sequence[Ids]], contexts: Sequence[Ids], align: bool
    ) -> list[list[Hypothesis]]:
        reranker = Reranker(self._scorers(), self.weights)
        scored = [
            [Hypothesis.of(y.output, y.score, y.terms, len(y.output) + 1, complete=True) for y in of_input]
            for of_input in reranker.score(inputs, outputs, contexts)
        ]
        if self.settings.per_symbol:
            scored = [
                [self._weighed(hypothesis, len(ids)) for hypothesis in of_input]
                for ids, of_input in zip(inputs, scored, strict=True)
            ]
        return self.aligned(inputs, contexts, scored) if align else scored

    def _scorers(self) -> dict[str, AnyScorer[Ids]]:
        """The direct model, the length, and every term whose weight is not zero."""
        used = self._used()
        channel, lm = used.pop("channel", None), used.pop("lm", None)
        return model_scorers(self._direct, channel, lm, used, self.settings)

    def finished(
        self,
        inputs: Sequence[Ids],
        contexts: Sequence[Ids],
        found: Sequence[Sequence[Hypothesis]],
        n_best: int,
        align: bool,
        refuse: Refuse | None,
    ) -> list[list[Hypothesis]]:
        """What a search has found, with the terms that join after it, and with alignments if ``align``."""

        def finish(part: slice) -> list[list[Hypothesis]]:
            exact = self.exact(inputs[part], contexts[part], found[part])
            ranked = self.with_final_terms(inputs[part], contexts[part], exact, n_best)
            ranked = self.with_attested(inputs[part], contexts[part], ranked, n_best)
            return self.aligned(inputs[part], contexts[part], ranked) if align else ranked

        return together_or_alone(finish, len(inputs), refuse)

    def exact(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """What a search has found, with exact scores."""
        return [list(best) for best in found]

    def with_final_terms(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: Sequence[Sequence[Hypothesis]], n_best: int
    ) -> list[list[Hypothesis]]:
        """Add the terms that join after the search, and rank again. Partial outputs do not get these terms."""
        if not self.final and not self.settings.per_symbol:
            return [list(best[:n_best]) for best in found]
        whole = CompleteHypotheses.of(inputs, contexts, found)
        terms = Reranker(self.final, {}).terms(whole.inputs, whole.outputs, whole.contexts)
        lengths = map(len, whole.inputs)
        ranked = whole.put_back(found, map(self._with_terms, whole.hypotheses, terms, lengths))
        return [sorted(best, key=lambda hypothesis: -hypothesis.score)[:n_best] for best in ranked]

    def with_attested(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: Sequence[Sequence[Hypothesis]], n_best: int
    ) -> list[list[Hypothesis]]:
        """Add outputs that a term knows of an input (``Attesting``) and the search has not found, and rank again.

        Only what a search may find is added: symbols that are not barred, and no more of them than allowed.
        """
        weights = self.weights.extra
        terms = [
            term for name, term in self._used().items() if weights.get(name, 0) > 0 and isinstance(term, Attesting)
        ]
        added: dict[int, list[Ids]] = {}
        for n, best in enumerate(found):
            if not best or not terms:  # refused inputs have none
                continue
            longest, ours = self.settings.longest_output(len(inputs[n])), {h.tokens for h in best if h.complete}
            known: dict[Ids, None] = dict.fromkeys(
                y for term in terms for y in term.attested(tuple(inputs[n]), self.settings.k2)
            )
            if more := [y for y in known if y not in ours and len(y) < longest and self.barred.isdisjoint(y)]:
                added[n] = more
        if not added:
            return [list(best) for best in found]
        scored = self._score([inputs[n] for n in added], [*added.values()], [contexts[n] for n in added], align=False)
        joined = [list(best) for best in found]
        for n, more_scored in zip(added, scored, strict=True):
            whole = [*(hypothesis for hypothesis in found[n] if hypothesis.complete), *more_scored]
            joined[n] = sorted(whole, key=lambda hypothesis: -hypothesis.score)[:n_best]
        return joined

    def _with_terms(self, hypothesis: Hypothesis, terms: Mapping[str, float], input_length: int) -> Hypothesis:
        every = {**hypothesis.terms(), **terms}
        extra = {name: term for name in self.weights.extra if (term := every.get(name)) is not None}
        filled = replace(hypothesis, channel=every["channel"], lm=every["lm"], extra=extra)
        return self._weighed(filled, input_length)

    def _weighed(self, hypothesis: Hypothesis, input_length: int) -> Hypothesis:
        """A complete hypothesis with the score of its terms.

        With ``per_symbol`` each term is divided by its own length and all of them are multiplied by |x|, EOS included,
        which ranks the outputs of an input in the same way and keeps scores in nats. So the channel's term stays as it
        is, and sums over the output's symbols are multiplied by |x| / |y|.
        """
        if self.settings.per_symbol:
            hypothesis = replace(hypothesis, factor=input_length / hypothesis.length)
        return replace(hypothesis, score=weighted_sum(self.weights, hypothesis.weighed()))

    def aligned(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Add the best alignments of the complete hypotheses; a model without alignments adds none."""
        whole = CompleteHypotheses.of(inputs, contexts, found)
        outputs = [(*tokens, EOS) for tokens in whole.outputs]
        alignments: Sequence[tuple[int, ...] | None] = [None] * len(outputs)
        channel_alignments = alignments
        if hasattr(self._direct, "viterbi"):
            alignments = best_alignments(self._direct, whole.inputs, outputs, self.settings)
        if self._channel is not None and self.weights.channel:
            read = [(*context, *ids) for context, ids in zip(whole.contexts, outputs, strict=True)]
            channel_alignments = best_alignments(self._channel, read, whole.inputs, self.settings)
        rows = zip(whole.hypotheses, alignments, channel_alignments, strict=True)
        return whole.put_back(found, (replace(h, alignment=z, channel_alignment=c) for h, z, c in rows))

    @property
    def device(self) -> torch.device:
        """The device of the direct model."""
        parameter: torch.Tensor = next(self._direct.parameters())
        return parameter.device


def checked(inputs: Sequence[Ids], contexts: Sequence[Ids] | None, n_best: int = 1) -> Sequence[Ids]:
    """Refuse bad arguments; the contexts, empty ones if none are given."""
    check_n_best(n_best)
    check_inputs(inputs)
    if contexts is None:
        return [()] * len(inputs)
    if len(contexts) != len(inputs):
        raise ValueError(f"there are {len(inputs)} inputs, but {len(contexts)} contexts")
    return contexts
