"""Variants of rows that experiments on sentences have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from noisychannel.experiments.rows import THREE_SEEDS, SystemRow

WIDE, WIDE_GIB = 50, 20
"""A search with a larger K2 than this needs so much memory, in GiB."""


def varied(row: SystemRow, name: str, models: Mapping[str, str] | None = None, **changes: Any) -> SystemRow:
    """A row beyond the paper: ``row, name``."""
    return replace(row, name=f"{row.name}, {name}", models={**row.models, **(models or {})}, **changes)


def both_models(row: SystemRow, name: str, kind: str) -> SystemRow:
    """With a direct model and a channel of another kind."""
    return varied(row, name, {"direct": kind, "channel": kind})


def in_setting(
    rows: Iterable[SystemRow], setting: str, pairs: int | None, unpaired: int | None = None
) -> tuple[SystemRow, ...]:
    """The same rows with the data of a setting."""
    return tuple(replace(row, setting=setting, pairs=pairs, unpaired=unpaired) for row in rows)


def with_two_lms(row: SystemRow, name: str, second: str) -> SystemRow:
    """With a second language model, of another kind, as a further term."""
    models = {**row.models, "second_lm": second}
    return replace(row, name=name, system=f"{row.system}+second_lm", models=models, term_kinds={"second_lm": "lm"})


def of_three_seeds(row: SystemRow) -> SystemRow:
    """With three seeds of the models of pairs; the language model has one."""
    return varied(row, THREE_SEEDS, seeds=None)


def three_seeds(rows: Iterable[SystemRow], ensembles: Iterable[str]) -> tuple[SystemRow, ...]:
    """Rows of three seeds, and ensembles of those of these names."""
    known, named = tuple(rows), set(ensembles)
    three = [of_three_seeds(row) for row in known]
    together = [
        varied(row, f"ensemble of {THREE_SEEDS}", seeds=None, choose="ensemble", weights_of=of_three.name)
        for row, of_three in zip(known, three, strict=True)
        if row.name in named
    ]
    return (*three, *together)


def beam(k1: int, k2: int) -> dict[str, int]:
    """A search; a wide one needs much memory for a long sentence."""
    return {"k1": k1, "k2": k2, **({"memory": WIDE_GIB} if k2 > WIDE else {})}


def beams(row: SystemRow, sizes: Iterable[tuple[int, int]]) -> tuple[SystemRow, ...]:
    """A row, with its tuned weights, under searches with other K1 and K2."""
    return tuple(varied(row, f"K1 {k1}, K2 {k2}", search=beam(k1, k2), weights_of=row.name) for k1, k2 in sizes)
