"""The data of an experiment: held-out items in named parts, and samples of training data.

A part is a test set with its own dev set, such as one inflection type or one domain. Parts may have models of their own
or share them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from noisychannel.errors import BadInputError

T = TypeVar("T")

HeldOutName = Literal["dev", "test"]


@dataclass(frozen=True)
class Item:
    """One input with the outputs that are right."""

    input: str
    references: tuple[str, ...]
    """As the models write text: in lower case if they were trained on lower case."""
    features: tuple[str, ...] = ()
    unit: str = ""
    """Items of one unit, such as all forms of a lemma, are resampled together. If empty, the input is the unit."""
    count: int = field(default=1, repr=False)
    """How often it occurs: tokens of running text repeat. Scores count it so often. No decoding depends on it."""
    seen_in: tuple[str, ...] = field(default=(), repr=False)
    """Training samples that contain its input, see ``sample_name``; only if a design scores seen items apart."""

    @property
    def resampling_unit(self) -> str:
        return self.unit or self.input

    def record(self) -> dict[str, Any]:
        """For JSON; what is empty is left out."""
        record: dict[str, Any] = {
            "input": self.input,
            "features": self.features,
            "references": self.references,
            "unit": self.unit,
        }
        record |= {"count": self.count if self.count > 1 else 0, "seen_in": self.seen_in}
        return {key: value for key, value in record.items() if value}


def sample_name(pairs: int | None, seed: int) -> str:
    """The training sample of so many pairs for a seed."""
    return f"{'all' if pairs is None else pairs}-{seed}"


@dataclass(frozen=True)
class Part:
    """A test set and its dev set. A part without dev items takes no share in tuning."""

    name: str
    dev: tuple[Item, ...]
    test: tuple[Item, ...]

    def held_out(self, name: HeldOutName) -> tuple[Item, ...]:
        return self.dev if name == "dev" else self.test


def sample(rows: Sequence[T], n: int | None, seed: int) -> list[T]:
    """``n`` rows drawn with ``seed``, for learning curves; all rows in their order if ``n`` is None.

    A smaller sample is the beginning of a larger one. Lists of the same length are sampled at the same places: if all
    types have the same lemmas in the same order, so have their samples.
    """
    if n is None:
        return list(rows)
    if not 0 < n <= len(rows):
        raise BadInputError(f"cannot sample {n} of {len(rows)} rows; ask for 1 to {len(rows)}")
    places = list(range(len(rows)))
    random.Random(seed).shuffle(places)
    return [rows[place] for place in places[:n]]


def at_most(rows: Sequence[T], n: int | None, seed: int) -> list[T]:
    """``sample``, or all rows in their order if there are no more than ``n``."""
    return list(rows) if n is None or n >= len(rows) else sample(rows, n, seed)


def fingerprint(*content: object) -> str:
    """A short hash of anything with a stable ``repr``."""
    return hashlib.blake2b(repr(content).encode(), digest_size=8).hexdigest()
