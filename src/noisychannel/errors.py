"""Errors a user can mend. Each message is one line: what is wrong, where, and how to mend it."""

from __future__ import annotations


class NoisyChannelError(Exception):
    """Something failed that is not the user's input: a full disk, a damaged file. Exit code 1."""

    exit_code = 1


class BadInputError(NoisyChannelError, ValueError):
    """A file, option or configuration that cannot be used as it is. Exit code 2."""

    exit_code = 2


def missing_extra(package: str, extra: str, purpose: str) -> BadInputError:
    """The error for an optional package that is not installed."""
    return BadInputError(f"{purpose} needs the package {package}: pip install 'noisychannel[{extra}]'")
