"""The device that a configuration or an option asks for."""

from __future__ import annotations

import torch

from noisychannel.errors import BadInputError


def choose_device(name: str) -> torch.device:
    """The device of that name; auto takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"device: {name} cannot be used here ({reason}); use auto or cpu") from error
    return device
