"""``noisychannel evaluate RUN FILE``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noisychannel.arguments import check_at_least, parse_options
from noisychannel.atomic import write_text
from noisychannel.cli.progress import counting
from noisychannel.cli.tune import load_all
from noisychannel.cli.warn import tune_first, warn
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Columns, Row, read_pairs, read_parallel
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.evaluation.baselines import BASELINES
from noisychannel.evaluation.held_out import (
    Decoded,
    HeldOut,
    as_seen,
    average_lagging,
    decode_held_out,
    rows_of_groups,
    search_errors,
)
from noisychannel.evaluation.metrics import FloatArray, Metric, make_metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap
from noisychannel.evaluation.systems import ComparedSystem, compared_systems
from noisychannel.evaluation.table import Bootstrap, Evaluated, Measured, SystemResult
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.runs import RunDirectory
from noisychannel.training.config import parse_config
from noisychannel.tuning import SYSTEMS
from noisychannel.weights import TunedSystem, read_systems

USAGE = """usage: noisychannel evaluate RUN FILE [--metrics '[accuracy,edit_distance]'] [--baselines '[identity,rules]']

Decode the inputs of FILE with every tuned system of the run and print one table: each metric with its 95 % bootstrap
interval and its p-value against the direct model with the same search (paired bootstrap), the length of the outputs
relative to the references, and the speed. FILE has the columns of the training data; or it holds inputs, and --outputs
names the parallel files of references, one or several. Each group of a run with groups decodes its own items, and the
table is of all of them; name the directory of a group for one alone.

Items that share their input (all forms of a lemma) are not independent: the bootstrap draws them together. Name
something else with --resample_by: line, output, features, group, or a column named -NAME in --columns.

example:
  noisychannel evaluate runs/demo runs/demo-data/test.tsv --metrics '[accuracy,edit_distance]'
