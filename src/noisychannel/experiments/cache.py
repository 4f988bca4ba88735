"""What was tuned and decoded before: kept in files, found again by everything that decides it.

Models count by the times at which their files were written, and the code by its version: after a change of the code
without a new version, remove the directory. A damaged file is measured again.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from noisychannel import __version__
from noisychannel.atomic import write_bytes
from noisychannel.decode.objective import Weights
from noisychannel.errors import NoisyChannelError
from noisychannel.experiments.choosing import Choice
from noisychannel.experiments.decoding import EntryRecord, PartLists
from noisychannel.experiments.experiment import ModelSet
from noisychannel.experiments.items import fingerprint
from noisychannel.experiments.tuning import TuningRecord, tuning_record
from noisychannel.schemas import Record, parse_record, read_content
from noisychannel.tuning import TuningResult

T = TypeVar("T")


@dataclass(frozen=True)
class _Tuned(Record):
    tuning: TuningRecord


@dataclass(frozen=True)
class _Chosen(Record):
    weights: dict[str, float]
    dev_score: float | None
    seconds: float
    parts: list[list[list[EntryRecord]]]


class Cache:
    """Records in one directory."""

    def __init__(self, work: Path) -> None:
        self.work, self.directory = work, work / "measured"

    def key(self, models: Iterable[ModelSet], *settings: object) -> str:
        """Of a measurement with these models and settings. The work directory may be moved."""
        files = sorted({file for each in models for file in each.files()})
        times = [(str(file.relative_to(self.work)), file.stat().st_mtime_ns) for file in files]
        return fingerprint(__version__, times, settings)

    def tuning(self, key: str, label: str, tune: Callable[[], TuningResult]) -> TuningResult:
        """The tuned weights of this key; tuned now if they are not there."""
        record = self._read(key, _Tuned)
        if record is not None:
            return record.tuning.result()
        result = tune()
        self._write(key, {"label": label, "tuning": tuning_record(result)})
        return result

    def choice(self, key: str, label: str, choose: Callable[[], Choice]) -> Choice:
        """The decoding of this key; decoded now if it is not there."""
        record = self._read(key, _Chosen)
        if record is not None:
            parts = [[[entry.entry() for entry in best] for best in lists] for lists in record.parts]
            return Choice(PartLists(parts, record.seconds), Weights.of(record.weights), record.dev_score)
        chosen = choose()
        self._write(
            key,
            {
                "label": label,
                "weights": chosen.weights.by_name(),
                "dev_score": chosen.dev_score,
                "seconds": chosen.lists.seconds,
                "parts": [[[x.record() for x in best] for best in lists] for lists in chosen.lists.parts],
            },
        )
        return chosen

    def _file(self, key: str) -> Path:
        return self.directory / f"{key}.json.xz"

    def _read(self, key: str, kind: type[T]) -> T | None:
        file, again = self._file(key), "measure again"
        if not file.exists():
            return None
        try:
            return parse_record(lzma.decompress(read_content(file, again)), kind, file, again)
        except (NoisyChannelError, lzma.LZMAError):
            return None

    def _write(self, key: str, record: dict[str, Any]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_bytes(self._file(key), lzma.compress(json.dumps(record, ensure_ascii=False).encode(), preset=1))
