"""The rows of the inflection table: which models and weights each has, how these are tuned, and what it gets right.

Weights are tuned once for each system, setting and direction of the direct model, on the dev items of all types
together, with the models of the first seed; all types and seeds then share them. The test items are decoded once.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.metrics import FloatArray, make_metric
from noisychannel.reproduce.inflection import Inflection, Setting
from noisychannel.reproduce.inflection_data import TaggedPair
from noisychannel.reproduce.reranking import choose_from_pool, density_ratio, ensemble, word_list
from noisychannel.reproduce.tasks import Task, by_letters, letter_pool
from noisychannel.significance import paired_bootstrap
from noisychannel.training.jobs import choose_processes, cores
from noisychannel.training.world import choose_device
from noisychannel.tuning import SYSTEMS, Tuned, tune
from noisychannel.weights import SearchSettings

Split = Literal["dev", "test"]
ACCURACY = make_metric("accuracy")


@dataclass(frozen=True)
class Row:
    """One system of the table."""

    name: str
    system: str
    """One of ``SYSTEMS``, or attention, the baseline."""
    direct: str = "bi"
    """Which runs have the direct model, or the baseline: ``bi-1`` is that of the first seed."""
    channel: str = "bi"
    lm: str = "lm"
    """Which runs have the language models: ``lm-strict`` is that of the strict setting."""
    seeds: int | None = None
    """How many; all where None."""
    search: Literal["viterbi", "marginal"] = "viterbi"
    """Weights are tuned with the first, and used with either."""
    rerank: Literal["", "ensemble", "density ratio", "word list", "pool"] = ""
    """What chooses among the best outputs of the search; see ``reranking``."""

    @property
    def models(self) -> tuple[str, str, str]:
        return self.direct, self.channel, self.lm


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


@dataclass(frozen=True)
class Measured:
    """What one row got right in one setting."""

    row: Row
    setting: Setting
    tuned: Tuned | None
    """None where there was nothing to tune."""
    notes: Mapping[str, float]
    """What else was chosen on dev."""
    outputs: Mapping[int, list[list[str]]]
    """By seed: the outputs of each type."""
    right: Mapping[int, list[FloatArray]]
    """By seed: for each type, whether each item was right."""

    @property
    def weights(self) -> Weights:
        return Weights(1.0) if self.tuned is None else self.tuned.weights

    @property
    def accuracies(self) -> dict[int, float]:
        """By seed: the mean over types, in per cent."""
        return {seed: 100 * float(np.mean([np.mean(x) for x in right])) for seed, right in self.right.items()}

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.accuracies.values())))

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds."""
        values = list(self.accuracies.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def of_type(self, n: int) -> float:
        """The accuracy in one type, mean over seeds."""
        return 100 * float(np.mean([np.mean(right[n]) for right in self.right.values()]))

    def per_item(self) -> FloatArray:
        """How often each item was right, over seeds; items of all types one after the other: [N,1]."""
        return np.mean([np.concatenate(right) for right in self.right.values()], axis=0)[:, None]


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
    right = {
        seed: [
            np.array([text == pair.form for text, pair in zip(texts, getattr(splits, split), strict=True)], np.float64)
            for texts, splits in zip(of_types, experiment.tables.values(), strict=True)
        ]
        for seed, of_types in outputs.items()
    }
    return Measured(row, setting, tuned, notes, outputs, right)


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
        paired = [experiment.run(f"lm-0-{setting}", type_).path for type_ in experiment.types]
        return density_ratio(dev, test, paired, forms, system, device)
    tried = list(dict.fromkeys([tuned.weights, *(step.weights for step in tuned.history)]))
    on_dev = [tasks(experiment, row, setting, seed, "dev", weights, search, n_best=10) for weights in tried]
    on_test = [tasks(experiment, row, setting, seed, split, weights, search, n_best=10) for weights in tried]
    return choose_from_pool(on_dev, on_test, forms, system, device)


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
