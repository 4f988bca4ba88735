"""The inflection experiment from its data to its table: everything is trained, tuned, and tested once."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from noisychannel.errors import BadInputError
from noisychannel.experiments.inflection import ExperimentPart, Inflection, Setting
from noisychannel.experiments.inflection_data import TaggedPair, some
from noisychannel.experiments.inflection_report import Results, report
from noisychannel.experiments.inflection_systems import BETTER_LM, FULL_BETTER, ROWS, RULES, WORD_LIST
from noisychannel.experiments.measured import Row
from noisychannel.experiments.measuring import measure
from noisychannel.experiments.tasks import back_translate
from noisychannel.training.config import RunConfig
from noisychannel.training.world import choose_device

QUICK_PARTS: tuple[ExperimentPart, ...] = ("table",)
UNPAIRED = (0, 1_000, 10_000)
PAIRS = (100, 500)
"""Of the learning curves, in the strict setting; all of both is a row of the table."""
BACK_TRANSLATED = (4_000, 16_000)
"""Forms of each type; the better amount is chosen on dev."""


def run_experiment(experiment: Inflection, parts: Collection[ExperimentPart] | None = None) -> Results:
    """The results, as they are kept; of all parts that the experiment has if none is named."""
    parts = experiment.parts if parts is None else parts
    for part in parts:
        if part not in experiment.parts:
            raise BadInputError(f"{experiment.name} has no part {part!r}; ask for {', '.join(experiment.parts)}")
    # What would fail later had better fail now.
    choose_device(experiment.device)
    seconds: dict[str, float] = {}
    began = time.monotonic()

    def lap(name: str) -> None:
        seconds[name] = time.monotonic() - began - sum(seconds.values())

    train(experiment, parts)
    lap("training")
    rows = table_rows()
    if "further" in parts:
        rows += further_rows(train_on_back_translations(experiment))
        lap("back-translation")
    if "curves" in parts:
        rows += curve_rows(experiment)
    measured = measure(experiment, rows)
    lap("tuning and decoding")
    return report(experiment, measured, seconds)


def table_rows() -> list[tuple[Row, Setting]]:
    """Every row in the paper's setting; in the strict setting those with a language model that read both ways."""
    strict = [row for row in ROWS if "lm" in row.system and row.direct == "bi" and row.search == "viterbi"]
    rows: list[tuple[Row, Setting]] = [(row, "paper") for row in (*ROWS, *BETTER_LM, *WORD_LIST)]
    return rows + [(row, "strict") for row in (*strict, *BETTER_LM)]


def further_rows(back_translated: str) -> list[tuple[Row, Setting]]:
    """Beyond the paper, in the strict setting and with the better language model."""
    full = replace(FULL_BETTER, seeds=1)
    joint = replace(full, direct="joint", channel="joint")
    rows = [
        Row("direct (bi), one model for all types", "direct", direct="joint", seeds=1),
        replace(joint, name=f"{full.name}, one direct model and channel for all types"),
        replace(joint, name=f"{full.name}, one model of each kind for all types", lm="joint-lm"),
        replace(full, name=f"{full.name}, density ratio", rerank="density ratio"),
        replace(full, name=f"{full.name}, chosen from all searches", rerank="pool"),
        Row("direct (bi), back-translation", "direct", direct=back_translated, seeds=1),
        replace(full, name=f"{full.name}, back-translation", direct=back_translated),
    ]
    return [(row, "strict") for row in rows]


def curve_rows(experiment: Inflection) -> list[tuple[Row, Setting]]:
    """Fewer unpaired forms, and fewer pairs, with the better language model."""
    full = replace(FULL_BETTER, seeds=1)
    rows = [replace(full, name=f"{full.name}, {n} unpaired", lm=f"lm-{n}") for n in UNPAIRED]
    for n in _fewer_pairs(experiment):
        rows.append(Row(f"{RULES}, {n} pairs", "rules", pairs=n, seeds=1))
        rows.append(Row(f"direct (bi), {n} pairs", "direct", direct=f"bi-{n}", seeds=1))
        rows.append(replace(full, name=f"{full.name}, {n} pairs", direct=f"bi-{n}", channel=f"bi-{n}"))
    return [(row, "strict") for row in rows]


