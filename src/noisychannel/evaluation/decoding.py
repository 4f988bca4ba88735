"""What evaluation and tuning ask about decoded outputs: missing terms, search errors, average lagging."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output

ROUNDING = 1e-3
"""Objectives of one output, in nats, that differ by less are the same, computed in another order."""


def with_all_terms(
    model: NoisyChannel, held_out: HeldOut, outputs: Sequence[Sequence[Output]]
) -> list[list[Hypothesis]]:
    """The same hypotheses, in the same order, with the terms of every loaded model and further term filled in, as the
    objective of ``model`` weighs them."""
    weights = Weights(
        1.0, float("channel" in model.models), float("lm" in model.models), extra=dict.fromkeys(model.terms, 1.0)
    )
    needed = [name for name, weight in weights.by_name().items() if weight]
    lists = [[output.hypothesis for output in best] for best in outputs]
    missing = [n for n, hypotheses in enumerate(lists) if any(h.complete and _lacks(h, needed) for h in hypotheses)]
    scored = model.reweighted(weights).score_ids(
        [held_out.inputs[n] for n in missing],
        [[h.tokens for h in lists[n]] for n in missing],
        [held_out.features[n] for n in missing],
    )
    for n, hypotheses in zip(missing, scored, strict=True):
        lists[n] = [
            replace(h, channel=filled.channel, lm=filled.lm, extra=filled.extra)
            for h, filled in zip(lists[n], hypotheses, strict=True)
        ]
    # The system that found them may weigh terms per symbol, and this one not, or the other way round.
    inputs = zip(held_out.inputs, held_out.features, strict=True)
    return [
        [replace(h, factor=_factor(model, text, features, h)) for h in hypotheses]
        for (text, features), hypotheses in zip(inputs, lists, strict=True)
    ]


def _factor(model: NoisyChannel, text: str, features: Sequence[str], hypothesis: Hypothesis) -> float:
    if not (model.settings.per_symbol and hypothesis.complete):
        return 1.0
    return len(model.input_codec.encode(text, features)) / hypothesis.length


def _lacks(hypothesis: Hypothesis, needed: Sequence[str]) -> bool:
    terms = hypothesis.terms()
    return any(terms.get(name) is None for name in needed)


def search_errors(model: NoisyChannel, held_out: HeldOut, outputs: Sequence[Sequence[Output]]) -> int:
    """How many wrong outputs the search is to blame for: the model itself prefers the (first) reference."""
    scored = reference_scores(model, held_out, outputs)
    return sum(is_search_error(outputs[n][0].hypothesis, reference) for n, reference in scored.items())


def is_search_error(ours: Hypothesis, reference: Hypothesis) -> bool:
    """Whether the model prefers a reference to what the search returned."""
    return not ours.complete or reference.score > ours.score + ROUNDING


def reference_scores(
    model: NoisyChannel, held_out: HeldOut, outputs: Sequence[Sequence[Output]]
) -> dict[int, Hypothesis]:
    """The (first) references of wrong outputs as the model scores them, by item.

    What no search may find, however wide, is not its fault, and is left out: unknown symbols, and references that are
    longer than an output may be.
    """
    references: dict[int, list[int]] = {}
    for n, texts in enumerate(held_out.references):
        if outputs[n][0].text in texts:
            continue
        ids = model.input_codec.encode(held_out.inputs[n], held_out.features[n])
        reference = model.output_codec.encode(texts[0])
        unknown = set(model.output_codec.unknown(texts[0]).symbols)
        copied = model.speller.words(held_out.inputs[n]) if model.settings.allow_unk else []
        if unknown.issubset(copied) and len(reference) <= model.settings.longest_output(len(ids)):
            references[n] = reference[:-1]
    scored = model.score_ids(
        [held_out.inputs[n] for n in references],
        [[tokens] for tokens in references.values()],
        [held_out.features[n] for n in references],
    )
    return {n: hypothesis for n, (hypothesis,) in zip(references, scored, strict=True)}


def output_alignments(
    model: NoisyChannel, held_out: HeldOut, outputs: Sequence[Sequence[Output]]
) -> list[tuple[int, ...] | None]:
    """The direct model's alignment of the best output of each input; None if that is incomplete."""
    complete = [n for n, best in enumerate(outputs) if best[0].hypothesis.complete]
    scored = model.score_ids(
        [held_out.inputs[n] for n in complete],
        [[outputs[n][0].hypothesis.tokens] for n in complete],
        [held_out.features[n] for n in complete],
        align=True,
    )
    alignments: list[tuple[int, ...] | None] = [None] * len(outputs)
    for n, (hypothesis,) in zip(complete, scored, strict=True):
        alignments[n] = hypothesis.alignment
    return alignments


def average_lagging(alignments: Iterable[tuple[int, ...] | None], input_lengths: Iterable[int]) -> float | None:
    """How many input symbols the direct model is behind a writer that keeps pace with the input (Ma et al., 2019).

    g(j) is how much of the input had been read when output j was emitted; EOS counts on both sides. Outputs without an
    alignment do not count; None if there are no others.
    """
    lags = []
    for alignment, length in zip(alignments, input_lengths, strict=True):
        if alignment is None:
            continue
        read = [i + 1 for i in alignment]
        pace = length / len(read)
        until = next(j for j, g in enumerate(read) if g >= length) + 1
        lags.append(sum(g - j * pace for j, g in enumerate(read[:until])) / until)
    return sum(lags) / len(lags) if lags else None
