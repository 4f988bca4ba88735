"""Whether the weights of a model are finite numbers."""

from __future__ import annotations

import torch
from torch import nn


def non_finite_parameter(model: nn.Module) -> str | None:
    """The name of a parameter with NaN or infinite values; None if all are finite."""
    parameters = dict(model.named_parameters())
    if not parameters:
        return None
    # One transfer for all parameters: on a GPU each transfer waits.
    finite = torch.stack([parameter.detach().isfinite().all() for parameter in parameters.values()]).tolist()
    return next((name for name, good in zip(parameters, finite, strict=True) if not good), None)
