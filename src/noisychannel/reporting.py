"""What library code tells its caller while it works: warnings, and how much is done.

A command, a server or a notebook listens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

Advance: TypeAlias = Callable[[int], None]
"""Called with how many more items are done."""


class Reporter(Protocol):
    """Somebody who listens."""

    def warn(self, message: str) -> None:
        """One line that a user should read; the work goes on."""
        ...

    def counting(self, label: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Count the items of one piece of work, from entering to leaving it."""
        ...


def no_progress(done: int) -> None:
    """Nobody counts."""


class Silent:
    """Nobody listens."""

    def warn(self, message: str) -> None:
        return None

    def counting(self, label: str, total: int | None = None) -> AbstractContextManager[Advance]:
        return nullcontext(no_progress)
