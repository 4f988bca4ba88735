"""``noisychannel evaluate RUN FILE``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisychannel import __version__
from noisychannel.api import NoisyChannel
from noisychannel.atomic import write_text
from noisychannel.cli.options import parse_options
from noisychannel.cli.progress import counting
from noisychannel.cli.tune import load_all
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Columns, Row, read_pairs, read_parallel
from noisychannel.errors import BadInputError
from noisychannel.evaluation import Decoded, HeldOut, average_lagging, decode_held_out
from noisychannel.metrics import FloatArray, Metric, make_metric
from noisychannel.runs import RunDirectory
from noisychannel.significance import confidence_interval, paired_bootstrap
from noisychannel.training.parse import parse_config
from noisychannel.tuning import SYSTEMS
from noisychannel.weights import TunedSystem, read_system, read_systems

USAGE = """usage: noisychannel evaluate RUN FILE [--metrics '[accuracy,edit_distance]'] [--systems direct+lm]

Decode the inputs of FILE with every tuned system of the run and print one table: each metric with its 95 % bootstrap
interval and its p-value against the direct model (paired bootstrap), the length of the outputs relative to the
references, and the speed. FILE has the columns of the training data; or it holds inputs, and --outputs names the
parallel files of references, one or several.

example:
  noisychannel evaluate runs/demo runs/demo-data/test.tsv --metrics '[accuracy,edit_distance]'
"""


@dataclass(kw_only=True)
class EvaluateOptions:
    """Options of evaluate.

    Args:
        run: The run directory.
        file: The test set.
        outputs: Parallel files of references, where FILE holds inputs alone.
        systems: Which systems; direct and all that were tuned where not given.
        metrics: accuracy, edit_distance, bleu, chrf, rouge1, rouge2, rougeL.
        tokenize: sacrebleu's tokenizer for bleu.
        columns: What the columns of FILE are; those of the training data where not given.
        samples: Of the bootstrap.
        seed: Of the bootstrap.
        batch_size: Inputs decoded together.
        json: Write the results there, too.
        device: auto takes a GPU where there is one.
    """

    run: str = ""
    file: str = ""
    outputs: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=lambda: ["accuracy"])
    tokenize: str | None = None
    columns: str | None = None
    samples: int = 1000
    seed: int = 1
    batch_size: int = 32
    json: str | None = None
    device: str = "auto"


class Measured(NamedTuple):
    """One metric of one system."""

    score: float
    low: float
    high: float
    p_value: float | None
    """Against the direct model; None for that model itself."""


@dataclass(frozen=True)
class SystemResult:
    """One row of the table."""

    system: str
    weights: dict[str, float]
    search: dict[str, Any]
    measured: dict[str, Measured]
    length_ratio: float
    sentences_per_second: float
    average_lagging: float | None
    """In input symbols; None for a bidirectional direct model, which reads everything first."""


def run(words: list[str]) -> int:
    options = parse_options(EvaluateOptions, words, ("run", "file"), USAGE)
    if not options.run or not options.file:
        raise BadInputError("evaluate needs a run directory and a test set: noisychannel evaluate runs/demo test.tsv")
    metrics = [make_metric(name, options.tokenize if name == "bleu" else None) for name in options.metrics]
    directory = RunDirectory.open(Path(options.run))
    held_out, results, _ = evaluate_run(directory, options, metrics)
    print(table(held_out, results, metrics, options))
    if options.json is not None:
        record = {
            "noisychannel": __version__,
            "run": str(directory.path),
            "test": held_out.name,
            "sentences": len(held_out.inputs),
            "signatures": {metric.name: metric.signature for metric in metrics},
            "bootstrap": {"samples": options.samples, "seed": options.seed},
            "systems": [
                {**asdict(result), "measured": {name: m._asdict() for name, m in result.measured.items()}}
                for result in results
            ],
        }
        write_text(Path(options.json), json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    return 0


class Evaluated(NamedTuple):
    """All systems on one test set."""

    held_out: HeldOut
    results: list[SystemResult]
    outputs: dict[str, list[str]]
    """The best output of each input, by system."""


def evaluate_run(directory: RunDirectory, options: EvaluateOptions, metrics: Sequence[Metric]) -> Evaluated:
    """Decode and measure the test set with every system; the direct model first: the others are compared with it."""
    names = options.systems or list(read_systems(directory))
    tuned = [read_system(directory, name) for name in dict.fromkeys(["direct", *names])]
    models = load_all(directory, [SYSTEMS[system.name] for system in tuned], tuned[0].search, options.device)
    held_out = HeldOut.read(options.file, _rows(directory, options), options.outputs[1:], models)
    if not held_out.inputs:
        raise BadInputError(f"{options.file}: empty; there is nothing to evaluate")
    baseline: dict[str, FloatArray] = {}
    evaluated = Evaluated(held_out, [], {})
    for system in tuned:
        model = NoisyChannel(models.input_codec, models.output_codec, models.models, system.weights, system.search)
        with counting(f"decode {system.name}", len(held_out.inputs)) as progress:
            decoded = decode_held_out(model, held_out, 1, options.batch_size, progress)
        evaluated.results.append(_measure(system, model, held_out, decoded, metrics, baseline, options))
        evaluated.outputs[system.name] = [best[0].text for best in decoded.outputs]
    return evaluated


def _measure(
    system: TunedSystem,
    model: NoisyChannel,
    held_out: HeldOut,
    decoded: Decoded,
    metrics: Sequence[Metric],
    baseline: dict[str, FloatArray],
    options: EvaluateOptions,
) -> SystemResult:
    """``baseline`` holds the direct model's statistics of each metric, and is filled by it."""
    measured = {}
    for metric in metrics:
        statistics = decoded.statistics(metric, held_out)
        low, high = confidence_interval(metric, statistics, options.samples, options.seed)
        p_value = None
        if metric.name in baseline:
            p_value = paired_bootstrap(metric, statistics, baseline[metric.name], options.samples, options.seed)
        baseline.setdefault(metric.name, statistics)
        score = float(metric.score(np.asarray(statistics.sum(0)), len(statistics)))
        measured[metric.name] = Measured(score, low, high, p_value)
    lag = None
    if not model.models["direct"].bidirectional:
        lengths = [
            len(model.input_codec.encode(*pair)) for pair in zip(held_out.inputs, held_out.features, strict=True)
        ]
        lag = average_lagging([best[0] for best in decoded.outputs], lengths)
    return SystemResult(
        system.name,
        asdict(system.weights),
        asdict(system.search),
        measured,
        decoded.length_ratio(model, held_out),
        len(held_out.inputs) / decoded.seconds,
        lag,
    )


