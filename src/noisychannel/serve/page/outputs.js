"use strict";
// The list of outputs with its bars, and the sliders.

function showLegend(weights) {
  const items = Object.keys(weights).map((name) =>
    element("li", {}, element("span", { class: `swatch term-${termClass(name)}` }), termName(name)));
  $("legend").replaceChildren(...items);
}

// One track: costs to the right of zero, rewards to the left. left, right: how far all tracks reach, in nats.
function track(costs, left, right) {
  const scale = 100 / Math.max(left + right, 1e-9);
  const made = element("div", { class: "track", "aria-hidden": "true" });
  let up = 0;
  let down = 0;
  for (const { name, cost } of costs) {
    if (cost === 0 || !Number.isFinite(cost)) continue;
    const width = Math.abs(cost) * scale;
    const start = cost > 0 ? (left + up) * scale : (left - down) * scale - width;
    if (cost > 0) up += cost;
    else down -= cost;
    const bar = element("div", { class: `bar ${termClass(name)} term-${termClass(name)}`, title: `${termName(name)}: ${fixed(cost)} nats` });
    bar.style.left = `${start}%`;
    bar.style.width = `${width}%`;
    if (width > 9) bar.append(fixed(cost, 1));
    made.append(bar);
  }
  const zero = element("div", { class: "zero" });
  zero.style.left = `${left * scale}%`;
  made.append(zero);
  const total = totalOf(costs);
  if (Number.isFinite(total)) {
    const sum = element("div", { class: "sum" });
    sum.style.left = `${(left + total) * scale}%`;
    made.append(sum);
  }
  return made;
}

// Nothing is certain, and nothing is out of the question.
function percent(share) {
  if (share < 0.005) return "< 1 %";
  return share >= 0.995 ? "> 99 %" : `${Math.round(100 * share)} %`;
}

function showOutputs(answer, weights, selected, searched, choose) {
  const hypotheses = answer.hypotheses;
  const all = hypotheses.map((one) => costsOf(one, weights));
  const reach = (sign) => Math.max(0.5, ...all.map((costs) =>
    costs.reduce((sum, { cost }) => sum + (Number.isFinite(cost) ? Math.max(0, sign * cost) : 0), 0)));
  const left = all.some((costs) => costs.some(({ cost }) => cost < 0)) ? reach(-1) : 0;
  const right = reach(1);
  const changed = !sameWeights(weights, searched);
  const rows = ranked(hypotheses, weights).map((place, rank) => {
    const one = hypotheses[place];
    const total = totalOf(all[place]);
    const moved = place - rank;
    const name = one.output + (one.complete ? "" : " …");
    const text = element("span", { class: "output-text" }, name);
    if (moved) text.append(element("span", { class: "moved" }, `${moved > 0 ? "▲" : "▼"} was ${place + 1}`));
    else if (!changed && one.confidence !== null) {
      text.append(element("span", { class: "sure", title: "calibrated probability that it is right" }, `${percent(one.confidence)} sure`));
    }
    const radio = element("input", {
      type: "radio", name: "output", value: place, checked: place === selected,
      "aria-label": `${rank + 1}. ${name}, cost ${fixed(total)} nats: ` +
        all[place].map((cost) => `${termName(cost.name)} ${fixed(cost.cost)}`).join(", "),
    });
    radio.addEventListener("change", () => choose(place));
    const label = element("label", {}, radio, element("span", { class: "rank" }, `${rank + 1}.`), text,
      element("span", { class: "cost" }, Number.isFinite(total) ? fixed(total) : "∞"), track(all[place], left, right));
    return element("li", { class: rank === 0 ? "first" : "", "data-output": one.output }, label);
  });
  const focused = document.activeElement && document.activeElement.name === "output";
  $("outputs").replaceChildren(...rows);
  if (focused) $("outputs").querySelector("input:checked")?.focus();
  showNumbers(hypotheses, all, weights);
}

function showNumbers(hypotheses, all, weights) {
  const names = Object.keys(weights);
  const head = element("tr", {}, element("th", {}, "output"), element("th", { class: "number" }, "cost"),
    ...names.map((name) => element("th", { class: "number" }, termName(name))));
  const rows = ranked(hypotheses, weights).map((place) => element("tr", {},
    element("td", {}, hypotheses[place].output), element("td", { class: "number" }, fixed(totalOf(all[place]))),
    ...all[place].map(({ weight, term }) => element("td", { class: "number" },
      term === null ? "–" : `${fixed(weight)} × ${fixed(term)}`))));
  $("numbers").replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)),
    element("p", { class: "faint" }, "Each cell is weight × term; a cost is minus the sum of its row."));
}

function showWeights(weights, tuned, change) {
  const rows = Object.keys(weights).map((name) => {
    const [least, most] = rangeOf(name, tuned[name] ?? 0);
    const id = `weight-${name}`;
    const slider = element("input", {
      type: "range", id, "data-term": name, step: "any",
      min: Math.min(least, weights[name]), max: Math.max(most, weights[name]),
    });
    slider.value = weights[name];
    const value = element("output", { for: id, id: `${id}-value` });
    slider.addEventListener("input", () => change(name, Number(slider.value)));
    return element("div", { class: "weight" },
      element("label", { for: id }, element("span", { class: `swatch term-${termClass(name)}` }), termName(name), " ",
        element("span", { class: "formula" }, termFormula(name))), value, slider);
  });
  $("weights").replaceChildren(...rows);
  updateWeights(weights, tuned);
}

function updateWeights(weights, tuned) {
  for (const [name, weight] of Object.entries(weights)) {
    const value = $(`weight-${name}-value`);
    value.textContent = fixed(weight);
    value.className = Math.abs(weight - (tuned[name] ?? 0)) < 1e-5 ? "" : "changed";
    $(`weight-${name}`).setAttribute("aria-valuetext", fixed(weight));
  }
}
