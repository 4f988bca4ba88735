"""The models, weights and settings of one search, as every step of it needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noisychannel.decode.memory import Budget
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.models.protocols import ChannelModel, DirectModel, PrefixTerm
from noisychannel.semirings import Log, Max, Semiring

UNEXPLAINED = -1e6
"""The objective's part for an input that the channel cannot explain from a partial output."""


@dataclass(frozen=True)
class Models:
    """The models that score during the search; those of weight zero are left out."""

    direct: DirectModel[Any]
    channel: ChannelModel[Any] | None
    sources: Mapping[str, PrefixTerm]
    """The terms that score prefixes, by name: the language model ``lm``, and further ones."""

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of all terms but the length."""
        return ("direct", *(("channel",) if self.channel is not None else ()), *self.sources)


@dataclass(frozen=True)
class SearchPlan:
    """The objective of a search, its settings, and the symbols that it may not propose."""

    weights: Weights
    settings: SearchSettings
    barred: frozenset[int]
    budget: Budget | None = None
    """Of memory; None for no limit."""

    def proposable(self, scores: Tensor) -> Tensor:
        """The direct model's scores [...,V] with -inf for the barred symbols."""
        V = scores.shape[-1]
        if not all(0 <= symbol < V for symbol in self.barred):
            raise ValueError(f"barred: {sorted(self.barred)} are not all symbols of the vocabulary (0..{V - 1})")
        scores = scores.clone()
        scores[..., list(self.barred)] = -torch.inf
        return scores

    @property
    def logits_at_once(self) -> int | None:
        """Elements of a block of extensions that may be scored together; None for no limit."""
        return None if self.budget is None else self.budget.logits_at_once

    @property
    def over_direct(self) -> Semiring:
        """How alignments of the direct model join: ``search``."""
        return Log() if self.settings.search == "marginal" else Max()

    @property
    def over_channel(self) -> Semiring:
        """How alignments of the channel join: ``channel_alignment``."""
        return Max() if self.settings.channel_alignment == "viterbi" else Log()

    def channel_part(self, channel: Tensor) -> Tensor:
        """The part of the objective that comes from these scores of the channel, as ``look_ahead`` counts them.

        A channel of one's own may rule out what has been read so far and allow it after one more symbol, so what is
        infinite becomes a low number. Slots without a prefix, which may have any score, must not become nan.
        """
        part = self.weights.channel * channel
        return part.nan_to_num(nan=UNEXPLAINED, posinf=UNEXPLAINED, neginf=UNEXPLAINED)

    def bounded(self, models: Models) -> bool:
        """Whether no term of a hypothesis can make up for a loss, so that the search may stop early.

        A term is bounded by its present value if it can only fall and its weight is not negative.
        """
        if min(self.weights.direct, self.weights.channel) < 0:
            return False
        weights = self.weights.by_name()
        return not any(
            weights[name] < 0 or (weights[name] > 0 and getattr(model, "may_rise", False))
            for name, model in models.sources.items()
        )
