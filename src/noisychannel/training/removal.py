"""What a training removes from its run directory: an earlier run, encoded data, files that were not completed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from noisychannel.atomic import cannot_write
from noisychannel.errors import NoisyChannelError
from noisychannel.models.registry import ROLES
from noisychannel.run_files import NGRAMS, SEEN, VOCABULARIES
from noisychannel.runs import RunDirectory

UNFINISHED_FILE = re.compile(r"\..+\.\d+\.tmp")
"""The name under which ``atomic`` writes a file before it is complete."""


def clear_run(run: RunDirectory, groups: list[str]) -> None:
    """Remove the files of an earlier training, and nothing else.

    The header is moved first: from then on the directory is an unfinished preparation, which the next command replaces.
    It goes last, because it knows the groups. A link is removed, not what it points to.
    """
    old = RunDirectory(run.path / ".old")
    if old.path.is_symlink():
        remove(old.path)
    try:
        old.path.mkdir(exist_ok=True)
        if run.header_file.exists():
            run.header_file.replace(old.header_file)
    except OSError as error:
        raise cannot_write(run.path, error) from error
    with suppress(NoisyChannelError):  # none, one of another version, or a damaged one: starting over is the cure
        groups = groups + list(old.header().groups)
    for directory in [*dict.fromkeys(run.group(group).path for group in groups if group), run.path]:
        if directory.is_symlink() and directory != run.path:
            remove(directory)
            continue
        names = (*ROLES, "tensorboard", "metrics.jsonl", "weights.json", "config.yaml", "run.json", SEEN)
        for name in (*names, *NGRAMS.values(), *VOCABULARIES):
            remove(directory / name)
        if directory != run.path and directory.exists() and not any(directory.iterdir()):
            directory.rmdir()
    remove(old.path)
    run.forget()


@contextmanager
def leaving_no_data(run: RunDirectory) -> Iterator[None]:
    """Remove the encoded data if the block fails, and directories of groups that have nothing else."""
    try:
        yield
    except BaseException:
        for leftover in [run.data_dir, *run.path.glob("[!.]*/.data")]:
            _discard(leftover)
            if leftover.parent != run.path and not any(leftover.parent.iterdir()):
                with suppress(OSError):
                    leftover.parent.rmdir()
        raise


def remove_data(run: RunDirectory) -> None:
    for place in (run, *run.groups()):
        _discard(place.data_dir)


def _discard(data_dir: Path) -> None:
    """Remove encoded data as far as possible, or a link in its place."""
    with suppress(NoisyChannelError):
        remove(data_dir)


def remove_unfinished_files(run: RunDirectory) -> None:
    """Remove what killed writes have left. The run is locked, so nobody is writing now, except behind links."""
    home = run.path.resolve()
    for file in [*run.path.glob(".*.tmp"), *run.path.glob("[!.]*/.*.tmp"), *run.path.glob("[!.]*/[!.]*/.*.tmp")]:
        if UNFINISHED_FILE.fullmatch(file.name) and file.parent.resolve().is_relative_to(home):
            remove(file)


def remove(path: Path) -> None:
    """Remove a file, a directory with its content, or a link without what it points to."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise NoisyChannelError(
            f"{error.filename or path}: cannot be removed ({error.strerror or error}); fix that, then try again"
        ) from error
