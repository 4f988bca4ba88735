"""Warnings: one line each on standard error, which leave the exit code alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from noisychannel.runs import RunDirectory


def warn(message: str) -> None:
    print(f"noisychannel: {message}", file=sys.stderr)


def warn_unfinished(run: RunDirectory, roles: Iterable[str]) -> None:
    """Tell of models whose training was interrupted: they are not yet what they could be."""
    for role in roles:
        if run.state_file(role).exists():
            best = "this is its best model so far" if run.has_model(role) else "it has no model yet"
            warn(f"{run.path}: the training of {role} is unfinished, {best}; {finish(run)}")


def finish(run: RunDirectory) -> str:
    return f"finish it with noisychannel train {run.path}/config.yaml"


def tune_first(run: RunDirectory) -> str:
    return f"for the others, first run noisychannel tune {run.path}"
