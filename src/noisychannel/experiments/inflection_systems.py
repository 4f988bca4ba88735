"""The rows of the inflection table: which models and weights each has, how these are tuned, and what it gets right.

Weights are tuned once for each system, setting and direction of the direct model, on the dev items of all types
together (or of some), with the models of the first seed; all types and seeds then share them. The test items are
decoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.baselines import SuffixRules
from noisychannel.experiments.inflection import Inflection, Setting
from noisychannel.experiments.inflection_data import TaggedPair, some
from noisychannel.experiments.measured import Row, Split
from noisychannel.experiments.reranking import choose_from_pool, density_ratio, ensemble, word_list
from noisychannel.experiments.tasks import LISTED_LM, Task, by_letters, letter_pool
from noisychannel.tuning import SYSTEMS, TuningResult, tune

RULES = "longest-suffix rules"
ROWS = (
    Row(RULES, "rules", seeds=1),
    Row("seq2seq without attention", "seq2seq", direct="seq2seq", seeds=1),
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
"""Every row of the paper's table, its footnote as a row, and three baselines."""
FULL_BETTER = Row("direct + channel + LM + bias (bi), better LM", "direct+channel+lm", lm="lm-better")
BETTER_LM = (
    Row("direct + LM + bias (bi), better LM", "direct+lm", lm="lm-better"),
    FULL_BETTER,
    replace(FULL_BETTER, name=f"{FULL_BETTER.name}, ensemble of the seeds", rerank="ensemble"),
)
WORD_LIST = (
    replace(FULL_BETTER, name=f"{FULL_BETTER.name} with its word list", word_list=True),
    replace(FULL_BETTER, name=f"{FULL_BETTER.name}, and the word list", seeds=1, rerank="word list"),
)
"""In the paper's setting: in the strict one, the list does not hold the answers, by construction."""
BASELINE = "direct (bi)"


def decode_seed(
    experiment: Inflection, row: Row, setting: Setting, split: Split, seed: int, weights: Weights
) -> list[list[str]]:
    """The outputs of each type, by the models of one seed."""
    if row.system == "rules":
        return [
            [rules.inflect(pair.lemma, pair.tags) for pair in getattr(splits, split)]
            for splits in experiment.tables.values()
            for rules in [SuffixRules(some(splits.train, row.pairs, seed=1))]
        ]
    search = replace(experiment.scale.search, search=row.search)
    todo = tasks(experiment, row, setting, seed, split, weights, search)
    return [[best[0].text for best in task.do(experiment.device)] for task in todo]


def rerank_row(
    experiment: Inflection, row: Row, setting: Setting, split: Split, tuned: TuningResult
) -> tuple[dict[int, list[list[str]]], dict[str, float]]:
    """By seed (0 for all together) what is chosen for each type; and what else was tuned on dev for that."""
    seeds, search = experiment.scale.seeds[: row.seeds], experiment.scale.search
    if row.rerank == "ensemble":
        members = zip(
            *(tasks(experiment, row, setting, seed, split, tuned.weights, search, 10) for seed in seeds), strict=True
        )
        return {0: [ensemble(of_type, experiment.device) for of_type in members]}, {}
    outputs, notes = _rerank(experiment, row, setting, split, search, tuned)
    return {seeds[0]: outputs}, notes


def _rerank(
    experiment: Inflection, row: Row, setting: Setting, split: Split, search: SearchSettings, tuned: TuningResult
) -> tuple[list[list[str]], dict[str, float]]:
    """What is chosen, with the models of the first seed, by something that is itself tuned on dev."""
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
        return density_ratio(dev, test, paired_lms(experiment, setting), forms, system, device)
    tried = list(dict.fromkeys([tuned.weights, *(step.weights for step in tuned.history)]))
    on_dev = [tasks(experiment, row, setting, seed, "dev", weights, search, n_best=10) for weights in tried]
    on_test = [tasks(experiment, row, setting, seed, split, weights, search, n_best=10) for weights in tried]
    return choose_from_pool(on_dev, on_test, forms, system, device)


def paired_lms(experiment: Inflection, setting: Setting) -> list[Path]:
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
        roles += [(LISTED_LM if row.word_list else "lm", f"{row.lm}-{setting}")] if lm else []
    found = []
    for type_, splits in experiment.tables.items():
        models = tuple((role, experiment.run(run, type_).path) for role, run in roles)
        pairs: list[TaggedPair] = getattr(splits, split)
        inputs = tuple(pair.lemma for pair in pairs)
        grouped = experiment.grouped(roles[0][1])
        features = () if grouped else tuple(tuple(pair.tags.split(experiment.separator)) for pair in pairs)
        found.append(Task(models, inputs, weights, search, n_best, features, all_terms=n_best > 1))
    return found


def tune_row(experiment: Inflection, row: Row, setting: Setting, known: Sequence[TuningResult]) -> TuningResult | None:
    """The weights of a row; None for one that has none to tune. ``known``: tuned systems of the same models."""
    if row.system not in SYSTEMS or not SYSTEMS[row.system].free:
        return None
    if row.search == "marginal" or row.rerank:
        same = [tuned for tuned in known if tuned.system == row.system]
        if same:
            return same[0]
    system, scale = SYSTEMS[row.system], experiment.scale
    types = some(range(len(experiment.types)), scale.tuned_types, seed=1)
    tables = list(experiment.tables.values())
    pool = letter_pool([pair.form for type_ in types for pair in tables[type_].dev])

    @cache
    def decode(weights: Weights) -> list[list[Hypothesis]]:
        todo = tasks(experiment, row, setting, scale.seeds[0], "dev", weights, scale.tuning, n_best=10)
        return [[by_letters(output) for output in best] for n in types for best in todo[n].do(experiment.device)]

    smaller = [tuned.weights for tuned in known if system.contains(SYSTEMS[tuned.system])]
    return tune(system, decode, pool, scale.iterations, known=smaller)
