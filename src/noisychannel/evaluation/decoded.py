"""What an evaluation decoded, for those who look beyond its table: models, and the best outputs of each item."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from noisychannel.evaluation.group import EvaluationGroup
from noisychannel.evaluation.table import EvaluationTable
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.weights import TunedSystem


@dataclass(frozen=True)
class DecodedSystem:
    """The outputs of a system."""

    label: str
    tuned: Sequence[TunedSystem]
    """For each group, and so are the others."""
    models: Sequence[NoisyChannel]
    outputs: Sequence[list[list[Output]]]
    """For each item of a group the best outputs, best first."""

    @property
    def best(self) -> list[Output]:
        """The best output of each item, group after group, as the table has them."""
        return [n_best[0] for of_group in self.outputs for n_best in of_group]


@dataclass(frozen=True)
class Evaluation:
    """A table, and what it was made from."""

    table: EvaluationTable
    groups: Sequence[EvaluationGroup]
    units: Sequence[Hashable]
    """What the bootstrap draws each item with."""
    decoded: Sequence[DecodedSystem]
    """In the order of the rows of the table that are no baselines."""

    def system(self, label: str) -> DecodedSystem:
        """The outputs of a row of the table."""
        return next(decoded for decoded in self.decoded if decoded.label == label)

    def place(self, item: int) -> tuple[int, int]:
        """The number of the group of an item, and its place there."""
        for number, group in enumerate(self.groups):
            if item < len(group.held_out.inputs):
                return number, item
            item -= len(group.held_out.inputs)
        raise IndexError(item)
