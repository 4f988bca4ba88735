"""A peer on the same task: yoyodyne's models on the German inflection of Durrett & DeNero (2013).

    python benchmarks/peers/yoyodyne_inflection.py --part noun [--joint] [--jobs 8] [--out nouns.json]

Trains one model over characters for each inflection type and architecture (``--joint``: one for all types, which are
then yoyodyne's features), the size of our direct model: a bidirectional encoder and a decoder of one layer of 128
units, dropout 0.5. Scores are exact match of the forms, in per cent, decoded greedily (hard attention has no other
search there), with the weights of the epoch that had the best dev accuracy, the first of equals. ``README.md`` beside
this file says how to install yoyodyne.
"""

from __future__ import annotations

import argparse
import json
import logging
import lzma
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader
from yoyodyne.data import DataModule, Mapper
from yoyodyne.models import BaseModel, HardAttentionLSTMModel, SoftAttentionLSTMModel
from yoyodyne.models.modules import LinearEncoder, LSTMEncoder
from yoyodyne.optimizers import Adam

ARCHITECTURES = {
    "attentive_lstm": SoftAttentionLSTMModel,
    # Exact hard monotonic attention, of order zero (Wu & Cotterell 2019).
    "hard_attention_lstm": partial(HardAttentionLSTMModel, enforce_monotonic=True),
}
SPLITS = ("train", "dev", "test")
FEATURE_SEPARATOR = ":"
ALL = "all types"

Row = tuple[str, str, str]
"""Lemma, form, inflection type."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every model has in common."""

    hidden_size: int = 128
    embedding_size: int = 128
    num_layers: int = 1
    bidirectional: bool = True
    dropout: float = 0.5
    learning_rate: float = 1e-3
    clip_norm: float = 1.0
    batch_size: int
    max_epochs: int
    patience: int
    max_minutes: float | None
    joint: bool
    max_pairs: int | None


@dataclass(frozen=True)
class Job:
    """One model to be trained."""

    architecture: str
    name: str
    """The inflection type, or ALL."""
    rows: dict[str, list[Row]]
    settings: Settings
    seed: int
    device: str


def read_rows(path: Path) -> list[Row]:
    rows = []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            lemma, form, kind = line.rstrip("\n").split("\t")
            rows.append((lemma, form, kind))
    return rows


def first_of_each_type(rows: list[Row], pairs: int) -> list[Row]:
    seen: Counter[str] = Counter()
    kept = []
    for row in rows:
        seen[row[2]] += 1
        if seen[row[2]] <= pairs:
            kept.append(row)
    return kept


def build(job: Job, data: DataModule) -> BaseModel:
    settings = job.settings
    sizes = {"dropout": settings.dropout, "embedding_size": settings.embedding_size}
    encoder = LSTMEncoder(
        hidden_size=settings.hidden_size, layers=settings.num_layers, bidirectional=settings.bidirectional, **sizes
    )
    return ARCHITECTURES[job.architecture](
        source_encoder=encoder,
        features_encoder=LinearEncoder(output_size=encoder.output_size, **sizes) if settings.joint else False,
        decoder_hidden_size=settings.hidden_size,
        decoder_layers=settings.num_layers,
        decoder_dropout=settings.dropout,
        embedding_size=settings.embedding_size,
        optimizer=partial(Adam, lr=settings.learning_rate),
        vocab_size=data.vocab_size,
        target_vocab_size=data.target_vocab_size,
        max_source_length=data.max_source_length,
        max_features_length=data.max_features_length,
        max_target_length=data.max_target_length,
    )


def predict(trainer: lightning.Trainer, model: BaseModel, data: DataModule, loader: DataLoader) -> list[str]:
    mapper = Mapper(data.index)
    batches = trainer.predict(model, dataloaders=loader)
    return ["".join(mapper.decode_target(ids)) for batch in batches for ids in batch.tolist()]


def accuracies(rows: list[Row], predictions: list[str]) -> dict[str, float]:
    """Exact match of each type, in per cent."""
    hits: dict[str, list[bool]] = {}
    for (_, form, kind), prediction in zip(rows, predictions, strict=True):
        hits.setdefault(kind, []).append(form == prediction)
    return {kind: 100 * sum(hit) / len(hit) for kind, hit in hits.items()}


def fork_loaders() -> None:
    """Spawned processes would spawn their loaders of data too, four to a model, and each would import everything."""
    set_start_method("fork", force=True)


