"""Choosing among what searches found by more than they knew: other weights, other seeds, another model, a word list."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.experiments.tasks import Task, by_letters, letter_pool
from noisychannel.noisy_channel import Output
from noisychannel.systems import System, vector
from noisychannel.tuning.search import optimise

CHOSEN_WEIGHTS = ("channel", "lm", "length")
DEV_ACCURACY = "dev accuracy on the lists"
"""What is noted of a choice: its weights, that of the direct model being 1, and what they get right on dev."""
RATIOS = (0.0, 0.25, 0.5, 0.75, 1.0)
BONUSES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Of being on the list, in nats of the language model."""

Extra = list[list[tuple[Output, float]]]
"""The outputs of each input, with what else is known of them."""


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

    The direct model has learnt the distribution of the paired outputs by itself, and that is counted twice.
    """
    on_dev, on_test = (
        [_with_paired(task, lm, device) for task, lm in zip(tasks, paired, strict=True)] for tasks in (dev, test)
    )
    shares = [-ratio for ratio in RATIOS]
    outputs, share, notes = _choose_with_term(on_dev, on_test, shares, forms, system, dev[0].weights)
    return outputs, {"ratio": -share, **notes}


def word_list(
    dev: Sequence[Task],
    test: Sequence[Task],
    listed: Sequence[Sequence[Sequence[Collection[str]]]],
    forms: Sequence[Sequence[str]],
    system: System,
    device: str,
) -> tuple[list[list[str]], dict[str, float]]:
    """A bonus for outputs that are among the unpaired ones, which a language model does not know by heart.

    ``listed``: for dev and for test, the list of each input of each task.
    """
    on_dev, on_test = (
        [_with_membership(task, of_inputs, device) for task, of_inputs in zip(tasks, lists, strict=True)]
        for tasks, lists in zip((dev, test), listed, strict=True)
    )
    outputs, bonus, notes = _choose_with_term(on_dev, on_test, BONUSES, forms, system, dev[0].weights)
    return outputs, {"bonus": bonus, **notes}


def _choose_with_term(
    dev: Sequence[Extra],
    test: Sequence[Extra],
    shares: Sequence[float],
    forms: Sequence[Sequence[str]],
    system: System,
    start: Weights,
) -> tuple[list[list[str]], float, dict[str, float]]:
    """Add a share of what else is known to the language model's term: what is chosen on test, and the best share.

    The share, one of ``shares``, and the weights are tuned on the best outputs of the dev items, without searching
    again; of equals the first.
    """
    best, chosen, share = -np.inf, start, shares[0]
    for candidate in shares:
        pool = letter_pool([form for of_type in forms for form in of_type])
        for n, item in enumerate(item for of_type in dev for item in of_type):
            pool.add(n, [_plus(output, candidate * extra) for output, extra in item])
        tuned = optimise(pool.under(system), system, [chosen], seed=1)
        if tuned.score > best:
            best, chosen, share = tuned.score, tuned.weights, candidate
    outputs = [
        [max(item, key=lambda x: _objective(_plus(x[0], share * x[1]), chosen))[0].text for item in of_type]
        for of_type in test
    ]
    return outputs, share, _notes(chosen, best)


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
    texts = [chosen[end - len(task.inputs) : end] for end, task in zip(ends, test[0], strict=True)]
    return texts, _notes(tuned.weights, tuned.score)


def _found_by_any(searches: Sequence[Sequence[Task]], device: str) -> list[list[Output]]:
    """The complete outputs of each item, type by type, that any of the searches found."""
    merged: list[dict[tuple[int, ...], Output]] = []
    for search in searches:
        lists = [best for task in search for best in task.do(device)]
        merged = merged or [{} for _ in lists]
        for known, best in zip(merged, lists, strict=True):
            for output in _complete(best):
                known.setdefault(output.hypothesis.tokens, output)
    return [list(known.values()) for known in merged]


def _with_paired(task: Task, lm: Path, device: str) -> Extra:
    """The complete outputs of each input, with the log-probability that another language model gives them."""
    lists = [_complete(best) for best in task.do(device)]
    other = replace(task, models=(task.models[0], ("lm", lm)), weights=Weights(1.0, 0.0, 1.0))
    scored = other.score([[x.hypothesis.tokens for x in best] for best in lists], device)
    return [
        [(x, hypotheses[x.hypothesis.tokens].lm or 0.0) for x in best]
        for best, hypotheses in zip(lists, scored, strict=True)
    ]


def _with_membership(task: Task, lists: Sequence[Collection[str]], device: str) -> Extra:
    """The complete outputs of each input, with 1 for those on its list and 0 for others."""
    return [
        [(output, float(output.text in listed)) for output in _complete(best)]
        for best, listed in zip(task.do(device), lists, strict=True)
    ]


def _notes(weights: Weights, dev_accuracy: float) -> dict[str, float]:
    return {DEV_ACCURACY: dev_accuracy, **{name: getattr(weights, name) for name in CHOSEN_WEIGHTS}}


def _complete(best: list[Output]) -> list[Output]:
    """The complete outputs; the best where none is."""
    return [output for output in best if output.hypothesis.complete] or best[:1]


def _plus(output: Output, more: float) -> Hypothesis:
    hypothesis = by_letters(output)
    return replace(hypothesis, lm=(hypothesis.lm or 0.0) + more)


def _objective(hypothesis: Hypothesis, weights: Weights) -> float:
    terms = (hypothesis.direct, hypothesis.channel or 0.0, hypothesis.lm or 0.0, hypothesis.length)
    return float(np.dot(vector(weights), terms))
