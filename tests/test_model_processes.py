"""Copies of a process that decode: the same outputs, errors and refusals as without them, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from noisychannel import NoisyChannel
from noisychannel.data.files import BadLine, Line
from noisychannel.decode.memory import SearchTooLargeError
from noisychannel.decoded_line import DecodedLine
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.model_processes import ModelProcesses
from noisychannel.outputs import Output
from noisychannel.runs import RunDirectory
from noisychannel.streams import LineDecoder, StreamOptions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux only")

WORDS = ["Haus", "Apfelbaum", "Ei", "Lehrerin", "Straße", "Uhr", "Krankenhaus", "Tag", "Wort"]


@pytest.fixture(scope="module")
def model() -> NoisyChannel:
    return NoisyChannel.load("demo", device="cpu")


def decoded(
    model: NoisyChannel, processes: int, texts: list[str] = WORDS
) -> tuple[list[list[Output]], dict[int, SearchTooLargeError]]:
    refused: dict[int, SearchTooLargeError] = {}
    with ModelProcesses(model, processes) as copies:
        outputs = copies.batch(texts, 2, [[] for _ in texts], 2, True, refused.__setitem__, True)
    return outputs, refused


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_outputs_are_the_same_and_no_process_is_left(model: NoisyChannel) -> None:
    before = children()
    assert decoded(model, 2) == decoded(model, 1) == (model.batch(WORDS, 2, batch_size=2), {})
    assert children() == before


def test_processes_that_are_not_forked_load_the_models_again(
    model: NoisyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisychannel.model_processes.sys", SimpleNamespace(platform="darwin"))
    assert ModelProcesses(model).processes == ModelProcesses(model, 2).processes == 1, "nothing to load"
    load = partial(NoisyChannel.load, "demo", device="cpu")
    assert ModelProcesses(model, None, load).processes == 1, "they take long to start, so one must ask for them"
    with ModelProcesses(model, 2, load) as copies:
        found = copies.batch(WORDS, 2, [[] for _ in WORDS], 2, True, lambda place, reason: None, True)
        with pytest.raises(ValueError, match="n_best"):
            copies.batch(WORDS, 0, [[] for _ in WORDS], 2, False, lambda place, reason: None, False)
        made = {str(copy.process) for copy in copies._copies}
        assert len(made) == 2
        assert made <= set(children())
    assert found == model.batch(WORDS, 2, batch_size=2)
    assert not made & set(children())


def test_a_process_decodes_as_this_one_though_the_run_was_tuned_again(
    model: NoisyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisychannel.model_processes.sys", SimpleNamespace(platform="darwin"))
    other = model.reweighted(replace(model.weights, length=-3.0), replace(model.settings, k1=4, k2=2))
    expected = other.batch(WORDS, 2, batch_size=5)
    assert expected != model.batch(WORDS, 2, batch_size=5)
    with ModelProcesses(other, 5, partial(NoisyChannel.load, "demo", device="cpu")) as copies:
        found = copies.batch(WORDS, 2, [[] for _ in WORDS], 5, True, lambda place, reason: None, False)
        assert len(copies._copies) == 2, "one for each batch"
    assert found == expected


def test_a_process_that_cannot_load_the_models_says_why(
    model: NoisyChannel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("noisychannel.model_processes.sys", SimpleNamespace(platform="darwin"))
    lost = str(tmp_path / "lost")
    with pytest.raises(NoisyChannelError) as why:
        NoisyChannel.load(lost)
    with (
        ModelProcesses(model, 2, partial(NoisyChannel.load, lost)) as copies,
        pytest.raises(type(why.value), match=re.escape(str(why.value))),
    ):
        copies.batch(WORDS, 1, [[] for _ in WORDS], 2, False, lambda place, reason: None, False)


def test_an_input_that_fits_only_here_is_decoded_here_and_one_that_fits_nowhere_is_refused(model: NoisyChannel) -> None:
    # The whole memory is enough for the longest of these words, half of it is not.
    needed = model.decoder._budget(1).needed(1 + len("Krankenhaus")) * 5 / 4 / 2**30
    small = model.reweighted(model.weights, replace(model.settings, memory=1.3 * needed), model.confidence)
    half = model.reweighted(model.weights, replace(model.settings, memory=0.65 * needed), model.confidence)
    assert decoded(half, 1)[1].keys() >= {WORDS.index("Krankenhaus")}
    assert decoded(small, 2) == decoded(model, 1)
    texts = [*WORDS, "a" * 400]
    outputs, refused = decoded(small, 2, texts)
    assert outputs[:-1] == decoded(model, 1)[0]
    assert outputs[-1] == []
    assert list(refused) == [len(WORDS)]


def test_an_error_of_a_copy_is_raised_here(model: NoisyChannel) -> None:
    with ModelProcesses(model, 2) as copies, pytest.raises(ValueError, match="n_best"):
        copies.batch(WORDS, 0, [[] for _ in WORDS], 2, False, lambda place, reason: None, False)


def test_a_copy_that_was_killed_is_reported(model: NoisyChannel) -> None:
    with ModelProcesses(model, 2) as copies:
        copies.batch(WORDS, 1, [[] for _ in WORDS], 2, False, lambda place, reason: None, False)
        for copy in copies._copies:
            os.kill(copy.process, signal.SIGKILL)
        with pytest.raises(NoisyChannelError, match="--jobs 1"):
            copies.batch(WORDS, 1, [[] for _ in WORDS], 2, False, lambda place, reason: None, False)


def test_copies_end_with_their_parent(model: NoisyChannel) -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            copies = ModelProcesses(model, 2)
            copies._start(2)
            os.write(writing, " ".join(str(copy.process) for copy in copies._copies).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    found = [Path("/proc") / process / "stat" for process in os.read(reading, 100).decode().split()]
    os.waitpid(parent, 0)
    assert len(found) == 2
    deadline = time.monotonic() + 20
    while any(stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z" for stat in found):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_works_that_were_begun_together_keep_their_own_outputs_and_errors(model: NoisyChannel) -> None:
    with ModelProcesses(model, 2) as copies:
        bad, good = (copies.begin(WORDS, n_best, [[]] * len(WORDS), 2, False, False) for n_best in (0, 1))
        with pytest.raises(ValueError, match="n_best"):
            copies.finish(bad, lambda place, reason: None)
        found = copies.finish(good, lambda place, reason: None)
    assert found == model.batch(WORDS, 1, batch_size=2, align=False, confident=False)


def read_with_an_error(lines: Iterable[Line | BadLine]) -> Iterator[Line | BadLine]:
    yield from lines
    raise BadInputError("this file cannot be read")


def test_lines_that_are_read_ahead_are_reported_with_their_own_chunk(
    model: NoisyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisychannel.streams.BATCHES_AT_ONCE", 2)
    lines: list[Line | BadLine] = [Line(word, Path("words"), n) for n, word in enumerate(WORDS, start=1)]
    lines[2:2], lines[9:9] = (
        [Line("a\tb", Path("words"), 20)],
        [BadLine("words:21: not text", 21), Line("", Path("words"), 22)],
    )

    def chunks(processes: int, ahead: bool) -> list[tuple[list[DecodedLine], int, str]]:
        found, said = [], list[str]()
        with ModelProcesses(model, processes) as copies:
            data = RunDirectory.open(Path("demo")).data_config
            decoder = LineDecoder(model, data, StreamOptions(batch_size=2), said.append, processes=copies)
            decoding = decoder.decode_chunks(read_with_an_error(lines), ahead=ahead)
            for chunk in islice(decoding, 3):
                found.append((chunk.lines, chunk.read, f"{decoder.refused.number} {said} {decoder.remarks}"))
            with pytest.raises(BadInputError, match="cannot be read"):
                next(decoding)
        return found

    expected = chunks(1, ahead=False)
    assert [read for _, read, _ in expected] == [4, 4, 4]
    assert expected[0][2] != expected[2][2]
    assert chunks(2, ahead=False) == chunks(2, ahead=True) == expected