def train(job: Job) -> dict[str, Any]:
    """Trains and scores one model; runs in a process of its own."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")  # there is no logger, and one loading process is enough
    torch.set_num_threads(1)  # the cores are for --jobs
    lightning.seed_everything(job.seed, workers=True, verbose=False)
    settings = job.settings
    with tempfile.TemporaryDirectory() as directory:
        paths = {split: Path(directory) / f"{split}.tsv" for split in SPLITS}
        for split, path in paths.items():
            path.write_text("".join("\t".join(row) + "\n" for row in job.rows[split]), encoding="utf-8")
        data = DataModule(
            model_dir=directory,
            train=str(paths["train"]),
            val=str(paths["dev"]),
            test=str(paths["test"]),
            features_col=3 if settings.joint else 0,
            features_sep=FEATURE_SEPARATOR,
            batch_size=settings.batch_size,
        )
        model = build(job, data)
        best = ModelCheckpoint(Path(directory) / "best", monitor="val_accuracy", mode="max", save_weights_only=True)
        stopping = EarlyStopping("val_accuracy", mode="max", patience=settings.patience)
        trainer = lightning.Trainer(
            accelerator="gpu" if job.device == "cuda" else "cpu",
            devices=1,
            max_epochs=settings.max_epochs,
            max_time=None if settings.max_minutes is None else timedelta(minutes=settings.max_minutes),
            gradient_clip_val=settings.clip_norm,
            callbacks=[best, stopping],
            num_sanity_val_steps=0,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        began = time.perf_counter()
        trainer.fit(model, datamodule=data)
        seconds = time.perf_counter() - began
        if not best.best_model_path:
            raise TimeoutError("not one epoch was finished: see --max-minutes")
        epochs = trainer.current_epoch
        checkpoint = torch.load(best.best_model_path, map_location="cpu", weights_only=False)
        model.load_state_dict(checkpoint["state_dict"])
        dev = accuracies(job.rows["dev"], predict(trainer, model, data, data.val_dataloader()))
        test = accuracies(job.rows["test"], predict(trainer, model, data, data.test_dataloader()))
    return {
        "architecture": job.architecture,
        "model": job.name,
        "pairs": len(job.rows["train"]),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "epochs": epochs,
        "best_epoch": checkpoint["epoch"] + 1,
        "training_seconds": round(seconds, 1),
        "accuracy": {kind: {"dev": dev[kind], "test": test[kind]} for kind in dev},
    }


def markdown(results: list[dict[str, Any]], architectures: list[str], types: list[str]) -> str:
    scores = {(r["architecture"], kind): score for r in results for kind, score in r["accuracy"].items()}

    def row(name: str, cells: list[str]) -> str:
        return f"| {name} | " + " | ".join(cells) + " |"

    lines = [
        row("type", [f"{name} {split}" for name in architectures for split in ("dev", "test")]),
        "| --- |" + " ---: |" * (2 * len(architectures)),
    ]
    for kind in types:
        both = [scores.get((name, kind), {}).get(split) for name in architectures for split in ("dev", "test")]
        lines.append(row(kind, ["–" if score is None else f"{score:.1f}" for score in both]))
    means = []
    for name in architectures:
        for split in ("dev", "test"):
            known = [scores[name, kind][split] for kind in types if (name, kind) in scores]
            means.append(f"{statistics.mean(known):.2f}" if len(known) == len(types) else "–")
    return "\n".join([*lines, row("mean", means)])


def arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[2]
    default = os.environ.get("NOISYCHANNEL_DATA", str(root.parent / "shared" / "data"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(default), help="folder that holds morphology/durrett2013")
    parser.add_argument("--part", choices=("noun", "verb"), default="noun")
    parser.add_argument("--architectures", nargs="+", choices=list(ARCHITECTURES), default=list(ARCHITECTURES))
    parser.add_argument("--types", nargs="+", help="only these inflection types, as the data write them")
    parser.add_argument("--joint", action="store_true", help="one model for all types")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-epochs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=15, help="epochs without a better dev accuracy before stopping")
    parser.add_argument("--max-minutes", type=float, help="a model is not trained for longer")
    parser.add_argument("--max-pairs", type=int, help="only the first so many training pairs of each type, for a trial")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="models trained at the same time")
    parser.add_argument("--out", type=Path, help="JSON, written anew after each model")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    folder = options.data / "morphology" / "durrett2013"
    if not folder.is_dir():
        sys.exit(f"no folder {folder}: see --data")
    rows = {split: read_rows(folder / f"de_{options.part}.{split}.tsv.xz") for split in SPLITS}
    known = list(dict.fromkeys(kind for _, _, kind in rows["train"]))
    types = options.types or known
    if unknown := set(types) - set(known):
        sys.exit(f"no such type: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.max_pairs:
        rows["train"] = first_of_each_type(rows["train"], options.max_pairs)
    settings = Settings(
        batch_size=options.batch_size,
        max_epochs=options.max_epochs,
        patience=options.patience,
        max_minutes=options.max_minutes,
        joint=options.joint,
        max_pairs=options.max_pairs,
    )

    def of_types(names: list[str]) -> dict[str, list[Row]]:
        return {split: [row for row in rows[split] if row[2] in names] for split in SPLITS}

    groups = {ALL: of_types(types)} if options.joint else {name: of_types([name]) for name in types}
    jobs = [
        Job(architecture, name, group, settings, options.seed, options.device)
        for architecture in options.architectures
        for name, group in groups.items()
    ]
    report: dict[str, Any] = {
        "task": f"Durrett & DeNero (2013), German, {options.part}s",
        "date": str(date.today()),
        "versions": {name: version(name) for name in ("yoyodyne", "lightning", "torchmetrics")}
        | {"torch": torch.__version__, "python": platform.python_version()},
        "device": torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()} CPU",
        "jobs": options.jobs,
        "seed": options.seed,
        "settings": asdict(settings),
        "results": [],
    }
    failures: list[str] = []
    began = time.perf_counter()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), initializer=fork_loaders) as pool:
        futures: dict[Future[dict[str, Any]], Job] = {pool.submit(train, job): job for job in jobs}
        for future in as_completed(futures):
            label = f"{futures[future].architecture}, {futures[future].name}"
            if error := future.exception():
                failures.append(f"{label}: {error!r}")
                continue
            result = future.result()
            report["results"].append(result)
            report["wall_seconds"] = round(time.perf_counter() - began, 1)
            if options.out:
                options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            test = statistics.mean(score["test"] for score in result["accuracy"].values())
            print(
                f"{label}: test {test:.1f}, epoch {result['best_epoch']} of {result['epochs']}, "
                f"{result['training_seconds']} s",
                file=sys.stderr,
            )
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    print(f"{report['task']}: {versions}; {report['device']}, seed {options.seed}, {report['date']}; {settings}\n")
    print(markdown(report["results"], options.architectures, types))
    if failures:
        sys.exit("failed:\n" + "\n".join(failures))


if __name__ == "__main__":
    main()
