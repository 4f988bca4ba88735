"""Where a figure comes from: the version, and the commit of the repository where there is one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch

from noisychannel import __version__

COMMIT = "NOISYCHANNEL_COMMIT"
"""The environment variable that names the commit of a copy that is no repository."""


def provenance() -> dict[str, str | None]:
    """Versions and commit, as result files keep them."""
    return {"noisychannel": __version__, "commit": commit(), "torch": str(torch.__version__)}


def commit() -> str | None:
    """The commit of the checkout this package is in, with a plus if files have changed since; None without one."""
    if named := os.environ.get(COMMIT):
        return named
    described = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        done = subprocess.run([*described, "--exclude=*"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
