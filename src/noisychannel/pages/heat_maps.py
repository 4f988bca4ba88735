"""Heat maps as inline SVG: shares between 0 and 1 as the darkness of cells, one colour, so that they read in grey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noisychannel.pages.axes import number
from noisychannel.pages.charts import figure, table
from noisychannel.pages.document import escape

CELL = 17
LETTER = 6.6
LONGEST = 14
"""Characters of a label."""
LEAST = 0.01
"""Smaller shares are not drawn."""
LISTED = 0.05
"""Smaller shares are not in the table."""


@dataclass(frozen=True)
class HeatMap:
    """Shares for each row and column."""

    title: str
    description: str
    rows: Sequence[str]
    columns: Sequence[str]
    shares: Sequence[Sequence[float]]
    """For each row, one for each column, between 0 and 1."""
    row: str
    """What a row is, and a column."""
    column: str
    share: str = "share"
    outlined: frozenset[tuple[int, int]] = frozenset()
    """Cells with a frame: row and column."""


def heat_map(chart: HeatMap) -> str:
    """Cells with labels on the left and above; long labels above are turned."""
    rows, columns = ([_cut(label) for label in labels] for labels in (chart.rows, chart.columns))
    turned = any(len(label) > 2 for label in columns)
    left = 10 + LETTER * max(map(len, rows), default=1)
    top = 14 + (0.75 * LETTER * max(map(len, columns)) if turned else 6)
    parts = []
    for j, label in enumerate(columns):
        x = left + (j + 0.5) * CELL
        turn = f' transform="rotate(-50 {x:.1f} {top - 6:.1f})"' if turned else ""
        anchor = "start" if turned else "middle"
        parts.append(
            f'<text class="symbol" x="{x:.1f}" y="{top - 6:.1f}" text-anchor="{anchor}"{turn}>{escape(label)}</text>'
        )
    for i, label in enumerate(rows):
        y = top + i * CELL
        place = f'x="{left - 5:.1f}" y="{y + 12.5:.1f}"'
        parts.append(f'<text class="symbol" {place} text-anchor="end">{escape(label)}</text>')
        for j, share in enumerate(chart.shares[i]):
            framed = (i, j) in chart.outlined
            if share < LEAST and not framed:
                continue
            place = f'x="{left + j * CELL:.1f}" y="{y:.1f}" width="{CELL - 1}" height="{CELL - 1}"'
            kind = "heat framed" if framed else "heat"
            parts.append(f'<rect class="{kind}" {place} fill-opacity="{share:.2f}"/>')
    width, height = left + CELL * len(columns) + (30 if turned else 6), top + CELL * len(rows) + 4
    frame = f'x="{left - 0.5:.1f}" y="{top - 0.5:.1f}" width="{CELL * len(columns)}" height="{CELL * len(rows)}"'
    drawing = f'<rect class="ground" {frame}/>' + "".join(parts)
    cells = [
        [chart.columns[j], chart.rows[i], number(round(chart.shares[i][j], 3))]
        for j in range(len(chart.columns))
        for i in range(len(chart.rows))
        if chart.shares[i][j] >= LISTED
    ]
    numbers = table([chart.column, chart.row, chart.share], cells, numbers_from=2)
    return figure(chart.title, chart.description, drawing, (width, height), "", numbers, fill=False)


def _cut(label: str) -> str:
    shown = "␣" if label == " " else label
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
