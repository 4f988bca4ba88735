"""metrics.jsonl: one record per line, appended in one piece. TensorBoard events beside it on request."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisychannel.atomic import cannot_write, write_text
from noisychannel.errors import NoisyChannelError, missing_extra
from noisychannel.schemas import Record, parse_record

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
            descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, (json.dumps(record) + "\n").encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise cannot_write(self.file, error) from error
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def forget_after(file: Path, model: str, step: int) -> None:
    """Remove the records of a model that will be written again, and lines that are incomplete or damaged.

    These are the records after ``step``, and that of its word list, which is written at the end.
    """
    if not file.exists():
        return
    kept = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        try:
            record = parse_record(line, MetricsRecord, file, "remove it")
        except NoisyChannelError:
            continue
        if record.model != model or (record.step <= step and record.kind in ("train", "dev")):
            kept.append(line)
    write_text(file, "".join(kept))


def _summary_writer(directory: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_extra("tensorboard", "tensorboard", "tensorboard: true") from None
    return SummaryWriter(str(directory))
