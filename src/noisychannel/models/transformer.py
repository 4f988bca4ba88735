"""The transformer, a present-day baseline: p(output | input) of Vaswani et al. (2017), pre-norm.

    in each layer      x = x + attention(norm(x)),  then  x = x + feed_forward(norm(x))
    after the last     p(v_j | v_<j, u) = softmax(E norm(x_j) + b)

Normalising before each part instead of after it lets it learn with a short warm-up (Xiong et al., 2020). Positions are
sinusoids. The softmax shares its matrix E with the embeddings of the output. While it is trained, ``forward`` is the
label-smoothed log-probability (Szegedy et al., 2016), with ε of the mass spread over the vocabulary,

    (1 - ε) log p(v_j) + ε / V Σ_w log p(w);

``log_prob`` is always log p itself. A step keeps keys and values of what was written, so it costs one position.

Shapes: B batch, I input positions, J output positions, N outputs stepped together, Q positions that look, T positions
that are looked at, D units, H heads, V output symbols.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisychannel.ids import after_bos, inside, require_eos
from noisychannel.models.lm import summed_log_probs
from noisychannel.models.lstm import check_sizes
from noisychannel.models.masks import check_share
from noisychannel.models.products import Linear, linear
from noisychannel.precision import at_least_float32


class KeysValues(NamedTuple):
    """What one layer looks at."""

    keys: Tensor
    """[N,T,D]."""
    values: Tensor
    """[N,T,D]."""

    def select(self, indices: Tensor) -> KeysValues:
        """Of the rows ``indices``, in that order, repeats allowed."""
        return KeysValues(self.keys.index_select(0, indices), self.values.index_select(0, indices))

    def followed_by(self, other: KeysValues) -> KeysValues:
        """These positions, then those of ``other``."""
        return KeysValues(*(torch.cat(pair, dim=1) for pair in zip(self, other, strict=True)))


class TransformerState(NamedTuple):
    """The explicit state of N outputs."""

    written: tuple[KeysValues, ...]
    """Of the symbols so far, in each layer: N rows."""
    read: tuple[KeysValues, ...]
    """Of the inputs, in each layer: one row for each input, which its outputs share."""
    inside: Tensor
    """False in the padding of the inputs."""
    row: Tensor
    """The input of each output: [N]."""

    def select(self, indices: Tensor) -> TransformerState:
        """The states of the outputs ``indices``, in that order, repeats allowed."""
        written = tuple(layer.select(indices) for layer in self.written)
        return self._replace(written=written, row=self.row.index_select(0, indices))


class Attention(nn.Module):
    """Scaled dot products with several heads."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (Linear(size, size) for _ in range(4))

    def look_at(self, x_NTD: Tensor) -> KeysValues:
        return KeysValues(self.key(x_NTD), self.value(x_NTD))

    def forward(self, x_NQD: Tensor, seen: KeysValues, mask: Tensor | None) -> Tensor:
        """What each position sees: [N,Q,D]. ``mask``: true where it may look, [...,T] for [N,H,Q,T]."""
        query, key, value = (self._split(x) for x in (self.query(x_NQD), *seen))
        if x_NQD.device.type == "cpu" and not torch.is_grad_enabled():
            # In float32 the sums over T would depend, in their last digits, on the padding, and so on the batch.
            score = query.double() @ key.double().mT / math.sqrt(query.shape[-1])
            if mask is not None:
                score = score.masked_fill(~mask, -torch.inf)
            found = (score.softmax(-1) @ value.double()).to(x_NQD.dtype)
        else:
            dropout = self.dropout if self.training else 0.0
            found = F.scaled_dot_product_attention(query, key, value, mask, dropout)
        return self.out(found.transpose(1, 2).flatten(2))

    def _split(self, x_NTD: Tensor) -> Tensor:
        """[N,T,D] -> [N,H,T,D/H]."""
        return x_NTD.unflatten(2, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Sequential):
    def __init__(self, size: int, inner: int, dropout: float) -> None:
        super().__init__(Linear(size, inner), nn.ReLU(), nn.Dropout(dropout), Linear(inner, size))


