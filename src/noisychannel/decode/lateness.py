"""What a search of a large vocabulary computes late, or not at all.

A projection to a large vocabulary is most of the arithmetic of a step, and its result most of the memory.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor

from noisychannel import kernels
from noisychannel.decode.settings import SearchSettings
from noisychannel.models.protocols import ChannelModel, DirectModel, LateInputScores, LateOutputScores, SomeInputScores

LARGE = 2048
"""Symbols of a large vocabulary."""


def scores_late(direct: DirectModel[Any], settings: SearchSettings, V: int) -> TypeGuard[LateOutputScores[Any]]:
    """Whether the direct model scores the next symbols when it is known which prefixes may be extended."""
    return V >= LARGE and settings.lm_proposals == 0 and isinstance(direct, LateOutputScores)


def needs_no_scores(channel: ChannelModel[Any], settings: SearchSettings, scores: Tensor) -> TypeGuard[SomeInputScores]:
    """Whether the channel's scores, of this kind, are never written: ``kernels.states``, which rounds as TF32 does."""
    return (
        settings.products == "tf32"
        and settings.channel_words is None
        and scores.shape[-1] >= LARGE
        and scores.dtype == torch.float32
        and isinstance(channel, SomeInputScores)
        and isinstance(channel, LateInputScores)
        and kernels.usable(scores)
    )
