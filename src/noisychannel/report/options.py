"""What to report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from noisychannel.arguments import Bounds, Count, CountOrZero, Seed, check_bounds

ITEMS = 1000
"""Items of a report, unless more are asked for: intervals are narrow by then, and decoding takes its time."""


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What to report, and how.

    Args:
        test: The items: a file with the columns of the training data. The dev data of the run if not given.
        columns: What the columns of TEST are; those of the training data if not given.
        systems: Which systems; if not given, direct, all tuned ones, and attention and seq2seq if the run has them.
        baselines: Rows to compare with, made from the training pairs: identity, memorised, rules.
        metrics: Which metrics, the most important one first; if not given, the one that the run was tuned on.
        curve: Further runs, trained on fewer or more pairs, for a learning curve on TEST.
        limit: At most so many items (of each group), drawn with a fixed seed; 0 for all of them.
        samples: Number of bootstrap samples.
        seed: Random seed of the bootstrap.
        batch_size: Inputs decoded together.
        device: auto takes a GPU if there is one.
    """

    test: str = ""
    columns: str | None = None
    systems: list[str] = field(default_factory=list)
    baselines: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    curve: list[str] = field(default_factory=list)
    limit: CountOrZero = ITEMS
    samples: Annotated[int, Bounds(least=1, most=1_000_000)] = 1000
    seed: Seed = 1
    batch_size: Count = 32
    device: str = "auto"

    def __post_init__(self) -> None:
        check_bounds(self)
