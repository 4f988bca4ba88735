"""Many small models of one shape as one model, so that a GPU has enough to do.

``stack`` turns N models into one. Its batch is the N batches, one after the other: rows n·B .. (n+1)·B are read with
the weights of model n. Each layer with weights is replaced by a layer that holds N of them and computes one batched
product. Everything between the layers works on rows and stays as it is.

Vocabularies may differ in size. Smaller ones are padded with symbols whose logit is -inf: their probability and their
gradient are zero, so they never change. Dropout is drawn for each model from its own seed (``masks``), so a model does
not depend on the others.

``stack`` knows the layers in ``_STACKED`` only; ``unsupported`` tells whether a model has others.

Shapes: N models, B batch of each, T positions, R rows of one model (B, or B·T), H hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from noisychannel import kernels
from noisychannel.models.masks import Masks
from noisychannel.models.products import Linear
from noisychannel.models.ssnt import CopyTarget, Emission, Pace
from noisychannel.precision import at_least_float32

M = TypeVar("M", bound=nn.Module)


def stack(models: Sequence[M], masks: Masks) -> M:
    """One model for N models of the same shape; only vocabulary sizes may differ. Their weights are copied."""
    first = models[0]
    if type(first) in _STACKED:
        return _STACKED[type(first)](models, masks)
    if (reason := _unsupported_layer(first)) is not None:
        raise ValueError(f"cannot stack: {reason}")
    stacked = copy.copy(first)
    stacked._modules = {
        name: None if child is None else stack([model._modules[name] for model in models], masks)  # type: ignore[type-var]
        for name, child in first._modules.items()
    }
    return stacked


def unsupported(model: nn.Module) -> str | None:
    """Why a model cannot be stacked, in a few words; None if it can."""
    if len(list(model.parameters())) < len(list(model.named_parameters(remove_duplicate=False))):
        return f"layers of {type(model).__name__} share a parameter"
    return next((reason for layer in model.modules() if (reason := _unsupported_layer(layer)) is not None), None)


def _unsupported_layer(layer: nn.Module) -> str | None:
    """Why this layer, its children aside, cannot be stacked; None if it can."""
    name = type(layer).__name__
    if type(layer) is nn.LSTM:
        usual = (layer.batch_first, layer.bias, layer.bidirectional, layer.proj_size) == (True, True, False, 0)
        return None if usual else f"this kind of {name} is not supported"
    if type(layer) in _STACKED:
        return None
    # A dropout that is not ours would draw from one generator for all models.
    if layer._parameters or layer._buffers or isinstance(layer, nn.modules.dropout._DropoutNd):
        return f"the layer {name} is not supported"
    return None


def share_weights(stacked: nn.Module, models: Sequence[nn.Module]) -> None:
    """Make the parameters of the models, and their gradients, views of those of the stack."""
    for name, whole in stacked.named_parameters():
        if whole.grad is None:
            whole.grad = torch.zeros_like(whole)
        for n, model in enumerate(models):
            parameter = model.get_parameter(name)
            own = tuple(slice(size) for size in parameter.shape)
            parameter.data = whole.data[n][own]
            parameter.grad = whole.grad[n][own]


def _stacked_parameter(tensors: Sequence[Tensor], fill: float = 0.0) -> nn.Parameter:
    """[N, …] of the largest size."""
    largest = [max(sizes) for sizes in zip(*(x.shape for x in tensors), strict=True)]
    whole = tensors[0].new_full((len(tensors), *largest), fill)
    for place, x in zip(whole, tensors, strict=True):
        place[tuple(slice(size) for size in x.shape)] = x.detach()
    return nn.Parameter(whole)


class StackedDropout(nn.Module):
    def __init__(self, models: Sequence[nn.Dropout], masks: Masks) -> None:
        super().__init__()
        self.share, self.masks = models[0].p, masks

    def forward(self, x: Tensor) -> Tensor:
        return self.masks.drop(x, self.share) if self.training else x


class StackedEmbedding(nn.Module):
    def __init__(self, models: Sequence[nn.Embedding]) -> None:
        super().__init__()
        self.weight = _stacked_parameter([model.weight for model in models])

    def forward(self, ids: Tensor) -> Tensor:
        N, V, _ = self.weight.shape
        first = torch.arange(N, device=ids.device)[:, None] * V
        return F.embedding((ids.reshape(N, -1) + first).view(ids.shape), self.weight.flatten(0, 1))


class StackedLinear(nn.Module):
    def __init__(self, models: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = _stacked_parameter([model.weight for model in models])
        self.bias = None
        if models[0].bias is not None:
            self.bias = _stacked_parameter([model.bias for model in models], fill=-torch.inf)

    def forward(self, x: Tensor) -> Tensor:
        return _product(x, self.weight, self.bias)


class StackedEmission(nn.Module):
    def __init__(self, models: Sequence[Emission]) -> None:
        super().__init__()
        self.weight = _stacked_parameter([model.weight for model in models])
        self.bias = _stacked_parameter([model.bias for model in models])

    def forward(self, twice: Tensor) -> Tensor:
        bias = self.bias - self.weight.sum(2)
        return _product(twice.sigmoid_(), 2 * self.weight, bias).squeeze(-1)


class StackedCopyTarget(nn.Module):
    ids: Tensor

    def __init__(self, models: Sequence[CopyTarget]) -> None:
        super().__init__()
        most = max(len(model.ids) for model in models)
        rows = [F.pad(model.ids, (0, most - len(model.ids)), value=-1) for model in models]
        self.register_buffer("ids", torch.stack(rows), persistent=False)

    def forward(self, symbols: Tensor) -> Tensor:
        N, V = self.ids.shape
        first = torch.arange(N, device=symbols.device)[:, None] * V
        return self.ids.flatten()[(symbols.reshape(N, -1) + first).view(symbols.shape)]


def _product(x: Tensor, weight_NXY: Tensor, bias_NX: Tensor | None) -> Tensor:
    """Rows of N models by the weights of each: [N·B, …, Y] -> [N·B, …, X]."""
    N, X, Y = weight_NXY.shape
    x_NRY = x.reshape(N, -1, Y)
    if bias_NX is None:
        result = torch.bmm(x_NRY, weight_NXY.mT)
    else:
        result = torch.baddbmm(bias_NX[:, None], x_NRY, weight_NXY.mT)
    return result.view(*x.shape[:-1], X)


class StackedLSTM(nn.Module):
    """N LSTMs (of one direction, batch first), called as one. Dropout between layers is drawn here."""

    def __init__(self, models: Sequence[nn.LSTM], masks: Masks) -> None:
        super().__init__()
        first, self.masks = models[0], masks
        if (reason := _unsupported_layer(first)) is not None:
            raise ValueError(f"cannot stack: {reason}")
        self.num_layers, self.hidden_size, self.dropout = first.num_layers, first.hidden_size, first.dropout
        for name, _ in first.named_parameters():
            self.register_parameter(name, _stacked_parameter([model.get_parameter(name) for model in models]))

    def forward(self, x: Tensor, start: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """[N·B,T,X], and states [L,N·B,H] to start from -> top states [N·B,T,H], and the last states [L,N·B,H]."""
        hidden, cells = [], []
        for layer in range(self.num_layers):
            weight_ih, weight_hh, bias_ih, bias_hh = (
                self.get_parameter(f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            N, (_, T, X), H = len(weight_ih), x.shape, self.hidden_size
            # Time before batch, so that the rows of one step are contiguous.
            x_NRX = x.reshape(N, -1, T, X).transpose(1, 2).reshape(N, -1, X)
            gates = torch.baddbmm((bias_ih + bias_hh)[:, None], x_NRX, weight_ih.mT).view(N, T, -1, 4 * H)
            zeros = gates.new_zeros(N, gates.shape[2], H)
            first = (zeros, zeros) if start is None else tuple(s[layer].reshape(N, -1, H) for s in start)
            arguments = (at_least_float32(x) for x in (gates, weight_hh, *first))
            states_NTBH, cells_NTBH = _Recurrence.apply(*arguments)  # type: ignore[no-untyped-call]
            hidden.append(states_NTBH[:, -1].reshape(-1, H))
            cells.append(cells_NTBH[:, -1].reshape(-1, H))
            x = states_NTBH.transpose(1, 2).reshape(-1, T, H)
            if self.training and layer < self.num_layers - 1:
                x = self.masks.drop(x, self.dropout)
        return x, (torch.stack(hidden), torch.stack(cells))


class _Recurrence(torch.autograd.Function):
    """s_t, c_t = cell(gates_t + W s_{t-1}, c_{t-1}) for all t; the gates and the states are saved for the gradient."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        N, T, B, _ = sums.shape
        H = weight.shape[2]
        gates = sums.clone()
        # Index 0 holds the initial state.
        states, cells = (torch.cat([x[:, None], x.new_empty(N, T, B, H)], dim=1) for x in (hidden, cell))
        with torch.autocast(sums.device.type, enabled=False):
            for t in range(T):
                gates[:, t].baddbmm_(states[:, t], weight.mT)
                _step(gates[:, t], cells[:, t], states[:, t + 1], cells[:, t + 1])
        ctx.save_for_backward(gates, states, cells, weight)
        ctx.set_materialize_grads(False)
        return states[:, 1:], cells[:, 1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, ...]:
        gates, states, cells, weight = ctx.saved_tensors
        N, T, B, H4 = gates.shape
        by_all_states, by_all_cells = grads
        by_state = torch.zeros_like(states[:, 1:]) if by_all_states is None else by_all_states.contiguous().clone()
        by_cell, by_gates = torch.zeros_like(cells[:, 0]), torch.empty_like(gates)
        for t in reversed(range(T)):
            if t < T - 1:
                by_state[:, t].baddbmm_(by_gates[:, t + 1], weight)
            if by_all_cells is not None:
                by_cell += by_all_cells[:, t]
            _back(gates[:, t], cells[:, t], cells[:, t + 1], by_state[:, t], by_cell, by_gates[:, t])
        rows = by_gates.view(N, T * B, H4)
        by_weight = torch.bmm(rows.mT, states[:, :-1].reshape(N, T * B, -1))
        return by_gates, by_weight, torch.bmm(by_gates[:, 0], weight), by_cell


