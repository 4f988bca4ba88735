"""A decoded line for a person: the n best with their terms, and the alignment of the best."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table as TerminalTable

from noisychannel.alignment import draw_alignment
from noisychannel.decoded_line import DecodedLine
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.remarks import first_names


def explain(line: DecodedLine, model: NoisyChannel, width: int | None = None) -> str:
    """A table of the outputs and every term of the objective, the weights, and the best output's alignment."""
    outputs, weights = line.outputs or [], model.weights.by_name()
    table = TerminalTable(title=line.text, title_justify="left")
    names = [name for name in weights if name != "length"]
    sure = any(output.confidence is not None for output in outputs)
    for column in ("output", *(["confidence"] if sure else []), "score", *names[:3], "length", *names[3:]):
        if column == "output":  # the numbers may be cut, but not what they are about
            table.add_column(column, min_width=max(len(output.text) for output in outputs))
        else:
            table.add_column(column, justify="right")
    for output in outputs:
        h = output.hypothesis
        terms = {name: "–" if value is None else f"{value:.3f}" for name, value in h.terms().items()}
        confidence = [] if not sure else ["–" if output.confidence is None else f"{output.confidence:.2f}"]
        cells = [*confidence, f"{h.score:.3f}", *(terms[name] for name in names[:3]), str(h.length)]
        table.add_row(output.text + ("" if h.complete else " …"), *cells, *(terms.get(name, "–") for name in names[3:]))
    drawn = io.StringIO()
    Console(file=drawn, highlight=False, width=width).print(table, markup=False)
    kind = "weights of terms per symbol: " if model.settings.per_symbol else "weights: "
    parts = [drawn.getvalue() + kind + ", ".join(f"{name} {weight:.3g}" for name, weight in weights.items())]
    parts += [
        f"unknown {kind}, read as <unk>: {first_names(names)}"
        for kind, names in line.unknown._asdict().items()
        if names
    ]
    if outputs and not outputs[0].hypothesis.complete:
        parts.append("incomplete (…): the search found no end")
    if outputs and outputs[0].hypothesis.alignment is not None:
        best = outputs[0]
        parts.append(draw_alignment(line.input_symbols, model.output_symbols(best), best.hypothesis.alignment or ()))
    return "\n".join(parts) + "\n"
