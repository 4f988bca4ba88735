"""Make the run that is part of the package: small models that write dative plurals of German nouns.

    pip install --no-deps german-nouns
    python tools/packaged_model.py

The nouns are those of the PyPI package german-nouns (CC BY-SA 4.0): 20,000 pairs, 300 each for dev and test, and
all other dative plurals as unpaired outputs. Only what decoding needs is copied: models, vocabularies, weights.
The counts of the pairs (seen.safetensors) would be five times as large as all of that.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from noisychannel.data.german_nouns import write_dative_plurals
from noisychannel.data.prepare import DataConfig
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.fitting.rules import K1, K2
from noisychannel.packaged import PLACE
from noisychannel.reporting import Silent
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.run import train_run
from noisychannel.tuning.run import TuneOptions, tune_run

MOST_BYTES = 1_000_000
PAIRS = 20_000
SYSTEMS = ["direct+lm", "direct+channel+lm"]


def make_config(place: Path) -> RunConfig:
    """Models of about 800 kB together, trained on the nouns."""
    nouns = write_dative_plurals(place / "nouns", PAIRS)
    small = ModelConfig(hidden_size=56, embedding_size=32, dropout=0.1, copy=True)
    return RunConfig(
        run_dir=str(place / "run"),
        data=DataConfig(train=[str(nouns.train)], dev=[str(nouns.dev)], unpaired=[str(nouns.unpaired)]),
        direct=replace(small, bidirectional=True),
        channel=small,
        lm=ModelConfig(hidden_size=96, embedding_size=32, dropout=0.0),
        training=TrainingConfig(batch_size=64, max_updates=6_000, learning_rate=4e-3, schedule="linear"),
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
    forget_absent(place / "run.json")
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def forget_absent(header_file: Path) -> None:
    """Let run.json keep checksums only of the files beside it: one that is recorded must be there."""
    header = json.loads(header_file.read_text(encoding="utf-8"))
    header["files"] = {name: sum_ for name, sum_ in header["files"].items() if (header_file.parent / name).exists()}
    header_file.write_text(json.dumps(header, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/packaged"), help="where the training goes")
    config = make_config(parser.parse_args().work)
    train_run(config, lambda event: None, print)
    run = RunDirectory.open(Path(config.run_dir))
    tune_run(run, TuneOptions(systems=SYSTEMS), SearchSettings(k1=K1, k2=K2), Silent())
    size = copy(run, PLACE)
    if size > MOST_BYTES:
        print(f"{PLACE}: {size:,} bytes are more than {MOST_BYTES:,}", file=sys.stderr)
        return 1
    test = str(Path(config.run_dir).with_name("nouns") / "test.tsv")
    table = evaluate_run(
        RunDirectory.open(PLACE), EvaluateOptions(file=test, baselines=["identity", "rules"]), Silent()
    )
    print(f"{table.table()}\n{size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
