"""Scorers of ids made from models, for ``Reranker`` and for terms that join when ranking.

Each asks its model about whole outputs, a few at a time. Inputs end in EOS, outputs are without it; the scorers add it.

Shapes: B pairs, I input positions, J output positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, TypeGuard, cast

import torch
from torch import Tensor, nn

from noisychannel.decode.memory import parts_of_pairs
from noisychannel.decode.sentences import padded
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.terms import AnyScorer, FurtherTerm, Ids, Scorer, is_source
from noisychannel.ids import EOS
from noisychannel.models.protocols import Attending, ConditionalModel, SourceModel, Transducer

DEFAULT = SearchSettings()


class ConditionalScorer:
    """log p(y | x) of any model with ``log_prob``: SSNT (all alignments), seq2seq, attention."""

    def __init__(self, model: ConditionalModel, settings: SearchSettings = DEFAULT) -> None:
        """``settings``: how much memory there is."""
        self.model, self.device, self.settings = model, ready(model), settings

    @torch.no_grad()
    def __call__(self, inputs: Sequence[Ids], outputs: Sequence[Ids], /) -> list[float]:
        scores: list[float] = []
        ended = _ended(outputs)
        for part in parts_of_pairs(self.model, (inputs, ended), self.settings, self.device):
            pair = padded(inputs[part], self.device), padded(ended[part], self.device)
            scores += self.score(*pair[0], *pair[1]).tolist()
        return scores

    def score(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """[B,I], [B], [B,J], [B] -> [B]."""
        return self.model.log_prob(inputs, input_lengths, outputs, output_lengths)


class ViterbiScorer(ConditionalScorer):
    """log q(y, z | x) of the best alignment z (SSNT)."""

    model: Transducer

    def __init__(self, model: Transducer, settings: SearchSettings = DEFAULT) -> None:
        super().__init__(model, settings)

    def score(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        return self.model.viterbi(inputs, input_lengths, outputs, output_lengths)[0]


class ChannelScorer:
    """log p(x | y): a conditional scorer with the two sides swapped. It reads the context before the output."""

    reads_contexts: Literal[True] = True

    def __init__(self, scorer: ConditionalScorer) -> None:
        self.scorer = scorer

    @torch.no_grad()
    def __call__(self, inputs: Sequence[Ids], outputs: Sequence[Ids], contexts: Sequence[Ids] | None, /) -> list[float]:
        scores: list[float] = []
        read, device = _in_context(outputs, contexts), self.scorer.device
        for part in parts_of_pairs(self.scorer.model, (read, inputs), self.scorer.settings, device):
            scores += self.scorer.score(*padded(read[part], device), *padded(inputs[part], device)).tolist()
        return scores


class SourceScorer:
    """log p(y), or any other source term. A model that reads features reads the context first."""

    reads_contexts: Literal[True] = True

    def __init__(self, model: SourceModel[Any], settings: SearchSettings = DEFAULT) -> None:
        self.model, self.device, self.settings = model, ready(model), settings

    @torch.no_grad()
    def __call__(self, inputs: Sequence[Ids], outputs: Sequence[Ids], contexts: Sequence[Ids] | None, /) -> list[float]:
        scores: list[float] = []
        read = _in_context(outputs, contexts if self.model.reads_features else None)
        for part in parts_of_pairs(self.model, (read,), self.settings, self.device):
            scores += self.model.log_prob(*padded(read[part], self.device)).tolist()
        return scores


class TextScorer:
    """A scorer of texts that is asked about ids."""

    def __init__(
        self, scorer: Scorer[str], input_text: Callable[[Ids], str], output_text: Callable[[Ids], str]
    ) -> None:
        """``input_text``, ``output_text``: from ids, as the scorer gets them, to the texts that it scores."""
        self.scorer, self.input_text, self.output_text = scorer, input_text, output_text

    def __call__(self, inputs: Sequence[Ids], outputs: Sequence[Ids], /) -> Sequence[float]:
        return self.scorer([self.input_text(ids) for ids in inputs], [self.output_text(ids) for ids in outputs])


def output_length(inputs: Sequence[Ids], outputs: Sequence[Ids], /) -> list[float]:
    """|y|, EOS included."""
    return [float(len(ids) + 1) for ids in outputs]


def scorer_of(term: FurtherTerm, settings: SearchSettings = DEFAULT) -> AnyScorer[Ids]:
    """A further term as a scorer of whole outputs."""
    if is_source(term):
        return SourceScorer(term, settings)
    if hasattr(term, "log_prob"):
        return ConditionalScorer(cast(ConditionalModel, term), settings)
    if callable(term):
        return term
    raise ValueError(f"{type(term).__name__} is neither a source model, nor a model with log_prob, nor a scorer")


def model_scorers(
    direct: ConditionalModel | None = None,
    channel: Transducer | None = None,
    lm: SourceModel[Any] | None = None,
    extra: Mapping[str, FurtherTerm] = {},
    settings: SearchSettings = DEFAULT,
) -> dict[str, AnyScorer[Ids]]:
    """The terms of the objective as scorers, by name, for a ``Reranker``.

    ``direct`` may be any conditional model. Its best alignment counts if it has one and ``settings.search`` is viterbi.
    """
    scorers: dict[str, AnyScorer[Ids]] = {"length": output_length}
    if direct is not None:
        scorers["direct"] = _alignment_scorer(direct, settings.search, settings)
    if channel is not None:
        scorers["channel"] = ChannelScorer(_alignment_scorer(channel, settings.channel_alignment, settings))
    if lm is not None:
        scorers["lm"] = SourceScorer(lm, settings)
    return scorers | {name: scorer_of(term, settings) for name, term in extra.items()}


@torch.no_grad()
def best_alignments(
    model: Transducer | Attending, inputs: Sequence[Ids], outputs: Sequence[Ids], settings: SearchSettings = DEFAULT
) -> list[tuple[int, ...]]:
    """For each pair (both sides end in EOS), the input position from which each output symbol comes.

    That of the best alignment; of a model with attention, the position with the largest weight.
    """
    device, found = ready(model), []
    for part in parts_of_pairs(model, (inputs, outputs), settings, device):
        pair = *padded(inputs[part], device), *padded(outputs[part], device)
        alignment_BJ = model.attended(*pair) if attends(model) else cast(Transducer, model).viterbi(*pair)[1]
        found += [tuple(i for i in row if i >= 0) for row in alignment_BJ.tolist()]
    return found


def attends(model: object) -> TypeGuard[Attending]:
    """Whether a model says by its attention where output symbols come from."""
    return getattr(model, "attends", False) is True


def ready(model: object) -> torch.device:
    """Switch a module's dropout off; the device it is on."""
    if not isinstance(model, nn.Module):
        return torch.device("cpu")
    if model.training:  # looking at all parts of a model takes longer than some of its steps
        model.eval()
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


def _alignment_scorer(model: Any, alignment: str, settings: SearchSettings) -> ConditionalScorer:
    viterbi = alignment == "viterbi" and hasattr(model, "viterbi")
    return ViterbiScorer(model, settings) if viterbi else ConditionalScorer(model, settings)


def _ended(outputs: Sequence[Ids]) -> list[Ids]:
    return [(*ids, EOS) for ids in outputs]


def _in_context(outputs: Sequence[Ids], contexts: Sequence[Ids] | None) -> list[Ids]:
    if contexts is None:
        return _ended(outputs)
    return [(*context, *ids, EOS) for context, ids in zip(contexts, outputs, strict=True)]
