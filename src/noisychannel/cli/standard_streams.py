"""Standard input, output and error as a command may find them: closed, full, or without a reader."""

from __future__ import annotations

import os
import sys
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EPIPE
from typing import TextIO

from noisychannel.errors import NoisyChannelError


def claim_streams() -> None:
    """Make the standard streams safe to use; refuse a closed standard output, where results would be lost.

    The places of closed streams are taken by the null device: a model file that was opened there would receive what
    is printed. Results are UTF-8, as inputs are, whatever the locale says.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the program ends)
    if sys.stdout is None:
        raise NoisyChannelError("standard output is closed; send the results to a file, or to /dev/null")
    if (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def is_output_error(error: OSError) -> bool:
    """Whether standard output cannot be written. An error of a file names the file, or says that it is one."""
    return error.filename is None and error.errno in (EPIPE, ENOSPC, EDQUOT, EFBIG, EIO)


def settle_output() -> None:
    """Write what was printed so far. If that is impossible it goes nowhere, so that Python can exit in silence."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def say(line: str) -> None:
    """One line for the user; a standard error that cannot be written must not hide how the command ended."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Send what a stream still holds, and all that follows, nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
