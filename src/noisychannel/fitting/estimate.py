"""The honest estimate: what each system makes of pairs that it has not seen, with intervals, and what would help."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noisychannel.data.rows import Row
from noisychannel.evaluation.baselines import BASELINES
from noisychannel.evaluation.metrics import FloatArray, Metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap
from noisychannel.fitting.facts import Facts
from noisychannel.fitting.folds import Part
from noisychannel.fitting.plan import Plan
from noisychannel.schemas import Record

SAMPLES = 1_000
BY_CHANCE = 0.32
"""Two systems whose difference has this p-value or a larger one, about a standard error, cannot be told apart."""
FEW_PER_TAG_SET = 5
"""With fewer pairs for each tag set, more pairs of rare tag sets help first."""
SHORT = 0.6
"""With a smaller share of the updates that the rules want, more time helps most."""
CLEARLY = 10.0
"""Points between listed and other answers that make more words worth naming."""


@dataclass(frozen=True)
class Estimate(Record):
    """The score of one system on pairs that were held out, with its 95 % bootstrap interval over inputs."""

    system: str
    score: float
    low: float
    high: float
    baseline: bool = False


def estimate(system: str, texts: Sequence[str], rows: Sequence[Row], metric: Metric, baseline: bool) -> Estimate:
    """Score the outputs of held-out pairs."""
    statistics = _statistics(texts, rows, metric)
    low, high = confidence_interval(metric, statistics, SAMPLES, groups=[row.input for row in rows])
    score = float(metric.score(np.asarray(statistics.sum(0)), len(statistics)))
    return Estimate(system, round(score, 2), round(low, 2), round(high, 2), baseline)


def choose_default(outputs: Mapping[str, Sequence[str]], rows: Sequence[Row], metric: Metric) -> str:
    """The largest of the systems that the held-out pairs cannot tell from the best one.

    ``outputs``: for each system what it makes of the pairs, smallest system first.
    """
    statistics = {system: _statistics(texts, rows, metric) for system, texts in outputs.items()}
    sign = 1 if metric.higher_is_better else -1
    best = max(statistics.values(), key=lambda one: sign * float(metric.score(np.asarray(one.sum(0)), len(one))))
    inputs = [row.input for row in rows]
    return [
        system
        for system, one in statistics.items()
        if paired_bootstrap(metric, one, best, SAMPLES, groups=inputs) >= BY_CHANCE
    ][-1]


def _statistics(texts: Sequence[str], rows: Sequence[Row], metric: Metric) -> FloatArray:
    return np.stack([metric.statistics(text, [row.output]) for text, row in zip(texts, rows, strict=True)])


def baseline_texts(name: str, parts: Sequence[Part]) -> list[str]:
    """The outputs of a baseline for the held-out pairs of all parts, made from the training pairs of each part."""
    texts = []
    for part in parts:
        answer = BASELINES[name]((row.input, row.output, row.features) for row in part.train)
        texts += [answer(row.input, row.features) for row in part.held_out]
    return texts


def baselines_of(plan: Plan) -> list[str]:
    """The baselines that make sense for these sides."""
    characters = plan.input_units == plan.output_units == "characters"
    return ["identity", "memorised", *(["rules"] if characters else [])]


def what_helps(
    facts: Facts, parts: Sequence[Part], right: Sequence[bool], words: Sequence[Row], trained: float = 1.0
) -> list[str]:
    """What would help most, most important first: read off the facts and the held-out pairs.

    ``right``: for each held-out pair, whether the answer of the default system is right. ``trained``: the share of the
    updates that the rules want.
    """
    held_out = [(row, part) for part in parts for row in part.held_out]
    found = []
    if trained < SHORT:
        found.append(
            f"more time (--minutes): the models had {100 * trained:.0f} % of the updates that the pairs deserve"
        )
    if facts.tags and facts.words and not facts.tagged_words:
        found.append("tags for the words: those that a reverse model writes are guesses, and often wrong")
    if not facts.words:
        found.append("a list of words: outputs without inputs train the language model, and can be given inputs")
    if not facts.tags:
        outputs: dict[str, set[str]] = defaultdict(set)
        for part in parts:
            for row in (*part.train, *part.held_out):
                outputs[row.input].add(row.output)
        several = sum(len(texts) > 1 for texts in outputs.values())
        if several >= 0.05 * len(outputs):
            found.append(
                f"tags: {several:,} of {len(outputs):,} inputs have several outputs, and nothing tells them apart"
            )
    if facts.tags:
        seen = {part.name: Counter(row.features for row in part.train) for part in parts}
        unseen = [ok for (row, part), ok in zip(held_out, right, strict=True) if not seen[part.name][row.features]]
        per_set = facts.pairs / max(facts.tag_sets, 1)
        if per_set < FEW_PER_TAG_SET:
            line = f"more pairs of rare tag sets: there are {per_set:.1f} pairs for each of {facts.tag_sets:,} tag sets"
            if unseen:
                line += f"; {_percent(unseen)} of {len(unseen):,} held-out pairs of unseen tag sets are right"
            found.append(line)
    if facts.words:
        known = {row.output for row in words}
        listed = [ok for (row, _), ok in zip(held_out, right, strict=True) if row.output in known]
        others = [ok for (row, _), ok in zip(held_out, right, strict=True) if row.output not in known]
        if listed and others and 100 * (np.mean(listed) - np.mean(others)) >= CLEARLY:
            found.append(
                f"more words: {_percent(listed)} of the held-out outputs that are on the list are found, "
                f"and {_percent(others)} of the {len(others):,} that are not"
            )
    wrong = len(right) - sum(right)
    if wrong:
        found.append(f"more pairs ({wrong:,} of {len(right):,} held-out answers are wrong)")
    return found


def _percent(values: Sequence[bool]) -> str:
    return f"{100 * float(np.mean(values)):.0f} %"
