"""Charts as inline SVG: lines, interval dots, bars. They need no program, and read in grey, on paper and in the dark.

A chart is a ``figure``: its title, the drawing (with ``title`` and ``desc`` for those who do not see it), a legend, and
its numbers as a table that can be opened. Lines differ by their dashes as well as by colour. A drawing is 360 units
wide, about the width of a phone, so that its text has its proper size everywhere.

``charts.css`` is the style. All texts are escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from string import ascii_lowercase

from noisychannel.pages.axes import Axis, make_axis, number
from noisychannel.pages.document import escape

WIDTH = 360
COLOURS = ("term-direct", "term-channel", "term-lm", "term-word_list", "term-seen", "term-other")
DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
LONGEST_LABEL = 12
"""If a name is longer, lines are labelled by letters, which the legend explains."""
LETTER = 6.3
"""The width of a character of a label."""


@dataclass(frozen=True)
class Series:
    """One line."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()
    """The ends of an interval around each point, if they are known."""
    dots: bool = False


@dataclass(frozen=True)
class Mark:
    """A place on the x axis with a name."""

    x: float
    name: str


@dataclass(frozen=True)
class LineChart:
    """Lines over a common x axis."""

    title: str
    description: str
    x: str
    """What the x axis is."""
    y: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    shaded: tuple[float, float] | None = None
    """A part of the x axis to set off."""
    logarithmic: bool = False
    """The y axis."""


@dataclass(frozen=True)
class Dot:
    """A value with its interval."""

    name: str
    value: float
    low: float
    high: float
    note: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Bar:
    """A value from zero."""

    name: str
    value: float
    note: str = ""
    """What stands behind the bar; the value if it is empty."""
    colour: str = field(default=COLOURS[0])


def lines(chart: LineChart, height: int = 230) -> str:
    """Lines with a legend, and labels at their ends."""
    names = [series.name for series in chart.series]
    letters = any(len(name) > LONGEST_LABEL for name in names)
    labels = [ascii_lowercase[n % 26] for n in range(len(names))] if letters else names
    right = WIDTH - 10 - (max(map(len, labels)) * LETTER if len(labels) > 1 else 0)
    points = [point for series in chart.series for point in series.points]
    bands = [end for series in chart.series for ends in series.band for end in ends]
    x = make_axis([*(p[0] for p in points), *(mark.x for mark in chart.marks)], 46, right, tight=True)
    y = make_axis([*(p[1] for p in points), *bands], height - 38, 24, logarithmic=chart.logarithmic)
    parts = [_frame(x, y, chart.x, chart.y, height)]
    if chart.shaded is not None:
        left, end = (x.place(value) for value in chart.shaded)
        parts.append(_rectangle(left, y.end, max(end - left, 1.0), y.start - y.end, "shaded"))
    styles = list(zip(names, cycle(COLOURS), cycle(DASHES), strict=False))
    for series, (_, colour, _) in zip(chart.series, styles, strict=True):
        if series.band:
            ends = list(zip(series.points, series.band, strict=True))
            around = [(p[0], b[1]) for p, b in ends] + [(p[0], b[0]) for p, b in reversed(ends)]
            parts.append(f'<path class="band" style="fill:var(--{colour})" d="{_path(x, y, around)}Z"/>')
    for mark in chart.marks:
        place = x.place(mark.x)
        anchor = "end" if place > (x.start + x.end) / 2 else "start"
        parts.append(f'<line class="mark" x1="{place:.1f}" x2="{place:.1f}" y1="{y.end:.1f}" y2="{y.start:.1f}"/>')
        parts.append(_text(place + (-4 if anchor == "end" else 4), y.end + 10, mark.name, "label", anchor))
    for series, (_, colour, dashes) in zip(chart.series, styles, strict=True):
        style = f"stroke:var(--{colour})"
        parts.append(f'<path class="line" style="{style}"{_dashed(dashes)} d="{_path(x, y, series.points)}"/>')
        if series.dots or len(series.points) == 1:
            for px, py in series.points:
                centre = f'cx="{x.place(px):.1f}" cy="{y.place(py):.1f}"'
                parts.append(f'<circle class="dot" style="fill:var(--{colour})" {centre} r="2.6"/>')
    if len(names) > 1:
        last = [(y.place(series.points[-1][1]), label) for series, label in zip(chart.series, labels, strict=True)]
        parts += [_text(right + 5, level + 4, label, "label") for level, label in apart(last, y.start)]
    legend = _legend(styles, labels if letters else [""] * len(labels)) if len(names) > 1 else ""
    return _figure(chart.title, chart.description, height, parts, legend, _series_table(chart))


