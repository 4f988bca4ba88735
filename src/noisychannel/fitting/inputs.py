"""Inputs for words: a reverse model reads an output and writes the input that it may have come from.

The pairs of such an input and its word are further training pairs. The words are decoded in pieces, each of which is
written when it is done, so that an interrupted work is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from noisychannel.atomic import write_text
from noisychannel.data.codec import Codec
from noisychannel.data.files import read_lines
from noisychannel.data.rows import Row
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.devices import choose_device
from noisychannel.errors import NoisyChannelError
from noisychannel.fitting.drawing import draw_outputs
from noisychannel.fitting.tagging import Analysis, TagSymbols
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.processes import BOUND, kill_children
from noisychannel.training.jobs import choose_processes

SEARCH = SearchSettings(k1=4, k2=2)
PIECE = 500
"""Words that are decoded by one task."""
BATCH = 128
LEAST_CONFIDENCE = math.log(0.35)
"""An input is left out if its symbols are less probable than this on (geometric) average."""


@dataclass(frozen=True)
class InputTask:
    """Some words that a reverse model gives inputs to. A process can be told to do it."""

    run: str
    """The reverse run."""
    words: tuple[Row, ...]
    file: str
    """Where the inputs go: a line for each word, empty if its input is left out."""
    device: str
    threads: int
    seed: int | None = None
    """With which the inputs are drawn; None: the most probable ones are taken."""

    @property
    def done(self) -> bool:
        return Path(self.file).exists()

    def work(self) -> None:
        torch.set_num_threads(self.threads)
        model = NoisyChannel.load(self.run, None, Weights(direct=1.0), SEARCH, self.device, ["direct"])
        inputs = self._found(model) if self.seed is None else self._drawn(model, self.seed)
        lines = [text if text.strip() and "\n" not in text else "" for text in inputs]
        write_text(Path(self.file), "".join(f"{line}\n" for line in lines))

    def _drawn(self, model: NoisyChannel, seed: int) -> list[str]:
        return draw_outputs(model, [word.output for word in self.words], seed)

    def _found(self, model: NoisyChannel) -> list[str]:
        """The most probable inputs; empty where the model is not sure."""
        decoded = model.batch(
            [word.output for word in self.words], 1, [word.features for word in self.words], BATCH, align=False
        )
        texts = []
        for best in decoded:
            text, hypothesis = best[0]
            sure = hypothesis.direct / hypothesis.length >= LEAST_CONFIDENCE
            texts.append(text if hypothesis.complete and sure else "")
        return texts


def choose_words(words: Sequence[Row], train: Sequence[Row], wanted: int, tagged: bool, seed: int) -> list[Row]:
    """So many of the words, drawn with the seed, without those that are outputs of training pairs already."""
    drawn = list(words) if len(words) <= wanted else Random(seed).sample(list(words), wanted)
    known = {(row.output, row.features if tagged else ()) for row in train}
    return [word for word in drawn if (word.output, word.features if tagged else ()) not in known]


def make_tasks(
    run: Path, words: Sequence[Row], directory: Path, tagged: bool, device: str, drawn: bool = False
) -> list[InputTask]:
    """The tasks of one reverse run. ``drawn``: draw the inputs; the same ones every time."""
    directory.mkdir(parents=True, exist_ok=True)
    asked = [word if tagged else word._replace(features=()) for word in words]
    return [
        InputTask(
            run=str(run),
            words=tuple(asked[start : start + PIECE]),
            file=str(directory / f"{start:07d}.txt"),
            device=device,
            threads=1,
            seed=start + 1 if drawn else None,
        )
        for start in range(0, len(asked), PIECE)
    ]


def do_tasks(tasks: Sequence[InputTask], jobs: int | None, advance: Callable[[float], None]) -> None:
    """Do all tasks that are not done, several at a time on a CPU."""
    waiting = [task for task in tasks if not task.done]
    if not waiting:
        return
    where = choose_device(waiting[0].device)
    processes = 1 if where.type == "cuda" else choose_processes(len(waiting), where, jobs)
    if processes == 1:
        before = torch.get_num_threads()
        try:
            for n, task in enumerate(waiting):
                task.work()
                advance((n + 1) / len(waiting))
        finally:
            torch.set_num_threads(before)
        return
    with ProcessPoolExecutor(processes, BOUND) as pool:
        futures = [pool.submit(task.work) for task in waiting]
        try:
            for n, future in enumerate(as_completed(futures)):
                future.result()
                advance((n + 1) / len(waiting))
        except BrokenProcessPool as error:
            raise NoisyChannelError(
                "a decoding process was killed, perhaps because memory ran out; repeat with a smaller --jobs"
            ) from error
        except KeyboardInterrupt:
            kill_children()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def collect(tasks: Sequence[InputTask], codec: Codec, tags: TagSymbols | None = None) -> list[Row]:
    """The pairs of all tasks. ``codec``: that of the inputs; an input with a symbol that it lacks is left out.

    ``tags``: those that were written before the inputs.
    """
    pairs: list[Row] = []
    for task in tasks:
        inputs = [line.text for line in read_lines(Path(task.file))]
        if len(inputs) != len(task.words):
            raise NoisyChannelError(f"{task.file}: damaged; remove it, then repeat the command")
        for text, word in zip(inputs, task.words, strict=True):
            found = Analysis(text, word.features) if tags is None else tags.read(text)
            if found is not None and found.input and not codec.unknown(found.input).symbols:
                pairs.append(word._replace(input=found.input, features=found.features, further=()))
    return pairs
