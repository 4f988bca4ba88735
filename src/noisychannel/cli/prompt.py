"""A person at the keyboard: what to type, and a mark before each line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
MARK = "> "


def at_keyboard() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def prompted(lines: Iterable[T], what: str) -> Iterator[T]:
    """Lines that a person types. The prompt goes to standard error, so that results can be sent to a file."""
    print(f"type {what}, then Enter; Ctrl-D ends", file=sys.stderr)
    stream = iter(lines)
    while True:
        print(MARK, end="", file=sys.stderr, flush=True)
        try:
            line = next(stream)
        except StopIteration:
            print(file=sys.stderr)
            return
        yield line
