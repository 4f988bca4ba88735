"""run.json: what a run is, and checksums of the files that a finished training leaves.

The vocabularies are recorded when a run is created, the files of a model when its training ends. Several processes
train models of one run, so run.json is changed under a lock. A file of a model is verified unless there is a training
state beside it: then its training goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from noisychannel import __version__
from noisychannel.atomic import write_text
from noisychannel.checksums import checksum, locked
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.run_files import RunFiles
from noisychannel.run_records import FORMAT, DataRecord, RunHeader
from noisychannel.schemas import read_record

T = TypeVar("T")
NAMED = 3
"""Runs inside a directory that are named."""


class RecordedRun(RunFiles):
    """The files of a run, with what run.json says of them."""

    def __init__(self, path: Path, group: str = "") -> None:
        """``group``: the name of the group that it must be, if it is one."""
        super().__init__(path)
        self._group = group
        self._known: dict[str, Any] = {}

    def forget(self, name: str | None = None) -> None:
        """Read the files again when they are needed next; those of one name, see ``once``, or all."""
        if name is None:
            self._known.clear()
        else:
            self._known.pop(name, None)

    def once(self, name: str, read: Callable[[], T]) -> T:
        """What ``read`` returns, called once until ``forget`` is called, for this name or for all."""
        if name not in self._known:
            self._known[name] = read()
        known: T = self._known[name]
        return known

    def header(self) -> RunHeader:
        """The content of run.json."""
        return self.once("header", self._read_header)

    def write_header(self, groups: list[str], data: DataRecord, group: str = "") -> None:
        """``groups``: those inside, or one with an empty name; ``group``: the name of this one, if it is one.

        The checksums of what a preparation writes are recorded; those of trained models stay.
        """
        prepared = self._prepared_checksums()
        with locked(self.path):
            self.forget("header")
            files = {**(self.header().files if self.header_file.exists() else {}), **prepared}
            self._write_header(
                RunHeader(format=FORMAT, noisychannel=__version__, group=group, groups=groups, data=data, files=files)
            )

    def record_prepared(self) -> None:
        """Keep the checksums of what a preparation has written since."""
        prepared = self._prepared_checksums()
        with locked(self.path):
            self.forget("header")
            header = self.header()
            self._write_header(replace(header, files={**header.files, **prepared}))

    def _prepared_checksums(self) -> dict[str, str]:
        """Of the vocabularies and of what was counted, as far as they exist."""
        return {self._name(file): checksum(file) for file in (*self.vocabulary_files(), *self.counted_files())}

    def _write_header(self, header: RunHeader) -> None:
        record = {**asdict(header), "files": dict(sorted(header.files.items()))}
        write_text(self.header_file, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
        self.forget("header")

    def _read_header(self) -> RunHeader:
        file = self.header_file
        if not file.exists() and self._group:
            raise NoisyChannelError(
                f"{file}: missing, so the group {self._group!r} cannot be used; restore it from a copy, "
                f"or {self.starting_over()}"
            )
        if not file.exists():
            inside = sorted(str(one.parent) for one in self.path.glob(f"*/{file.name}"))
            runs = ", ".join([*inside[:NAMED], *(["…"] if len(inside) > NAMED else [])])
            remedy = f"name one of the runs inside: {runs}" if runs else "create one with noisychannel fit or train"
            raise BadInputError(f"{self.path}: not a run directory (no {file.name}); {remedy}")
        header = read_record(file, RunHeader, self.starting_over(), [FORMAT])
        if header.group and self._group and header.group != self._group:
            raise NoisyChannelError(
                f"{self.path}: holds the group {header.group!r}, not {self._group!r}; restore it from a copy, "
                f"or {self.starting_over()}"
            )
        return header

    def record_files(self, role: str) -> None:
        """Keep the checksums of the model of a role. They are verified when it is loaded and its training is over."""
        sums = {self._name(file): checksum(file) for file in self.recorded_files(role) if file.exists()}
        with locked(self.path):
            self.forget("header")
            header = self.header()
            others = {name: old for name, old in header.files.items() if not name.startswith(f"{role}/")}
            self._write_header(replace(header, files={**others, **sums}))

    def recorded_files(self, role: str) -> list[Path]:
        """What the training of a role leaves, and run.json keeps checksums of."""
        return [self.model_config_file(role), self.model_file(role), *([self.word_list_file] if role == "lm" else [])]

    def model_checksum(self, role: str) -> str:
        """The checksum of the model of a role: the recorded one if its training is over."""
        return self._checksum(self.model_file(role), role)

    def word_list_checksum(self) -> str:
        return self._checksum(self.word_list_file, "lm")

    def counted_checksum(self, file: Path) -> str:
        """Of a file that was written when the data was prepared."""
        return self._recorded(file) or checksum(file)

    def is_intact(self, file: Path) -> bool:
        """Whether such a file is there, and is the one that was recorded."""
        return file.is_file() and self._recorded(file) == checksum(file)

    def was_counted(self, file: Path) -> bool:
        """Whether such a file exists, or was written and is missing: then loading it fails."""
        return file.exists() or self._name(file) in self.header().files

    def _checksum(self, file: Path, role: str) -> str:
        recorded = None if self.state_file(role).exists() else self._recorded(file)
        return recorded or checksum(file)

    def is_recorded(self, file: Path, role: str) -> bool:
        """Whether a file of a role must be there: it was recorded, and no new training of it has begun."""
        return self._recorded(file) is not None and not self.state_file(role).exists()

    def _recorded(self, file: Path) -> str | None:
        return self.header().files.get(self._name(file)) if self.header_file.exists() else None

    def _name(self, file: Path) -> str:
        return file.relative_to(self.path).as_posix()

    def verify(self, file: Path, again: str, role: str | None = None) -> None:
        """Refuse a file that has changed since it was recorded, and one that was recorded and is missing."""
        if role is not None and self.state_file(role).exists():
            return
        for _ in range(2):  # another process may have trained the model after we read run.json
            recorded = self._recorded(file)
            if recorded is None or (file.exists() and checksum(file) == recorded):
                return
            self.forget("header")
        what = "damaged (not the file that was trained: run.json has another checksum)" if file.exists() else "missing"
        raise NoisyChannelError(f"{file}: {what}; restore it from a copy, or {again}")
