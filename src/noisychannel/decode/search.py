"""The loop over output lengths, and the way back from what was found to the outputs themselves.

Shapes: B sentences of the batch, b those still being searched, P prefixes of a table, A answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from noisychannel.decode.chart import first_table, step
from noisychannel.decode.selection import best_partial
from noisychannel.decode.table import Answers, Models, Sentences, Settings, Table

CROWDED = 0.75
"""Sentences whose search has ended are dropped from the batch when at most this share of it goes on."""


class Trace(NamedTuple):
    """Where the prefixes of one length come from; on the host, where outputs are spelt."""

    row: dict[int, int]
    """The row of each sentence that was still being searched."""
    parent: npt.NDArray[np.int64]
    """[b,P]."""
    symbol: npt.NDArray[np.int64]
    """[b,P]."""

    @staticmethod
    def of(sentence: Tensor, parent: Tensor, symbol: Tensor) -> Trace:
        row = {n: row for row, n in enumerate(sentence.tolist())}
        return Trace(row, parent.cpu().numpy(), symbol.cpu().numpy())


class Found(NamedTuple):
    """What a search of B sentences found."""

    answers: Answers
    """The best complete outputs, [B,A]."""
    partial: Answers
    """The best of the longest partial outputs, [B,1]."""
    traces: list[Trace]
    """By length."""


def search(models: Models, settings: Settings, sentences: Sentences, n_best: int) -> Found:
    """Algorithm 1 for a batch."""
    B, device = len(sentences.inputs), sentences.inputs.device
    answers, partial = Answers.none(B, n_best, device), Answers.none(B, 1, device)
    found, steps = answers, []
    rows = torch.arange(B, device=device)
    table: Table | None = first_table(models, settings, sentences)
    for length in range(1, int(sentences.max_length.max()) + 1):
        if table is None:
            break
        steps.append((rows, table.parent, table.symbol))
        partial.put(rows, best_partial(sentences, table, length - 1).where_any(partial.select(rows)))
        table, found = step(models, settings, sentences, table, found, length)
        answers.put(rows, found)
        if table is not None:
            going = table.packing.filled.any(1).nonzero().squeeze(1)
            if len(going) <= CROWDED * len(rows):
                rows, sentences = rows[going], sentences.select(going)
                table, found = table.select(going), found.select(going)
    # Not before: each would be a wait for the GPU.
    return Found(answers, partial, [Trace.of(*step) for step in steps])


def spell(traces: list[Trace], found: Answers) -> list[list[tuple[int, ...]]]:
    """The outputs that answers point to, without EOS: for each sentence, those with a score, best first."""
    spelt: list[list[tuple[int, ...]]] = []
    for n, answers in enumerate(zip(*(x.tolist() for x in (found.score, found.length, found.slot)), strict=True)):
        outputs = []
        for score, length, slot in zip(*answers, strict=True):
            if score == -torch.inf:
                continue
            tokens: list[int] = []
            for row, parent, symbol in reversed(traces[1:length]):
                tokens.append(int(symbol[row[n], slot]))
                slot = int(parent[row[n], slot])
            outputs.append(tuple(reversed(tokens)))
        spelt.append(outputs)
    return spelt
