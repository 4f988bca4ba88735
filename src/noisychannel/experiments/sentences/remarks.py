"""What an experiment on sentences says about its data, before it trains: what is left out, and how often it is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from noisychannel.experiments.design import Design
from noisychannel.experiments.sentences.pairs import SentenceData, short_pairs
from noisychannel.training.config import RunConfig


def data_remarks(data: SentenceData) -> list[str]:
    """What became of the data, a line each: what is left out, and the test sets."""
    kept = {"train": len(data.train), "valid": len(data.valid), "unpaired": len(data.unpaired)}
    names = {"train": "training pairs", "valid": "dev pairs", "unpaired": "unpaired outputs"}
    counts = [f"{n:,} of {kept[key] + n:,} {names[key]}" for key, n in data.dropped.items() if n]
    if longer := len(data.valid) - len(short_pairs(data.valid, *data.longest)):
        counts.append(f"{longer:,} of {len(data.valid):,} dev pairs (from early stopping; weights are tuned on all)")
    inputs, outputs = data.longest
    unit = "characters" if data.characters else "words"
    lines = [f"left out, because longer than {inputs} {unit} or {outputs} words: {', '.join(counts)}"] if counts else []
    if data.characters:
        lines.append("the training inputs are not segmented into words, so the symbols of inputs are characters")
    lines.append(f"test sets: {', '.join(f'{name} ({len(items):,})' for name, items in data.tests.items())}")
    return lines


def name_remarks(design: Design, share: float) -> list[str]:
    """What the numbers of pairs and outputs in the names of rows stand for, if they are multiplied by ``share``."""
    numbers = sorted({n for row in design.rows for n in (row.pairs, row.unpaired) if n})
    meant = ", ".join(f"{n:,} stands for {round(n * share):,}" for n in numbers)
    return [f"in names of rows, {meant}"] if numbers and share != 1 else []


def passes_remark(runs: Iterable[tuple[RunConfig, int]]) -> str:
    """How often each run with one model can read its data. With each run, how many pairs or outputs it has."""
    passes = []
    for config, amount in runs:
        (role,) = config.models
        batch = config.model(role).batch_size or config.training.batch_size
        most = config.limits(role).updates * batch / max(1, amount)
        passes.append(f"{Path(config.run_dir).name} {most:.1f}")
    return f"passes over the training data, at most: {', '.join(passes)}"
