"use strict";
// What is shown, as a fragment of the address, so that a link reproduces it.

function writtenWeights(weights) {
  return Object.entries(weights).map(([name, weight]) => `${name}:${+weight.toFixed(6)}`).join(",");
}

function readWeights(text) {
  const found = {};
  for (const part of (text || "").split(",").filter(Boolean)) {
    const [name, value] = part.split(":");
    if (/^[a-z][a-z0-9_]*$/.test(name) && Number.isFinite(Number(value)) && value !== "") found[name] = Number(value);
  }
  return found;
}

function writtenView(view) {
  const fields = new URLSearchParams();
  for (const name of ["run", "system", "input", "tags"]) if (view[name]) fields.set(name, view[name]);
  if (view.n !== 5) fields.set("n", view.n);
  if (view.searched) fields.set("searched", writtenWeights(view.searched));
  if (view.weights) fields.set("weights", writtenWeights(view.weights));
  if (view.selected || view.weights) fields.set("selected", view.selected);
  return `#${fields}`;
}

function readView(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const number = (name, other) => (/^\d{1,3}$/.test(fields.get(name) || "") ? Number(fields.get(name)) : other);
  return {
    run: fields.get("run") || "", system: fields.get("system") || "", input: fields.get("input") || "",
    tags: fields.get("tags") || "", n: number("n", 5), selected: number("selected", null),
    searched: fields.has("searched") ? readWeights(fields.get("searched")) : null,
    weights: fields.has("weights") ? readWeights(fields.get("weights")) : null,
  };
}
