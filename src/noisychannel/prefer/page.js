"use strict";
// Shows the items of the page one by one and keeps what the rater says, in this browser and on the server, if there is one.
// A rating is never changed: the log grows, and the last entry of an item counts. Texts only ever become text nodes.
(() => {
  const data = JSON.parse(document.getElementById("prefer-data").textContent);
  const trial = location.hash === "#trial";
  const LONGEST_NAME = 80, AT_ONCE = 50, RETRY_MS = 5000;
  const byId = new Map(data.items.map((item) => [item.id, item]));
  const page = document.getElementById("page");
  const kept = new Kept(data.page, trial), refused = new Map();
  let rater = "", log = [], shown = null, swapped = false, sending = false, retry = 0, trouble = "";

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made) made[name] = value; else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  // Ratings.

  function counting() {
    const last = new Map();
    for (const one of log) { last.delete(one.item); last.set(one.item, one); }
    return [...last.values()].filter((one) => one.choice !== null);
  }

  // Which output is on the left depends on rater and item alone, so that it stays the same when the page is opened again.
  function isSwapped(item) {
    let hash = 0x811c9dc5;
    for (const character of `${identity(rater)}\n${item.id}`) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193);
    for (const factor of [0x85ebca6b, 0xc2b2ae35]) hash = Math.imul(hash ^ (hash >>> 15), factor);
    return ((hash ^ (hash >>> 16)) & 1) === 1;
  }

  function add(item, choice) {
    const record = kept.read(identity(rater)); // another tab may have added something
    log = record.log;
    const before = log.length ? Date.parse(log[log.length - 1].at) : 0;
    const one = {
      format: 1, page: data.page, item: item.id, rater, choice, left: isSwapped(item) ? "second" : "first",
      at: new Date(Math.max(Date.now(), before + 1)).toISOString(),
    };
    if (trial) one.artificial = true;
    log.push(one);
    kept.write(identity(rater), record);
    send();
  }

  function rate(answer) {
    if (shown === null) return;
    const sides = swapped ? { left: "second", right: "first" } : { left: "first", right: "second" };
    add(shown, sides[answer] || answer);
    showNext();
  }

  function undo() {
    log = kept.read(identity(rater)).log;
    const last = counting().pop();
    if (!last) return;
    add(byId.get(last.item), null);
    show(byId.get(last.item));
  }

  const lines = () => counting().map((one) => JSON.stringify(one) + "\n").join("");

  // The server, if there is one. It gets what every rater of this browser has said, also one who has left.

  // Raters with ratings that the server does not have, and how many; the rater of the moment first.
  function waiting() {
    if (!data.stored) return [];
    const own = identity(rater);
    const found = kept.raters().map((id) => {
      const { log, sent } = kept.read(id);
      return { id, name: log.length ? log[log.length - 1].rater : id, count: log.length - sent };
    });
    return found.filter((one) => one.count > 0).sort((one, other) => (other.id === own) - (one.id === own));
  }

  async function send() {
    const next = waiting().find((one) => !refused.has(one.id));
    if (sending || !next) return showStatus();
    sending = true;
    showStatus();
    clearTimeout(retry);
    const { log, sent } = kept.read(next.id), part = log.slice(sent, sent + AT_ONCE);
    let again = false;
    const reason = async (answer) => (await answer.json().catch(() => ({}))).error || `status ${answer.status}`;
    try {
      const answer = await fetch("ratings", {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(part),
      });
      if (answer.ok) {
        const now = kept.read(next.id); // another tab may have sent the same
        kept.write(next.id, { log: now.log, sent: Math.max(now.sent, sent + part.length) });
      } else if (answer.status < 500 && ![408, 429].includes(answer.status)) {
        refused.set(next.id, await reason(answer));
      } else [again, trouble] = [true, await reason(answer)];
    } catch { [again, trouble] = [true, "the server does not answer"]; }
    sending = false;
    if (!again) { trouble = ""; return send(); }
    retry = setTimeout(send, RETRY_MS);
    showStatus();
  }

  // What is seen.

  const ui = {};

  function showStart() {
    [shown, rater, log] = [null, "", []];
    const name = element("input", { value: kept.lastRater(), maxLength: LONGEST_NAME, required: true, autocomplete: "off", id: "rater" });
    const form = element("form", { onsubmit: (event) => {
      event.preventDefault();
      if (!identity(name.value)) return;
      rater = name.value.trim();
      refused.delete(identity(rater));
      log = kept.read(identity(rater)).log;
      kept.keepRater(rater);
      build();
      send();
      showNext();
    } }, element("label", {}, "Your name or code", name), element("button", { className: "primary", type: "submit" }, "Start"));
    page.replaceChildren(
      ...banners(),
      element("h1", {}, data.question),
      element("p", {}, `There are ${data.items.length} inputs. For each you see what two systems make of it.`),
      element("ul", {},
        element("li", {}, "Choose the better output. If you cannot, say whether both are good or both are bad."),
        element("li", {}, "The order changes from item to item, so the same system is not always first."),
        element("li", {}, "You can stop at any time and go on later, in the same browser and under the same name."),
        element("li", {}, "The last rating can be undone, and the one before it, and so on."),
        element("li", {}, "With a keyboard: 1 and 2 for the better output, 3 both good, 4 both bad, z undo.")),
      form, makeStatus());
    name.focus();
    send();
  }

  function banners() {
    const found = [];
    if (trial) found.push(element("p", { className: "banner", id: "trial" }, "Trial: these ratings are marked as artificial, and are not counted."));
    if (!kept.works) found.push(element("p", { className: "banner" }, "This browser keeps nothing. Download your ratings before you close the page."));
    return found;
  }

  function answerButton(answer, title, key) {
    return element("button", { type: "button", onclick: () => rate(answer), id: `answer-${answer.replace(" ", "-")}` },
      title, element("kbd", { "aria-hidden": "true" }, key));
  }

  function build() {
    Object.assign(ui, {
      count: element("span", { className: "faint", role: "status", id: "count" }), bar: element("div"),
      source: element("section", { className: "source", "aria-label": "Input" }),
      outputs: ["1", "2"].map((n) => element("p", { className: "text", dir: "auto", id: `output-${n}` })),
      undo: element("button", { type: "button", onclick: undo, id: "undo" }),
      status: makeStatus(),
      copied: element("div"), end: element("section", { className: "card", id: "end" }),
    });
    ui.rating = element("section", {}, ui.source,
      element("div", { className: "outputs" }, ...ui.outputs.map((text, n) =>
        element("section", { className: "card" }, element("h2", { className: "kind" }, `Output ${n + 1}`), text))),
      element("div", { className: "choices" },
        answerButton("left", "Output 1 is better", "1"), answerButton("right", "Output 2 is better", "2"),
        answerButton("both good", "Both are good", "3"), answerButton("both bad", "Both are bad", "4")));
    ui.end.append(element("h2", {}, "All items are rated. Thank you!"), element("p", {}, data.stored
      ? "You can close the page when the line below says that all ratings are stored."
      : "Download your ratings, and send the file to the person who asked you."));
    if (!data.stored) ui.end.append(element("button", { type: "button", className: "primary", onclick: download }, "Download ratings"));
    page.replaceChildren(...banners(),
      element("header", {}, element("h1", {}, data.question), ui.count),
      element("div", { className: "progress", "aria-hidden": "true" }, ui.bar),
      ui.rating, ui.end, ui.status,
      element("div", { className: "tools" }, ui.undo,
        element("button", { type: "button", onclick: download, id: "download" }, "Download ratings"),
        element("button", { type: "button", onclick: copy, id: "copy" }, "Copy ratings"),
        element("button", { type: "button", onclick: showStart, id: "change" }, "Another rater")),
      ui.copied);
  }

  function showNext() {
    const rated = new Set(counting().map((one) => one.item));
    show(data.items.find((item) => !rated.has(item.id)) || null);
  }

  function show(item) {
    shown = item;
    const rated = counting();
    ui.count.textContent = `${rated.length} of ${data.items.length} rated`;
    ui.bar.style.width = `${100 * rated.length / data.items.length}%`;
    ui.rating.hidden = item === null;
    ui.end.hidden = item !== null;
    ui.undo.disabled = rated.length === 0;
    ui.undo.replaceChildren("Undo", ...(rated.length ? [` “${said(rated[rated.length - 1])}” `] : [" "]), element("kbd", { "aria-hidden": "true" }, "z"));
    ui.copied.replaceChildren();
    showStatus();
    if (item === null) return;
    swapped = isSwapped(item);
    const outputs = swapped ? [item.outputs[1], item.outputs[0]] : item.outputs;
    outputs.forEach((text, n) => fill(ui.outputs[n], text));
    ui.source.replaceChildren(...labelled("Input", [item.input]), ...tags(item.features), ...labelled(item.references.length > 1 ? "References" : "Reference", item.references));
    window.scrollTo(0, 0);
  }

  function fill(where, text) {
    where.textContent = text.trim() ? text : "(empty)";
    where.classList.toggle("empty", !text.trim());
  }

  function labelled(kind, texts) {
    if (!texts.length) return [];
    return [element("h2", { className: "kind" }, kind), ...texts.map((text) => {
      const made = element("p", { className: "text", dir: "auto" });
      fill(made, text);
      return made;
    })];
  }

  const tags = (features) => features.length
    ? [element("p", { className: "tags" }, ...features.map((feature) => element("span", { dir: "auto" }, feature)))] : [];

  function said(rating) {
    if (rating.choice === "both good") return "both are good";
    if (rating.choice === "both bad") return "both are bad";
    return rating.choice === rating.left ? "output 1 is better" : "output 2 is better";
  }

  const makeStatus = () => ui.status = element("p", { className: "status faint", role: "status", id: "status" });

  function showStatus() {
    const own = identity(rater), unsent = waiting(), reason = refused.get(own), mine = unsent.find((one) => one.id === own);
    const where = kept.works ? "Your ratings are kept in this browser." : "Your ratings are not kept; download them before you close the page.";
    const told = [];
    if (rater && !data.stored) told.push(where);
    else if (reason) told.push(`The server refused the ratings (${reason}). Download them instead.`);
    else if (mine) told.push(`${trouble ? `Trying again (${trouble})` : "Storing"}… ${mine.count} not stored yet. ${where}`);
    else if (rater) told.push("All your ratings are stored.");
    for (const one of unsent) {
      if (one.id === own) continue;
      const what = `Of ${one.name}, ${one.count} ${one.count === 1 ? "rating is" : "ratings are"} not stored yet. `;
      told.push(what + (refused.has(one.id) ? "The server refused: start under this name, and download them." : "This page keeps trying; leave it open."));
    }
    ui.status.classList.toggle("warning", refused.size > 0 || !kept.works || trouble !== "" || unsent.length > (mine ? 1 : 0));
    ui.status.textContent = told.join(" ");
  }

  function download() {
    const address = URL.createObjectURL(new Blob([lines()], { type: "application/jsonl" }));
    const name = identity(rater).replace(/[^\p{L}\p{N}]+/gu, "-");
    element("a", { href: address, download: `ratings-${name}-${data.page}.jsonl` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  async function copy() {
    const note = (text) => ui.copied.replaceChildren(element("p", { className: "faint", role: "status" }, text));
    try {
      await navigator.clipboard.writeText(lines());
      note("Copied.");
    } catch {
      note("Copy this text:");
      const text = element("textarea", { value: lines(), readOnly: true });
      ui.copied.append(text);
      text.focus();
      text.select();
    }
  }

  const KEYS = {
    1: "left", ArrowLeft: "left", 2: "right", ArrowRight: "right", 3: "both good", g: "both good", 4: "both bad", b: "both bad",
  };
  document.addEventListener("keydown", (event) => {
    const typing = ["INPUT", "TEXTAREA"].includes(event.target.tagName);
    if (!ui.rating || !ui.rating.isConnected || typing || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in KEYS) rate(KEYS[event.key]);
    else if (["z", "u", "Backspace"].includes(event.key)) undo();
    else return;
    event.preventDefault();
  });
  window.addEventListener("online", send);
  // What neither the server nor the browser has would be lost; what the server does not have would wait in this browser.
  window.addEventListener("beforeunload", (event) => {
    if (waiting().length || (!data.stored && !kept.works && log.length)) event.preventDefault();
  });
  // Adding #trial to the address does not load the page again; without this, ratings would still be stored as real.
  window.addEventListener("hashchange", () => { if (trial !== (location.hash === "#trial")) location.reload(); });
  showStart();
})();
