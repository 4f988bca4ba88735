"""Where models meet columns: emission gates of many prefixes at once, and the channel's column one symbol further.

Shapes: B sentences, I input positions, Q candidates, N of them that exist, X input symbols, G gate size.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor

from noisychannel import kernels
from noisychannel.decode.channel_words import ChannelWords
from noisychannel.decode.columns import ChannelColumn, advance_channel
from noisychannel.decode.packing import Packing, slot_columns
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.sentences import Sentences
from noisychannel.joint import log_normaliser
from noisychannel.models.protocols import (
    ChannelModel,
    GatheredEmissions,
    LateInputScores,
    Side,
    SomeInputScores,
    Transducer,
)

EMISSIONS_IN_CACHE = 1 << 20
"""Elements of the [N,I,G] block behind the emission gates on a CPU, so that it fits the caches."""
EMISSIONS_AT_ONCE = 1 << 28
"""The same on a GPU, which bounds memory."""


def emissions(
    model: Transducer, known_BIG: Tensor, built_NG: Tensor, packing: Packing, built_is_output: bool
) -> Tensor:
    """The emission logits between every position of x and each of the N prefixes: [N,I]."""
    if _gathers(model, known_BIG, built_NG):
        return model.gathered_emit_logits(known_BIG, packing.sentence, built_NG)
    _, I, G = known_BIG.shape
    room = EMISSIONS_IN_CACHE if known_BIG.device.type == "cpu" else EMISSIONS_AT_ONCE
    pieces = []
    for built, sentence in zip(*(x.split(max(1, room // (I * G))) for x in (built_NG, packing.sentence)), strict=True):
        known, one = known_BIG.index_select(0, sentence), built[:, None]
        inputs, outputs = (known, one) if built_is_output else (one, known)
        # emit_logits uses only the gates of the two sides.
        pieces.append(model.emit_logits(Side(inputs, inputs), Side(outputs, outputs)).flatten(1))
    return torch.cat(pieces)


def _gathers(model: Transducer, known_BIG: Tensor, built_NG: Tensor) -> TypeGuard[GatheredEmissions]:
    """Whether a transducer has its own way to compute emissions, which suits the device and the precision."""
    if not hasattr(model, "gathered_emit_logits"):
        return False
    if known_BIG.device.type == "cpu":
        return known_BIG.dtype == built_NG.dtype and built_NG.dtype in (torch.float32, torch.float64)
    return built_NG.dtype != torch.float64 and kernels.usable(known_BIG, built_NG)


def step_channel(
    channel: ChannelModel[Any],
    packing: Packing,
    symbols_N: Tensor,
    state: Any,
    parents_N: Tensor | None = None,
    words: ChannelWords | None = None,
) -> tuple[Side, Any]:
    """Run the channel on one more symbol of each candidate: scores in their slots [B,Q,X], gates [N,G]; the state.

    ``words``: what to score, if not the whole vocabulary; the scores are then [B,Q,C].

    On a GPU the states are put into their slots and not the scores: it multiplies a few rows of zeros faster than it
    copies the scores of a large vocabulary.
    """
    if words is not None and isinstance(channel, SomeInputScores):
        states_NH, gate_NG, state = channel.advance_inputs(symbols_N, state, parents_N)
        return Side(words.of_candidates(channel, states_NH, symbols_N, packing), gate_NG), state
    if symbols_N.device.type == "cuda" and isinstance(channel, LateInputScores):
        states_NH, gate_NG, state = channel.advance_inputs(symbols_N, state, parents_N)
        scores_BQX = channel.input_scores(packing.spread(states_NH), packing.spread(symbols_N))
        return Side(scores_BQX, gate_NG), state
    read, state = channel.step_inputs(symbols_N, state, parents_N)
    return Side(packing.spread(read.scores), read.gate), state


def read_one_more(
    channel: ChannelModel[Any],
    plan: SearchPlan,
    sentences: Sentences,
    packing: Packing,
    before: ChannelColumn,
    read: Side,
) -> tuple[ChannelColumn, Tensor]:
    """The channel's columns after it has read one more symbol (``step_channel``), and its leave there: [B,Q,I]."""
    assert sentences.channel is not None
    assert sentences.written is not None
    target_BI = sentences.inputs if sentences.channel_words is None else sentences.channel_words.target
    word_logp_BQI = slot_columns(read.scores, target_BI) + sentences.written
    word_logp_BQI -= log_normaliser(read.scores, sentences.channel.words, plan.settings.products)
    emit_NI = emissions(channel, sentences.channel.gate, read.gate, packing, built_is_output=False)
    lengths = sentences.lengths if sentences.padded else None
    return advance_channel(before, packing.spread(emit_NI), word_logp_BQI, plan.over_channel, lengths)