def dots(title: str, description: str, x: str, rows: Sequence[Dot]) -> str:
    """A value and its interval on each row, under its name."""
    step, height = 34, 34 * len(rows) + 44
    axis = make_axis([end for row in rows for end in (row.low, row.high, row.value)], 12, WIDTH - 14)
    bottom = height - 36
    parts = [_x_ticks(axis, 4, bottom), _text(WIDTH / 2, height - 4, x, "axis", "middle")]
    for n, row in enumerate(rows):
        top = n * step
        parts.append(_text(4, top + 14, row.name, "label strong" if row.strong else "label"))
        shown = row.note or f"{number(row.value)} [{number(row.low)}, {number(row.high)}]"
        parts.append(_text(WIDTH - 4, top + 14, shown, "label", "end"))
        left, right, centre = (axis.place(value) for value in (row.low, row.high, row.value))
        place = f'y1="{top + 24}" y2="{top + 24}"'
        parts.append(f'<line class="interval" x1="{left:.1f}" x2="{right:.1f}" {place}/>')
        kind = "dot strong" if row.strong else "dot"
        parts.append(f'<circle class="{kind}" cx="{centre:.1f}" cy="{top + 24}" r="{5 if row.strong else 4}"/>')
    cells = [[row.name, number(row.value), number(row.low), number(row.high)] for row in rows]
    return _figure(title, description, height, parts, "", table(["", x, "from", "to"], cells))


def bars(title: str, description: str, x: str, rows: Sequence[Bar]) -> str:
    """Bars from a common zero, each under its name; negative ones go to the left."""
    step, height = 32, 32 * len(rows) + 42
    axis = make_axis([0.0, *(row.value for row in rows)], 12, WIDTH - 14, most=4)
    zero = axis.place(0.0)
    parts = [_x_ticks(axis, 4, height - 36), _text(WIDTH / 2, height - 4, x, "axis", "middle")]
    for n, row in enumerate(rows):
        top, end = n * step, axis.place(row.value)
        parts.append(_text(4, top + 13, row.name, "label"))
        parts.append(_text(WIDTH - 4, top + 13, row.note or number(row.value), "label", "end"))
        left, width = min(zero, end), max(abs(end - zero), 0.8)
        parts.append(_rectangle(left, top + 18, width, 9, "bar-fill", f"fill:var(--{row.colour})"))
        parts.append(f'<line class="zero" x1="{zero:.1f}" x2="{zero:.1f}" y1="{top + 16}" y2="{top + 29}"/>')
    cells = [[row.name, number(row.value), row.note] for row in rows]
    return _figure(title, description, height, parts, "", table(["", x, ""], cells))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1, text_last: bool = False) -> str:
    """A table of texts; columns from ``numbers_from`` on are numbers, but for the last one if ``text_last``."""
    end = len(head) - text_last

    def kind(n: int) -> str:
        return ' class="number"' if numbers_from <= n < end else ' class="wide"' if n >= end else ""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}{kind(n)}>{escape(cell)}</{tag}>" for n, cell in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(
    title: str,
    description: str,
    drawing: str,
    size: tuple[float, float],
    extra: str,
    numbers: str,
    fill: bool = True,
) -> str:
    """A drawing of any kind with its title and its numbers. ``drawing``, ``extra`` and ``numbers`` are markup.

    It fills the width that there is, within reason, or else has its own width, if there is so much.
    """
    width, height = size
    style = f"max-width:{1.2 * width:.0f}px" if fill else f"width:{1.1 * width:.0f}px;max-width:100%"
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg role="img" viewBox="0 0 {width:.0f} {height:.0f}" style="{style}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{drawing}</svg>{extra}"
        f"<details><summary>Numbers</summary>{numbers}</details></figure>"
    )


