"use strict";
// Alignments as heat maps: a row for each input symbol, a column for each output symbol, both with the end.

const CELL = 26;
const LETTER = 8.6;

function heatMap(kind, points, rows, columns, best, label) {
  const margin = 14 + LETTER * Math.max(...rows.map(letters));
  const longest = Math.max(...columns.map(letters));
  const top = longest > 2 ? 14 + LETTER * longest * 0.87 : 24;
  const slant = longest > 2 ? LETTER * longest * 0.5 : 0;
  const width = margin + CELL * columns.length + 4 + slant;
  const height = top + CELL * rows.length + 4;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  svg.style.maxWidth = "100%"; // on a phone it shrinks a little before it scrolls
  svg.style.minWidth = `${Math.round(0.7 * width)}px`;
  svg.style.height = "auto";
  rows.forEach((symbol, i) => {
    svg.append(drawn("text", { x: margin - 8, y: top + CELL * i + 18, "text-anchor": "end", "font-size": 14,
      class: symbol === END ? "end" : "" }, shown(symbol)));
  });
  columns.forEach((symbol, j) => {
    const x = margin + CELL * (j + 0.5);
    const turned = longest > 2 ? { transform: `rotate(-60 ${x} ${top - 8})`, "text-anchor": "start" } : { "text-anchor": "middle" };
    svg.append(drawn("text", { x, y: top - 8, "font-size": 14, class: symbol === END ? "end" : "", ...turned }, shown(symbol)));
  });
  points.forEach((row, i) => row.forEach((point, j) => {
    const place = { x: margin + CELL * j + 1, y: top + CELL * i + 1, width: CELL - 2, height: CELL - 2, rx: 3 };
    svg.append(drawn("rect", { ...place, class: "grid" }));
    if (point < 0.005) return;
    const title = drawn("title", {}, `${shown(columns[j])} – ${shown(rows[i])}: ${point.toFixed(2)}`);
    svg.append(drawn("rect", { ...place, class: `heat-${kind}`, "fill-opacity": 0.12 + 0.88 * point }, title));
  }));
  for (const [i, j] of best) {
    svg.append(drawn("circle", { class: "point", cx: margin + CELL * (j + 0.5), cy: top + CELL * (i + 0.5), r: 4 }));
  }
  return svg;
}

// For each symbol of one side, the most probable symbol of the other.
const pairsOf = (points, rows, columns, byColumn) => (byColumn ? columns : rows).map((symbol, n) => {
  const line = byColumn ? points.map((row) => row[n]) : points[n];
  const place = line.indexOf(Math.max(...line));
  return [spoken(symbol), spoken((byColumn ? rows : columns)[place]), line[place]];
});

function figure(kind, title, hint, points, rows, columns, best, byColumn) {
  const pairs = pairsOf(points, rows, columns, byColumn);
  const label = `${title}: ${pairs.map(([one, other]) => `${one} from ${other}`).join(", ")}`;
  const list = pairs.map(([one, other, point]) => element("li", {}, `${one} ← ${other} (${point.toFixed(2)})`));
  return element("figure", { id: `${kind}-alignment` },
    element("figcaption", {}, title, element("small", {}, hint)),
    element("div", { class: "scroll" }, heatMap(kind, points, rows, columns, best, label)),
    element("details", {}, element("summary", {}, "As text"), element("ul", { class: "symbols" }, ...list)));
}

function showAlignments(answer, hypothesis) {
  $("aligned").textContent = hypothesis.output;
  const points = hypothesis.posteriors;
  const rows = [...answer.input_symbols, END];
  const columns = [...hypothesis.output_symbols, END];
  const figures = [];
  if (points && points.direct) {
    const best = (hypothesis.alignment || []).map((i, j) => [i, j]);
    figures.push(figure("direct", "Direct model", "where in the input each output symbol comes from; columns sum to 1",
      points.direct, rows, columns, best, true));
  }
  if (points && points.channel) {
    const best = (hypothesis.channel_alignment || []).map((j, i) => [i, j]);
    figures.push(figure("channel", "Channel model", "where in the output each input symbol comes from; rows sum to 1",
      points.channel, rows, [...answer.context_symbols, ...columns], best, false));
  }
  if (!figures.length) figures.push(element("p", { class: "faint" }, "No model of this system aligns this output."));
  $("alignments").replaceChildren(...figures);
}
