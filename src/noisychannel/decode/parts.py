"""The search of a batch in parts that fit into memory.

Shapes: B sentences, I input positions, V output symbols.
"""

from __future__ import annotations

import torch

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.plan import Models, SearchPlan
from noisychannel.decode.search import search
from noisychannel.decode.sentences import Sentences
from noisychannel.decode.watch import Watch
from noisychannel.models.protocols import SymbolScoring


def search_in_parts(
    models: Models, plan: SearchPlan, sentences: Sentences, n_best: int, watch: Watch | None = None
) -> list[list[Hypothesis]]:
    """The best outputs of each sentence, not yet aligned; if none is complete, the best partial one."""
    rows = torch.arange(len(sentences.inputs), device=sentences.inputs.device)
    found: list[list[Hypothesis]] = []
    for part in rows.split(_sentences_at_once(models, plan, sentences)):
        some = sentences if len(part) == len(rows) else sentences.select(part)
        found += _search_or_halve(models, plan, some, n_best, watch)
    return found


def _search_or_halve(
    models: Models, plan: SearchPlan, sentences: Sentences, n_best: int, watch: Watch | None
) -> list[list[Hypothesis]]:
    """Search, and search by halves if memory runs out: another process may have taken what was free before."""
    B, device = len(sentences.inputs), sentences.inputs.device
    try:
        found = search(models, plan, sentences, n_best, watch)
        complete = found.traces.hypotheses(found.answers, plan.weights, complete=True, sentences=range(B))
        partial = found.traces.hypotheses(found.partial, plan.weights, complete=False, sentences=range(B))
        return [best or rest for best, rest in zip(complete, partial, strict=True)]
    except torch.OutOfMemoryError:
        if B == 1:
            raise
    torch.cuda.empty_cache()
    halves = torch.arange(B, device=device).chunk(2)
    return [best for half in halves for best in _search_or_halve(models, plan, sentences.select(half), n_best, watch)]


def _sentences_at_once(models: Models, plan: SearchPlan, sentences: Sentences) -> int:
    """How many sentences can be searched together, by an estimate of the largest tensors of a step."""
    I, V = sentences.direct.words.scores.shape[1:]
    settings = plan.settings
    prefixes, candidates = I * settings.k2, I * (settings.k1 + settings.lm_proposals)
    elements = 4 * prefixes * V + 16 * (prefixes + candidates) * I
    if sentences.channel is not None:
        elements += 3 * candidates * sentences.channel.words.scores.shape[2]
    # A source model that scores single symbols has no distribution over all of them.
    elements += 4 * prefixes * V * sum(not isinstance(model, SymbolScoring) for model in models.sources.values())
    room = 4 * 2**30 if settings.memory is None else settings.memory * 2**30
    device = sentences.inputs.device
    if settings.memory is None and device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        room = (torch.cuda.mem_get_info(device)[0] + held) / 2
    return max(1, int(room / 4 / elements))
