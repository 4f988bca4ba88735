"""Make the run that is part of the package: a small copy of a run that ``noisychannel fit`` made of German nouns.

    pip install --no-deps german-nouns
    noisychannel demo                       # writes runs/demo-data
    noisychannel fit runs/demo-data/train.tsv --words runs/demo-data/unpaired.txt --run-dir runs/nouns
    python tools/packaged_model.py runs/nouns runs/demo-data/test.tsv

The small models see the data of that run: 1,000 pairs, words that a reverse model gave inputs, and the list of words.
Only what decoding needs is copied: models in single precision, vocabularies, weights. The list of words is too large.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.fitting.plan import K1, K2
from noisychannel.packaged import PLACE
from noisychannel.reporting import Silent
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig, parse_config
from noisychannel.training.run import train_run
from noisychannel.tuning.run import TuneOptions, tune_run

MOST_BYTES = 1_000_000
DIRECT, CHANNEL, LM, EMBEDDING = 56, 56, 96, 32
"""Units of the models, and the size of the embeddings."""
SYSTEMS = ["direct+lm", "direct+channel+lm"]


def small(config: RunConfig, run_dir: Path) -> RunConfig:
    """The same training with small models."""
    return replace(
        config,
        run_dir=str(run_dir),
        direct=replace(config.direct, hidden_size=DIRECT, embedding_size=EMBEDDING, dropout=0.1),
        channel=replace(config.channel, hidden_size=CHANNEL, embedding_size=EMBEDDING, dropout=0.1),
        lm=replace(config.lm, hidden_size=LM, embedding_size=EMBEDDING, dropout=0.0, word_list=False),
    )


def copy(run: RunDirectory, place: Path) -> int:
    """Copy what decoding needs; the number of bytes."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in ("config.yaml", "run.json", "input.vocabulary.json", "output.vocabulary.json", "weights.json"):
        shutil.copy(run.path / name, place / name)
    for role in ("direct", "channel", "lm"):
        (place / role).mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(run.path / role / name, place / role / name)
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run that fit made of German nouns")
    parser.add_argument("test", type=Path, help="pairs that it has not seen, to measure the small run")
    options = parser.parse_args()
    place = options.run.with_name(f"{options.run.name}-small")
    train_run(small(parse_config(options.run / "config.yaml"), place), lambda event: None, print)
    run = RunDirectory.open(place)
    tune_run(run, TuneOptions(systems=SYSTEMS), SearchSettings(k1=K1, k2=K2), Silent())
    size = copy(run, PLACE)
    if size > MOST_BYTES:
        print(f"{PLACE}: {size:,} bytes are more than {MOST_BYTES:,}", file=sys.stderr)
        return 1
    table = evaluate_run(
        RunDirectory.open(PLACE), EvaluateOptions(file=str(options.test), baselines=["identity", "rules"]), Silent()
    )
    print(f"{table.table()}\n{size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
