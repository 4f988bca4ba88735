"""Sequences of ids on disk, against plain lists."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel.data import corpus as corpus_module
from noisychannel.data.corpus import WRITTEN_AT_ONCE, Corpus, Sequences, SequenceWriter
from noisychannel.errors import NoisyChannelError

Lists = list[list[int]]
Pairs = list[tuple[list[int], list[int]]]
some_lists = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), max_size=12)
few_ids = st.lists(st.integers(0, 2), min_size=1, max_size=2)
few_pairs = st.lists(st.tuples(few_ids, few_ids), min_size=1, max_size=3)


def write(stem: Path, lists: Lists) -> Sequences:
    writer = SequenceWriter(stem)
    for ids in lists:
        writer.append(ids)
    return writer.close()


def as_lists(sequences: Sequences) -> Lists:
    return [sequences[n].tolist() for n in range(len(sequences.starts) - 1)]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(lists=some_lists, written_at_once=st.integers(1, 15))
def test_what_is_written_is_read_back_whatever_is_written_at_once(lists: Lists, written_at_once: int) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "WRITTEN_AT_ONCE", written_at_once)
        stem = Path(directory) / "train.inputs"
        closed = write(stem, lists)
        assert as_lists(closed) == as_lists(Sequences.open(stem)) == as_lists(Sequences.of(lists)) == lists
        assert closed.lengths.tolist() == [len(ids) for ids in lists]


def test_a_long_corpus_is_written_in_several_pieces(tmp_path: Path) -> None:
    rng = random.Random(1)
    lists = [[rng.randrange(40_000) for _ in range(rng.randrange(20_000))] for _ in range(60)]
    assert sum(map(len, lists)) > 2 * WRITTEN_AT_ONCE
    assert as_lists(write(tmp_path / "long", lists)) == lists


def test_ids_are_written_before_all_are_gathered(tmp_path: Path) -> None:
    writer = SequenceWriter(tmp_path / "train")
    for _ in range(3):
        writer.append([7] * WRITTEN_AT_ONCE)
    on_disk = (tmp_path / "train.ids").stat().st_size
    writer.close()
    assert on_disk >= 2 * WRITTEN_AT_ONCE * np.dtype(np.int32).itemsize


def test_a_corpus_without_sequences(tmp_path: Path) -> None:
    sequences = write(tmp_path / "empty", [])
    assert as_lists(sequences) == []
    assert sequences.lengths.tolist() == []
    assert Corpus(None, sequences).size == 0
    assert len(Corpus(None, sequences).fingerprint) == 16


def test_sequences_without_ids(tmp_path: Path) -> None:
    sequences = write(tmp_path / "blank", [[], [], []])
    assert as_lists(sequences) == [[], [], []]
    assert Corpus(sequences, sequences).size == 3


def test_an_open_corpus_is_mapped_and_cannot_be_changed(tmp_path: Path) -> None:
    sequences = write(tmp_path / "train", [[1, 2], [3]])
    assert isinstance(sequences.ids, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        sequences[0][0] = 9


def test_lengths_of_some_rows() -> None:
    sequences = Sequences.of([[1, 2, 3], [], [4], [5, 6]])
    assert sequences.lengths_of(np.array([3, 0, 1, 3])).tolist() == [2, 3, 0, 2]


def test_names_with_dots_do_not_meet(tmp_path: Path) -> None:
    first, second = write(tmp_path / "train.inputs", [[1]]), write(tmp_path / "train.outputs", [[2, 3]])
    assert (as_lists(first), as_lists(second)) == ([[1]], [[2, 3]])


def test_writing_again_replaces_the_old_sequences(tmp_path: Path) -> None:
    write(tmp_path / "train", [[1, 2, 3], [4]])
    write(tmp_path / "train", [[5]])
    assert as_lists(Sequences.open(tmp_path / "train")) == [[5]]


# --- fingerprints


def fingerprint(inputs: Lists | None, outputs: Lists) -> str:
    return Corpus(None if inputs is None else Sequences.of(inputs), Sequences.of(outputs)).fingerprint


def test_a_fingerprint_notices_every_change() -> None:
    corpora: list[tuple[Lists | None, Lists]] = [
        ([[4, 5], [6]], [[7], [8, 9]]),
        ([[4, 5], [6]], [[7], [8, 10]]),
        ([[4, 5], [7]], [[7], [8, 9]]),
        ([[4], [5, 6]], [[7], [8, 9]]),
        ([[6], [4, 5]], [[8, 9], [7]]),
        ([[7], [8, 9]], [[4, 5], [6]]),
        ([[4, 5]], [[7]]),
        ([[4, 5], [6], []], [[7], [8, 9], []]),
        (None, [[7], [8, 9]]),
        (None, [[4, 5], [6]]),
    ]
    assert len({fingerprint(*corpus) for corpus in corpora}) == len(corpora)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(one=few_pairs, other=few_pairs, paired=st.tuples(st.booleans(), st.booleans()))
def test_fingerprints_are_equal_where_corpora_are(one: Pairs, other: Pairs, paired: tuple[bool, bool]) -> None:
    corpora = [
        ([x for x, _ in pairs] if with_inputs else None, [y for _, y in pairs])
        for pairs, with_inputs in zip((one, other), paired, strict=True)
    ]
    assert (fingerprint(*corpora[0]) == fingerprint(*corpora[1])) == (corpora[0] == corpora[1])


def test_a_fingerprint_is_the_same_on_disk_and_in_memory_and_however_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = [[n, 2 * n, 2] for n in range(50)]
    on_disk = Corpus(write(tmp_path / "x", lists), write(tmp_path / "y", lists[::-1])).fingerprint
    assert on_disk == fingerprint(lists, lists[::-1])
    monkeypatch.setattr(corpus_module, "WRITTEN_AT_ONCE", 7)
    assert on_disk == fingerprint(lists, lists[::-1])


def test_a_fingerprint_reaches_the_last_id_of_a_long_corpus() -> None:
    ids = [5] * (WRITTEN_AT_ONCE + 10)
    assert fingerprint(None, [ids]) != fingerprint(None, [[*ids[:-1], 6]])


# --- a disk that is full


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("ids", [3, WRITTEN_AT_ONCE + 1], ids=["at the end", "on the way"])
def test_a_full_disk_is_named(tmp_path: Path, ids: int) -> None:
    (tmp_path / "train.ids").symlink_to("/dev/full")
    with pytest.raises(NoisyChannelError, match=r"train\.ids: cannot be written \(No space left on device\)"):
        write(tmp_path / "train", [[7] * ids])


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoisyChannelError, match=r"train\.ids: cannot be written \(No such file or directory\)"):
        SequenceWriter(tmp_path / "nowhere" / "train")


@pytest.mark.parametrize("name", ["it.ids", "it.lengths.npy"])
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-4])])
def test_damaged_sequences_are_named(tmp_path: Path, name: str, damage: Callable[[Path], object]) -> None:
    write(tmp_path / "it", [[4, 5, 2]])
    damage(tmp_path / name)
    with pytest.raises(NoisyChannelError, match=r"it: damaged \(.*\); repeat the command to write it again"):
        Sequences.open(tmp_path / "it")
