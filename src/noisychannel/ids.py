"""The four symbols at the start of every vocabulary, and functions on padded sequences of ids."""

from __future__ import annotations

import torch
from torch import Tensor

PAD, BOS, EOS, UNK = range(4)
SPECIAL_SYMBOLS = ("<pad>", "<bos>", "<eos>", "<unk>")


def inside(lengths: Tensor, size: int, device: torch.device) -> Tensor:
    """True inside each sequence, false in its padding: [B] -> [B,size]."""
    return torch.arange(size, device=device) < lengths.to(device)[:, None]


def after_bos(outputs_BJ: Tensor) -> Tensor:
    """BOS v_1 .. v_{J-1}: the symbol before each output position."""
    return torch.cat([torch.full_like(outputs_BJ[:, :1], BOS), outputs_BJ[:, :-1]], dim=1)


def reversed_within(x_BT: Tensor, lengths: Tensor) -> Tensor:
    """Each row reversed within its length; padding stays in place: [B,T,...], [B] -> [B,T,...]."""
    steps = torch.arange(x_BT.shape[1], device=x_BT.device)
    lengths = lengths.to(x_BT.device)[:, None]
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x_BT.gather(1, source.reshape(*source.shape, *[1] * (x_BT.dim() - 2)).expand_as(x_BT))


def require_eos(name: str, ids_BT: Tensor, lengths: Tensor) -> None:
    """Raise ValueError unless every sequence is [B,T] ids, ends in EOS, and has no EOS before its end."""
    if ids_BT.dim() != 2 or lengths.shape != ids_BT.shape[:1]:
        raise ValueError(
            f"{name} must be ids [B,T] with lengths [B], but are {list(ids_BT.shape)} and {list(lengths.shape)}"
        )
    lengths = lengths.to(ids_BT.device)
    if len(lengths) == 0:
        return
    if not bool(((lengths >= 1) & (lengths <= ids_BT.shape[1])).all()):
        raise ValueError(f"{name}: lengths must be in 1..{ids_BT.shape[1]} (EOS included), but are {lengths.tolist()}")
    ends = (ids_BT == EOS) & inside(lengths, ids_BT.shape[1], ids_BT.device)
    good = ends.gather(1, lengths[:, None] - 1).squeeze(1) & (ends.sum(1) == 1)
    if not bool(good.all()):
        row = int((~good).nonzero()[0])
        raise ValueError(
            f"{name}[{row}] must end in its only EOS (id {EOS}), but is {ids_BT[row, : int(lengths[row])].tolist()}"
        )
