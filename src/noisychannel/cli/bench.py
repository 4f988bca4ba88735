"""``noisychannel bench``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from noisychannel.arguments import parse_options
from noisychannel.atomic import write_text
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError
from noisychannel.run_files import run_that_owns

USAGE = """usage: noisychannel bench [--suites loss,train,decode] [--device auto] [--output FILE]

Measure this machine, with random weights, and print the tables in Markdown, with date, versions and hardware.

loss      time and peak memory of the loss, against the materialised joint, torchaudio's rnnt_loss and plain softmax
train     a training step of an SSNT against one of the attention baseline of the same size
decode    sentences per second of the search, direct and full, in each precision, and how its cost grows

example:
  noisychannel bench --suites loss,decode --output bench.md
"""

SUITES = ("loss", "train", "decode")


@dataclass(kw_only=True)
class BenchOptions:
    """Options of bench.

    Args:
        suites: Which of loss, train and decode.
        device: auto takes a GPU if there is one.
        output: Also write the tables there.
    """

    suites: list[str] = field(default_factory=lambda: list(SUITES))
    device: str = "auto"
    output: str | None = None


def run(words: list[str]) -> int:
    options = parse_options(BenchOptions, words, (), USAGE)
    if not options.suites or len(set(options.suites)) < len(options.suites):
        raise BadInputError(f"--suites: name each suite once; the suites are {', '.join(SUITES)}")
    for suite in options.suites:
        if suite not in SUITES:
            raise BadInputError(f"--suites: unknown suite {suite!r}; the suites are {', '.join(SUITES)}")
    if options.output is not None and (Path(options.output).is_dir() or not Path(options.output).parent.is_dir()):
        raise BadInputError(f"--output: {options.output} cannot be a file; name one in an existing directory")
    if options.output is not None and (owner := run_that_owns(Path(options.output))) is not None:
        raise BadInputError(f"--output: {options.output} is a file of the run {owner}; name another file")
    device = choose_device(options.device).type
    lines: list[str] = []
    for suite in options.suites:
        for line in chain([""] if lines else [], _report(suite, device)):
            lines.append(line)
            print(line, flush=True)
    if options.output is not None:
        write_text(Path(options.output), "\n".join(lines) + "\n")
    return 0


def _report(suite: str, device: str) -> Iterator[str]:
    from noisychannel.bench import decode, loss, train

    if suite == "loss":
        return loss.report(device)
    if suite == "train":
        return train.report(device)
    if device == "cpu":  # where TF32 is as exact as anything, and a large vocabulary takes long
        return decode.DecodeBench(device=device, parts=("rates", "growth")).report()
    names = ("characters", "words", "words-30k", "headlines")
    return chain(
        decode.DecodeBench(device=device, parts=("rates", "precision"), settings=names, batches=(1, 64)).report(),
        decode.DecodeBench(device=device, parts=("growth",)).report(),
    )
