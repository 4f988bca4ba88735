"""A batch of inputs as the models see them, read once before the search.

Shapes: B sentences, I input positions, V output symbols, X input symbols, G gate size, T symbols of a context, Q
candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from noisychannel.decode.channel_words import ChannelWords
from noisychannel.decode.lateness import needs_no_scores
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.proposals import RankedScores
from noisychannel.ids import EOS, PAD
from noisychannel.joint import Scaled
from noisychannel.models.protocols import Side, SomeInputScores


class ScaledSide(NamedTuple):
    """A ``Side`` of the input, prepared to meet many outputs."""

    words: Scaled
    """[B,I,V] for the direct model, [B,I,X] for the channel, or [B,I,C] of some symbols."""
    gate: Tensor
    """[B,I,G]."""

    @staticmethod
    def of(side: Side) -> ScaledSide:
        return ScaledSide(Scaled.of(side.scores), side.gate)

    def select(self, rows: Tensor) -> ScaledSide:
        return ScaledSide(Scaled(*(x[rows] for x in self.words)), self.gate[rows])


class ChannelRows(NamedTuple):
    """What the channel's states are multiplied by, if its scores are never written (``lateness``)."""

    every: Tensor
    """The rows of all symbols, in float16: [X,H]."""
    own: Tensor
    """Those of the input's own symbols: [B,I,H]."""

    @staticmethod
    def of(channel: SomeInputScores, inputs_BI: Tensor, symbols: int) -> ChannelRows:
        every = torch.arange(symbols, device=inputs_BI.device)
        return ChannelRows(channel.input_words(every).half(), channel.input_words(inputs_BI))

    def select(self, rows: Tensor) -> ChannelRows:
        return ChannelRows(self.every, self.own[rows])


class Sentences(NamedTuple):
    """A batch of inputs."""

    input_index: Tensor
    """The place of each among the inputs that the caller gave: [B]."""
    inputs: Tensor
    """[B,I]."""
    lengths: Tensor
    """[B]."""
    max_length: Tensor
    """Longest output, EOS included, [B]."""
    direct: ScaledSide
    """The direct model has read the input."""
    proposable: RankedScores
    """The direct model's scores of the symbols that may be proposed, -inf for the others: [B,I,V]."""
    channel: ScaledSide | None
    """The channel is going to write the input."""
    channel_words: ChannelWords | None
    """The words that the channel's softmax runs over, if not all."""
    channel_rows: ChannelRows | None
    """If its scores are never written."""
    written: Tensor | None
    """The channel's scores c_i of the input's own symbols, as far as they depend on the input: [B,1,I]."""
    context: Tensor
    """Symbols before every output (features). The channel reads them first, and so may source models: [B,T]."""
    padded: bool
    """Whether some inputs are shorter than I."""

    @property
    def symbols(self) -> int:
        """V."""
        return self.proposable.scores.shape[2]

    def at_last(self, x_BQI: Tensor) -> Tensor:
        """The value in each sentence's last column: [B,Q]."""
        if not self.padded:
            return x_BQI[:, :, -1]
        last = (self.lengths - 1)[:, None, None].expand(-1, x_BQI.shape[1], 1)
        return x_BQI.gather(2, last).squeeze(2)

    def select(self, rows: Tensor) -> Sentences:
        return Sentences(
            self.input_index[rows],
            self.inputs[rows],
            self.lengths[rows],
            self.max_length[rows],
            self.direct.select(rows),
            self.proposable.select(rows),
            None if self.channel is None else self.channel.select(rows),
            None if self.channel_words is None else self.channel_words.select(rows),
            None if self.channel_rows is None else self.channel_rows.select(rows),
            None if self.written is None else self.written[rows],
            self.context[rows],
            self.padded,
        )


def read_sentences(
    models: Models,
    plan: SearchPlan,
    inputs: Sequence[Sequence[int]],
    contexts: Sequence[Sequence[int]],
    input_index: Sequence[int],
) -> Sentences:
    """Run the parts of the models that depend on the input alone; the contexts are of one length."""
    device = next(models.direct.parameters()).device
    inputs_BI, lengths_on_host = padded(inputs, device)
    lengths = lengths_on_host.to(device)
    direct = ScaledSide.of(models.direct.read_inputs(inputs_BI, lengths_on_host))
    proposable = plan.proposable(direct.words.scores)
    # EOS may be proposed in the last column only.
    last_BI = torch.arange(inputs_BI.shape[1], device=device) == (lengths - 1)[:, None]
    proposable[:, :, EOS].masked_fill_(~last_BI, -torch.inf)
    channel = words = channel_rows = written = None
    if models.channel is not None:
        side = models.channel.read_outputs(inputs_BI)
        if plan.settings.channel_words is not None:
            words = ChannelWords.of(models.channel, inputs_BI, side.scores.shape[2], plan.settings.channel_words)
            side = side._replace(scores=words.of_inputs(side.scores))
        channel = ScaledSide.of(side)
        if needs_no_scores(models.channel, plan.settings, side.scores):
            channel_rows = ChannelRows.of(models.channel, inputs_BI, side.scores.shape[2])
        target_BI = inputs_BI if words is None else words.target
        written = channel.words.scores.gather(2, target_BI[:, :, None]).mT
    return Sentences(
        input_index=torch.tensor(list(input_index), device=device),
        inputs=inputs_BI,
        lengths=lengths,
        max_length=torch.tensor([plan.settings.longest_output(len(ids)) for ids in inputs]).to(device),
        direct=direct,
        proposable=RankedScores.of(proposable),
        channel=channel,
        channel_words=words,
        channel_rows=channel_rows,
        written=written,
        context=torch.tensor([list(ids) for ids in contexts], dtype=torch.long, device=device),
        padded=any(len(ids) < inputs_BI.shape[1] for ids in inputs),
    )


def padded(sequences: Sequence[Sequence[int]], device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Ids [B,T] on the device, lengths [B] on the CPU."""
    lengths = torch.tensor([len(ids) for ids in sequences])
    ids_BT = torch.full((len(sequences), int(lengths.max())), PAD)
    for row, ids in zip(ids_BT, sequences, strict=True):
        row[: len(ids)] = torch.tensor(list(ids), dtype=torch.long)
    return ids_BT.to(device), lengths


def check_n_best(n_best: int) -> None:
    """Refuse a number of outputs that is not a whole number above zero."""
    if isinstance(n_best, bool) or not isinstance(n_best, int):
        raise ValueError(f"n_best must be a whole number, but is {n_best!r}")
    if n_best < 1:
        raise ValueError(f"n_best must be at least 1, but is {n_best}")


def check_inputs(inputs: Sequence[Sequence[int]]) -> None:
    """Refuse an input that does not end in its only EOS."""
    for n, ids in enumerate(inputs):
        if not ids or ids[-1] != EOS or EOS in ids[:-1]:
            raise ValueError(f"inputs[{n}] must end in its only EOS (id {EOS}), but is {list(ids)}")
