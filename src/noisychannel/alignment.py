"""Alignments drawn as text, for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

END = "␄"
POINT = "●"


def draw_alignment(input_symbols: Sequence[str], output_symbols: Sequence[str], positions: Sequence[int]) -> str:
    """A grid with a row for each input symbol and a column for each output symbol, both EOS included.

    The point in a column marks the input position at which that output symbol was emitted.
    """
    if not all(0 <= z <= len(input_symbols) for z in positions):
        raise ValueError(f"positions must lie in 0..{len(input_symbols)}, but are {list(positions)}")
    rows = [*map(_visible, input_symbols), END]
    columns = [*map(_visible, output_symbols), END]
    margin = max(_width(symbol) for symbol in rows)
    widths = [_width(symbol) for symbol in columns]
    lines = [" " * margin + "  " + " ".join(columns)]
    for i, symbol in enumerate(rows):
        cells = [_fill(POINT if z == i else "·", width) for z, width in zip(positions, widths, strict=True)]
        lines.append((_fill(symbol, margin) + "  " + " ".join(cells)).rstrip())
    return "\n".join(lines)


def _visible(symbol: str) -> str:
    if _width(symbol) == 0:
        return "◌" + symbol
    return "␣" if symbol == " " else symbol


def _width(symbol: str) -> int:
    """Columns on a terminal: wide East Asian characters take two, marks none."""
    standing = [c for c in symbol if unicodedata.category(c) not in ("Mn", "Me", "Cf")]
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in standing)


def _fill(symbol: str, width: int) -> str:
    return symbol + " " * (width - _width(symbol))