def _figure(title: str, description: str, height: int, parts: Sequence[str], extra: str, numbers: str) -> str:
    return figure(title, description, "".join(parts), (WIDTH, height), extra, numbers)


def _frame(x: Axis, y: Axis, x_name: str, y_name: str, height: int) -> str:
    parts = [_x_ticks(x, y.end, y.start)]
    for tick in y.ticks:
        place = y.place(tick)
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end:.1f}" y1="{place:.1f}" y2="{place:.1f}"/>')
        parts.append(_text(x.start - 5, place + 4, number(tick), "axis", "end"))
    parts.append(_text((x.start + x.end) / 2, height - 4, x_name, "axis", "middle"))
    parts.append(_text(4, 12, y_name, "axis"))
    return "".join(parts)


def _x_ticks(axis: Axis, top: float, bottom: float) -> str:
    parts = []
    for tick in axis.ticks:
        place = axis.place(tick)
        parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>')
        parts.append(_text(place, bottom + 15, number(tick), "axis", "middle"))
    return "".join(parts)


def _path(x: Axis, y: Axis, points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x.place(px):.1f} {y.place(py):.1f}" for px, py in points)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rectangle(x: float, y: float, width: float, height: float, kind: str, style: str = "") -> str:
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    styled = f' style="{style}"' if style else ""
    return f'<rect class="{kind}" {size}{styled}/>'


def apart(labels: Sequence[tuple[float, str]], bottom: float, room: float = 13.0) -> list[tuple[float, str]]:
    """The places of labels, moved down where they would overlap, and up again where they would leave the chart."""
    ordered = sorted(labels)
    places: list[float] = []
    for place, _ in ordered:
        places.append(max(place, places[-1] + room) if places else place)
    for n in reversed(range(len(places))):
        places[n] = min(places[n], bottom if n == len(places) - 1 else places[n + 1] - room)
    return [(place, label) for place, (_, label) in zip(places, ordered, strict=True)]


def _dashed(dashes: str) -> str:
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _legend(styles: Sequence[tuple[str, str, str]], letters: Sequence[str]) -> str:
    items = []
    for (name, colour, dashes), letter in zip(styles, letters, strict=True):
        line = f'<path class="line" style="stroke:var(--{colour})"{_dashed(dashes)} d="M1 6L29 6"/>'
        shown = f"<b>{letter}</b> {escape(name)}" if letter else escape(name)
        items.append(f'<li><svg viewBox="0 0 30 12" aria-hidden="true">{line}</svg>{shown}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def _series_table(chart: LineChart) -> str:
    """All points, a row for each x."""
    head, known = [chart.x], []
    for series in chart.series:
        banded = bool(series.band)
        head += [series.name or chart.y, *(["from", "to"] if banded else [])]
        ends: Sequence[tuple[float, ...]] = series.band or [()] * len(series.points)
        known.append({p[0]: [number(v) for v in (p[1], *b)] for p, b in zip(series.points, ends, strict=True)})
    sizes = [len(next(iter(values.values()), [""])) for values in known]
    rows = []
    for place in sorted({p[0] for series in chart.series for p in series.points}):
        cells = [cell for values, size in zip(known, sizes, strict=True) for cell in values.get(place, [""] * size)]
        rows.append([number(place), *cells])
    return table(head, rows, numbers_from=0)
