"""How much memory the models of a word task need on a CPU: training, resuming, and loading all of them to decode.

    python benchmarks/memory.py [--vocabulary 30000] [--updates 3] [--batch 32] [--k1 20] [--k2 10]

Writes made-up pairs (26 and 12 words on average, at most 50 and 25) with vocabularies of the given size. Trains the
paper's models of summarisation (direct and channel 1×256, LM 2×1024) for a few updates through ``noisychannel train``,
each by itself and all at once, resumes each, and decodes some lines with all three. Memory is that of all processes of
a command together: the proportional set size, in which shared pages count once, sampled ten times a second. The peak of
the largest process alone (VmHWM, which misses nothing) is beside it.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import torch

from noisychannel import __version__
from noisychannel.arguments import dump_config
from noisychannel.data.prepare import DataConfig
from noisychannel.text import TextConfig
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig

GIB = 1 << 20
"""In KiB, which /proc counts in."""
LINES, LONGEST_OUTPUT = 32, 26
"""Decoded in one batch. Models of a few updates do not know where an output ends."""
SECONDS_BETWEEN_SAMPLES = 0.1


def write_text(file: Path, lines: int, mean: int, most: int, words: int, prefix: str, rng: random.Random) -> str:
    """Every word occurs: the first lines list them, the others are drawn."""
    queue = [f"{prefix}{n}" for n in range(words)]
    rng.shuffle(queue)
    with file.open("w", encoding="utf-8") as stream:
        for _ in range(lines):
            length = min(most, max(1, round(rng.gauss(mean, mean / 3))))
            line = [queue.pop() if queue else f"{prefix}{rng.randrange(words)}" for _ in range(length)]
            stream.write(" ".join(line) + "\n")
    return str(file)


def make_config(directory: Path, options: argparse.Namespace) -> RunConfig:
    rng, words = random.Random(1), options.vocabulary
    files = {}
    for split, lines in (("train", words // 8), ("dev", 300)):
        files[split] = [write_text(directory / f"{split}.src", lines, 26, 50, words, "x", rng)]
        files[f"{split}_outputs"] = [write_text(directory / f"{split}.tgt", lines, 12, 25, words, "y", rng)]
    unpaired = [write_text(directory / "unpaired.txt", words // 4, 12, 25, words, "y", rng)]
    side = TextConfig(units="words", min_count=1, max_size=words)
    return RunConfig(
        run_dir=str(directory / "run"),
        device="cpu",
        data=DataConfig(**files, unpaired=unpaired, input=side, output=side),  # type: ignore[arg-type]
        direct=ModelConfig(hidden_size=256, bidirectional=True, dropout=0.2),
        channel=ModelConfig(hidden_size=256, dropout=0.2),
        lm=ModelConfig(hidden_size=1024, num_layers=2, dropout=0.5, learning_rate=1e-4),
        training=TrainingConfig(batch_size=options.batch, max_updates=options.updates),
    )


def processes(session: int) -> list[Path]:
    """The /proc directories of a session."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                found.append(directory)
        except OSError:
            continue
    return found


def kibibytes(file: Path, key: str) -> int:
    try:
        return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(f"{key}:"))
    except (OSError, StopIteration):
        return 0


def measure(title: str, *words: str, stdin: Path | None = None) -> None:
    """Run a command of noisychannel, and print its peak memory."""
    began, together, alone = time.perf_counter(), 0, 0
    with open(stdin or os.devnull, encoding="utf-8") as stream, tempfile.TemporaryFile() as messages:
        command = [sys.executable, "-m", "noisychannel", *words]
        process = subprocess.Popen(
            command, stdin=stream, stdout=subprocess.DEVNULL, stderr=messages, start_new_session=True
        )
        while process.poll() is None:
            own = processes(process.pid)
            together = max(together, sum(kibibytes(directory / "smaps_rollup", "Pss") for directory in own))
            alone = max([alone, *(kibibytes(directory / "status", "VmHWM") for directory in own)])
            time.sleep(SECONDS_BETWEEN_SAMPLES)
        if process.returncode:
            messages.seek(0)
            raise SystemExit(f"{title}: {messages.read().decode()}")
    seconds = time.perf_counter() - began
    print(f"| {title} | {together / GIB:.2f} | {alone / GIB:.2f} | {seconds:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--k1", type=int, default=20)
    parser.add_argument("--k2", type=int, default=10)
    options = parser.parse_args()
    print(
        f"noisychannel {__version__}, torch {torch.__version__}, {platform.machine()} CPU, {os.cpu_count()} cores, "
        f"{date.today()}: vocabularies of {options.vocabulary}, batches of {options.batch}, {options.updates} updates\n"
    )
    print("| command | all processes, GiB | largest process, GiB | seconds |")
    print("| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        config = make_config(directory, options)
        file = directory / "config.yaml"
        file.write_text(dump_config(config), encoding="utf-8")
        for role in ("direct", "channel", "lm"):
            measure(f"train {role}", "train", str(file), "--models", role)
        for role in ("direct", "channel", "lm"):
            more = str(2 * options.updates)
            measure(f"resume {role}", "train", str(file), "--models", role, f"--{role}.max_updates", more)
        measure("train all", "train", str(file), "--run_dir", str(directory / "all"))
        lines = directory / "lines.txt"
        lines.write_text("".join((directory / "dev.src").read_text().splitlines(keepends=True)[:LINES]))
        weights = ["--weights", "1,0.5,0.5,0"]
        beam = ["--k1", str(options.k1), "--k2", str(options.k2), "--max_length", str(LONGEST_OUTPUT)]
        run = str(directory / "all")
        measure(f"decode {LINES} lines with all three", "decode", run, *weights, *beam, stdin=lines)


if __name__ == "__main__":
    main()
