"""The processes of one training, as started by torchrun or accelerate launch; usually one."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch
from torch import Tensor, distributed

from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError, NoisyChannelError


class World(NamedTuple):
    """This process among those that train one model together."""

    rank: int
    size: int
    device: torch.device

    @staticmethod
    def join(device: str = "auto") -> World:
        """Join the other processes, if the environment names any, and choose the device of this one."""
        size = _from_environment("WORLD_SIZE", default=1, least=1)
        rank = _from_environment("RANK", default=0, most=size - 1)
        chosen = choose_device(device)
        if size > 1:
            if chosen.type == "cuda":
                chosen = torch.device("cuda", _from_environment("LOCAL_RANK", default=0))
                torch.cuda.set_device(chosen)
            if not distributed.is_initialized():
                try:
                    distributed.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
                except ValueError as error:  # the environment does not say how to find the others
                    reason = str(error).splitlines()[0]
                    raise BadInputError(
                        f"WORLD_SIZE is {size}, but the other processes cannot be found ({reason}); "
                        "start them with torchrun, or unset WORLD_SIZE"
                    ) from error
        return World(rank, size, chosen)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum of ``value`` over all processes."""
        if self.size > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            try:
                distributed.barrier()
            except RuntimeError as error:
                raise NoisyChannelError(f"process {self.rank}: another process failed; see its message") from error

    def leave(self) -> None:
        if self.size > 1:
            distributed.destroy_process_group()


def _from_environment(name: str, default: int, least: int = 0, most: int | None = None) -> int:
    """A whole number that torchrun sets."""
    text = os.environ.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise BadInputError(f"{name}: must be a whole number, {limits}, but is {text!r}; unset it, or use torchrun")
    return int(text)