def train(experiment: Inflection, parts: Collection[ExperimentPart]) -> None:
    """The models of the rows, in runs that share the vocabularies of one."""
    seeds, files, unpaired = experiment.scale.seeds, experiment.write_pairs(), experiment.unpaired()
    joint = experiment.config(
        "joint-1", ["direct", "channel"], files, batch_size=32, hidden_size=2 * experiment.scale.hidden_size
    )
    both_ways = [experiment.config(f"bi-{seed}", ["direct", "channel"], files, seed) for seed in seeds]
    experiment.prepare([joint, *both_ways])
    groups = [
        both_ways,
        [experiment.config("uni-1", ["direct"], files, bidirectional=False)],
        [experiment.config("seq2seq-1", ["seq2seq"], files)],
        [experiment.config("attention-1", ["attention"], files)],
    ]
    for setting, lists in unpaired.items():
        file = experiment.write_unpaired(setting, lists)
        for name, better in (("lm", False), ("lm-better", True)):
            word_list = better and setting == "paper"
            groups.append([_lm(experiment, f"{name}-{setting}", files, file, better, word_list)])
        if "further" in parts and setting == "strict":
            groups.append([_lm(experiment, "joint-lm-strict", files, file)])
    if "further" in parts:
        groups.append([joint])
    if "curves" in parts:
        fewer = []
        for n in _fewer_pairs(experiment):
            pairs = {name: some(splits.train, n, seed=1) for name, splits in experiment.tables.items()}
            fewer.append(experiment.config(f"bi-{n}-1", ["direct", "channel"], experiment.write_pairs(f"-{n}", pairs)))
        groups.append(fewer)
    for n in UNPAIRED if "curves" in parts else UNPAIRED[:1] if "further" in parts else ():
        forms = {name: some(x, min(n, len(x)), seed=1) if n else [] for name, x in unpaired["strict"].items()}
        file = experiment.write_unpaired(f"strict-{n}", forms) if n else ""
        groups.append([_lm(experiment, f"lm-{n}-strict", files, file)])
    experiment.train(groups)


def _lm(
    experiment: Inflection,
    name: str,
    files: Mapping[str, str],
    unpaired: str,
    better: bool = True,
    word_list: bool = False,
) -> RunConfig:
    """A run of language models for a file of unpaired forms."""
    lm = experiment.lm(name, better, word_list)
    return experiment.config(name, ["lm"], files, unpaired=unpaired, lm=lm)


def train_on_back_translations(experiment: Inflection) -> str:
    """Direct models on the pairs and on forms with inputs drawn from the channel; which runs are the better on dev."""
    lists = experiment.unpaired()["strict"]
    seed = experiment.scale.seeds[0]
    configs = []
    for n in BACK_TRANSLATED:
        pairs: dict[str, list[TaggedPair]] = {}
        for name, splits in experiment.tables.items():
            forms = some(lists[name], min(n, len(lists[name])), seed=1)
            drawn = back_translate(experiment.run(f"bi-{seed}", name).path, forms, experiment.device)
            pairs[name] = [*splits.train, *(TaggedPair(lemma, form, name) for lemma, form in drawn)]
        files = experiment.write_pairs(f"-bt-{n}", pairs)
        configs.append(experiment.config(f"bt-{n}-{seed}", ["direct"], files, seed, batch_size=64))
    experiment.train([[config] for config in configs])
    rows: list[tuple[Row, Setting]] = [
        (Row(f"direct (bi), {n} back-translated", "direct", direct=f"bt-{n}", seeds=1), "strict")
        for n in BACK_TRANSLATED
    ]
    best = max(measure(experiment, rows, "dev"), key=lambda measured: measured.mean)
    return best.row.direct


def _fewer_pairs(experiment: Inflection) -> list[int]:
    most = min(len(splits.train) for splits in experiment.tables.values())
    return [n for n in PAIRS if n < most]
