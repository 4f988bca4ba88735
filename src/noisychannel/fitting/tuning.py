"""Tuning on held-out pairs of all folds together, and outputs for an honest estimate.

Each held-out pair is decoded by models that have not seen its input. The weights that the run gets are tuned on all of
them. Scored with those weights the same pairs would look too easy, so the estimate uses others: those of each fold are
tuned on the other folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from noisychannel.confidence import Confidence
from noisychannel.data.rows import Row
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.decoding import with_all_terms
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.evaluation.metrics import Metric
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.runs import RunDirectory
from noisychannel.systems import System
from noisychannel.tuning import CandidatePool, TuningResult, tune
from noisychannel.tuning.confidence import fit_confidence, judged_lists
from noisychannel.weight_records import TermKind
from noisychannel.weights import TermSource, system_of

N_BEST = 10
BATCH = 32
DIRECT = Weights(direct=1.0)


@dataclass(frozen=True)
class HeldOutPart:
    """Held-out pairs, and the runs of the models that decode them."""

    direct: Path
    """The run of the direct model, the channel and the counts of pairs."""
    lm: Path
    """The run of the language model and the word list."""
    rows: Sequence[Row]


@dataclass(frozen=True)
class Decoded:
    """What a system makes of the held-out pairs, with weights that were tuned on others."""

    system: str
    texts: list[str]


class FoldTuning:
    """The models of all parts around their held-out pairs."""

    def __init__(
        self,
        parts: Sequence[HeldOutPart],
        systems: Sequence[str],
        settings: SearchSettings,
        metric: Metric,
        device: str,
        seed: int,
        iterations: int,
        advance: Callable[[], None] = lambda: None,
    ) -> None:
        """``advance`` is called whenever some pairs have been decoded."""
        self.parts, self.names, self.settings, self.metric = parts, systems, settings, metric
        self.device, self.seed, self.iterations, self.advance = device, seed, iterations, advance
        self.models = [self._load(part) for part in parts]
        self.held_out = [
            HeldOut.read("held out", part.rows, (), model.output_codec)
            for part, model in zip(parts, self.models, strict=True)
        ]
        self.all = HeldOut.of_all(self.held_out)
        self._decoded: dict[Weights, list[list[Hypothesis]]] = {}
        self._known_texts: list[dict[tuple[int, ...], str]] = [{} for _ in self.all.inputs]
        """For each pair the texts of all outputs so far, by their ids."""

    @property
    def terms(self) -> dict[str, TermSource]:
        return self._terms(self.parts[-1])

    @cached_property
    def systems(self) -> list[System]:
        return [system_of(name, self.terms) for name in self.names]

    def tune(self) -> list[TuningResult]:
        """Tune every system on all pairs, smallest first; a larger one can do whatever a smaller one does."""
        return self._tuned(range(len(self.all.inputs)), self.decode, self.iterations)

    def confidence(self, weights: Weights) -> Confidence | None:
        """Fitted on all pairs, with the weights of a tuned system."""
        lists = judged_lists(self.held_out, self.models, self._known_texts, self.decode(weights))
        return fit_confidence(lists, weights, N_BEST, self.seed)

    def direct(self) -> Decoded:
        return Decoded("direct", self._texts([best[0] for best in self.decode(DIRECT)]))

    def cross_fitted(self, blocks: Sequence[Sequence[int]]) -> list[Decoded]:
        """For each system, the outputs of every block of pairs, with weights that were tuned on the other blocks.

        These weights are found among the outputs that ``tune`` has decoded. The block is then really decoded.
        """
        answers: list[dict[int, Hypothesis]] = [{} for _ in self.systems]
        for block in blocks:
            inside = set(block)
            others = [n for n in range(len(self.all.inputs)) if n not in inside]
            for found, answer in zip(self._tuned(others, self._known(others), 1), answers, strict=True):
                decoded = self.decode(found.weights, inside)
                answer |= {n: decoded[n][0] for n in block}
        return [
            Decoded(system.name, self._texts([answer[n] for n in range(len(self.all.inputs))]))
            for system, answer in zip(self.systems, answers, strict=True)
        ]

    def decode(self, weights: Weights, only: set[int] | None = None) -> list[list[Hypothesis]]:
        """The n-best lists of all pairs, with every term of every model; empty for pairs that are not asked for."""
        weights = replace(weights, extra={name: weight for name, weight in weights.extra.items() if weight})
        if weights in self._decoded:
            return self._decoded[weights]
        lists: list[list[Hypothesis]] = []
        for model, held_out in zip(self.models, self.held_out, strict=True):
            numbers = range(len(lists), len(lists) + len(held_out.inputs))
            chosen = [k for k, n in enumerate(numbers) if only is None or n in only]
            some = HeldOut(
                held_out.name,
                [held_out.inputs[k] for k in chosen],
                [held_out.features[k] for k in chosen],
                [held_out.references[k] for k in chosen],
            )
            found: list[list[Hypothesis]] = [[] for _ in numbers]
            if chosen:
                outputs = model.reweighted(weights).batch(some.inputs, N_BEST, some.features, BATCH, align=False)
                for k, best, hypotheses in zip(chosen, outputs, with_all_terms(model, some, outputs), strict=True):
                    found[k] = hypotheses
                    self._known_texts[numbers[k]] |= {output.hypothesis.tokens: output.text for output in best}
            lists += found
        if only is None:
            self._decoded[weights] = lists
        self.advance()
        return lists

    def _tuned(
        self, numbers: Sequence[int], decode: Callable[[Weights], Sequence[Sequence[Hypothesis]]], iterations: int
    ) -> list[TuningResult]:
        """Tune every system on some of the pairs."""
        texts = [self._known_texts[n].__getitem__ for n in numbers]
        pool = CandidatePool(self.metric, [self.all.references[n] for n in numbers], texts)
        results: list[TuningResult] = []
        for system in self.systems:
            known = [
                system.weights(result.weights.by_name())
                for smaller, result in zip(self.systems, results, strict=False)
                if system.contains(smaller)
            ]
            results.append(tune(system, decode, pool, iterations, self.seed, known=known))
        return results

    def _known(self, numbers: Sequence[int]) -> Callable[[Weights], list[list[Hypothesis]]]:
        """A decoder that ranks what has been decoded before."""
        candidates: list[list[Hypothesis]] = []
        for n in numbers:
            found: dict[tuple[tuple[int, ...], bool], Hypothesis] = {}
            for lists in self._decoded.values():
                for hypothesis in lists[n]:
                    found.setdefault((hypothesis.tokens, hypothesis.complete), hypothesis)
            complete = [hypothesis for hypothesis in found.values() if hypothesis.complete]
            candidates.append(complete or list(found.values()))

        def decode(weights: Weights) -> list[list[Hypothesis]]:
            by_name = weights.by_name()

            def score(hypothesis: Hypothesis) -> float:
                terms = hypothesis.terms()
                return sum(weight * (terms.get(name) or 0.0) for name, weight in by_name.items() if weight)

            return [sorted(some, key=score, reverse=True) for some in candidates]

        return decode

    def _texts(self, hypotheses: Sequence[Hypothesis]) -> list[str]:
        """The texts of one output of each pair."""
        return [known[hypothesis.tokens] for known, hypothesis in zip(self._known_texts, hypotheses, strict=True)]

    def _load(self, part: HeldOutPart) -> NoisyChannel:
        roles = {"direct": part.direct, "channel": part.direct, "lm": part.lm}
        terms = self._terms(part)
        weights = Weights(extra=dict.fromkeys(terms, 1.0))
        run = RunDirectory.open(part.direct)
        model = NoisyChannel.load(run, None, weights, self.settings, self.device, roles, terms)
        return model.reweighted(DIRECT)

    def _terms(self, part: HeldOutPart) -> dict[str, TermSource]:
        """The further terms that some of the systems have."""
        homes: dict[TermKind, Path] = {"word_list": part.lm, "seen": part.direct}
        return {
            kind: TermSource(kind, home)
            for kind, home in homes.items()
            if any(kind in name.split("+") for name in self.names)
        }
