"use strict";
// The tree of the search. The best path is a straight line at the top; rivals branch off below it.

const ROW = 30;
const ALL_OPEN = 40;
const LISTED = 8;

// From the flat list of the answer: children, prefixes, and what lies on the way to an output.
function grown(tree, ranks) {
  const nodes = tree.nodes.map((node, n) => ({ ...node, n, children: [], prefix: [], kept: false, best: false }));
  for (const node of nodes.slice(1)) {
    node.up = nodes[node.parent];
    node.up.children.push(node);
    node.prefix = [...node.up.prefix, node.symbol];
  }
  tree.paths.forEach((end, place) => {
    for (let node = end === null ? null : nodes[end]; node; node = node.up) {
      node.kept = true;
      node.best ||= place === ranks;
    }
  });
  for (const node of nodes) {
    node.children.sort((a, b) => b.best - a.best || b.kept - a.kept || (b.score ?? -Infinity) - (a.score ?? -Infinity));
  }
  return nodes;
}

// As in the list of outputs.
const costOf = (node) => (node.score === null ? null : -node.score);

const visibleChildren = (node, open) => node.children.filter((child) => child.kept || open.has(node.n));

function showTree(tree, place, open) {
  $("tree-section").hidden = !tree;
  if (!tree) return;
  const nodes = grown(tree, place);
  if (open.size === 0 && nodes.length <= ALL_OPEN) nodes.forEach((node) => open.add(node.n));
  const number = nodes.length - 1;
  const some = tree.left_out ? ` The best ${number} of them are here.` : "";
  $("tree-hint").textContent = `${number + tree.left_out} beginnings of outputs survived in some cell of the search.${some} ` +
    "The thick line leads to the output that is selected above, ▪ is the end. Numbers are costs: lower is better. Press +n to see n rivals that lost.";
  drawTree(tree, place, open, nodes);
  showSteps(nodes);
}

function drawTree(tree, place, open, nodes) {
  const widths = [];
  const spot = new Map();
  let rows = 0;
  (function put(node, depth, row) {
    spot.set(node, [depth, row]);
    widths[depth] = Math.max(widths[depth] ?? 0, 20 + LETTER * letters(shown(node.symbol)));
    visibleChildren(node, open).forEach((child, n) => put(child, depth + 1, n === 0 ? row : ++rows));
  })(nodes[0], 0, 0);
  const starts = [];
  widths.reduce((x, width, depth) => { starts[depth] = x; return x + width + 26; }, 8);
  const x = (node) => starts[spot.get(node)[0]];
  const y = (node) => 22 + ROW * spot.get(node)[1];
  const width = starts[starts.length - 1] + widths[widths.length - 1] + 90;
  const svg = drawn("svg", { width, height: 44 + ROW * rows, role: "group", "aria-label": "Tree of the search" });
  const edges = drawn("g");
  svg.append(edges);
  const redraw = (node) => {
    if (open.has(node.n)) open.delete(node.n);
    else open.add(node.n);
    drawTree(tree, place, open, nodes);
    $("tree").querySelector(`[data-node="${node.n}"]`)?.focus();
  };
  for (const node of spot.keys()) {
    const wide = 14 + LETTER * letters(shown(node.symbol) || "•");
    const kind = node.best ? "best" : node.kept ? "kept" : "lost";
    const hidden = node.children.filter((child) => !child.kept).length;
    const about = node.n === 0 ? "the empty output" :
      `${node.prefix.map(spoken).join(" ")}: cost ${fixed(costOf(node))}` +
      (node.complete ? ", complete" : `, survived in ${node.cells.length} cell${node.cells.length === 1 ? "" : "s"}`);
    const group = drawn("g", { class: kind, transform: `translate(${x(node)} ${y(node)})` }, drawn("title", {}, about),
      drawn("rect", { x: 0, y: -12, width: wide, height: 24, rx: 6 }),
      drawn("text", { x: wide / 2, y: 5, "text-anchor": "middle", "font-size": 14 }, shown(node.symbol) || "•"));
    if (node.complete) group.append(drawn("text", { class: "score", x: wide + 6, y: 4 }, fixed(costOf(node))));
    if (hidden) {
      const label = open.has(node.n) ? "−" : `+${hidden}`;
      group.append(drawn("text", { class: "more", x: wide + 2, y: -4 }, label));
      filled(group, { role: "button", tabindex: 0, "data-node": node.n, "aria-expanded": open.has(node.n) ? "true" : "false",
        "aria-label": `${about}; ${hidden} ${hidden === 1 ? "rival" : "rivals"}` }, []);
      group.addEventListener("click", () => redraw(node));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        redraw(node);
      });
    }
    svg.append(group);
    if (node.up && spot.has(node.up)) {
      const from = [x(node.up) + 14 + LETTER * letters(shown(node.up.symbol) || "•"), y(node.up)];
      const bend = from[0] + 12;
      const path = from[1] === y(node) ? `M${from[0]} ${from[1]}H${x(node)}`
        : `M${from[0]} ${from[1]}H${bend - 6}Q${bend} ${from[1]} ${bend} ${from[1] + 8}V${y(node) - 8}Q${bend} ${y(node)} ${bend + 8} ${y(node)}H${x(node)}`;
      const edge = drawn("path", { class: `edge ${kind}`, d: path });
      if (node.best) edges.append(edge);
      else edges.prepend(edge);
    }
  }
  $("tree").replaceChildren(svg);
}

function showSteps(nodes) {
  const steps = [];
  for (const node of nodes.slice(1)) (steps[node.prefix.length - 1] ??= []).push(node);
  $("tree-text").replaceChildren(...steps.map((step) => {
    const listed = [...step].sort((a, b) => b.best - a.best || b.score - a.score).slice(0, LISTED);
    const texts = listed.map((node) => `${node.prefix.map(shown).join("")} (${fixed(costOf(node))})${node.best ? " *" : ""}`);
    const rest = step.length > LISTED ? `, and ${step.length - LISTED} more` : "";
    return element("li", {}, texts.join(", ") + rest);
  }));
}
