"""The files of a configuration, by size and hash: what a run was trained on, and whether it is still the same.

Only content counts: a file may have moved. The whole content is hashed each time, at a few seconds per gigabyte. Times
of change would be quicker to compare, but copies do not keep them, and some tools restore them after a change.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeAlias

from noisychannel.checksums import checksum
from noisychannel.data.files import find_stored_files
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import HUB
from noisychannel.errors import BadInputError
from noisychannel.schemas import Record

SOURCE_KEYS = ("train", "train_outputs", "dev", "dev_outputs", "further", "unpaired")


@dataclass(frozen=True)
class SourceFile(Record):
    """What run.json keeps of a file."""

    size: int
    sha256: str


SourceFiles: TypeAlias = Mapping[str, Mapping[str, SourceFile]]
"""By key and path."""


class Sources:
    """The files as they are now. Hugging Face datasets are not among them."""

    def __init__(self, config: DataConfig) -> None:
        """Nothing is opened. A missing file is an error, and so is one that can be read only once."""
        self.files = {key: _files(config, key) for key in SOURCE_KEYS}
        self._seen = {file: _appearance(file) for files in self.files.values() for file in files}

    def record(self) -> SourceFiles:
        """What run.json keeps, after the files have been read. It is an error if one has changed since."""
        hashes = {file: checksum(file) for file in self._seen}
        for file, seen in self._seen.items():
            if _appearance(file) != seen:
                raise BadInputError(f"{file}: changed while it was read; wait until it is complete, then try again")
        return {
            key: {str(file): SourceFile(self._seen[file].size, hashes[file]) for file in files}
            for key, files in self.files.items()
            if files
        }


def keys_of(corpus: str, config: DataConfig) -> list[str]:
    """The keys whose files a corpus (train, dev or unpaired) is made from. Pairs are made from unpaired outputs too."""
    keys = [corpus, f"{corpus}_outputs"]
    if corpus == "train":
        keys += ["further", *(["unpaired"] if config.augment.makes_pairs else [])]
    return [key for key in keys if key in SOURCE_KEYS]


class Differences(NamedTuple):
    """How the files of a configuration differ from those of a record."""

    changed: dict[str, str]
    """By key: the first file that has changed, or that there is more or less."""
    missing: dict[str, str]
    """By key: why its files could not be compared."""


def compare(config: DataConfig, recorded: SourceFiles, keys: Sequence[str] = SOURCE_KEYS) -> Differences:
    """Compare the files of these keys with those that a run was trained on."""
    differences = Differences({}, {})
    for key in keys:
        try:
            now = _files(config, key)
        except BadInputError as error:
            differences.missing[key] = str(error)
            continue
        known = recorded.get(key, {})
        for file, name in zip_longest(now, known):
            if file is None or name is None or not _is_same(file, known[name]):
                differences.changed[key] = str(file or name)
                break
    return differences


def warnings_of(config: DataConfig, recorded: SourceFiles, keys: Sequence[str]) -> Iterable[str]:
    """One line for each key whose files are not those that the run was trained on; none if it has no record of them."""
    if not recorded:
        return
    for key, file in compare(config, recorded, keys).changed.items():
        yield f"{file}: not what the run was trained on (data.{key} has changed since)"


class _Appearance(NamedTuple):
    size: int
    changed_ns: int
    inode: int


def _appearance(file: Path) -> _Appearance:
    try:
        seen = file.stat()
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read ({error.strerror})") from error
    return _Appearance(seen.st_size, seen.st_mtime_ns, seen.st_ino)


def _files(config: DataConfig, key: str) -> list[Path]:
    """Each once, in order."""
    return list(dict.fromkeys(find_stored_files([x for x in getattr(config, key) if not x.startswith(HUB)])))


def _is_same(file: Path, before: SourceFile) -> bool:
    return os.path.getsize(file) == before.size and checksum(file) == before.sha256
