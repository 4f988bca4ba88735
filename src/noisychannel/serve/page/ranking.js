"use strict";
// The objective, in the browser: O = Σ weight × term. Nothing here touches the page.

const KNOWN_TERMS = {
  direct: ["direct", "log q(output | input)"],
  channel: ["channel", "log p(input | output)"],
  lm: ["language model", "log p(output)"],
  length: ["length", "symbols"],
  word_list: ["word list", "−1 if not listed"],
  seen: ["seen pairs", "log of counts"],
};
const termName = (name) => (KNOWN_TERMS[name] || [name])[0];
const termFormula = (name) => (KNOWN_TERMS[name] || ["", ""])[1];
const termClass = (name) => (KNOWN_TERMS[name] ? name : "other");

// What each term costs, in nats: minus weight × term. A term that is not known costs nothing if it has no weight.
function costsOf(hypothesis, weights) {
  const terms = hypothesis.weighed; // as the objective has them, which may divide them by lengths
  return Object.entries(weights).map(([name, weight]) => {
    const term = terms[name];
    const known = term !== null && term !== undefined;
    return { name, weight, term: known ? term : null, cost: weight === 0 ? 0 : known ? -weight * term : Infinity };
  });
}

const totalOf = (costs) => costs.reduce((sum, one) => sum + one.cost, 0);

// The places of hypotheses in order of their cost; equal ones stay as the search had them.
function ranked(hypotheses, weights) {
  const totals = hypotheses.map((one) => totalOf(costsOf(one, weights)));
  const places = hypotheses.map((_, n) => n);
  return places.sort((a, b) => {
    if (hypotheses[a].complete !== hypotheses[b].complete) return hypotheses[a].complete ? -1 : 1;
    return totals[a] === totals[b] ? a - b : totals[a] - totals[b];
  });
}

const sameWeights = (a, b) => Object.keys(a).every((name) => Math.abs(a[name] - (b[name] ?? 0)) < 1e-5);
const anyModel = (weights) => Object.entries(weights).some(([name, weight]) => name !== "length" && weight !== 0);

// The ends of a slider: room on both sides of the tuned weight, to the other side of zero only for the length.
function rangeOf(name, tuned) {
  const most = Math.max(2, Math.ceil(2 * Math.abs(tuned)));
  if (name === "length") return [-most, most];
  return tuned < 0 ? [-most, 0] : [0, most];
}
