"""Sequences of ids on disk, mapped into memory: a corpus of millions of lines takes a dozen bytes of RAM per line."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from noisychannel.atomic import cannot_write
from noisychannel.errors import NoisyChannelError
from noisychannel.models.registry import CorpusKind

IdArray = npt.NDArray[np.int32]
LengthArray = npt.NDArray[np.int64]

SequenceName = Literal["tagged_inputs", "outputs", "tagged_outputs", "all_outputs"]
"""What is stored of each pair. ``tagged``: with the features before it. ``all_outputs``: what the language model reads;
in the training data that includes the unpaired outputs, and features if all of them have some."""

WRITTEN_AT_ONCE = 1 << 16
"""Ids that are collected in memory before they are written."""


class SequenceWriter:
    """Appends sequences to ``stem``.ids; ``close`` writes their lengths to ``stem``.lengths.npy.

    The file is open only during a write: there are eight of them per group, and any number of groups.
    """

    def __init__(self, stem: Path) -> None:
        self.stem = stem
        self._pending = array("i")
        self._lengths = array("i")
        self._write("wb")

    def append(self, ids: Sequence[int]) -> None:
        self._pending.extend(ids)
        self._lengths.append(len(ids))
        if len(self._pending) >= WRITTEN_AT_ONCE:
            self._write("ab")

    def close(self) -> Sequences:
        self._write("ab")
        try:
            np.save(_lengths_file(self.stem), np.asarray(self._lengths, dtype=np.int32))
        except OSError as error:
            raise cannot_write(_ids_file(self.stem), error) from error
        return Sequences.open(self.stem)

    def _write(self, mode: Literal["wb", "ab"]) -> None:
        try:
            with _ids_file(self.stem).open(mode) as file:
                self._pending.tofile(file)
        except OSError as error:
            raise cannot_write(_ids_file(self.stem), error) from error
        self._pending = array("i")


class Sequences(NamedTuple):
    """Many sequences of ids: sequence n is ``ids[starts[n] : starts[n + 1]]``."""

    ids: IdArray
    starts: LengthArray

    @staticmethod
    def open(stem: Path) -> Sequences:
        try:
            lengths = np.load(_lengths_file(stem))
            starts = np.zeros(len(lengths) + 1, dtype=np.int64)
            np.cumsum(lengths, out=starts[1:])
            # An empty file cannot be mapped.
            ids: IdArray = np.memmap(_ids_file(stem), dtype=np.int32, mode="r") if starts[-1] else np.zeros(0, np.int32)
            if len(ids) != starts[-1]:
                raise ValueError(f"{len(ids)} ids instead of {starts[-1]}")
        except (OSError, ValueError, EOFError) as error:
            raise NoisyChannelError(f"{stem}: damaged ({error}); repeat the command to write it again") from error
        return Sequences(ids, starts)

    @staticmethod
    def of(sequences: Sequence[Sequence[int]]) -> Sequences:
        """A few sequences, in memory."""
        starts = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in sequences], out=starts[1:])
        return Sequences(np.fromiter((i for ids in sequences for i in ids), np.int32, int(starts[-1])), starts)

    @property
    def lengths(self) -> LengthArray:
        return np.diff(self.starts)

    def lengths_of(self, rows: npt.NDArray[np.int64]) -> LengthArray:
        return self.starts[rows + 1] - self.starts[rows]

    def __getitem__(self, n: int) -> IdArray:  # type: ignore[override]
        return self.ids[self.starts[n] : self.starts[n + 1]]


class Corpus(NamedTuple):
    """What one model is trained on. A language model has no inputs."""

    inputs: Sequences | None
    outputs: Sequences

    @staticmethod
    def of(kind: CorpusKind, get: Callable[[SequenceName], Sequences]) -> Corpus:
        """The corpus of one kind from the sequences that ``get`` returns by name."""
        match kind:
            case "pairs":
                return Corpus(get("tagged_inputs"), get("outputs"))
            case "swapped pairs":
                return Corpus(get("tagged_outputs"), get("tagged_inputs"))
            case "outputs":
                return Corpus(None, get("all_outputs"))

    @property
    def size(self) -> int:
        return len(self.outputs.starts) - 1

    @property
    def fingerprint(self) -> str:
        """A short hash of every id: a training must resume with exactly the same data."""
        digest = hashlib.blake2b(digest_size=8)
        for sequences in (self.inputs, self.outputs):
            if sequences is not None:
                digest.update(sequences.starts.tobytes())
                for start in range(0, len(sequences.ids), WRITTEN_AT_ONCE):
                    digest.update(sequences.ids[start : start + WRITTEN_AT_ONCE].tobytes())
        return digest.hexdigest()


def _ids_file(stem: Path) -> Path:
    return stem.with_name(stem.name + ".ids")


def _lengths_file(stem: Path) -> Path:
    return stem.with_name(stem.name + ".lengths.npy")
