"""Copies of a process that decode: the same outputs, errors and refusals as without them, and nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel import NoisyChannel
from noisychannel.decode.memory import SearchTooLargeError
from noisychannel.errors import NoisyChannelError
from noisychannel.model_processes import ModelProcesses
from noisychannel.outputs import Output

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
        copies = ModelProcesses(model, 2)
        copies._start()
        os.write(writing, " ".join(str(copy.process) for copy in copies._copies).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    found = [Path("/proc") / process / "stat" for process in os.read(reading, 100).decode().split()]
    os.waitpid(parent, 0)
    assert len(found) == 2
    deadline = time.monotonic() + 20
    while any(stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z" for stat in found):
        assert time.monotonic() < deadline
        time.sleep(0.05)
