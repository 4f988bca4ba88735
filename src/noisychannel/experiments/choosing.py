"""Choosing among the outputs of several searches by more than one search knows: other seeds, or other weights.

References are scored here, too: they show what a search has missed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from noisychannel.decode.objective import Weights
from noisychannel.evaluation.content import aligned_words
from noisychannel.evaluation.metrics import Metric
from noisychannel.experiments.decoding import (
    DIGITS,
    DecodingTask,
    NBestEntry,
    NBestLists,
    PartLists,
    decode_items,
    features_of,
    load,
)
from noisychannel.ids import UNK
from noisychannel.outputs import Output
from noisychannel.systems import System
from noisychannel.tuning import CandidatePool, optimise

N_BEST = 10
"""Outputs of each search that can be chosen."""
RERANKED = 50
"""Outputs of one search by the proposing model alone that the whole objective reranks."""


class Choice(NamedTuple):
    """What was chosen, and by which weights."""

    lists: PartLists
    weights: Weights
    dev_score: float | None = None
    """On the dev lists, if the weights were tuned on them."""


def ensemble(members: Sequence[DecodingTask]) -> Choice:
    """Of the outputs of any member, such as one for each seed, those with the best sum of all members' objectives."""
    parts, seconds = zip(*(_ensemble_part(members, part) for part in range(len(members[0].items))), strict=True)
    return Choice(PartLists(list(parts), sum(seconds)), members[0].weights)


def _ensemble_part(members: Sequence[DecodingTask], part: int) -> tuple[NBestLists, float]:
    """The lists, and the seconds of decoding."""
    items = members[0].items[part]
    texts, features = [item.input for item in items], features_of(members[0].models[part], items)
    loaded = [load(task.models[part], task.weights, task.settings, task.device) for task in members]
    began = time.perf_counter()
    lists = [decode_items(model, texts, features, N_BEST, members[0].batch_size) for model in loaded]
    sums: list[dict[str, float]] = [
        {output.text: 0.0 for of_member in of_item for output in of_member} for of_item in zip(*lists, strict=True)
    ]
    for model in loaded:
        ranked = model.rerank_batch(texts, [list(totals) for totals in sums], features, align=False)
        for totals, outputs in zip(sums, ranked, strict=True):
            for output in outputs:
                totals[output.text] += output.hypothesis.score
    seconds = time.perf_counter() - began
    entries = [
        [
            NBestEntry(text, {"objective": round(totals[text] / len(members), DIGITS)})
            for text in sorted(totals, key=lambda text: -totals[text])[:N_BEST]
        ]
        for totals in sums
    ]
    if members[0].keep_alignments:
        best = [loaded[0].output_codec.encode(of_item[0].text)[:-1] for of_item in entries]
        for of_item, positions in zip(entries, aligned_words(loaded[0], texts, features, best), strict=True):
            of_item[0] = of_item[0]._replace(aligned=positions)
    return entries, seconds


@dataclass(frozen=True)
class PoolTask:
    """Search under each of several weights, and choose among all outputs.

    A beam cannot follow every objective: with a large weight of the channel, outputs that score well have beginnings
    that do not. The weights that choose are tuned on the lists of the dev items, and need not steer a search.
    """

    system: System
    metric: Metric
    tried: tuple[Weights, ...]
    """The weights to search under."""
    dev: DecodingTask
    test: DecodingTask
    n_best: int = N_BEST
    """Outputs of each search that can be chosen."""
    start: Weights | None = None
    """Where tuning starts; at the first of ``tried`` if None."""

    def choose(self) -> Choice:
        references = [item.references for items in self.dev.items for item in items]
        found = [outputs for part in self._union(self.dev)[0] for outputs in part]
        texts = [{output.hypothesis.tokens: output.text for output in outputs} for outputs in found]
        pool = CandidatePool(self.metric, references, [known.__getitem__ for known in texts])
        for n, outputs in enumerate(found):
            pool.add(n, [output.hypothesis for output in outputs])
        tuned = optimise(pool.under(self.system), self.system, [self.start or self.tried[0]], seed=1)
        union, seconds = self._union(self.test)
        best = [[ranked(outputs, tuned.weights)[:N_BEST] for outputs in part] for part in union]
        parts = [[[NBestEntry.of(output) for output in outputs] for outputs in part] for part in best]
        if self.test.keep_alignments:
            for models, items, chosen, entries in zip(self.test.models, self.test.items, best, parts, strict=True):
                model = load(models, tuned.weights, self.test.settings, self.test.device)
                inputs, features = [item.input for item in items], features_of(models, items)
                aligned = aligned_words(model, inputs, features, [of[0].hypothesis.tokens for of in chosen])
                for entry, positions in zip(entries, aligned, strict=True):
                    entry[0] = entry[0]._replace(aligned=positions)
        return Choice(PartLists(parts, seconds), tuned.weights, tuned.score)

    def _union(self, task: DecodingTask) -> tuple[list[list[list[Output]]], float]:
        """For each part and item, the complete outputs that any of the searches found; and the seconds of all."""
        seconds = 0.0
        union: list[list[dict[tuple[int, ...], Output]]] = [[{} for _ in items] for items in task.items]
        for weights in self.tried:
            decoded = replace(task, weights=weights, n_best=self.n_best, keep_alignments=False).decode_outputs()
            seconds += decoded.seconds
            for known_part, part in zip(union, decoded.parts, strict=True):
                for known, best in zip(known_part, part, strict=True):
                    for output in complete(best):
                        known.setdefault(output.hypothesis.tokens, output)
        return [[list(known.values()) for known in part] for part in union], seconds


def score_references(task: DecodingTask) -> Choice:
    """Of the references of each item the one that the objective likes best, with its terms.

    A reference with words that the models do not know has no terms: no search can put it out.
    """
    seconds, parts = 0.0, []
    for models, items in zip(task.models, task.items, strict=True):
        model = load(models, task.weights, task.settings, task.device)
        texts, features = [item.input for item in items], features_of(models, items)
        began = time.perf_counter()
        ranked_N = model.rerank_batch(texts, [list(item.references) for item in items], features, align=False)
        seconds += time.perf_counter() - began
        known_N = [[output for output in outputs if UNK not in output.hypothesis.tokens] for outputs in ranked_N]
        parts.append(
            [
                [NBestEntry.of(known[0]) if known else NBestEntry(item.references[0], {})]
                for known, item in zip(known_N, items, strict=True)
            ]
        )
    return Choice(PartLists(parts, seconds), task.weights)


def complete(best: Sequence[Output]) -> list[Output]:
    """The complete outputs; the best output if none is complete."""
    return [output for output in best if output.hypothesis.complete] or list(best[:1])


def ranked(outputs: Sequence[Output], weights: Weights) -> list[Output]:
    """Best first by equation (3) under other weights; a term that was not computed counts as zero."""

    def objective(output: Output) -> float:
        terms = output.hypothesis.weighed()
        return sum(weight * (terms.get(name) or 0.0) for name, weight in weights.by_name().items())

    return sorted(outputs, key=objective, reverse=True)
