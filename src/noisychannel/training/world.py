"""The processes of one training, as started by torchrun or accelerate launch; usually one."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch
from torch import Tensor, distributed

from noisychannel.devices import choose_device
from noisychannel.errors import NoisyChannelError


class World(NamedTuple):
    """This process among those that train one model together."""

    rank: int
    size: int
    device: torch.device

    @staticmethod
    def join(device: str = "auto") -> World:
        """Join the other processes, if the environment names any, and choose the device of this one."""
        size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        chosen = choose_device(device)
        if size > 1:
            if chosen.type == "cuda":
                chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
                torch.cuda.set_device(chosen)
            if not distributed.is_initialized():
                distributed.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
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