def table(
    held_out: HeldOut, results: Sequence[SystemResult], metrics: Sequence[Metric], options: EvaluateOptions
) -> str:
    """All systems, a row each, in Markdown."""
    lagging = any(result.average_lagging is not None for result in results)
    titles = ["system", *(metric.name for metric in metrics), "length ratio", "sentences/s"]
    titles += ["average lagging"] if lagging else []
    rows = [titles]
    for result in results:
        cells = [result.system]
        for m in result.measured.values():
            significance = "" if m.p_value is None else f" p={m.p_value:.3f}"
            cells.append(f"{m.score:.2f} [{m.low:.2f}, {m.high:.2f}]{significance}")
        cells += [f"{result.length_ratio:.3f}", f"{result.sentences_per_second:.1f}"]
        if lagging:
            lag = result.average_lagging
            cells.append("–" if lag is None or math.isnan(lag) else f"{lag:.2f}")
        rows.append(cells)
    widths = [max(len(row[n]) for row in rows) for n in range(len(titles))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    signatures = "; ".join(f"{metric.name} {metric.signature}" for metric in metrics)
    notes = (
        f"{held_out.name}, {len(held_out.inputs)} inputs, noisychannel {__version__}. {signatures}. In brackets: 95 % "
        f"bootstrap intervals; p: paired bootstrap against direct ({options.samples} samples, seed {options.seed})."
    )
    return "\n".join([*lines, "", notes])


def _rows(directory: RunDirectory, options: EvaluateOptions) -> list[Row]:
    data = parse_config(directory.config_file).data
    if options.outputs:
        return list(read_parallel([options.file], options.outputs[:1]))
    trained = DataSource(data).columns
    columns = trained if options.columns is None else Columns.parse(options.columns, "--columns", ("input", "output"))
    group = directory.header().get("group", "")
    rows = read_pairs([options.file], columns, data.feature_separator)
    return [row for row in rows if not group or "group" not in columns.roles or row.group == group]
