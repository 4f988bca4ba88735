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


def commit(file: Path = Path(__file__)) -> str | None:
    """The commit of the checkout that a file of this package is in, with a plus if files have changed since.

    None if there is none: an installed copy may lie inside a repository of its user's, which says nothing about it.
    """
    if named := os.environ.get(COMMIT):
        return named
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*")


def short_commit(commit: str | None) -> str:
    """As pages print it: twelve digits, and the plus if files had changed."""
    return "unknown" if commit is None else commit.removesuffix("+")[:12] + "+" * commit.endswith("+")


def _git(directory: Path, *words: str) -> str | None:
    """What git says; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
