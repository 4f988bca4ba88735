"""The rows of the inflection table: which models and weights each has, how these are tuned, and what it gets right.

Weights are tuned once for each system, setting and direction of the direct model, on the dev items of all types
together, with the models of the first seed; all types and seeds then share them. The test items are decoded once.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.metrics import make_metric
from noisychannel.reproduce.inflection import Inflection, Setting
from noisychannel.reproduce.inflection_data import TaggedPair
from noisychannel.reproduce.measured import Measured, Row, Split
from noisychannel.reproduce.reranking import choose_from_pool, density_ratio, ensemble, word_list
from noisychannel.reproduce.tasks import Task, by_letters, letter_pool
from noisychannel.runs import RunDirectory
from noisychannel.significance import paired_bootstrap
from noisychannel.training.jobs import choose_processes, cores
from noisychannel.training.world import choose_device
from noisychannel.tuning import SYSTEMS, Tuned, tune
from noisychannel.weights import SearchSettings

ACCURACY = make_metric("accuracy")


ROWS = (
    Row("seq2seq with attention", "attention", direct="attention", seeds=1),
    Row("direct (uni)", "direct", direct="uni", seeds=1),
    Row("direct (bi)", "direct"),
    Row("channel + LM + bias (uni)", "channel+lm", direct="uni", seeds=1),
    Row("channel + LM + bias (bi)", "channel+lm", seeds=1),
    Row("direct + LM + bias (bi)", "direct+lm"),
    Row("direct + channel + LM + bias (uni)", "direct+channel+lm", direct="uni", seeds=1),
    Row("direct + channel + LM + bias (bi)", "direct+channel+lm"),
    Row("direct + channel + LM + bias (bi), marginal search", "direct+channel+lm", seeds=1, search="marginal"),
)
"""Every row of the paper's table, its footnote as a row, and the attention baseline."""
FULL_BETTER = Row("direct + channel + LM + bias (bi), better LM", "direct+channel+lm", lm="lm-better")
BETTER_LM = (
    Row("direct + LM + bias (bi), better LM", "direct+lm", lm="lm-better"),
    FULL_BETTER,
    replace(FULL_BETTER, name=f"{FULL_BETTER.name}, ensemble of the seeds", rerank="ensemble"),
)
WORD_LIST = replace(FULL_BETTER, name=f"{FULL_BETTER.name}, and the word list", seeds=1, rerank="word list")
"""In the paper's setting: in the strict one, the list does not hold the answers, by construction."""
BASELINE = "direct (bi)"


def measure(experiment: Inflection, rows: Sequence[tuple[Row, Setting]], split: Split = "test") -> list[Measured]:
    """Tune what must be tuned, and decode a split with every row and seed, several rows at a time.

    A system that contains a smaller one starts from its weights too, and a row with the marginal search, or one that
    reranks, has the weights of the plain one.
    """
    stages: list[list[tuple[Row, Setting]]] = [[], [], []]
    for row, setting in rows:
        later = row.search == "marginal" or row.rerank
        stages[2 if later else row.system == "direct+channel+lm"].append((row, setting))
    found: dict[tuple[Row, Setting], Measured] = {}
    with _processes(experiment, len(rows)) as pool:
        for stage in stages:
            waiting = []
            for row, setting in stage:
                known = [
                    other.tuned
                    for other in found.values()
                    if other.tuned and (other.row.models, other.setting) == (row.models, setting)
                ]
                waiting.append(pool.submit(_measure_row, experiment, row, setting, split, known))
            for key, future in zip(stage, waiting, strict=True):
                found[key] = future.result()
                deviation = found[key].deviation
                spread = "" if deviation is None else f" ± {deviation:.2f}"
                experiment.say(f"{key[1]}: {key[0].name}: {split} {found[key].mean:.2f}{spread}")
    return [found[key] for key in rows]


