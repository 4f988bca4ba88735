"""Ctrl-C, and the signals that mean the same: the first one stops a command in order, the next one at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from noisychannel.errors import Interrupted

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def stopping_in_order() -> Iterator[None]:
    """The first signal raises ``Interrupted``, so that state can be saved; the second one exits without a word more.

    A signal that is ignored stays ignored: nohup and background jobs ask for that. After a signal the handlers stay, so
    that a second one also ends an exit that takes long.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(exit_code(number))
        asked = True
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and not asked:
                signal.signal(number, handler)


@contextmanager
def leaving(anything: Callable[[], bool]) -> Iterator[None]:
    """Work that leaves something for a repeated command only if ``anything`` says so when it is interrupted."""
    try:
        yield
    except KeyboardInterrupt as error:
        if anything():
            raise
        raise Interrupted(signal_of(error), kept=False) from error


def exit_code(number: int) -> int:
    """As shells count them, but 1 for ctrl-C: the command has failed."""
    return 1 if number == signal.SIGINT else 128 + number


def signal_of(error: KeyboardInterrupt) -> int:
    """The signal that interrupted; ctrl-C unless the error says otherwise."""
    return error.signal if isinstance(error, Interrupted) else signal.SIGINT
