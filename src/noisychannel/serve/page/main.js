"use strict";
// The page: what is typed, what the server answers, what the sliders change.

const state = { server: null, answer: null, searched: {}, weights: {}, tuned: {}, selected: 0, own: null, open: new Set(), asked: 0, running: null, started: null };

async function ask(path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer.");
  }
  const answer = await response.json().catch(() => ({ error: `status ${response.status}` }));
  if (response.status === 401) {
    $("token-field").hidden = false;
    $("token").focus();
  }
  if (!response.ok) throw new Error(answer.error || `status ${response.status}`);
  $("token-field").hidden = true;
  return answer;
}

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").className = bad ? "status bad" : "status";
}

const runNow = () => state.server.runs.find((run) => run.name === $("run").value) || state.server.runs[0];
const systemNow = () => runNow().systems.find((system) => system.name === $("system").value);

function sayTags(text) {
  $("tags-problem").textContent = text;
  $("tags-problem").hidden = !text;
  $("tags").setAttribute("aria-invalid", text ? "true" : "false");
}

function sayLink(text) {
  $("link-problem").textContent = text;
  $("link-problem").hidden = !text;
}

function showRun() {
  const run = runNow();
  $("system").replaceChildren(...run.systems.map((system) => element("option", { value: system.name }, system.name)));
  $("system").value = run.default_system;
  $("tags-field").hidden = !run.needs_features;
  sayTags("");
  const tagged = run.examples.find(({ features }) => features.length); // their order counts
  $("tags").placeholder = (tagged ? tagged.features : run.features.slice(0, 2)).join(run.feature_separator);
  $("known-tags").replaceChildren(...run.features.map((tag) => element("option", { value: tag })));
  const separator = run.feature_separator;
  let written = 0; // long examples would fill the page
  const few = run.examples.filter(({ text }) => (written += text.length) === text.length || written <= 240);
  const examples = few.map(({ text, features }) => {
    const button = element("button", { type: "button" }, text + (features.length ? ` ${features.join(separator)}` : ""));
    button.addEventListener("click", () => {
      $("input").value = text;
      $("tags").value = features.join(separator);
      decode(state.own);
    });
    return button;
  });
  $("examples").hidden = !examples.length;
  $("examples").replaceChildren(element("span", {}, "Try:"), ...examples);
}

// The newest input counts: what is being decoded for an older one is of no use, and the server drops what nobody waits for.
function stopAsking() {
  state.asked += 1;
  state.running?.request.abort();
  state.running = null;
  say("");
}

// own: weights to search with in place of the tuned ones. view: what a link says about sliders and selection.
async function decode(own, view = null) {
  if (!view) sayLink("");
  const input = $("input").value.trim();
  if (!input) {
    say("Type an input.", true);
    $("input").focus();
    return;
  }
  const run = runNow();
  const features = run.needs_features ? $("tags").value.split(run.feature_separator).map((tag) => tag.trim()).filter(Boolean) : [];
  if (run.needs_features && !features.length) {
    stopAsking();
    sayTags(`This run needs tags${$("tags").placeholder && `, such as ${$("tags").placeholder}`}.`);
    $("tags").focus();
    return;
  }
  sayTags("");
  const n = Math.min(Math.max(1, Math.round(Number($("n-best").value)) || 5), state.server.limits.max_n_best);
  const body = { run: run.name, system: $("system").value, input, features, n_best: n };
  if (own) body.weights = own;
  const wanted = JSON.stringify([body, view]);
  if (state.running?.wanted === wanted) return; // a key that is held down must not start the same search again and again
  stopAsking();
  const number = state.asked;
  state.running = { wanted, request: new AbortController() };
  say("Decoding …");
  try {
    const began = performance.now();
    const answer = await ask("/api/explain", body, state.running.request.signal);
    if (number !== state.asked) return;
    show(answer, own, view);
    const seconds = (performance.now() - began) / 1000;
    say(`${answer.results[0].hypotheses.length} outputs of “${input}” in ${seconds.toFixed(2)} s.`);
    remember(true);
  } catch (error) {
    if (number === state.asked) say(error.message, true);
  } finally {
    if (number === state.asked) state.running = null;
  }
}

function show(answer, own, view) {
  state.answer = answer.results[0];
  state.own = own;
  state.searched = answer.weights;
  state.tuned = systemNow().weights;
  state.weights = { ...answer.weights };
  for (const [name, weight] of Object.entries((view && view.weights) || {})) {
    if (name in state.weights) state.weights[name] = weight;
  }
  state.open = new Set();
  const first = ranked(state.answer.hypotheses, state.weights)[0];
  state.selected = Math.min(view?.selected ?? first, state.answer.hypotheses.length - 1);
  $("results").hidden = false;
  showLegend(state.weights);
  showWeights(state.weights, state.tuned, slide);
  showRemarks();
  rank();
  choose(state.selected, false);
}

