"""tanh on a CPU, and the emission gates of many prefixes of a search.

PyTorch's tanh is many times slower on a CPU than NumPy's, which is a few vector instructions for each number. NumPy's
does not depend on where a number stands in its array, so the scores of a search do not depend on the batch.

Shapes: B sequences that are known, I positions of each, N prefixes that are being built, G gate size.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from noisychannel.models.products import ROW_BLOCK

GATES_IN_CACHE = 1 << 17
"""Elements of a block of gates, so that it stays in a core's cache from one operation to the next."""


def vectorises(*tensors: Tensor) -> bool:
    """Whether NumPy can compute with the memory of these tensors, if they have no gradients."""
    return all(x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) for x in tensors)


def emit_logits(known_BIG: Tensor, sentence_N: Tensor, built_NG: Tensor, weight_1G: Tensor, bias_1: Tensor) -> Tensor:
    """m · tanh(known[sentence[n], i] + built[n]) + b on a CPU: [N,I].

    Prefixes of one sentence come one after the other.
    """
    (B, I, G), N = known_BIG.shape, built_NG.shape[0]
    at_once = max(1, GATES_IN_CACHE // (I * G))
    logits_NI = built_NG.new_empty(N, I)
    known, built = known_BIG.numpy(), built_NG.numpy()
    ends = [N] if B == 1 else sentence_N.bincount(minlength=B).cumsum(0).tolist()
    b = 0
    for first in range(0, N, at_once):
        last = min(first + at_once, N)
        rows = (last - first) * I
        # Whole blocks of rows, whose products are always rounded alike.
        gates_RG = np.empty((-(-rows // ROW_BLOCK) * ROW_BLOCK, G), built.dtype)
        gates_RG[rows:] = 0
        gates_NIG, start = gates_RG[:rows].reshape(-1, I, G), first
        while start < last:
            while ends[b] <= start:
                b += 1
            end = min(ends[b], last)
            np.add(known[b], built[start:end, None], out=gates_NIG[start - first : end - first])
            start = end
        np.tanh(gates_RG, out=gates_RG)
        logits_R1 = F.linear(torch.from_numpy(gates_RG), weight_1G, bias_1)
        logits_NI[first:last] = logits_R1[:rows].view(-1, I)
    return logits_NI
