"""The search of a batch in parts that fit into memory.

Parts are made by what searches usually need. If a part needs more, its halves are searched. Who watches a search sees
every step once, so parts are then made by the most that searches can need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import Refuse, SearchTooLargeError, parts
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.search import search
from noisychannel.decode.sentences import Sentences, read_sentences
from noisychannel.decode.terms import Ids
from noisychannel.decode.watch import Watch

T = TypeVar("T")


def search_in_parts(
    models: Models,
    plan: SearchPlan,
    inputs: Sequence[Ids],
    contexts: Sequence[Ids],
    input_index: Sequence[int],
    watch: Watch | None = None,
    refuse: Refuse | None = None,
) -> list[list[Hypothesis]]:
    """The best outputs of each input, not yet aligned; if none is complete, the best partial one.

    The contexts are of one length. An input that needs more memory than there is raises ``SearchTooLargeError``; if
    ``refuse`` is given, that is called instead, and the input has no outputs.
    """
    budget = plan.budget
    assert budget is not None
    found: list[list[Hypothesis]] = []
    count = budget.share if watch is None else budget.needed
    for part in parts([count(len(ids)) for ids in inputs], budget.room):
        longest = max(map(len, inputs[part]))
        try:
            # The other inputs of a part with several can be read.
            budget.require_reading(longest)
        except SearchTooLargeError as error:
            found += _refused(input_index[part.start], error, refuse)
            continue
        sentences = read_sentences(models, plan, inputs[part], contexts[part], input_index[part])
        found += _search_or_halve(models, plan, sentences, budget.kept(longest), watch, refuse)
    return found


def _refused(index: int, error: SearchTooLargeError, refuse: Refuse | None) -> list[list[Hypothesis]]:
    """No outputs of one input."""
    if refuse is None:
        raise error
    refuse(index, error.with_traceback(None))  # whose frames hold the tensors of the search
    return [[]]


def together_or_alone(work: Callable[[slice], list[list[T]]], inputs: int, refuse: Refuse | None) -> list[list[T]]:
    """What ``work`` gives for all inputs; if one does not fit into memory, for each alone.

    ``refuse`` is called for an input that does not fit alone, and it gets an empty list. If it is not given, such an
    input raises ``SearchTooLargeError``.
    """
    try:
        return work(slice(0, inputs))
    except SearchTooLargeError:
        if refuse is None:
            raise
    found: list[list[T]] = []
    for n in range(inputs):
        try:
            found += work(slice(n, n + 1))
        except SearchTooLargeError as error:
            refuse(n, error)
            found.append([])
    return found


def _search_or_halve(
    models: Models,
    plan: SearchPlan,
    sentences: Sentences,
    n_best: int,
    watch: Watch | None,
    refuse: Refuse | None,
) -> list[list[Hypothesis]]:
    """Search, and search by halves if memory runs out: the search is wide, or another process has taken some of it."""
    B, device = len(sentences.inputs), sentences.inputs.device
    try:
        found = search(models, plan, sentences, n_best, watch)
        complete = found.traces.hypotheses(found.answers, plan.weights, complete=True, sentences=range(B))
        partial = found.traces.hypotheses(found.partial, plan.weights, complete=False, sentences=range(B))
        return [best or rest for best, rest in zip(complete, partial, strict=True)]
    except SearchTooLargeError as error:
        if B == 1:
            return _refused(int(sentences.input_index[0]), error, refuse)
    except torch.OutOfMemoryError:
        if B == 1:
            raise
    if device.type == "cuda":
        torch.cuda.empty_cache()
    outputs: list[list[Hypothesis]] = []
    for half in torch.arange(B, device=device).chunk(2):
        outputs += _search_or_halve(models, plan, sentences.select(half), n_best, watch, refuse)
    return outputs
