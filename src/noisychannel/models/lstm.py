"""Embedded symbols through an LSTM, whole sequences or one step at a time.

Dropout falls on the inputs of the LSTM (the embeddings), between its layers, and on its outputs, as in the paper.

Shapes: B batch, T positions, N sequences stepped together, L layers, H hidden size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from noisychannel.symbols import reversed_within


class LSTMState(NamedTuple):
    """The explicit state of N sequences; everything a step needs to know of the past."""

    hidden_LNH: Tensor
    cell_LNH: Tensor

    def select(self, indices: Tensor) -> LSTMState:
        """The states of the sequences ``indices``, in that order, repeats allowed."""
        return LSTMState(self.hidden_LNH[:, indices], self.cell_LNH[:, indices])


class ForwardLSTM(nn.Module):
    """A left-to-right LSTM over symbols: position t sees symbols 1..t only, so padding on the right is harmless."""

    def __init__(self, vocab_size: int, embedding_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(
            embedding_size, hidden_size, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0
        )
        self.output_size = hidden_size
        initialise_lstm(self.lstm)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """States after each symbol, [B,T,H]."""
        states, _ = self.lstm(self.dropout(self.embedding(ids_BT)))
        return self.dropout(states)

    def start(self, n: int) -> LSTMState:
        """The state of ``n`` sequences of which nothing has been read."""
        zeros = self.embedding.weight.new_zeros(self.lstm.num_layers, n, self.lstm.hidden_size)
        return LSTMState(zeros, zeros)

    def step(self, symbols_N: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """Read one more symbol of each sequence: the new top state [N,H], and the state to go on from."""
        states, after = self.lstm(self.dropout(self.embedding(symbols_N[:, None])), tuple(state))
        return self.dropout(states[:, 0]), LSTMState(*after)


class BidirectionalLSTM(nn.Module):
    """Layers of one LSTM each way; position t sees the whole sequence, so there is no step."""

    def __init__(self, vocab_size: int, embedding_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.dropout = nn.Dropout(dropout)
        sizes = [embedding_size] + [2 * hidden_size] * (num_layers - 1)
        self.forwards = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        self.backwards = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        self.output_size = 2 * hidden_size
        for lstm in (*self.forwards, *self.backwards):
            initialise_lstm(lstm)

    def forward(self, ids_BT: Tensor, lengths: Tensor) -> Tensor:
        """States at each symbol, [B,T,2H]; each row is reversed within its own length, so padding is never read."""
        x = self.dropout(self.embedding(ids_BT))
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            x_ahead, _ = ahead(x)
            x_back, _ = back(reversed_within(x, lengths))
            x = self.dropout(torch.cat([x_ahead, reversed_within(x_back, lengths)], dim=-1))
        return x


def initialise_lstm(lstm: nn.LSTM) -> None:
    """Open the forget gates (bias 1): memory by default is easier to learn than to acquire."""
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias_ih"):
                parameter[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0
            elif name.startswith("bias_hh"):
                parameter[lstm.hidden_size : 2 * lstm.hidden_size] = 0.0
