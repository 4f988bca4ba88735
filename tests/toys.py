"""Toy transductions on short random strings: small enough to learn in seconds, real enough to fail."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

from noisychannel.data.prepare import DataConfig
from noisychannel.models.registry import Role
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig

LETTERS = "abdeiklmou"
VOWELS = set("aeiou")


def copy(x: str) -> str:
    return x


def reverse(x: str) -> str:
    return x[::-1]


def double_vowels(x: str) -> str:
    return "".join(c * 2 if c in VOWELS else c for c in x)


def write_pairs(file: Path, task: Callable[[str], str], rows: int, seed: int, longest: int = 6) -> Path:
    """Tab-separated pairs of a task."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(1, longest))) for _ in range(rows)]
    file.write_text("".join(f"{x}\t{task(x)}\n" for x in words), encoding="utf-8")
    return file


def toy_config(
    directory: Path,
    task: Callable[[str], str] = double_vowels,
    rows: int = 300,
    models: tuple[Role, ...] = ("direct",),
    longest: int = 6,
    bidirectional: bool = False,
    **training: object,
) -> RunConfig:
    """A run on a toy task: one process, small models, no dropout."""
    directory.mkdir(parents=True, exist_ok=True)
    model = ModelConfig(hidden_size=32, dropout=0.0)
    settings: dict[str, object] = {"batch_size": 25, "max_epochs": 3, "learning_rate": 0.01, "log_every": 5}
    chosen = TrainingConfig(**{**settings, **training})  # type: ignore[arg-type]
    if chosen.evaluate_every is None:  # an epoch, however short
        chosen.evaluate_every = math.ceil(math.ceil(rows / chosen.batch_size) / chosen.accumulate)
    return RunConfig(
        run_dir=str(directory / "run"),
        models=list(models),
        jobs=1,
        device="cpu",
        data=DataConfig(
            train=[str(write_pairs(directory / "train.tsv", task, rows, seed=1, longest=longest))],
            dev=[str(write_pairs(directory / "dev.tsv", task, 60, seed=2, longest=longest))],
        ),
        direct=ModelConfig(hidden_size=32, dropout=0.0, bidirectional=bidirectional),
        channel=model,
        lm=model,
        training=chosen,
    )


def tag(config: RunConfig, features: str) -> None:
    """Give every pair of a toy task these features."""
    for file in map(Path, (*config.data.train, *config.data.dev)):
        file.write_text("".join(f"{line}\t{features}\n" for line in file.read_text().splitlines()))
    config.data.columns = "sigmorphon2017"
