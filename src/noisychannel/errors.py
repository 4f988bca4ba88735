"""Errors a user can fix. Each message is one line: what is wrong, where, and how to fix it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from difflib import SequenceMatcher


class NoisyChannelError(Exception):
    """Something failed that is not the user's input: a full disk, a damaged file. Exit code 1."""

    exit_code = 1


class BadInputError(NoisyChannelError, ValueError):
    """A file, option or configuration that cannot be used. Exit code 2."""

    exit_code = 2


def missing_extra(package: str, extra: str, purpose: str) -> BadInputError:
    """The error for an optional package that is not installed."""
    noun = "packages" if " and " in package else "package"
    return BadInputError(f"{purpose} needs the {noun} {package}: pip install 'noisychannel[{extra}]'")


LIKE = 0.5
"""How much alike two names are, from 0 to 1, if one can be meant for the other."""
FEW = 12
"""So many names can be listed in a message."""


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """``; did you mean X?`` with the known name most like this one, as a whole or in its last dotted part.

    If none is much like it: the names, if they are few.
    """
    known, name = list(known), name[:LONGEST_SHOWN]

    def likeness(other: str) -> float:
        whole = SequenceMatcher(None, name.lower(), other.lower()).ratio()
        one, two = (text.lower().rpartition(".")[2] for text in (name, other))
        return max(whole, 0.9 * SequenceMatcher(None, one, two).ratio())

    best = max(known, key=likeness)
    if likeness(best) >= LIKE:
        return f"; did you mean {prefix}{best}?"
    return f"; choose from {', '.join(prefix + other for other in known)}" if len(known) <= FEW else ""


def did_you_mean_system(name: str, known: Iterable[str]) -> str:
    """``did_you_mean`` for systems: the one that has all terms asked for and the fewest others, if there is one."""
    known, asked = list(known), set(name.split("+"))
    larger = [other for other in known if asked.issubset(other.split("+"))]
    return f"; did you mean {min(larger, key=lambda other: other.count('+'))}?" if larger else did_you_mean(name, known)


LONGEST_SHOWN = 80
"""Characters of a value that a message shows."""


def shortened(value: object) -> str:
    """A value as messages show it: its ``repr``, without the middle if it is long."""
    try:
        shown = repr(value)
    except ValueError:  # Python does not write whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
    return cut(shown)


def cut(text: str) -> str:
    """A text without its middle if it is long."""
    half = LONGEST_SHOWN // 2
    return text if len(text) <= LONGEST_SHOWN else f"{text[:half]} … {text[-half:]}"


def command_line(*words: object) -> str:
    """A command of this program that works when it is pasted into a shell."""
    return shlex.join(["noisychannel", *map(str, words)])


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to stop, as ctrl-C does."""

    def __init__(self, signal: int, kept: bool = True) -> None:
        """``kept``: whether there can be anything that the command has left."""
        super().__init__(signal)
        self.signal, self.kept = signal, kept
