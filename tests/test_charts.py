"""Charts of pages: axes, and what every drawing has."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.pages import asset
from noisychannel.pages.axes import make_axis
from noisychannel.pages.charts import Bar, Dot, LineChart, Mark, Series, apart, bars, dots, lines, table
from noisychannel.pages.heat_maps import HeatMap, heat_map

NUMBERS = st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=8)
HOSTILE = "<img src=x onerror=alert(1)></svg></script>\"'&"


@given(NUMBERS, st.booleans())
def test_an_axis_holds_its_values_in_order_and_has_ticks(values: list[float], tight: bool) -> None:
    axis = make_axis(values, 40, 340, tight=tight)
    places = [axis.place(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(40 <= place <= 340 for place in places)
    rounding = 1e-6 * (max(values) - min(values))
    assert axis.low <= min(values) + rounding
    assert axis.high >= max(values) - rounding
    assert len(axis.ticks) <= 12
    assert all(a < b for a, b in pairwise(axis.ticks))


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=8))
def test_equal_ratios_are_equally_long_on_a_logarithmic_axis(values: list[float]) -> None:
    axis = make_axis(values, 0, 100, logarithmic=True)
    assert axis.low <= min(values)
    assert axis.high >= max(values)
    assert axis.ticks[0] > 0
    middle = math.sqrt(axis.low * axis.high)
    assert axis.place(middle) == pytest.approx(50, abs=1e-6)


def line_chart(name: str) -> str:
    series = [Series(name, [(1.0, 3.0), (2.0, 5.5)], [(2.0, 4.0), (5.0, 6.0)]), Series("other", [(1.0, 4.0)])]
    return lines(LineChart(name, name, name, name, series, [Mark(1.5, name)], (1.2, 1.8)))


CHARTS: list[Callable[[str], str]] = [
    line_chart,
    lambda name: dots(name, name, name, [Dot(name, 2.0, 1.0, 3.0, name)]),
    lambda name: bars(name, name, name, [Bar(name, -2.0), Bar("b", 3.25)]),
    lambda name: heat_map(HeatMap(name, name, [name], [name], [[0.5]], name, name)),
]


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_is_named_described_and_has_its_numbers(chart: Callable[[str], str]) -> None:
    drawn = chart("a name")
    assert re.search(r'<svg role="img"[^>]*><title>a name</title><desc>a name</desc>', drawn)
    assert re.search(r"<details><summary>Numbers</summary>.*<table>.*</table>.*</details>", drawn)
    assert "nan" not in drawn
    assert not re.search(r"(fill|stroke)[:=]\"?#", drawn), "a colour that does not follow light and dark"


@pytest.mark.parametrize("chart", CHARTS)
def test_no_text_leaves_its_place(chart: Callable[[str], str]) -> None:
    drawn = chart(HOSTILE)
    assert "<img" not in drawn
    assert drawn.count("</svg>") == chart("a").count("</svg>")
    assert "&lt;img" in drawn


@pytest.mark.parametrize("chart", CHARTS[:3])
def test_labels_are_in_front_of_grid_lines(chart: Callable[[str], str]) -> None:
    drawn = chart("a name")
    assert drawn.rindex('class="grid"') < drawn.index('<text class="label')
    (rule,) = re.findall(r"svg text\.label \{(.*?)\}", asset("noisychannel.pages", "charts.css"))
    assert "paint-order: stroke; stroke: var(--raised)" in rule, "what is behind a label does not cross it"


def test_lines_differ_without_colour_and_the_table_has_every_point() -> None:
    drawn = line_chart("first")
    dashes = re.findall(r'<path class="line"[^>]*?(?:stroke-dasharray="([^"]*)")?\s+d="M', drawn)
    assert len(set(dashes[:2])) == 2
    rows = re.findall(r"<tr>(.*?)</tr>", drawn)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows[1:]]
    assert cells == [["1", "3", "2", "4", "4"], ["2", "5.5", "5", "6", ""]]


@given(st.lists(st.tuples(st.floats(0, 180), st.text(max_size=3)), max_size=10))
def test_labels_do_not_overlap_and_stay_inside(labels: list[tuple[float, str]]) -> None:
    placed = apart(labels, 180, room=13)
    assert sorted(label for _, label in placed) == sorted(label for _, label in labels)
    heights = [height for height, _ in placed]
    assert all(b - a >= 13 - 1e-9 for a, b in pairwise(heights))
    assert all(height <= 180 for height in heights)
    if len(labels) == 1:
        assert placed == labels


def test_bars_have_lengths_in_the_ratio_of_their_values() -> None:
    drawn = bars("b", "b", "x", [Bar("one", 10.0), Bar("half", 5.0), Bar("less", -5.0)])
    widths = [float(width) for width in re.findall(r'<rect class="bar-fill"[^>]* width="([\d.]+)"', drawn)]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert widths[1] == pytest.approx(widths[2], abs=0.2)


def test_a_darker_cell_is_a_larger_share() -> None:
    chart = HeatMap("h", "h", ["r", "s"], ["c", "d"], [[0.2, 0.8], [0.0, 1.0]], "row", "column")
    opacities = re.findall(r'fill-opacity="([\d.]+)"', heat_map(chart))
    assert opacities == ["0.20", "0.80", "1.00"], "a cell without a share is not drawn"


def test_a_table_keeps_texts_and_numbers_apart() -> None:
    drawn = table(["a", "b", "c"], [["<x>", "1", "text"]], text_last=True)
    assert "<td>&lt;x&gt;</td>" in drawn
    assert '<td class="number">1</td>' in drawn
    assert '<td class="number">text' not in drawn
