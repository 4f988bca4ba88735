"""``noisychannel evaluate RUN FILE``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
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
from noisychannel.evaluation import Decoded, HeldOut, average_lagging, decode_held_out, rows_of_groups, search_errors
from noisychannel.metrics import FloatArray, Metric, make_metric
from noisychannel.runs import RunDirectory
from noisychannel.significance import confidence_interval, paired_bootstrap
from noisychannel.training.parse import parse_config
from noisychannel.tuning import SYSTEMS
from noisychannel.weights import SearchSettings, TunedSystem, read_system, read_systems

USAGE = """usage: noisychannel evaluate RUN FILE [--metrics '[accuracy,edit_distance]'] [--systems direct+lm]

Decode the inputs of FILE with every tuned system of the run and print one table: each metric with its 95 % bootstrap
interval and its p-value against the direct model (paired bootstrap), the length of the outputs relative to the
references, and the speed. FILE has the columns of the training data; or it holds inputs, and --outputs names the
parallel files of references, one or several. Each group of a run with groups decodes its own items, and the table is
of all of them; name the directory of a group for one alone.

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
        k1: Proposals of the direct model for each cell; as tuned where not given (20 for the direct model alone).
        k2: Survivors of each cell, at most k1; as tuned where not given (10 for the direct model alone).
        search_errors: Say how many inputs have a wrong output although the system itself prefers the reference, which
            the search did not find.
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
    k1: int | None = None
    k2: int | None = None
    search_errors: bool = False
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
    weights: dict[str, Any]
    search: dict[str, Any]
    """Of both, where groups differ, those of each."""
    measured: dict[str, Measured]
    length_ratio: float
    sentences_per_second: float
    average_lagging: float | None
    """In input symbols; None for a bidirectional direct model, which reads everything first."""
    search_errors: float | None
    """In per cent of the inputs; None where nobody asked."""


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
    rows = _rows(directory, options)
    if not any(rows.values()):
        group = directory.header().get("group", "")
        what = f"holds nothing of the group {group!r}" if group else "empty"
        raise BadInputError(f"{options.file}: {what}; there is nothing to evaluate")
    runs = {group: directory.group(group) for group in rows if rows[group]}
    names = options.systems or _tuned_everywhere(list(runs.values()))
    baseline: dict[str, FloatArray] = {}
    parts = [_Part.load(group, run, names, rows[group], options) for group, run in runs.items()]
    evaluated = Evaluated(HeldOut.of_all([part.held_out for part in parts]), [], {})
    for name in parts[0].tuned:
        with counting(f"decode {name}", len(evaluated.held_out.inputs)) as progress:
            decoded = [
                decode_held_out(part.system(name), part.held_out, 1, options.batch_size, progress) for part in parts
            ]
        evaluated.results.append(_measure(name, parts, decoded, metrics, baseline, options))
        evaluated.outputs[name] = [best[0].text for of_part in decoded for best in of_part.outputs]
    return evaluated


def _tuned_everywhere(runs: Sequence[RunDirectory]) -> list[str]:
    """The systems that every run has; what only some have is left out, and named."""
    known = [read_systems(run) for run in runs]
    every = dict.fromkeys(name for systems in known for name in systems)
    names = [name for name in every if all(name in systems for systems in known)]
    if missing := [name for name in every if name not in names]:
        print(f"noisychannel: {', '.join(missing)}: left out, for it was not tuned for all groups", file=sys.stderr)
    return names


@dataclass(frozen=True)
class _Part:
    """What the models of one group are to decode; all there is, where there are no groups."""

    group: str
    models: NoisyChannel
    tuned: dict[str, TunedSystem]
    held_out: HeldOut

    @staticmethod
    def load(
        group: str, run: RunDirectory, names: Sequence[str], rows: Sequence[Row], options: EvaluateOptions
    ) -> _Part:
        tuned = {}
        for name in dict.fromkeys(["direct", *names]):
            system = read_system(run, name)
            tuned[name] = replace(system, search=_widened(system.search, options.k1, options.k2))
        models = load_all(run, [SYSTEMS[name] for name in tuned], tuned["direct"].search, options.device)
        return _Part(group, models, tuned, HeldOut.read(options.file, rows, options.outputs[1:], models))

    def system(self, name: str) -> NoisyChannel:
        tuned = self.tuned[name]
        try:
            return self.models.reweighted(tuned.weights, tuned.search)
        except ValueError as error:
            raise BadInputError(f"{name}: {error}") from error


