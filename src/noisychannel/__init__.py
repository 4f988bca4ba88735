"""Sequence transduction with few pairs and many unpaired outputs, after The Neural Noisy Channel (ICLR 2017)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.15.0"

if TYPE_CHECKING:
    from noisychannel.decode.decoder import NoisyChannelDecoder
    from noisychannel.decode.hypothesis import Hypothesis
    from noisychannel.decode.objective import Weights
    from noisychannel.decode.online import OnlineDecoder
    from noisychannel.models import SSNT, LanguageModel, Seq2Seq
    from noisychannel.noisy_channel import NoisyChannel

_HOMES = {
    "SSNT": "noisychannel.models",
    "LanguageModel": "noisychannel.models",
    "Seq2Seq": "noisychannel.models",
    "Hypothesis": "noisychannel.decode.hypothesis",
    "NoisyChannel": "noisychannel.noisy_channel",
    "NoisyChannelDecoder": "noisychannel.decode.decoder",
    "OnlineDecoder": "noisychannel.decode.online",
    "Weights": "noisychannel.decode.objective",
}

__all__ = [
    "SSNT",
    "Hypothesis",
    "LanguageModel",
    "NoisyChannel",
    "NoisyChannelDecoder",
    "OnlineDecoder",
    "Seq2Seq",
    "Weights",
    "__version__",
]


def __getattr__(name: str) -> object:
    # Importing torch takes a second; `noisychannel --help` should not.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'noisychannel' has no attribute {name!r}")
