"""Rows of the online search's tables: tables are nested tuples of tensors [P,...], states and mappings of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def picked(x: Any, rows: Tensor) -> Any:
    """The given rows of a table, or of a part of one."""
    if x is None:
        return None
    if isinstance(x, Tensor):
        return x[rows]
    if isinstance(x, Mapping):
        return {name: picked(part, rows) for name, part in x.items()}
    return x.select(rows) if hasattr(x, "select") else type(x)(*(picked(part, rows) for part in x))


def joined(one: Any, other: Any) -> Any:
    """The rows of one table (or of a part of one), then those of another."""
    if one is None:
        return None
    if isinstance(one, Tensor):
        return torch.cat([one, other])
    if isinstance(one, Mapping):
        return {name: joined(part, other[name]) for name, part in one.items()}
    if hasattr(one, "concat"):
        return one.concat(other)
    return type(one)(*(joined(*parts) for parts in zip(one, other, strict=True)))


def side_by_side(one: Tensor, other: Tensor) -> Tensor:
    """Columns over more positions."""
    return torch.cat([one, other], dim=1)
