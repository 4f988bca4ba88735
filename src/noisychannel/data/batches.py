"""Batches of sequences of similar length, planned from the lengths only.

The order of an epoch depends on (seed, epoch) and nothing else, so a training that resumes knows which batch is next.

Shapes: B batch, I input positions, J output positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from noisychannel.data.corpus import Corpus, LengthArray, Sequences
from noisychannel.ids import PAD

Rows = npt.NDArray[np.int64]

POOL_BATCHES = 64
"""Batches per pool. A pool is sorted by length and cut into batches: little padding, and still a random order."""


@dataclass(frozen=True)
class Batch:
    """Padded ids with lengths. Lengths stay on the CPU, where reading them does not wait for a GPU."""

    inputs: Tensor | None
    input_lengths: Tensor | None
    outputs: Tensor
    output_lengths: Tensor

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """The arguments of a model's ``forward``."""
        if self.inputs is None or self.input_lengths is None:
            return self.outputs, self.output_lengths
        return self.inputs, self.input_lengths, self.outputs, self.output_lengths

    def to(self, device: torch.device) -> Batch:
        """The ids on a device. The host does not wait for the copy to a GPU."""

        def there(ids: Tensor) -> Tensor:
            return (ids.pin_memory() if device.type == "cuda" else ids).to(device, non_blocking=True)

        inputs = None if self.inputs is None else there(self.inputs)
        return Batch(inputs, self.input_lengths, there(self.outputs), self.output_lengths)


def plan_batches(
    corpus: Corpus,
    batch_size: int,
    batch_symbols: int | None,
    order: np.random.Generator | None,
    among: Rows | None = None,
) -> list[Rows]:
    """Cut a corpus into batches of at most ``batch_size`` rows and ``batch_symbols`` symbols, padding included.

    With an ``order`` the corpus is shuffled into pools, each pool is sorted by length, and its batches are shuffled.
    Without one the whole corpus, or the rows ``among`` it, are sorted (for evaluation). A single row over the limit is
    a batch of its own.
    """
    output_lengths = corpus.outputs.lengths
    input_lengths = np.zeros_like(output_lengths) if corpus.inputs is None else corpus.inputs.lengths
    if order is None:
        rows = np.arange(corpus.size) if among is None else among
        return _cut(rows, input_lengths, output_lengths, batch_size, batch_symbols)
    batches: list[Rows] = []
    rows = order.permutation(corpus.size)
    for start in range(0, corpus.size, pool := batch_size * POOL_BATCHES):
        cut = _cut(rows[start : start + pool], input_lengths, output_lengths, batch_size, batch_symbols)
        batches += [cut[n] for n in order.permutation(len(cut))]
    return batches


def make_batch(corpus: Corpus, rows: Rows) -> Batch:
    """The padded batch of the given rows."""
    outputs, output_lengths = _pad(corpus.outputs, rows)
    if corpus.inputs is None:
        return Batch(None, None, outputs, output_lengths)
    return Batch(*_pad(corpus.inputs, rows), outputs, output_lengths)


def _cut(
    rows: Rows, input_lengths: LengthArray, output_lengths: LengthArray, batch_size: int, batch_symbols: int | None
) -> list[Rows]:
    rows = rows[np.lexsort((input_lengths[rows], output_lengths[rows]))]
    if batch_symbols is None:
        return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    batches: list[Rows] = []
    start = longest_input = longest_output = 0
    lengths = zip(input_lengths[rows].tolist(), output_lengths[rows].tolist(), strict=True)
    for n, (input_length, output_length) in enumerate(lengths):
        longest_input = max(longest_input, input_length)
        longest_output = max(longest_output, output_length)
        size = n + 1 - start
        if size > 1 and (size > batch_size or size * (longest_input + longest_output) > batch_symbols):
            batches.append(rows[start:n])
            start, longest_input, longest_output = n, input_length, output_length
    if len(rows):
        batches.append(rows[start:])
    return batches


def _pad(sequences: Sequences, rows: Rows) -> tuple[Tensor, Tensor]:
    picked = [sequences[n] for n in rows]
    lengths = np.array([len(ids) for ids in picked])
    padded = np.full((len(picked), lengths.max()), PAD, dtype=np.int64)
    for row, ids in zip(padded, picked, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded), torch.from_numpy(lengths)
