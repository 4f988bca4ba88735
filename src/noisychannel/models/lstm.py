"""LSTMs over embedded symbols, for whole sequences or one step at a time.

Dropout is applied to the inputs of the LSTM (the embeddings), between its layers, and on its outputs, as in the paper.

Shapes: B batch, T positions, N sequences stepped together, L layers, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisychannel.ids import reversed_within
from noisychannel.models.gates import vectorises
from noisychannel.models.masks import check_share
from noisychannel.models.products import linear, run_lstm
from noisychannel.precision import exact_recurrence

Floats = npt.NDArray[np.floating[Any]]
SYMBOLS_READ_AHEAD = 512
"""A search with a larger vocabulary multiplies only the embeddings that it needs."""


@dataclass(frozen=True)
class SymbolsRead:
    """What all steps after one ``start`` share, if the vocabulary is small."""

    gates_V4H: Tensor
    """What the first layer gets from each symbol."""
    layers: Sequence[Sequence[Tensor]]
    """The weights of each layer."""
    above: tuple[Tensor, Tensor, list[int]] | None = None
    """Weights and bias of all that a model computes from each new state of the top layer, as one product, and how many
    columns of it belong to each part."""

    def of_states(self, states_NH: Tensor) -> tuple[Tensor, ...]:
        """The parts of the product ``above``: [N,...] each."""
        assert self.above is not None
        weight, bias, sizes = self.above
        return linear(states_NH, weight, bias).split(sizes, dim=1)


class LSTMState(NamedTuple):
    """The explicit state of N sequences; everything a step needs to know of the past."""

    hidden_LNH: Tensor
    cell_LNH: Tensor
    read: SymbolsRead | None = None
    """On a CPU, if the vocabulary is small."""

    @property
    def shared(self) -> SymbolsRead | None:
        """``read``, unless there are gradients, which it does not have."""
        return None if torch.is_grad_enabled() else self.read

    def with_above(self, *products: nn.Linear) -> LSTMState:
        """These states with joined products above them; without ``read`` if there is none or they are large."""
        weights: list[Tensor] = [x.weight for x in products]
        sizes = [x.out_features for x in products]
        if self.read is None or max(sizes) > SYMBOLS_READ_AHEAD:
            return self._replace(read=None)
        biases: list[Tensor] = [x.weight.new_zeros(x.out_features) if x.bias is None else x.bias for x in products]
        return self._replace(read=replace(self.read, above=(torch.cat(weights), torch.cat(biases), sizes)))

    def select(self, indices: Tensor) -> LSTMState:
        """The states of the sequences ``indices``, in that order, repeats allowed."""
        return LSTMState(self.hidden_LNH.index_select(1, indices), self.cell_LNH.index_select(1, indices), self.read)

    def put(self, rows: Tensor, new: LSTMState) -> LSTMState:
        """These states with others in the place of ``rows``."""
        hidden = self.hidden_LNH.index_copy(1, rows, new.hidden_LNH)
        return LSTMState(hidden, self.cell_LNH.index_copy(1, rows, new.cell_LNH), self.read)

    def concat(self, other: LSTMState) -> LSTMState:
        """These states, then those of ``other``."""
        hidden = torch.cat([self.hidden_LNH, other.hidden_LNH], dim=1)
        return LSTMState(hidden, torch.cat([self.cell_LNH, other.cell_LNH], dim=1), self.read)


def check_sizes(**sizes: int | None) -> None:
    """Refuse sizes of a model that are no whole numbers above zero; None is one that is not given."""
    for name, size in sizes.items():
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, but is {size!r}")


class ForwardLSTM(nn.Module):
    """A left-to-right LSTM over symbols: position t sees symbols 1..t only, so padding on the right has no effect."""

    def __init__(self, vocab_size: int, embedding_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        check_share("dropout", dropout)
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(
            embedding_size, hidden_size, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0
        )
        self.output_size = hidden_size
        initialise_lstm(self.lstm)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """States after each symbol, [B,T,H]."""
        x = self.dropout(self.embedding(ids_BT))
        with exact_recurrence(x):
            states, _ = run_lstm(self.lstm, x)
        return self.dropout(states)

    def start(self, n: int) -> LSTMState:
        """The state of ``n`` empty sequences."""
        zeros = self.embedding.weight.new_zeros(self.lstm.num_layers, n, self.lstm.hidden_size)
        if self.training or torch.is_grad_enabled() or not vectorises(zeros):
            return LSTMState(zeros, zeros)
        if self.embedding.num_embeddings > SYMBOLS_READ_AHEAD:
            return LSTMState(zeros, zeros)
        weight_ih, _, bias_ih, _ = self.lstm.all_weights[0]
        gates_V4H = linear(self.embedding.weight, weight_ih, bias_ih)
        if not vectorises(gates_V4H):  # products in bfloat16
            return LSTMState(zeros, zeros)
        return LSTMState(zeros, zeros, SymbolsRead(gates_V4H, self.lstm.all_weights))

    def step(self, symbols_N: Tensor, state: LSTMState, parents_N: Tensor | None = None) -> tuple[Tensor, LSTMState]:
        """Read one more symbol after each of N sequences: the new top state [N,H], and the new state.

        The sequences are those of ``state`` or, if ``parents`` are given, those of its rows ``parents``, repeats
        allowed. What siblings share is computed once: the recurrent product for each row of ``state``, and the product
        with the embedding for each symbol of the vocabulary, if there are fewer symbols than sequences.
        """
        if (shared := state.shared) is not None:
            return _step_by_table(symbols_N, state, parents_N, shared)
        hidden, cell, inputs_NH = [], [], None
        dropout: Callable[[Tensor], Tensor] = self.dropout if self.training else _unchanged
        for layer, (weight_ih, weight_hh, bias_ih, bias_hh) in enumerate(self.lstm.all_weights):
            recurrent, before = linear(state.hidden_LNH[layer], weight_hh, bias_hh), state.cell_LNH[layer]
            if parents_N is not None:
                recurrent, before = recurrent.index_select(0, parents_N), before.index_select(0, parents_N)
            if inputs_NH is not None:
                read = linear(dropout(inputs_NH), weight_ih, bias_ih)
            elif self.embedding.num_embeddings < len(symbols_N):
                table = linear(dropout(self.embedding.weight), weight_ih, bias_ih)
                read = table.index_select(0, symbols_N)
            else:
                read = linear(dropout(self.embedding(symbols_N)), weight_ih, bias_ih)
            inputs_NH, after = lstm_cell(recurrent.add_(read), before)
            hidden.append(inputs_NH)
            cell.append(after)
        assert inputs_NH is not None
        return dropout(inputs_NH), LSTMState(torch.stack(hidden), torch.stack(cell), state.read)


class BidirectionalLSTM(nn.Module):
    """Layers of one LSTM in each direction. Position t sees the whole sequence, so there is no step."""

    def __init__(self, vocab_size: int, embedding_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        check_share("dropout", dropout)
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.dropout = nn.Dropout(dropout)
        sizes = [embedding_size] + [2 * hidden_size] * (num_layers - 1)
        self.forwards = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        self.backwards = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        self.output_size = 2 * hidden_size
        for lstm in (*self.forwards, *self.backwards):
            initialise_lstm(lstm)

    def forward(self, ids_BT: Tensor, lengths: Tensor) -> Tensor:
        """States at each symbol, [B,T,2H]. Each row is reversed within its length, so padding is never read."""
        x = self.dropout(self.embedding(ids_BT))
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            with exact_recurrence(x):
                x_ahead, _ = run_lstm(ahead, x)
                x_back, _ = run_lstm(back, reversed_within(x, lengths))
            x = self.dropout(torch.cat([x_ahead, reversed_within(x_back, lengths)], dim=-1))
        return x


def _step_by_table(
    symbols_N: Tensor, state: LSTMState, parents_N: Tensor | None, read: SymbolsRead
) -> tuple[Tensor, LSTMState]:
    """``ForwardLSTM.step`` on a CPU without gradients, in few operations."""
    parents = None if parents_N is None else parents_N.numpy()
    gates, hidden, cell = read.gates_V4H.numpy().take(symbols_N.numpy(), 0), list[Tensor](), list[Tensor]()
    for layer, (weight_ih, weight_hh, bias_ih, bias_hh) in enumerate(read.layers):
        if layer > 0:
            gates = linear(hidden[-1], weight_ih, bias_ih).numpy()
        recurrent = linear(state.hidden_LNH[layer], weight_hh, bias_hh).numpy()
        before = state.cell_LNH[layer].numpy()
        if parents is not None:
            recurrent, before = recurrent.take(parents, 0), before.take(parents, 0)
        gates += recurrent
        for states, new in zip((hidden, cell), _lstm_cell(gates, before), strict=True):
            states.append(torch.from_numpy(new))
    if len(hidden) == 1:
        return hidden[0], LSTMState(hidden[0][None], cell[0][None], read)
    return hidden[-1], LSTMState(torch.stack(hidden), torch.stack(cell), read)


def lstm_cell(gates_N4H: Tensor, cell_NH: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden and cell states. ``gates``, in PyTorch's order (input, forget, cell, output), are overwritten.

    With tanh(x) = 2σ(2x) - 1 all four gates are one sigmoid, which on a CPU is several times faster than a tanh.
    """
    if not torch.is_grad_enabled() and vectorises(gates_N4H, cell_NH):
        hidden, cell = _lstm_cell(gates_N4H.numpy(), cell_NH.numpy())
        return torch.from_numpy(hidden), torch.from_numpy(cell)
    H = cell_NH.shape[1]
    gates_N4H[:, 2 * H : 3 * H].mul_(2)
    input_gate, forget_gate, cell_gate, output_gate = gates_N4H.sigmoid_().chunk(4, dim=1)
    after = (forget_gate * cell_NH).addcmul_(input_gate, cell_gate, value=2).sub_(input_gate)
    return torch.addcmul(-output_gate, output_gate, (2 * after).sigmoid_(), value=2), after


def _lstm_cell(gates: Floats, cell: Floats) -> tuple[Floats, Floats]:
    """``lstm_cell`` on a CPU, with σ(x) = (1 + tanh(x / 2)) / 2, so that all four gates are one tanh."""
    H = cell.shape[1]
    gates[:, : 2 * H] *= 0.5
    gates[:, 3 * H :] *= 0.5
    np.tanh(gates, out=gates)
    # 1 + tanh is twice the gate; the products with a state are halved in the end.
    after = gates[:, H : 2 * H] + 1
    after *= cell
    input_gate, output_gate = gates[:, :H], gates[:, 3 * H :]
    input_gate += 1
    input_gate *= gates[:, 2 * H : 3 * H]
    after += input_gate
    after *= 0.5
    hidden = np.tanh(after)
    output_gate += 1
    hidden *= output_gate
    hidden *= 0.5
    return hidden, after


def _unchanged(x: Tensor) -> Tensor:
    return x


def initialise_lstm(lstm: nn.LSTM) -> None:
    """Open the forget gates (bias 1), so that the cells keep their content at the start of training."""
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias_ih"):
                parameter[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0
            elif name.startswith("bias_hh"):
                parameter[lstm.hidden_size : 2 * lstm.hidden_size] = 0.0