class ReadingLayer(nn.Module):
    def __init__(self, size: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(size, heads, dropout), FeedForward(size, inner, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BID: Tensor, mask_B11I: Tensor) -> Tensor:
        y_BID = self.norms[0](x_BID)
        x_BID = x_BID + self.dropout(self.attention(y_BID, self.attention.look_at(y_BID), mask_B11I))
        return x_BID + self.dropout(self.feed_forward(self.norms[1](x_BID)))


class WritingLayer(nn.Module):
    def __init__(self, size: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.own, self.across = Attention(size, heads, dropout), Attention(size, heads, dropout)
        self.feed_forward = FeedForward(size, inner, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x_NQD: Tensor, before: KeysValues | None, read: KeysValues, mask_N11I: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """All positions at once (``before`` is None), or one after those of ``before``; and all it looked at."""
        y_NQD = self.norms[0](x_NQD)
        written, Q = self.own.look_at(y_NQD), x_NQD.shape[1]
        earlier_QQ = None
        if before is None:
            earlier_QQ = torch.ones(Q, Q, dtype=torch.bool, device=x_NQD.device).tril()
        else:
            written = before.followed_by(written)
        x_NQD = x_NQD + self.dropout(self.own(y_NQD, written, earlier_QQ))
        x_NQD = x_NQD + self.dropout(self.across(self.norms[1](x_NQD), read, mask_N11I))
        return x_NQD + self.dropout(self.feed_forward(self.norms[2](x_NQD))), written


class Transformer(nn.Module):
    """An encoder-decoder with ``num_layers`` layers on either side.

    ``feedforward_size``, the units inside each layer, is four times ``hidden_size`` if it is not given."""

    bidirectional = True
    """A position of the input sees all others."""

    def __init__(
        self,
        input_vocab_size: int,
        output_vocab_size: int,
        hidden_size: int,
        num_layers: int = 3,
        num_heads: int = 4,
        feedforward_size: int | None = None,
        dropout: float = 0.0,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(
            input_vocab_size=input_vocab_size,
            output_vocab_size=output_vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            feedforward_size=feedforward_size,
        )
        check_share("label_smoothing", label_smoothing)
        if hidden_size % num_heads:
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of num_heads {num_heads}")
        self.label_smoothing = label_smoothing
        layer = (hidden_size, num_heads, feedforward_size or 4 * hidden_size, dropout)
        self.input_embedding = nn.Embedding(input_vocab_size, hidden_size)
        self.reader = nn.ModuleList(ReadingLayer(*layer) for _ in range(num_layers))
        self.output_embedding = nn.Embedding(output_vocab_size, hidden_size)
        self.writer = nn.ModuleList(WritingLayer(*layer) for _ in range(num_layers))
        self.read_norm, self.written_norm = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.word_bias = nn.Parameter(torch.zeros(output_vocab_size))
        self.dropout = nn.Dropout(dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=hidden_size**-0.5)

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """log p(outputs | inputs): ids [B,I], [B], [B,J], [B] -> [B]. Both sides end in EOS."""
        require_eos("inputs", inputs, input_lengths)
        require_eos("outputs", outputs, output_lengths)
        return summed_log_probs(self._logits(inputs, input_lengths, outputs), outputs, output_lengths)

    def forward(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """``log_prob`` without checking the ids; while the model is trained, with smoothed labels."""
        logits_BJV = self._logits(inputs, input_lengths, outputs)
        log_prob_B = summed_log_probs(logits_BJV, outputs, output_lengths)
        if not self.training or not self.label_smoothing:
            return log_prob_B
        mean_BJ = at_least_float32(logits_BJV).log_softmax(-1).mean(-1)
        spread_B = mean_BJ.masked_fill(~inside(output_lengths, outputs.shape[1], outputs.device), 0.0).sum(1)
        return torch.lerp(log_prob_B, spread_B, self.label_smoothing)

    def start(self, inputs: Tensor, input_lengths: Tensor) -> TransformerState:
        """The state of one empty output per input, before BOS: ids [B,I], [B]."""
        inside_BI = inside(input_lengths, inputs.shape[1], inputs.device)
        x_BID = self._embed(self.input_embedding, inputs)
        for layer in self.reader:
            x_BID = layer(x_BID, inside_BI[:, None, None])
        x_BID = self.read_norm(x_BID)
        nothing = x_BID[:, :0]
        return TransformerState(
            tuple(KeysValues(nothing, nothing) for _ in self.writer),
            tuple(layer.across.look_at(x_BID) for layer in self._writing()),
            inside_BI,
            torch.arange(len(inputs), device=inputs.device),
        )

    def step(self, symbols_N: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Append a symbol (BOS first) to each output: log p(next symbol) [N,V], and the new state."""
        x_N1D = self._embed(self.output_embedding, symbols_N[:, None], state.written[0].keys.shape[1])
        mask_N11I, written = state.inside[state.row][:, None, None], []
        for layer, before, read in zip(self.writer, state.written, state.read, strict=True):
            x_N1D, after = layer(x_N1D, before, read.select(state.row), mask_N11I)
            written.append(after)
        log_prob_NV = at_least_float32(self._words(x_N1D[:, 0])).log_softmax(-1)
        return log_prob_NV, state._replace(written=tuple(written))

    def _logits(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor) -> Tensor:
        """[B,J,V]."""
        state = self.start(inputs, input_lengths)
        x_BJD, mask_B11I = self._embed(self.output_embedding, after_bos(outputs)), state.inside[:, None, None]
        for layer, read in zip(self.writer, state.read, strict=True):
            x_BJD, _ = layer(x_BJD, None, read, mask_B11I)
        return self._words(x_BJD)

    def _embed(self, embedding: nn.Embedding, ids: Tensor, first: int = 0) -> Tensor:
        """Symbols at positions ``first`` and on: [N,T] -> [N,T,D]."""
        x_NTD = embedding(ids.long()) * math.sqrt(embedding.embedding_dim)
        return self.dropout(x_NTD + sinusoids(first, ids.shape[1], x_NTD))

    def _words(self, x: Tensor) -> Tensor:
        """[...,D] -> [...,V]."""
        return linear(self.written_norm(x), self.output_embedding.weight, self.word_bias)

    def _writing(self) -> list[WritingLayer]:
        return [layer for layer in self.writer if isinstance(layer, WritingLayer)]


def sinusoids(first: int, positions: int, like: Tensor) -> Tensor:
    """Positions of Vaswani et al. (2017), with the size, type and device of ``like`` [...,D]: [positions,D]."""
    size = like.shape[-1]
    rates = torch.exp(torch.arange(0, size, 2, device=like.device) * (-math.log(1e4) / size))
    angles = torch.arange(first, first + positions, device=like.device)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size].to(like.dtype)
