"""metrics.jsonl: one record per line, appended in one piece. TensorBoard events beside it on request."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisychannel.atomic import cannot_write, write_text
from noisychannel.errors import NoisyChannelError, missing_extra
from noisychannel.schemas import Record, parse_record
from noisychannel.training.state import TrainingState

WORD_LIST = "word list"
"""The kind of the record of a word list; the other kinds are train and dev."""


@dataclass(frozen=True)
class MetricsRecord(Record):
    """What every line has."""

    model: str
    kind: str
    step: int


class MetricsLog:
    """Appends records of one model to the run's file. Several processes may append to the same file."""

    def __init__(self, file: Path, model: str, tensorboard: bool = False) -> None:
        self.file = file
        self.model = model
        self._board = _summary_writer(file.parent / "tensorboard" / model) if tensorboard else None

    def write(self, kind: str, step: int, **values: float) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        record = {"model": self.model, "kind": kind, "step": step, **finite}
        try:
            _append(self.file, (json.dumps(record) + "\n").encode())
        except OSError as error:
            raise cannot_write(self.file, error) from error
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def check_regular(file: Path) -> None:
    """Refuse a pipe or a device in the place of the file, which would be read for ever."""
    if file.exists() and not file.is_file():
        raise NoisyChannelError(f"{file}: not a regular file; remove it, then try again")


def forget_after(file: Path, model: str, state: TrainingState | None) -> None:
    """Remove the records of a model that will be written again, and lines that are incomplete or damaged.

    These are the records of what came after ``state``, and that of its word list, which is written at the end.
    """
    if not file.exists():
        return
    check_regular(file)
    # A state is saved after the records of its step, or before all of them: a training that ends evaluates once more.
    last = {"train": -1, "dev": -1}
    if state is not None:
        last = {"train": state.step - (state.interval_symbols > 0), "dev": state.evaluated_step}
    kept = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        try:
            record = parse_record(line, MetricsRecord, file, "remove it")
        except NoisyChannelError:
            continue
        if record.model != model or record.step <= last.get(record.kind, -1):
            kept.append(line)
    write_text(file, "".join(kept))


def _append(file: Path, line: bytes) -> None:
    """The whole line or nothing, also if the disk is full or other processes append."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, line) < len(line):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _summary_writer(directory: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_extra("tensorboard", "tensorboard", "tensorboard: true") from None
    return SummaryWriter(str(directory))
