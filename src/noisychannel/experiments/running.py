"""Running the blocks of an experiment: train, tune, decode, score, and write each block before the next begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError
from noisychannel.experiments.blocks import FORMAT, Block
from noisychannel.experiments.estimates import Estimate, estimate
from noisychannel.experiments.experiment import Experiment
from noisychannel.experiments.measuring import RowResult, all_rows, measure, rows_to_tune
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.training import ended_by_limit, recorded_trainings
from noisychannel.provenance import provenance
from noisychannel.runs import RunDirectory


def run_blocks(experiment: Experiment, names: Sequence[str], directory: Path, stem: str) -> list[Block]:
    """Run these blocks one after another, and write each to ``directory`` as soon as it is finished.

    Until then the rows that are measured are there as an unfinished block.
    """
    choose_device(experiment.setup.device)  # refused now rather than after an hour
    measured = [name for name in names if experiment.rows(name)]
    for name in names:
        if left_out := experiment.left_out(name):
            nothing = "" if name in measured else "nothing is left to measure; "
            experiment.setup.say(f"block {name}: {nothing}left out: {left_out}")
        if name in measured and (minutes := block_estimate(experiment, name)) is not None:
            experiment.setup.say(f"block {name}: {minutes}")
    if not measured:
        raise BadInputError(f"no row of {', '.join(names)} applies to this data; name other blocks")
    blocks = []
    for name in measured:
        block = run_block(experiment, name, lambda unfinished: unfinished.write(directory, stem))
        block.write(directory, stem)
        blocks.append(block)
    return blocks


def block_estimate(experiment: Experiment, name: str) -> Estimate | None:
    """How long a block will take if nothing is finished; None if the experiment has no rates."""
    if experiment.rates is None:
        return None
    experiment = experiment.for_block(name)
    rows = experiment.rows(name)
    tuned = rows_to_tune(rows, all_rows(experiment, rows)).values()
    return estimate(experiment, rows, list(needed_runs(experiment, rows)), list(tuned))


def run_block(experiment: Experiment, name: str, keep: Callable[[Block], object] = lambda unfinished: None) -> Block:
    """Train, tune, decode and score the rows of one block. What is finished already is not repeated.

    ``keep`` is given the block with the rows that it has so far, from time to time.
    """
    began = time.monotonic()
    experiment = experiment.for_block(name)
    experiment.prepare(name)
    rows = experiment.rows(name)
    runs = needed_runs(experiment, rows)
    experiment.train(list(runs))
    trained = time.monotonic()

    def block(results: Sequence[RowResult]) -> Block:
        seconds = {"training": trained - began, "tuning and decoding": time.monotonic() - trained}
        return _block(experiment, name, results, runs, seconds, unfinished=len(results) < len(rows))

    return block(measure(experiment, rows, keep=lambda results: keep(block(results))))


def _block(
    experiment: Experiment,
    name: str,
    results: Sequence[RowResult],
    runs: Mapping[str, Sequence[str]],
    seconds: Mapping[str, float],
    unfinished: bool,
) -> Block:
    record: dict[str, Any] = {
        "format": FORMAT,
        "experiment": experiment.design.name,
        "block": name,
        **({"unfinished": True} if unfinished else {}),
        **provenance(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_name(experiment.setup.device),
        "data": experiment.data_record(),
        "settings": experiment.settings_record(),
        "tuned": experiment.tuning_record,
        "seconds": {key: round(value, 1) for key, value in seconds.items()},
        "trainings": recorded_trainings(experiment.setup.work, runs),
        "ended by their limit": [
            model for run, roles in runs.items() for model in ended_by_limit(RunDirectory(experiment.runs / run), roles)
        ],
    }
    record["metrics"] = {name: metric.signature for name, metric in experiment.design.make_metrics().items()}
    record["rows"] = [row_record(experiment, result) for result in results]
    items = {(part.name, n): item for part in experiment.parts for n, item in enumerate(part.test)}
    n_best = [
        {
            seed: dict(zip(items, (best for lists in choice.lists.parts for best in lists), strict=True))
            for seed, choice in result.choices.items()
        }
        for result in results
    ]
    return Block(record, items, n_best)


def needed_runs(experiment: Experiment, rows: Sequence[SystemRow]) -> dict[str, list[str]]:
    """For each run that must be trained to measure these rows: the roles of its models."""
    tuned = rows_to_tune(rows, all_rows(experiment, rows)).values()
    wanted = [(row, experiment.seeds(row)) for row in rows] + [(row, experiment.settings.seeds[:1]) for row in tuned]
    runs: dict[str, list[str]] = {}
    for row, seeds in wanted:
        for run, roles in experiment.run_names(row, seeds).items():
            runs[run] = list(dict.fromkeys([*runs.get(run, []), *roles]))
    return runs


def row_record(experiment: Experiment, result: RowResult) -> dict[str, Any]:
    """What a block keeps of a row beside its outputs."""
    row = result.row
    record = row.record() | experiment.amounts_record(row)
    if row.system:
        record |= {"search": experiment.search(row).record(), "weights": result.weights.by_name()}
        record["models"] = {
            name: experiment.run_name(row, name, experiment.settings.seeds[0]) for name in row.used_models()
        }
    if result.tuned is not None:
        record["dev"] = {"metric": result.tuned.metric, "score": result.dev_score}
        record["dev"]["decodings"] = len(result.tuned.history)
    record["seconds"] = {str(seed): round(choice.lists.seconds, 2) for seed, choice in result.choices.items()}
    return {**record, "scores": result.scores}


def device_name(device: str) -> str:
    chosen = choose_device(device)
    return torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else chosen.type
