"""How long a block will take, before it begins: updates and sentences of the design, by rates that were measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from noisychannel.experiments.experiment import Experiment
from noisychannel.experiments.rows import SystemRow

TUNING_STARTS = 4
"""Decodings before the iterations of tuning: start weights, neighbours, and the proposing model alone."""


class Cost(NamedTuple):
    """The seconds of an update: whatever the batch, and for each of its sequences."""

    fixed: float
    each: float


@dataclass(frozen=True)
class Rates:
    """How fast a machine is with the models of an experiment."""

    device: str
    """Such as ``one NVIDIA H200``."""
    updates: Mapping[str, Cost]
    """By role."""
    side_by_side: float
    """How much faster several trainings are at the same time than one after another."""
    sentences: float
    """Decoded in a second, by all processes together."""
    start: float = 0.0
    """Seconds to prepare the data."""


class Estimate(NamedTuple):
    """Of one block, in seconds, if nothing is finished."""

    start: float
    training: float
    decoding: float
    """And tuning."""
    device: str

    @property
    def minutes(self) -> tuple[int, int, int, int]:
        """In all, and each of the three."""
        return (
            math.ceil((self.start + self.training + self.decoding) / 60),
            math.ceil(self.start / 60),
            math.ceil(self.training / 60),
            math.ceil(self.decoding / 60),
        )

    def __str__(self) -> str:
        total, start, training, decoding = self.minutes
        return (
            f"about {total} min on {self.device} (data {start}, training {training}, tuning and decoding {decoding}), "
            "less if some of it is finished"
        )


def estimate(
    experiment: Experiment, rows: Sequence[SystemRow], runs: Collection[str], tuned: Sequence[SystemRow]
) -> Estimate | None:
    """``runs``: those that must be trained for these rows; ``tuned``: the rows whose weights must be tuned.

    None if the experiment has no rates.
    """
    rates = experiment.rates
    if rates is None:
        return None
    training, longest = 0.0, 0.0
    for config in (config for group in experiment.configs(runs) for config in group):
        for role in config.models:
            cost, batch = rates.updates[role], config.model(role).batch_size or config.training.batch_size
            seconds = config.limits(role).updates * (cost.fixed + cost.each * batch)
            training, longest = training + seconds, max(longest, seconds)
    dev = sum(len(part.dev) for part in experiment.tuning_parts)
    test = sum(len(part.test) for part in experiment.parts)
    sentences = 1.0 * dev * len(tuned) * (TUNING_STARTS + experiment.settings.iterations)
    for row in rows:
        if row.system:
            sentences += test * len(experiment.seeds(row)) * max(1.0, _width(experiment, row))
    return Estimate(
        rates.start if runs else 0.0,
        max(longest, training / rates.side_by_side),
        sentences / rates.sentences,
        rates.device,
    )


def _width(experiment: Experiment, row: SystemRow) -> float:
    """How many times wider the search of a row is than that of the experiment."""
    return experiment.search(row).k2 / experiment.settings.search.k2
