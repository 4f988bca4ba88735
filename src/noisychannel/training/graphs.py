"""A training step's forward and backward as CUDA graphs, one for each size of a batch.

Small models on a GPU wait for the host, which launches a few hundred kernels a step; a graph launches them all at once.
A graph's tensors have fixed sizes and places, so batches are padded to the next multiple of ``STEP`` positions and of
``ROWS`` rows, rows that only fill up have weight zero, and the first batch of each size is captured.

Dropout is drawn from the generator's seed at the time of the replay, as outside of a graph. Dropout between the layers
of an LSTM is cuDNN's own, whose state does not survive a capture: such models are trained without graphs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisychannel.data.batches import Batch
from noisychannel.symbols import EOS, PAD

STEP, ROWS = 4, 8
"""Sizes are rounded up to their multiples: few graphs, and little padding."""
WARM_UP = 3
"""Runs before a capture, in which libraries choose their algorithms."""


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    arguments: tuple[Tensor, ...]
    """What the model reads: ids and lengths, as large as any batch of this size."""
    weight_B: Tensor
    """Of each row in the loss: the scale, or zero where a row only fills up."""
    loss: Tensor
    """-log p summed with these weights."""


def can_be_captured(model: nn.Module) -> bool:
    """Whether a model's training step can be a graph."""
    lstms = [module for module in model.modules() if isinstance(module, nn.LSTM)]
    return all(lstm.dropout == 0 for lstm in lstms) and next(model.parameters()).is_cuda


class GraphedLoss:
    """Adds the gradient of a batch's loss to the parameters' and returns the loss, a graph for each size."""

    def __init__(self, model: nn.Module, bf16: bool = False) -> None:
        self.model, self.bf16, self.device = model, bf16, next(model.parameters()).device
        self._captured: dict[tuple[int, ...], _Captured] = {}
        # Graphs are replayed one after the other, and nothing of one is looked at after the next: one memory will do.
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """-log p summed over the rows; its gradient, times ``scale``, is added to the parameters' gradients."""
        arguments = tuple(_padded(x) for x in batch.arguments)
        weight_B = F.pad(torch.full((len(batch.outputs),), scale), (0, -len(batch.outputs) % ROWS))
        size = tuple(n for x in arguments for n in x.shape)
        captured = self._captured.get(size)
        if captured is None:
            drawn = torch.cuda.get_rng_state(self.device)
            captured = self._captured[size] = self._capture(arguments)
            torch.cuda.set_rng_state(drawn, self.device)
        for place, x in zip(captured.arguments, arguments, strict=True):
            place.copy_(x.pin_memory(), non_blocking=True)
        captured.weight_B.copy_(weight_B.pin_memory(), non_blocking=True)
        captured.graph.replay()
        return captured.loss / scale

    def _capture(self, arguments: tuple[Tensor, ...]) -> _Captured:
        """Run the loss a few times for warming up, then once for the record; gradients are left as they were."""
        device = self.device
        places = tuple(x.to(device) for x in arguments)
        weight_B = torch.ones(len(places[0]), device=device)
        for parameter in self.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        before = [parameter.grad.clone() for parameter in self.model.parameters() if parameter.grad is not None]

        def run() -> Tensor:
            # A cache of rounded weights would outlive the graph that made it.
            with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
                loss = -(self.model(*places) * weight_B).sum()
            loss.backward()
            return loss.detach()

        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            loss = run()
        for parameter, gradient in zip(self.model.parameters(), before, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(gradient)
        return _Captured(graph, places, weight_B, loss)


def _padded(x: Tensor) -> Tensor:
    """Ids filled up with PAD, and by rows of EOS alone; lengths by ones."""
    more = -len(x) % ROWS
    if x.dim() == 1:
        return F.pad(x, (0, more), value=1)
    filled = F.pad(x, (0, -x.shape[1] % STEP, 0, more), value=PAD)
    filled[len(x) :, 0] = EOS
    return filled