function showRemarks() {
  const { unknown_symbols: symbols, unknown_features: tags } = state.answer;
  const parts = [];
  if (symbols.length) parts.push(`The models do not know ${[...new Set(symbols)].map((one) => `“${one}”`).join(", ")}, and can only guess what to make of it.`);
  if (tags.length) parts.push(`The models do not know the ${tags.length === 1 ? "tag" : "tags"} ${tags.join(", ")}.`);
  $("remarks").textContent = parts.join(" ");
  $("remarks").hidden = !parts.length;
}

function slide(name, weight) {
  state.weights[name] = weight;
  updateWeights(state.weights, state.tuned);
  const before = state.order;
  rank();
  if (before !== state.order) choose(ranked(state.answer.hypotheses, state.weights)[0], false);
  remember(false);
}

function rank() {
  const { hypotheses } = state.answer;
  const order = ranked(hypotheses, state.weights);
  state.order = order.join();
  showOutputs(state.answer, state.weights, state.selected, state.searched, choose);
  const same = sameWeights(state.weights, state.searched);
  const differs = order.some((place, n) => place !== n);
  const whose = sameWeights(state.searched, state.tuned) ? "the weights of the system" : "your weights";
  let text = `This is the order of the search, with ${whose}.`;
  if (differs && order[0] !== 0) text = `The order differs from the search’s: “${hypotheses[order[0]].output}” is now first instead of “${hypotheses[0].output}”.`;
  else if (differs) text = "The order differs from the search’s, below the first.";
  else if (!same) text = "The order is still that of the search. With these weights it may find other outputs.";
  if (!anyModel(state.weights)) text = "Give a model a weight: now nothing is left to rank by.";
  $("order").textContent = text;
  $("order").className = differs ? "order differs" : "order";
  $("again").disabled = !anyModel(state.weights);
  showButton($("again"), !same);
  showButton($("reset"), !same || !sameWeights(state.searched, state.tuned));
}

// A button that goes away takes the focus with it: who uses the keyboard would begin again at the top of the page.
function showButton(button, visible) {
  const focused = document.activeElement === button;
  button.hidden = !visible;
  if (focused && !visible) $("link").focus();
}

function choose(place, kept = true) {
  state.selected = place;
  const radio = $("outputs").querySelector(`input[value="${place}"]`);
  if (radio) radio.checked = true;
  const one = state.answer.hypotheses[place];
  showAlignments(state.answer, one);
  const whole = state.answer.hypotheses.filter((other) => other.complete);
  showTree(state.answer.tree, whole.indexOf(one), state.open);
  if (kept) remember(false);
}

function viewNow() {
  const moved = state.answer && !sameWeights(state.weights, state.searched);
  return {
    run: state.server.runs.length > 1 ? runNow().name : "", system: systemNow().name === runNow().default_system ? "" : systemNow().name,
    input: state.answer ? state.answer.input : $("input").value, n: Number($("n-best").value), selected: state.selected,
    tags: state.answer ? state.answer.features.join(runNow().feature_separator) : "",
    searched: state.own, weights: moved ? state.weights : null,
  };
}

function remember(entry) {
  const fragment = writtenView(viewNow());
  if (fragment === location.hash) return;
  history[entry ? "pushState" : "replaceState"](null, "", fragment);
}

function restore() {
  const view = readView(location.hash);
  const missing = [];
  if (state.server.runs.some((run) => run.name === view.run)) $("run").value = view.run;
  else if (view.run) missing.push(`run “${view.run}”`);
  showRun();
  if (runNow().systems.some((system) => system.name === view.system)) $("system").value = view.system;
  else if (view.system) missing.push(`system “${view.system}”`);
  sayLink(missing.length ? `The link names a ${missing.join(" and a ")} that this server does not have; this is ${runNow().name}, ${$("system").value}.` : "");
  if (!view.input) return; // what was typed while the page was loading stays
  $("input").value = view.input;
  $("tags").value = view.tags;
  $("n-best").value = view.n;
  decode(view.searched, view);
}

async function start() {
  try {
    state.server = await ask("/api/runs");
  } catch (error) {
    say(error.message, true);
    return;
  }
  say("");
  $("run").replaceChildren(...state.server.runs.map((run) => element("option", { value: run.name }, run.name)));
  $("run-field").hidden = state.server.runs.length < 2;
  $("n-best").max = state.server.limits.max_n_best;
  restore();
}

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  await state.started;
  if (state.server) decode(state.own);
});
$("run").addEventListener("change", () => { state.own = null; showRun(); if (state.answer) decode(null); });
$("system").addEventListener("change", () => { state.own = null; if (state.answer) decode(null); });
$("again").addEventListener("click", () => decode({ ...state.weights }));
$("reset").addEventListener("click", () => {
  if (!sameWeights(state.searched, state.tuned)) return void decode(null);
  state.weights = { ...state.searched };
  showWeights(state.weights, state.tuned, slide);
  rank();
  remember(false);
});
$("link").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is copied. It shows this view again.");
  } catch {
    say(`Copy the address: ${location.href}`);
  }
});
$("token").addEventListener("change", () => {
  sessionStorage.setItem("token", $("token").value.trim());
  $("token").value = "";
  state.started = start();
});
$("tags").addEventListener("input", () => sayTags(""));
window.addEventListener("popstate", () => state.server && restore());
state.started = start();
