"""Until ``NoisyChannel`` loads models of several runs and further terms itself: the same interface, on today's class.

To be deleted then. What it exports comes from ``noisy_channel`` (NoisyChannel), ``weights`` (TermSource, system_of) and
``evaluation.decoding`` (with_all_terms). Further terms join at rerank time here, not in the search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from noisychannel import noisy_channel
from noisychannel.decode.beam import beam_search
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation import held_out
from noisychannel.ids import EOS
from noisychannel.noisy_channel import Output
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS, FreeWeight, System, make_system
from noisychannel.training.world import choose_device

TermKind = Literal["word_list", "lm", "density_ratio"]


@dataclass(frozen=True)
class TermSource:
    """Where a further term of the objective comes from."""

    kind: TermKind
    run: Path

    def weight(self, name: str) -> FreeWeight:
        """Where the tuner may move the weight of this term."""
        match self.kind:
            case "word_list":
                return FreeWeight(name, low=0.0, high=20.0, start=1.0)
            case "lm":
                return FreeWeight(name, low=0.0, high=5.0, start=0.5)
            case "density_ratio":
                return FreeWeight(name, low=-3.0, high=0.0, start=-0.25, floor=-float("inf"), ceiling=0.0)


def system_of(name: str, terms: Mapping[str, TermSource]) -> System:
    """The system of that name, with these further terms."""
    return make_system(name, {term: source.weight(term) for term, source in terms.items()})


class NoisyChannel:
    """Models of one or several runs around a decoder."""

    def __init__(
        self,
        directory: RunDirectory,
        models: Mapping[str, Any],
        terms: Mapping[str, Any],
        weights: Weights,
        settings: SearchSettings,
    ) -> None:
        self.directory, self.models, self.terms = directory, models, terms
        self.weights, self.settings = weights, settings
        self.input_codec, self.output_codec = directory.codecs()
        self.proposer = next(role for role in PROPOSERS if role in models)
        self.chart: noisy_channel.NoisyChannel | None = None
        if self.proposer == "direct":
            self.chart = noisy_channel.NoisyChannel(self.input_codec, self.output_codec, models, weights, settings)

    @staticmethod
    def load(
        run: Path,
        weights: Weights,
        settings: SearchSettings,
        device: str,
        roles: Mapping[str, Path],
        terms: Mapping[str, TermSource],
    ) -> NoisyChannel:
        """The models of ``roles`` and ``terms``, each from its run directory; the vocabularies are those of ``run``."""
        where = choose_device(device)
        models = {role: RunDirectory(path).load_model(role, where, word_list=False) for role, path in roles.items()}
        further = {name: _load_term(source, where) for name, source in terms.items()}
        return NoisyChannel(RunDirectory(run), models, further, weights, settings)

    def reweighted(self, weights: Weights, settings: SearchSettings | None = None) -> NoisyChannel:
        return NoisyChannel(self.directory, self.models, self.terms, weights, settings or self.settings)

    def batch(
        self,
        texts: Sequence[str],
        n_best: int = 1,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 32,
        progress: Callable[[int], None] = lambda done: None,
        align: bool = True,
    ) -> list[list[Output]]:
        tags = [()] * len(texts) if features is None else features
        if self.chart is None:
            inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, tags, strict=True)]
            found = beam_search(self.models[self.proposer], inputs, self.settings.k2, min(n_best, self.settings.k2))
            return [[Output(self.output_codec.decode(h.tokens), h) for h in best] for best in found]
        if not self.terms:
            return self.chart.batch(texts, n_best, tags, batch_size, progress, align)
        wider = self.chart.batch(texts, max(n_best, self.settings.k2), tags, batch_size, progress, align)
        return [self._with_terms(best, tag)[:n_best] for best, tag in zip(wider, tags, strict=True)]

    def rerank_batch(
        self,
        texts: Sequence[str],
        outputs: Sequence[Sequence[str]],
        features: Sequence[Sequence[str]] | None = None,
        align: bool = True,
    ) -> list[list[Output]]:
        assert self.chart is not None
        tags = [()] * len(texts) if features is None else features
        ids = [[self.output_codec.encode(output)[:-1] for output in given] for given in outputs]
        inputs = [self.input_codec.encode(text, tag) for text, tag in zip(texts, tags, strict=True)]
        scored = self.chart.decoder.score(inputs, ids, [self.chart.context(tag) for tag in tags], align)
        return [
            self._with_terms(list(map(Output, given, hypotheses)), tag)
            for given, hypotheses, tag in zip(outputs, scored, tags, strict=True)
        ]

    def _with_terms(self, outputs: Sequence[Output], features: Sequence[str]) -> list[Output]:
        """Best first, the further terms included."""
        if not self.terms:
            return sorted(outputs, key=lambda output: -output.hypothesis.score)
        ids = [torch.tensor([*output.hypothesis.tokens, EOS]) for output in outputs]
        values = {name: score(ids, self.output_codec.ids((), features)[:-1]) for name, score in self.terms.items()}
        filled = []
        for n, output in enumerate(outputs):
            extra = {name: float(value[n]) for name, value in values.items()}
            more = sum(self.weights.extra.get(name, 0.0) * value for name, value in extra.items())
            filled.append(
                Output(output.text, replace(output.hypothesis, score=output.hypothesis.score + more, extra=extra))
            )
        return sorted(filled, key=lambda output: -output.hypothesis.score)


def with_all_terms(
    model: NoisyChannel, held: held_out.HeldOut, outputs: Sequence[Sequence[Output]]
) -> list[list[Hypothesis]]:
    """The same hypotheses, in the same order, with the terms of every loaded model filled in."""
    if model.chart is None:
        return [[output.hypothesis for output in best] for best in outputs]
    return held_out.with_all_terms(model.chart, held, held_out.Decoded([list(best) for best in outputs], 0.0))


def _load_term(source: TermSource, device: torch.device) -> Callable[[list[torch.Tensor], list[int]], torch.Tensor]:
    """A function from whole outputs (ids with EOS) and what stands before them to the values of the term."""
    model: Any = RunDirectory(source.run).load_model("lm", device, word_list=source.kind == "word_list")

    @torch.no_grad()
    def score(outputs: list[torch.Tensor], context: list[int]) -> torch.Tensor:
        before = torch.tensor(context if model.reads_features else [], dtype=torch.long)
        whole = [torch.cat([before, ids]) for ids in outputs]
        padded = torch.nn.utils.rnn.pad_sequence(whole, batch_first=True).to(device)
        lengths = torch.tensor([len(ids) for ids in whole])
        if source.kind != "word_list":
            return model.log_prob(padded, lengths).cpu()
        listed = model.by_list(padded, lengths) > -torch.inf
        return listed.double().cpu() - 1

    return score
