"""Whether a model's weights are numbers at all."""

from __future__ import annotations

import torch
from torch import nn


def non_finite_parameter(model: nn.Module) -> str | None:
    """The name of a parameter that holds NaN or infinity; None where all are finite."""
    parameters = dict(model.named_parameters())
    if not parameters:
        return None
    # One question for all: on a GPU each would be a wait.
    finite = torch.stack([parameter.detach().isfinite().all() for parameter in parameters.values()]).tolist()
    return next((name for name, good in zip(parameters, finite, strict=True) if not good), None)
