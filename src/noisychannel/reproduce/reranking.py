"""Choosing among what searches found by more than they knew: other weights, other seeds, another language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from noisychannel.api import Output
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.reproduce.tasks import Task, by_letters, letter_pool
from noisychannel.tuning.search import optimise
from noisychannel.tuning.systems import System, vector

RATIOS = (0.25, 0.5, 0.75, 1.0)


def ensemble(members: Sequence[Task], device: str) -> list[str]:
    """Of what any member found, the output with the best sum of all members' objectives."""
    lists = [task.do(device) for task in members]
    texts: list[dict[tuple[int, ...], str]] = [
        {output.hypothesis.tokens: output.text for of_member in found for output in of_member}
        for found in zip(*lists, strict=True)
    ]
    total = [dict.fromkeys(outputs, 0.0) for outputs in texts]
    for task in members:
        scored = task.score([list(outputs) for outputs in texts], device)
        for sums, hypotheses in zip(total, scored, strict=True):
            for tokens in sums:
                sums[tokens] += hypotheses[tokens].score
    return [outputs[max(sums, key=sums.__getitem__)] for outputs, sums in zip(texts, total, strict=True)]


def density_ratio(
    dev: Sequence[Task],
    test: Sequence[Task],
    paired: Sequence[Path],
    forms: Sequence[Sequence[str]],
    system: System,
    device: str,
) -> tuple[list[list[str]], dict[str, float]]:
    """Subtract what a language model of the paired outputs alone says: log p(y) becomes log p(y) - r · log p_paired(y).

    The direct model has learnt the distribution of the paired outputs by itself, and that is counted twice. r and the
    other weights are tuned on the best outputs of the dev items, without searching again.
    """
    found = [_with_paired(task, lm, device) for task, lm in zip(dev, paired, strict=True)]
    items = [item for of_type in found for item in of_type]
    best, chosen, ratio = -np.inf, dev[0].weights, 0.0
    for r in (0.0, *RATIOS):
        pool = letter_pool([form for of_type in forms for form in of_type])
        for n, item in enumerate(items):
            pool.add(n, [_minus(output, by_paired, r) for output, by_paired in item])
        tuned = optimise(pool.under(system), system, [chosen], seed=1)
        if tuned.score > best:
            best, chosen, ratio = tuned.score, tuned.weights, r
    outputs = []
    for task, lm in zip(test, paired, strict=True):
        outputs.append(
            [
                max(item, key=lambda pair: _objective(_minus(pair[0], pair[1], ratio), chosen))[0].text
                for item in _with_paired(task, lm, device)
            ]
        )
    weights = {name: getattr(chosen, name) for name in ("channel", "lm", "length")}
    return outputs, {"ratio": ratio, "dev accuracy on the lists": best, **weights}


def choose_from_pool(
    dev: Sequence[Sequence[Task]],
    test: Sequence[Sequence[Task]],
    forms: Sequence[Sequence[str]],
    system: System,
    device: str,
) -> tuple[list[list[str]], dict[str, float]]:
    """Search under several weights (a list of tasks for each, one task a type), and choose among all that was found.

    A beam cannot follow every objective: with a large weight of the channel, outputs that score well have beginnings
    that do not. What chooses is tuned on what the searches of the dev items found, and need not steer a search.
    """
    pool = letter_pool([form for of_type in forms for form in of_type])
    for n, outputs in enumerate(_found_by_any(dev, device)):
        pool.add(n, [by_letters(output) for output in outputs])
    tuned = optimise(pool.under(system), system, [dev[0][0].weights], seed=1)
    chosen = [
        max(outputs, key=lambda output: _objective(output.hypothesis, tuned.weights)).text
        for outputs in _found_by_any(test, device)
    ]
    ends = np.cumsum([len(task.inputs) for task in test[0]])
    weights = {name: getattr(tuned.weights, name) for name in ("channel", "lm", "length")}
    texts = [chosen[end - len(task.inputs) : end] for end, task in zip(ends, test[0], strict=True)]
    return texts, {"dev accuracy on the lists": tuned.score, **weights}


def _found_by_any(searches: Sequence[Sequence[Task]], device: str) -> list[list[Output]]:
    """The complete outputs of each item, type by type, that any of the searches found."""
    merged: list[dict[tuple[int, ...], Output]] = []
    for search in searches:
        lists = [best for task in search for best in task.do(device)]
        merged = merged or [{} for _ in lists]
        for known, best in zip(merged, lists, strict=True):
            for output in [x for x in best if x.hypothesis.complete] or best[:1]:
                known.setdefault(output.hypothesis.tokens, output)
    return [list(known.values()) for known in merged]


def _with_paired(task: Task, lm: Path, device: str) -> list[list[tuple[Output, float]]]:
    """The complete outputs of each input, with the log-probability that another language model gives them."""
    lists = [[x for x in best if x.hypothesis.complete] or best[:1] for best in task.do(device)]
    other = replace(task, models=(task.models[0], ("lm", lm)), weights=Weights(1.0, 0.0, 1.0))
    scored = other.score([[x.hypothesis.tokens for x in best] for best in lists], device)
    return [
        [(x, hypotheses[x.hypothesis.tokens].lm or 0.0) for x in best]
        for best, hypotheses in zip(lists, scored, strict=True)
    ]


def _minus(output: Output, by_paired: float, ratio: float) -> Hypothesis:
    hypothesis = by_letters(output)
    return replace(hypothesis, lm=(hypothesis.lm or 0.0) - ratio * by_paired)


def _objective(hypothesis: Hypothesis, weights: Weights) -> float:
    terms = (hypothesis.direct, hypothesis.channel or 0.0, hypothesis.lm or 0.0, hypothesis.length)
    return float(np.dot(vector(weights), terms))
