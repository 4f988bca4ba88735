"""Whether a trained SSNT aligns.

A model that emits every output symbol at one input symbol has not learnt to. It is a sequence-to-sequence model without
attention: much worse than an SSNT, and of little use to a search that goes through the input. Its dev perplexity does
not show it, because it falls like that of any model.
"""

from __future__ import annotations

import torch

from noisychannel.data.batches import Rows, make_batch, plan_batches
from noisychannel.data.corpus import Corpus
from noisychannel.models.ssnt import SSNT

MOST_PAIRS, FEWEST_PAIRS = 200, 20
"""Dev pairs that are looked at; with fewer, nothing is said."""
SHORTEST = 4
"""Symbols of either side, EOS included: in shorter pairs one place is no surprise."""


@torch.no_grad()
def at_one_place(
    model: SSNT, dev: Corpus, among: Rows, batch_size: int, batch_symbols: int | None = None
) -> float | None:
    """The share of dev pairs whose best alignment has all of the output, except EOS, at one input symbol.

    None if there are too few pairs to tell.
    """
    assert dev.inputs is not None
    long = (dev.inputs.lengths[among] >= SHORTEST) & (dev.outputs.lengths[among] >= SHORTEST)
    rows = among[long][:MOST_PAIRS]
    if len(rows) < FEWEST_PAIRS:
        return None
    device, found = next(model.parameters()).device, 0
    for some in plan_batches(dev, batch_size, batch_symbols, order=None, among=rows):
        inputs, input_lengths, outputs, output_lengths = make_batch(dev, some).to(device).arguments
        positions_BJ = model.viterbi(inputs, input_lengths, outputs, output_lengths)[1]
        before_eos_BJ = torch.arange(positions_BJ.shape[1]) < output_lengths.cpu()[:, None] - 1
        moved_BJ = (positions_BJ != positions_BJ[:, :1]).cpu() & before_eos_BJ
        found += int((~moved_BJ.any(1)).sum())
    return found / len(rows)