def _measure(
    name: str,
    parts: Sequence[_Part],
    decoded: Sequence[Decoded],
    metrics: Sequence[Metric],
    baseline: dict[str, FloatArray],
    options: EvaluateOptions,
) -> SystemResult:
    """``baseline`` holds the direct model's statistics of each metric, and is filled by it."""
    both = list(zip(parts, decoded, strict=True))
    measured = {}
    for metric in metrics:
        statistics = np.concatenate([found.statistics(metric, part.held_out) for part, found in both])
        low, high = confidence_interval(metric, statistics, options.samples, options.seed)
        p_value = None
        if metric.name in baseline:
            p_value = paired_bootstrap(metric, statistics, baseline[metric.name], options.samples, options.seed)
        baseline.setdefault(metric.name, statistics)
        score = float(metric.score(np.asarray(statistics.sum(0)), len(statistics)))
        measured[metric.name] = Measured(score, low, high, p_value)
    lag = None
    if not parts[0].models.models["direct"].bidirectional:
        lengths = [
            len(part.models.input_codec.encode(*pair))
            for part in parts
            for pair in zip(part.held_out.inputs, part.held_out.features, strict=True)
        ]
        lag = average_lagging([best[0] for found in decoded for best in found.outputs], lengths)
    errors = None
    if options.search_errors:
        counts = [search_errors(part.system(name), part.held_out, found) for part, found in both]
        errors = 100 * sum(counts) / sum(len(found.outputs) for found in decoded)
    ours, theirs = np.sum([found.symbols(part.models, part.held_out) for part, found in both], axis=0)
    return SystemResult(
        name,
        _of_all({part.group: asdict(part.tuned[name].weights) for part in parts}),
        _of_all({part.group: asdict(part.tuned[name].search) for part in parts}),
        measured,
        float(ours / max(theirs, 1)),
        sum(len(found.outputs) for found in decoded) / sum(found.seconds for found in decoded),
        lag,
        errors,
    )


def _widened(search: SearchSettings, k1: int | None, k2: int | None) -> SearchSettings:
    """With another width; where one of the two is not given it follows the other, if it must."""
    if k1 is None:
        k1 = search.k1 if k2 is None else max(search.k1, k2)
    return replace(search, k1=k1, k2=min(search.k2, k1) if k2 is None else k2)


def _of_all(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What all groups have, once; where they differ, what each has."""
    first, *others = settings.values()
    return first if all(other == first for other in others) else settings


def table(
    held_out: HeldOut, results: Sequence[SystemResult], metrics: Sequence[Metric], options: EvaluateOptions
) -> str:
    """All systems, a row each, in Markdown."""
    lagging = any(result.average_lagging is not None for result in results)
    titles = ["system", *(metric.name for metric in metrics), "length ratio", "sentences/s"]
    titles += ["average lagging"] if lagging else []
    titles += ["search errors"] if options.search_errors else []
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
        if result.search_errors is not None:
            cells.append(f"{result.search_errors:.2f} %")
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


def _rows(directory: RunDirectory, options: EvaluateOptions) -> dict[str, list[Row]]:
    """What each group of the run has to decode."""
    data = parse_config(directory.config_file).data
    trained = DataSource(data).columns
    columns = trained if options.columns is None else Columns.parse(options.columns, "--columns", ("input", "output"))
    if directory.header()["groups"] != [""] and (options.outputs or "group" not in columns.roles):
        raise BadInputError(
            f"{directory.path}: has groups, so FILE needs the outputs and a column that says which group "
            "(--columns input,output,group); or name the directory of one of them"
        )
    if options.outputs:
        return rows_of_groups(directory, read_parallel([options.file], options.outputs[:1]))
    return rows_of_groups(directory, read_pairs([options.file], columns, data.feature_separator))
