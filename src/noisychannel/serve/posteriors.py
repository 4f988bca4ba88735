"""How probable each alignment point of an output is, for heat maps.

Shapes: B pairs, I input positions, J output positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from noisychannel.decode.memory import parts_of_pairs
from noisychannel.decode.scorers import ready
from noisychannel.decode.sentences import padded
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.terms import Ids

DECIMALS = 3


@torch.no_grad()
def posteriors(
    model: Any, inputs: Sequence[Ids], outputs: Sequence[Ids], settings: SearchSettings
) -> list[list[list[float]]]:
    """p(z_j = i | input, output) of each pair, both with EOS: a row for each input position, a column for each output
    position. For a channel, ``inputs`` are the outputs of the decoder."""
    device, found = ready(model), []
    for part in parts_of_pairs(model, (inputs, outputs), settings, device):
        points_BIJ = model.alignments(*padded(inputs[part], device), *padded(outputs[part], device))
        for points_IJ, x, y in zip(points_BIJ.cpu(), inputs[part], outputs[part], strict=True):
            rows = points_IJ[: len(x), : len(y)].tolist()
            found.append([[round(point, DECIMALS) for point in row] for row in rows])
    return found


def transposed(points: list[list[float]]) -> list[list[float]]:
    """With rows for columns."""
    return [list(column) for column in zip(*points, strict=True)]
