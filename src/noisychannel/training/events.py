"""What a training says about its progress; a terminal, a log, or a parent process listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Started(NamedTuple):
    label: str
    step: int
    """Not 0 when resumed."""
    total_steps: int
    parameters: int


class Advanced(NamedTuple):
    label: str
    step: int
    loss: float
    """Nats per symbol over the last updates; nan before the first record."""
    symbols_per_second: float


class Evaluated(NamedTuple):
    label: str
    epoch: int
    step: int
    train_perplexity: float
    dev_perplexity: float
    learning_rate: float
    best: bool


class Fitted(NamedTuple):
    """How much a language model's word list counts, and what it brings."""

    share: float
    perplexity: float
    """Per symbol of the dev data, of network and list together."""


class Finished(NamedTuple):
    label: str
    step: int
    best_step: int
    dev_perplexity: float
    seconds: float
    further: str = ""
    """If max_updates or max_epochs ended it, so that more may still make it better: the command to train it further."""
    word_list: Fitted | None = None
    """Of a language model that has one."""

    @property
    def at_limit(self) -> bool:
        return bool(self.further)


Event = Started | Advanced | Evaluated | Finished
Listener = Callable[[Event], None]
