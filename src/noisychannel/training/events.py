"""What a training reports about its progress. A terminal, a log or a parent process listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MUCH = 0.8
"""Models that align put the whole output at one input symbol in a few hundredths of the pairs."""


class Started(NamedTuple):
    """The training of a model begins, or resumes."""

    label: str
    step: int
    """0 unless the training resumes."""
    total_steps: int
    parameters: int


class Advanced(NamedTuple):
    """Some updates later."""

    label: str
    step: int
    loss: float
    """Nats per symbol over the last updates; nan before the first record."""
    symbols_per_second: float


class DevEvaluation(NamedTuple):
    """The perplexity on the dev data after some updates."""

    label: str
    epoch: int
    step: int
    train_perplexity: float
    dev_perplexity: float
    learning_rate: float
    best: bool


class Finished(NamedTuple):
    """The training of a model has ended."""

    label: str
    step: int
    best_step: int
    dev_perplexity: float
    seconds: float
    further: str = ""
    """The command that continues the training, if max_updates or max_epochs ended it and more updates may help."""
    listed_outputs: int | None = None
    """The number of different outputs on the word list of a language model that has one."""
    at_one_place: float | None = None
    """Of an SSNT: the share of dev pairs whose whole output it aligns to one input symbol."""
    remedy: str = ""
    """The option that may help a model that does not align."""

    @property
    def fault(self) -> str:
        """What is wrong with the model; empty if nothing is."""
        if self.at_one_place is None or self.at_one_place < MUCH:
            return ""
        return (
            f"warning: the model does not align: in {self.at_one_place:.0%} of the dev pairs it puts the whole output "
            "at one input symbol"
        )

    @property
    def at_limit(self) -> bool:
        return bool(self.further)


Event = Started | Advanced | DevEvaluation | Finished
Listener = Callable[[Event], None]