def _step(gates: Tensor, before: Tensor, hidden: Tensor, after: Tensor) -> None:
    """The elementwise part of a step; see ``kernels.lstm.step``."""
    if kernels.usable(gates):
        from noisychannel.kernels import lstm

        return lstm.step(gates, before, hidden, after)
    input_gate, forget_gate, cell_gate, output_gate = gates.chunk(4, -1)
    for gate in (input_gate, forget_gate, output_gate):
        gate.sigmoid_()
    cell_gate.tanh_()
    torch.mul(forget_gate, before, out=after).addcmul_(input_gate, cell_gate)
    torch.mul(output_gate, after.tanh(), out=hidden)


def _back(gates: Tensor, before: Tensor, after: Tensor, by_hidden: Tensor, by_cell: Tensor, by_gates: Tensor) -> None:
    """The elementwise part of a step's gradient; see ``kernels.lstm.back``."""
    if kernels.usable(gates):
        from noisychannel.kernels import lstm

        return lstm.back(gates, before, after, by_hidden, by_cell, by_gates)
    input_gate, forget_gate, cell_gate, output_gate = gates.chunk(4, -1)
    tanh_cell = after.tanh()
    by_cell += by_hidden * output_gate * (1 - tanh_cell * tanh_cell)
    parts = (
        by_cell * cell_gate * input_gate * (1 - input_gate),
        by_cell * before * forget_gate * (1 - forget_gate),
        by_cell * input_gate * (1 - cell_gate * cell_gate),
        by_hidden * tanh_cell * output_gate * (1 - output_gate),
    )
    torch.cat(parts, dim=-1, out=by_gates)
    by_cell *= forget_gate


_STACKED: dict[type[nn.Module], Any] = {
    nn.Embedding: lambda models, masks: StackedEmbedding(models),
    nn.Linear: lambda models, masks: StackedLinear(models),
    Linear: lambda models, masks: StackedLinear(models),
    nn.LSTM: StackedLSTM,
    Emission: lambda models, masks: StackedEmission(models),
    CopyTarget: lambda models, masks: StackedCopyTarget(models),
    nn.Dropout: StackedDropout,
    Pace: lambda models, masks: Pace(len(models)).to(models[0].held_N.device),
}
