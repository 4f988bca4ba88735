"""Inputs that are drawn from a reverse model, in the place of its most probable ones.

Where one output is written in several ways, as in historical spelling, the most probable input of every word shows the
commonest way alone. Drawn inputs vary as those of the pairs do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.models.ssnt import SSNT
from noisychannel.noisy_channel import NoisyChannel

BATCH = 256


def draw_outputs(model: NoisyChannel, texts: Sequence[str], seed: int) -> list[str]:
    """An output of each text, drawn from the direct model; empty if the draw failed, or has an unknown symbol."""
    direct = model.models["direct"]
    assert isinstance(direct, SSNT)
    codec, device = model.input_codec, next(direct.parameters()).device
    ids = [codec.encode(text) for text in texts]
    drawn = [""] * len(texts)
    order = sorted(range(len(texts)), key=lambda n: len(ids[n]))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            lengths_B = torch.tensor([len(ids[n]) for n in rows])
            inputs_BI = torch.full((len(rows), int(lengths_B.max())), PAD)
            for row, n in enumerate(rows):
                inputs_BI[row, : len(ids[n])] = torch.tensor(ids[n])
            longest = model.settings.longest_output(int(lengths_B.max()))
            outputs_BJ, ends_B = direct.sample(inputs_BI.to(device), lengths_B, longest)
            for n, symbols, end in zip(rows, outputs_BJ.tolist(), ends_B.tolist(), strict=True):
                known = symbols[: max(0, end - 1)]
                if all(symbol not in (PAD, BOS, EOS, UNK) for symbol in known):
                    drawn[n] = model.output_codec.decode(known)
    return drawn