"""


@dataclass(kw_only=True)
class EvaluateOptions:
    """Options of evaluate.

    Args:
        run: The run directory.
        file: The test set.
        outputs: Parallel files of references, if FILE holds inputs alone.
        systems: Which systems; direct and all that were tuned if not given.
        baselines: Rows to compare with, made from the training pairs: identity (the input), memorised (the most
            frequent training output of the input), rules (suffix rules; for characters).
        metrics: accuracy, edit_distance, bleu, chrf, rouge1, rouge2, rougeL.
        tokenize: sacrebleu's tokenizer for bleu.
        columns: What the columns of FILE are; those of the training data if not given.
        resample_by: What the bootstrap draws: all lines with the same input, output, features or group, or with the
            same value in a column named -NAME in columns; or each line by itself.
        k1: Proposals of the direct model for each cell; as tuned if not given.
        k2: Survivors of each cell, at most k1; as tuned if not given.
        search_errors: Say how many inputs have a wrong output although the system itself prefers the reference, which
            the search did not find.
        samples: Of the bootstrap.
        seed: Of the bootstrap.
        batch_size: Inputs decoded together.
        json: Write the results there, too, with all inputs, references and outputs.
        device: auto takes a GPU if there is one.
    """

    run: str = ""
    file: str = ""
    outputs: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=list)
    baselines: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=lambda: ["accuracy"])
    tokenize: str | None = None
    columns: str | None = None
    resample_by: str = "input"
    k1: int | None = None
    k2: int | None = None
    search_errors: bool = False
    samples: int = 1000
    seed: int = 1
    batch_size: int = 32
    json: str | None = None
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(EvaluateOptions, words, ("run", "file"), USAGE)
    if not options.run or not options.file:
        raise BadInputError("evaluate needs a run directory and a test set: noisychannel evaluate runs/demo test.tsv")
    check_at_least(1, options, "samples", "batch_size")
    check_at_least(0, options, "seed")
    if options.json is not None and (Path(options.json).is_dir() or not Path(options.json).parent.is_dir()):
        raise BadInputError(f"--json: {options.json} cannot be a file; name one in a directory that is there")
    evaluated = evaluate_run(RunDirectory.open(Path(options.run)), options)
    print(evaluated.table())
    if options.json is not None:
        record = json.dumps(evaluated.record(), ensure_ascii=False, indent=1, allow_nan=False)
        write_text(Path(options.json), record + "\n")
    return 0


def evaluate_run(directory: RunDirectory, options: EvaluateOptions) -> Evaluated:
    """Decode and measure the test set with every system and baseline."""
    rows = _rows(directory, options)
    if not any(rows.values()):
        group = directory.header().get("group", "")
        what = f"holds nothing of the group {group!r}" if group else "empty"
        raise BadInputError(f"{options.file}: {what}; there is nothing to evaluate")
    runs = {group: directory.group(group) for group in rows if rows[group]}
    codecs = next(iter(runs.values())).codecs()
    text = codecs[1].config
    metrics = [make_metric(name, options.tokenize if name == "bleu" else None, text) for name in options.metrics]
    names = options.systems or _tuned_everywhere(list(runs.values()))
    if not options.systems and names == ["direct"]:
        warn(f"{directory.path}: not tuned, so the direct model is evaluated alone; {tune_first(directory)}")
    systems = compared_systems(list(runs.values()), names, options.k1, options.k2)
    pairs = _training_rows(directory, codecs, options.baselines)
    parts = [_Part.load(group, run, systems, rows[group], options) for group, run in runs.items()]
    measuring = _Measuring(parts, metrics, options)
    # The direct models come first: all others are compared with them.
    measured = [measuring.system(system) for system in systems]
    baselines = [measuring.baseline(name, pairs, systems[0].label) for name in dict.fromkeys(options.baselines)]
    return Evaluated(str(directory.path), measuring.held_out, metrics, measuring.bootstrap, [*baselines, *measured])


def _tuned_everywhere(runs: Sequence[RunDirectory]) -> list[str]:
    """The systems that every run has; what only some have is left out, and named."""
    known = [read_systems(run) for run in runs]
    every = dict.fromkeys(name for systems in known for name in systems)
    names = [name for name in every if all(name in systems for systems in known)]
    if missing := [name for name in every if name not in names]:
        warn(f"{', '.join(missing)}: left out, for it was not tuned for all groups")
    return names


@dataclass(frozen=True)
class _Part:
    """What the models of one group are to decode; all there is, if there are no groups."""

    group: str
    models: NoisyChannel
    held_out: HeldOut

    @staticmethod
    def load(
        group: str, run: RunDirectory, systems: Sequence[ComparedSystem], rows: Sequence[Row], options: EvaluateOptions
    ) -> _Part:
        models = load_all(run, [SYSTEMS[system.name] for system in systems], SearchSettings(), options.device)
        return _Part(group, models, HeldOut.read(options.file, rows, options.outputs[1:], models))

    def under(self, label: str, tuned: TunedSystem) -> NoisyChannel:
        """The models with the weights and the search of a system."""
        try:
            return self.models.reweighted(tuned.weights, tuned.settings)
        except ValueError as error:
            raise BadInputError(f"{label}: {error}") from error

    def answers(self, baseline: str, rows: Sequence[Row]) -> list[str]:
        """The outputs of a baseline, made from these training pairs; all text is treated as references are."""
        codec = self.models.output_codec
        answer = BASELINES[baseline](
            (as_seen(row.input, codec), as_seen(row.output, codec), row.features) for row in rows
        )
        asked = zip(self.held_out.inputs, self.held_out.features, strict=True)
        return [answer(as_seen(text, codec), features) for text, features in asked]


class _Measuring:
    """Rows of the table, one after another."""

    def __init__(self, parts: Sequence[_Part], metrics: Sequence[Metric], options: EvaluateOptions) -> None:
        self.parts, self.metrics, self.options = parts, metrics, options
        self.held_out = HeldOut.of_all([part.held_out for part in parts])
        self.units = self.held_out.units(options.resample_by)
        self.bootstrap = Bootstrap(options.samples, options.seed, options.resample_by, len(set(self.units)))
        self.reference_symbols = sum(
            len(part.models.output_codec.split(references[0]))
            for part in parts
            for references in part.held_out.references
        )
        # By row and metric: [N,S].
        self.statistics: dict[tuple[str, str], FloatArray] = {}

    def system(self, system: ComparedSystem) -> SystemResult:
        """Decode and measure."""
        models = [part.under(system.label, tuned) for part, tuned in zip(self.parts, system.tuned, strict=True)]
        with counting(f"decode {system.label}", len(self.held_out.inputs)) as progress:
            decoded = [
                decode_held_out(model, part.held_out, 1, self.options.batch_size, progress)
                for part, model in zip(self.parts, models, strict=True)
            ]
        best = [outputs[0] for found in decoded for outputs in found.outputs]
        texts = [output.text for output in best]
        groups = [part.group for part in self.parts]
        return SystemResult(
            system=system.label,
            baseline=False,
            weights=_of_all(groups, [tuned.weights.by_name() for tuned in system.tuned]),
            search=_of_all(groups, [tuned.settings.record() for tuned in system.tuned]),
            compared_with=system.compared_with,
            measured=self._measured(system.label, texts, system.compared_with),
            length_ratio=self._length_ratio(sum(len(output.hypothesis.tokens) for output in best)),
            sentences_per_second=len(best) / sum(found.seconds for found in decoded),
            average_lagging=self._lagging(decoded),
            search_errors=self._search_errors(models, decoded),
            outputs=texts,
            complete=[output.hypothesis.complete for output in best],
        )

    def baseline(self, name: str, pairs: Mapping[str, Sequence[Row]], compared_with: str) -> SystemResult:
        """Ask and measure; ``pairs`` are those of training, by group."""
        answers = [(part, text) for part in self.parts for text in part.answers(name, pairs[part.group])]
        texts = [text for _, text in answers]
        return SystemResult(
            system=name,
            baseline=True,
            compared_with=compared_with,
            measured=self._measured(name, texts, compared_with),
            length_ratio=self._length_ratio(sum(len(part.models.output_codec.split(text)) for part, text in answers)),
            outputs=texts,
            complete=[True] * len(texts),
        )

    def _measured(self, row: str, texts: Sequence[str], compared_with: str | None) -> dict[str, Measured]:
        measured = {}
        samples, seed = self.options.samples, self.options.seed
        for metric in self.metrics:
            pairs = zip(texts, self.held_out.references, strict=True)
            statistics = np.stack([metric.statistics(text, references) for text, references in pairs])
            self.statistics[row, metric.name] = statistics
            low, high = confidence_interval(metric, statistics, samples, seed, groups=self.units)
            p_value = None
            if compared_with is not None:
                theirs = self.statistics[compared_with, metric.name]
                p_value = paired_bootstrap(metric, statistics, theirs, samples, seed, groups=self.units)
            score = float(metric.score(np.asarray(statistics.sum(0)), len(statistics)))
            measured[metric.name] = Measured(score, low, high, p_value)
        return measured

    def _length_ratio(self, symbols: int) -> float:
        return symbols / max(self.reference_symbols, 1)

    def _lagging(self, decoded: Sequence[Decoded]) -> float | None:
        if self.parts[0].models.models["direct"].bidirectional:
            return None
        lengths = [
            len(part.models.input_codec.encode(*pair))
            for part in self.parts
            for pair in zip(part.held_out.inputs, part.held_out.features, strict=True)
        ]
        return average_lagging([best[0] for found in decoded for best in found.outputs], lengths)

    def _search_errors(self, models: Sequence[NoisyChannel], decoded: Sequence[Decoded]) -> float | None:
        if not self.options.search_errors:
            return None
        both = zip(self.parts, models, decoded, strict=True)
        errors = sum(search_errors(model, part.held_out, found) for part, model, found in both)
        return 100 * errors / len(self.held_out.inputs)


def _of_all(groups: Sequence[str], settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all groups have, once; if they differ, what each has."""
    same = all(other == settings[0] for other in settings)
    return settings[0] if same else dict(zip(groups, settings, strict=True))


def _training_rows(
    directory: RunDirectory, codecs: tuple[Codec, Codec], baselines: Sequence[str]
) -> dict[str, list[Row]]:
    """The pairs of each group that the baselines are made from; none if there are no baselines."""
    for name in baselines:
        if name not in BASELINES:
            raise BadInputError(f"--baselines: unknown baseline {name!r}; there are {', '.join(BASELINES)}")
    for side, codec in zip(("input", "output"), codecs, strict=True):
        if "rules" in baselines and codec.config.units != "characters":
            raise BadInputError(
                f"--baselines: rules need characters, but the {side} of this run is cut into {codec.config.units}; "
                "leave rules out"
            )
    if not baselines:
        return {}
    try:
        return rows_of_groups(directory, DataSource(parse_config(directory.config_file).data).rows("train"))
    except BadInputError as error:
        raise BadInputError(f"--baselines needs the training pairs that config.yaml names: {error}") from error


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
