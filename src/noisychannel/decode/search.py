"""The loop of Algorithm 1 over output lengths.

Shapes: B sentences of the batch, A answers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from noisychannel.decode.answers import Answers
from noisychannel.decode.chart import first_table, step
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.selection import best_partial
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.table import PrefixTable
from noisychannel.decode.traces import Traces
from noisychannel.decode.watch import Watch, report

CROWDED = 0.75
"""Sentences whose search has ended are dropped from the batch when at most this share of it goes on."""


class SearchResult(NamedTuple):
    """The outcome of the search for B sentences."""

    answers: Answers
    """The best complete outputs, [B,A]."""
    partial: Answers
    """The best of the longest partial outputs, [B,1]."""
    traces: Traces


def search(
    models: Models, plan: SearchPlan, sentences: Sentences, n_best: int, watch: Watch | None = None
) -> SearchResult:
    """Algorithm 1 for a batch; ``watch`` is called after each step, once for every sentence that is still searched."""
    B, device = sentences.inputs.shape[0], sentences.inputs.device
    answers, partial = (Answers.none(models.terms, B, size, device) for size in (n_best, 1))
    found, traces = answers, Traces()
    rows, alive = torch.arange(B, device=device), B
    table: PrefixTable | None = first_table(models, plan, sentences)
    for length in range(1, int(sentences.max_length.max()) + 1):
        if table is None:
            break
        traces.append(rows, table)
        before = table
        taken = step(models, plan, sentences, table, found, length)
        if watch is not None:
            report(watch, plan, sentences, rows, traces, table, taken, length)
        table, found = taken.table, taken.answers
        del taken  # its tensors are not needed any more, and the next step needs room
        if table is None:
            going = rows[:0]
        elif table.packing.is_whole:
            going = torch.zeros_like(rows)  # the one sentence
        else:
            going = table.packing.filled.any(1).nonzero().squeeze(1)
        if going.shape[0] < alive:
            # The longest partial outputs of a sentence are those of its last table.
            partial.put(rows, best_partial(sentences, before, length - 1).where_any(partial.select(rows)))
            alive = going.shape[0]
        if table is not None and going.shape[0] <= CROWDED * rows.shape[0]:
            answers.put(rows, found)
            rows, sentences = rows[going], sentences.select(going)
            table, found = table.select(going), found.select(going)
    answers.put(rows, found)
    return SearchResult(answers, partial, traces)
