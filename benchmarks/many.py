"""Many small models at once: one after the other, in several processes, or together as one batched model?

    python benchmarks/many.py [--device cpu|cuda] [--role direct|lm] [--models 8] [--jobs 1 2] [--together] [--epochs 2]

Trains one model for each of several made-up inflection types through ``noisychannel train``: a direct model
(bidirectional, 1×128, batches of 20 from 2,364 pairs, the paper's inflection setting) or a language model (2×512,
batches of 128 from 20,000 forms), with different ``jobs`` and, on a GPU, together (``training.cuda_graphs``). Prints
wall-clock seconds of a short and a long training: their difference is free of starting processes and capturing graphs.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import tempfile
import time
from datetime import date
from pathlib import Path

import torch

from noisychannel import __version__
from noisychannel.data.prepare import DataConfig
from noisychannel.models.registry import Role
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.run import train_run

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß"
LEMMAS, FORMS = 2364, 20_000
MORE = 8
"""Times as many epochs together: they are short."""


def write_types(directory: Path, models: int, forms: int) -> DataConfig:
    rng = random.Random(1)

    def rows(lemmas: int) -> str:
        words = ["".join(rng.choices(LETTERS, k=rng.randint(4, 16))) for _ in range(lemmas)]
        return "".join(f"{w}\t{w}{LETTERS[m % 26]}n\ttype{m}\n" for w in words for m in range(models))

    for name, lemmas in (("train", LEMMAS), ("dev", 200), ("unpaired", forms)):
        (directory / f"{name}.tsv").write_text(rows(lemmas), encoding="utf-8")
    return DataConfig(
        train=[str(directory / "train.tsv")], dev=[str(directory / "dev.tsv")], columns="input,output,group",
        unpaired=[str(directory / "unpaired.tsv")], unpaired_columns="-,output,group",
    )  # fmt: skip


def seconds(data: DataConfig, role: Role, jobs: int | None, epochs: int, device: str, directory: Path) -> float:
    """From start to end; together where there are no jobs."""
    run_dir = directory / f"run-{jobs}-{epochs}"
    config = RunConfig(
        run_dir=str(run_dir), models=[role], jobs=jobs, device=device, data=data,
        direct=ModelConfig(hidden_size=128, bidirectional=True, dropout=0.5),
        lm=ModelConfig(hidden_size=512, num_layers=2, dropout=0.5, batch_size=128),
        training=TrainingConfig(batch_size=20, max_epochs=epochs, patience=epochs, cuda_graphs=jobs is None),
    )  # fmt: skip
    began = time.perf_counter()
    train_run(config, listen=lambda event: None, say=lambda line: None)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--role", choices=("direct", "lm"), default="direct")
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--jobs", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--together", action="store_true")
    parser.add_argument(
        "--epochs", type=int, default=2, help="of the short training; the long one has three times as many"
    )
    options = parser.parse_args()
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()} CPU"
    print(
        f"noisychannel {__version__}, torch {torch.__version__}, {machine}, {os.cpu_count()} cores, {date.today()}: "
        f"{options.models} {options.role} models, {options.epochs} and {3 * options.epochs} epochs\n"
    )
    print("| jobs | seconds, short | seconds, long | seconds an epoch | × the first |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        data = write_types(Path(name), options.models, FORMS if options.role == "lm" else 1)
        first = None
        if options.together:  # compiles the kernels
            seconds(data, options.role, None, 1, options.device, Path(name) / "first")
        for jobs in [*options.jobs, *([None] if options.together else [])]:
            epochs = options.epochs * (1 if jobs else MORE)
            short, long = (
                seconds(data, options.role, jobs, n, options.device, Path(name)) for n in (epochs, 3 * epochs)
            )
            epoch = (long - short) / (2 * epochs)
            first = first or epoch
            print(
                f"| {jobs or 'together'} | {short:.1f} | {long:.1f} | {epoch:.3f} | {first / epoch:.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
