"""Where models meet columns: emission gates of many prefixes at once, and the channel's column one symbol further.

Shapes: B sentences, I input positions, Q candidates, N of them that exist, X input symbols, G gate size.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from noisychannel import kernels
from noisychannel.decode.columns import ChannelColumn, advance_channel
from noisychannel.decode.packing import Packing, slot_columns
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.sentences import Sentences
from noisychannel.joint import Scaled, log_normaliser
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
SCORES_AT_ONCE = 1 << 26
"""Elements of the channel's scores if they are needed only because a normaliser underflowed."""


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


class ChannelRead(NamedTuple):
    """What the channel makes of one more symbol of each candidate: its scores, or the states that they come from."""

    gate: Tensor
    """[N,G]."""
    scores: Tensor | None
    """a_i: [B,Q,X], or [B,Q,C] of some words."""
    states: ChannelStates | None = None


class ChannelStates(NamedTuple):
    """What scores are computed from: products with a row for each symbol, and a score for copying one."""

    states: Tensor
    """[B,Q,H]."""
    copied: tuple[Tensor, Tensor] | None
    """The symbol, and what is added to its score: [B,Q] each; see ``SomeInputScores``."""
    symbols: Tensor
    """What was read: [B,Q]."""


def step_channel(
    channel: ChannelModel[Any],
    sentences: Sentences,
    packing: Packing,
    symbols_N: Tensor,
    state: Any,
    parents_N: Tensor | None = None,
) -> tuple[ChannelRead, Any]:
    """Run the channel on one more symbol of each candidate.

    On a GPU the states are put into their slots and not the scores: it multiplies a few rows of zeros faster than it
    copies the scores of a large vocabulary. In TF32 a kernel needs no scores at all.
    """
    words = sentences.channel_words
    if words is not None and isinstance(channel, SomeInputScores):
        states_NH, gate_NG, state = channel.advance_inputs(symbols_N, state, parents_N)
        return ChannelRead(gate_NG, words.of_candidates(channel, states_NH, symbols_N, packing)), state
    if sentences.channel_rows is not None and isinstance(channel, SomeInputScores):
        states_NH, gate_NG, state = channel.advance_inputs(symbols_N, state, parents_N)
        copied = channel.copied_inputs(states_NH, symbols_N)
        spread = None if copied is None else (packing.spread(copied[0]), packing.spread(copied[1]))
        states = ChannelStates(packing.spread(states_NH), spread, packing.spread(symbols_N))
        return ChannelRead(gate_NG, None, states), state
    if symbols_N.device.type == "cuda" and isinstance(channel, LateInputScores):
        states_NH, gate_NG, state = channel.advance_inputs(symbols_N, state, parents_N)
        scores_BQX = channel.input_scores(packing.spread(states_NH), packing.spread(symbols_N))
        return ChannelRead(gate_NG, scores_BQX), state
    read, state = channel.step_inputs(symbols_N, state, parents_N)
    return ChannelRead(read.gate, packing.spread(read.scores)), state


def read_one_more(
    channel: ChannelModel[Any],
    plan: SearchPlan,
    sentences: Sentences,
    packing: Packing,
    before: ChannelColumn,
    read: ChannelRead,
) -> tuple[ChannelColumn, Tensor]:
    """The channel's columns after it has read one more symbol (``step_channel``), and its leave there: [B,Q,I]."""
    assert sentences.channel is not None
    assert sentences.written is not None
    word_logp_BQI = _written(channel, plan, sentences, read) + sentences.written
    emit_NI = emissions(channel, sentences.channel.gate, read.gate, packing, built_is_output=False)
    lengths = sentences.lengths if sentences.padded else None
    return advance_channel(before, packing.spread(emit_NI), word_logp_BQI, plan.over_channel, lengths)


def _written(channel: ChannelModel[Any], plan: SearchPlan, sentences: Sentences, read: ChannelRead) -> Tensor:
    """a_i of the input's own symbols, minus log Z: [B,Q,I]."""
    assert sentences.channel is not None
    words = sentences.channel.words
    if read.scores is not None:
        target_BI = sentences.inputs if sentences.channel_words is None else sentences.channel_words.target
        return _written_from_scores(read.scores, target_BI, words, plan)
    assert read.states is not None
    assert isinstance(channel, LateInputScores)
    written_BQI = _written_from_states(sentences, words, read.states)
    inside_BI = torch.arange(written_BQI.shape[2], device=written_BQI.device) < sentences.lengths[:, None]
    lost_B = (written_BQI.isnan() & inside_BI[:, None]).flatten(1).any(1)
    # Something underflowed: the long way, some candidates of one sentence at a time.
    X = words.scores.shape[2]
    room = SCORES_AT_ONCE if plan.logits_at_once is None else min(SCORES_AT_ONCE, plan.logits_at_once)
    for b in lost_B.nonzero().flatten().tolist():
        those = Scaled(*(x[b : b + 1] for x in words))
        for first in range(0, written_BQI.shape[1], size := max(1, room // X)):
            some = slice(b, b + 1), slice(first, first + size)
            scores_1QX = channel.input_scores(read.states.states[some], read.states.symbols[some])
            again = _written_from_scores(scores_1QX, sentences.inputs[b : b + 1], those, plan)
            written_BQI[some] = torch.where(written_BQI[some].isnan(), again, written_BQI[some])
    return written_BQI


def _written_from_scores(scores_BQX: Tensor, target_BI: Tensor, words: Scaled, plan: SearchPlan) -> Tensor:
    return slot_columns(scores_BQX, target_BI) - log_normaliser(scores_BQX, words, plan.settings.products)


def _written_from_states(sentences: Sentences, words: Scaled, read: ChannelStates) -> Tensor:
    """From states; nan where a normaliser may have underflowed."""
    from noisychannel.kernels import states as fused

    rows = sentences.channel_rows
    assert rows is not None
    log_Z_BQI = fused.log_normaliser(read.states, rows.every, words.exp, words.max.squeeze(2), read.copied)
    own_BQI = read.states @ rows.own.mT
    if read.copied is not None:
        symbol_BQ, amount_BQ = read.copied
        same_BQI = symbol_BQ[..., None] == sentences.inputs[:, None]
        own_BQI += torch.where(same_BQI, amount_BQ[..., None], 0.0)
    return own_BQI - log_Z_BQI
