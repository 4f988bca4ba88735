"""Alignments of examples: where the direct model emits each output symbol, and what the channel explains by what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from noisychannel.decode.sentences import padded
from noisychannel.ids import EOS
from noisychannel.pages import escape
from noisychannel.pages.heat_maps import HeatMap, heat_map
from noisychannel.report.section import LONGEST_SYMBOL, Section, beginning, caption, paragraph, shown_text, spread
from noisychannel.report.subject import Subject

KEY, TITLE = "alignments", "Alignments of examples"
SHOWN_END = "▪"
"""As on the page of ``serve``: few fonts have the ␄ of texts."""
EXAMPLES = 3
"""Right ones, and as many wrong ones."""
LONGEST = 30
"""Symbols of either side of an example; a larger heat map cannot be read."""


def alignments_section(subject: Subject | None, reason: str) -> Section:
    """Heat maps of both models for some items."""
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    model = subject.shown.models[0]
    if not hasattr(model.models[model.proposer], "alignments"):
        return Section(KEY, TITLE, reason=f"{model.proposer} has no latent alignment.")
    short = [n for n in range(len(subject.held_out.inputs)) if _fits(subject, n)]
    if not short:
        return Section(KEY, TITLE, reason=f"No output that ended has at most {LONGEST} symbols on both sides.")
    right = subject.right(subject.shown)
    chosen = spread([n for n in short if not right[n]], EXAMPLES) + spread([n for n in short if right[n]], EXAMPLES)
    with_channel = "channel" in model.models and subject.shown.tuned[0].weights.channel != 0
    note = (
        f"Rows are input symbols, columns output symbols, both with their end ({SHOWN_END}). The stronger the colour, "
        "the more probable it is that the direct model writes the output symbol of the column when it has read the "
        "input up to the row; every column sums to 1. Frames mark the best alignment."
    )
    if with_channel:
        note += (
            " The channel goes the other way: it reads the output and writes the input, so its rows sum to 1. "
            "A row of the channel without a strong cell is an input symbol that the output hardly explains."
        )
    note += (
        f" Examples: at most {EXAMPLES} wrong and {EXAMPLES} right outputs, evenly spread over those with at most "
        f"{LONGEST} symbols on both sides."
    )
    cards = "".join(_example(subject, n, with_channel, right[n]) for n in chosen)
    return Section(
        KEY, TITLE, paragraph(note) + f'<div class="cards">{cards}</div>' + caption(subject.caption(subject.shown))
    )


def _fits(subject: Subject, n: int) -> bool:
    group, place = subject.evaluation.place(n)
    output = subject.shown.outputs[group][place][0]
    model = subject.shown.models[group]
    held_out = subject.held_out
    inputs = len(model.input_codec.split(held_out.inputs[n])) + len(held_out.features[n])
    return output.hypothesis.complete and max(inputs, len(output.hypothesis.tokens)) <= LONGEST


def _example(subject: Subject, n: int, with_channel: bool, right: bool) -> str:
    group, place = subject.evaluation.place(n)
    model, held_out = subject.shown.models[group], subject.held_out
    output = subject.shown.outputs[group][place][0]
    tokens = output.hypothesis.tokens
    inputs, outputs = model.input_codec.encode(held_out.inputs[n], held_out.features[n]), [*tokens, EOS]
    (aligned,) = model.score_ids([held_out.inputs[n]], [[tokens]], [held_out.features[n]], align=True)[0]
    input_names = _names([*model.input_symbols(held_out.inputs[n], held_out.features[n]), SHOWN_END])
    output_names = _names([*model.output_symbols(output), SHOWN_END])
    pair = f"{beginning(held_out.inputs[n])} and {beginning(output.text)}"
    shares = posteriors(model.models[model.proposer], inputs, outputs)
    best = frozenset((i, j) for j, i in enumerate(aligned.alignment or ()))
    maps = [
        heat_map(
            HeatMap("direct model", f"Alignment of {pair} by the direct model.",
                    input_names, output_names, shares, "input", "output", "probability", best)
        )
    ]  # fmt: skip
    if with_channel:
        context = model.context(held_out.features[n])
        read = posteriors(model.models["channel"], [*context, *outputs], inputs)
        before = _names([model.output_codec.names[i] for i in context])
        best = frozenset((i, j) for i, j in enumerate(aligned.channel_alignment or ()))
        maps.append(
            heat_map(
                HeatMap("channel", f"Alignment of {pair} by the channel.",
                        input_names, [*before, *output_names], [list(row) for row in zip(*read, strict=True)],
                        "input", "output", "probability", best)
            )
        )  # fmt: skip
    verdict = "right" if right else f"reference {shown_text(held_out.references[n][0])}"
    title = f"{shown_text(held_out.inputs[n])} → {shown_text(output.text)}"
    kind = escape("right" if right else "wrong")
    return (
        f'<article class="card"><h3 class="{kind}">{title} <small class="faint">({verdict})</small></h3>'
        f'<div class="charts">{"".join(maps)}</div></article>'
    )


def _names(symbols: Sequence[str]) -> list[str]:
    return [beginning(symbol, LONGEST_SYMBOL) for symbol in symbols]


@torch.no_grad()
def posteriors(model: Any, inputs: Sequence[int], outputs: Sequence[int]) -> list[list[float]]:
    """p(z_j = i | inputs, outputs) of an SSNT, for each input position i the values of all j."""
    device = next(model.parameters()).device
    found_BIJ = model.alignments(*padded([inputs], device), *padded([outputs], device))
    shares: list[list[float]] = found_BIJ[0].clamp(0, 1).tolist()
    return shares