@contextmanager
def _processes(experiment: Inflection, most: int) -> Iterator[Executor]:
    """One for each core, at most eight on a GPU; this one alone where the experiment has one job."""
    if experiment.jobs == 1:
        yield _Here()
        return
    number = min(experiment.jobs or choose_processes(most, choose_device(experiment.device)), most)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(number, context, torch.set_num_threads, (max(1, cores() // number),)) as pool:
        yield pool


class _Here(Executor):
    """Does what it is given at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _measure_row(experiment: Inflection, row: Row, setting: Setting, split: Split, known: list[Tuned]) -> Measured:
    """Or what is left of an earlier time, if the models are still the same."""
    file = experiment.work / "measured" / f"{_fingerprint(experiment, row, setting, split)}.json"
    gold = [[pair.form for pair in getattr(splits, split)] for splits in experiment.tables.values()]
    if file.exists():
        return Measured.read(file, row, setting, gold)
    measured = Measured(row, setting, *_decode_row(experiment, row, setting, split, known), gold)
    measured.write(file)
    return measured


def _fingerprint(experiment: Inflection, row: Row, setting: Setting, split: Split) -> str:
    """Of everything that decides what is measured; of the models, the times at which they were written."""
    scale = experiment.scale
    files: set[Path] = set()
    items: list[tuple[str, ...]] = []
    for seed in scale.seeds[: row.seeds]:
        for task in tasks(experiment, row, setting, seed, split, Weights(1.0), scale.search):
            files.update(RunDirectory(path).model_file(role) for role, path in task.models)
            items.append(task.inputs)
    if row.rerank == "density ratio":
        files.update(RunDirectory(path).model_file("lm") for path in _paired_lms(experiment, setting))
    times = [(str(file.relative_to(experiment.work)), file.stat().st_mtime_ns) for file in sorted(files)]
    said = repr((row, setting, split, scale, experiment.device, times, items))
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def _decode_row(
    experiment: Inflection, row: Row, setting: Setting, split: Split, known: list[Tuned]
) -> tuple[Tuned | None, dict[str, float], dict[int, list[list[str]]]]:
    """The weights, what else was chosen on dev, and by seed the outputs of each type."""
    tuned = tune_row(experiment, row, setting, known)
    weights = Weights(1.0) if tuned is None else tuned.weights
    search = replace(experiment.scale.search, search=row.search)
    seeds = experiment.scale.seeds[: row.seeds]
    outputs: dict[int, list[list[str]]] = {}
    notes: dict[str, float] = {}
    if row.rerank == "ensemble":
        members = zip(*(tasks(experiment, row, setting, s, split, weights, search, 10) for s in seeds), strict=True)
        outputs[0] = [ensemble(of_type, experiment.device) for of_type in members]
    elif row.rerank:
        outputs[seeds[0]], notes = _rerank(experiment, row, setting, split, search, tuned)
    else:
        for seed in seeds:
            todo = tasks(experiment, row, setting, seed, split, weights, search)
            outputs[seed] = [[best[0].text for best in task.do(experiment.device)] for task in todo]
    return tuned, notes, outputs


def _rerank(
    experiment: Inflection, row: Row, setting: Setting, split: Split, search: SearchSettings, tuned: Tuned | None
) -> tuple[list[list[str]], dict[str, float]]:
    """What is chosen, with the models of the first seed, by something that is itself tuned on dev."""
    assert tuned is not None
    seed, system, device = experiment.scale.seeds[0], SYSTEMS[row.system], experiment.device
    forms = [[pair.form for pair in splits.dev] for splits in experiment.tables.values()]
    if row.rerank in ("density ratio", "word list"):
        dev = tasks(experiment, row, setting, seed, "dev", tuned.weights, search, n_best=30)
        test = tasks(experiment, row, setting, seed, split, tuned.weights, search, n_best=30)
        if row.rerank == "word list":
            known = {tags: set(forms) for tags, forms in experiment.unpaired()[setting].items()}
            listed = [
                [[known.get(pair.tags, ()) for pair in getattr(splits, name)] for splits in experiment.tables.values()]
                for name in ("dev", split)
            ]
            return word_list(dev, test, listed, forms, system, device)
        return density_ratio(dev, test, _paired_lms(experiment, setting), forms, system, device)
    tried = list(dict.fromkeys([tuned.weights, *(step.weights for step in tuned.history)]))
    on_dev = [tasks(experiment, row, setting, seed, "dev", weights, search, n_best=10) for weights in tried]
    on_test = [tasks(experiment, row, setting, seed, split, weights, search, n_best=10) for weights in tried]
    return choose_from_pool(on_dev, on_test, forms, system, device)


def _paired_lms(experiment: Inflection, setting: Setting) -> list[Path]:
    """The runs, one for each type, of the language models of the paired outputs alone."""
    return [experiment.run(f"lm-0-{setting}", type_).path for type_ in experiment.types]


def tasks(
    experiment: Inflection,
    row: Row,
    setting: Setting,
    seed: int,
    split: Split,
    weights: Weights,
    search: SearchSettings,
    n_best: int = 1,
) -> list[Task]:
    """One for each type."""
    roles = [("direct" if row.system in SYSTEMS else row.system, f"{row.direct}-{seed}")]
    if row.system in SYSTEMS:
        _, channel, lm, _ = SYSTEMS[row.system].used
        roles += [("channel", f"{row.channel}-{seed}")] if channel else []
        roles += [("lm", f"{row.lm}-{setting}")] if lm else []
    found = []
    for type_, splits in experiment.tables.items():
        models = tuple((role, experiment.run(run, type_).path) for role, run in roles)
        pairs: list[TaggedPair] = getattr(splits, split)
        inputs = tuple(pair.lemma for pair in pairs)
        grouped = experiment.grouped(roles[0][1])
        features = () if grouped else tuple(tuple(pair.tags.split(experiment.separator)) for pair in pairs)
        found.append(Task(models, inputs, weights, search, n_best, features, all_terms=n_best > 1))
    return found


def tune_row(experiment: Inflection, row: Row, setting: Setting, known: Sequence[Tuned]) -> Tuned | None:
    """The weights of a row; None for one that has none to tune. ``known``: tuned systems of the same models."""
    if row.system not in SYSTEMS or not SYSTEMS[row.system].free:
        return None
    if row.search == "marginal" or row.rerank:
        same = [tuned for tuned in known if tuned.system == row.system]
        if same:
            return same[0]
    system, scale = SYSTEMS[row.system], experiment.scale
    pool = letter_pool([pair.form for splits in experiment.tables.values() for pair in splits.dev[: scale.tuned_on]])

    @cache
    def decode(weights: Weights) -> list[list[Hypothesis]]:
        todo = tasks(experiment, row, setting, scale.seeds[0], "dev", weights, scale.tuning, n_best=10)
        return [
            [by_letters(output) for output in best]
            for task in todo
            for best in task.first(scale.tuned_on).do(experiment.device)
        ]

    smaller = [tuned.weights for tuned in known if system.contains(SYSTEMS[tuned.system])]
    return tune(system, decode, pool, scale.iterations, known=smaller)


def significance(measured: Measured, baseline: Measured, lemmas: Sequence[str], samples: int = 10_000) -> float:
    """The p-value of the difference by a paired bootstrap over lemmas, of which all types are drawn together."""
    return paired_bootstrap(ACCURACY, measured.per_item(), baseline.per_item(), samples, groups=lemmas)
