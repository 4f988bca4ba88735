"use strict";
// What is kept in this browser: for each page and rater, the log of ratings and how much of it the server has. A browser that
// keeps nothing has it as long as the page is open.
const identity = (name) => name.normalize("NFC").toLowerCase().split(/\s+/).filter(Boolean).join(" ");

class Kept {
  constructor(page, trial) {
    this.start = `noisychannel-prefer:${page}:${trial ? "trial:" : ""}`;
    this.memory = new Map();
    this.works = true;
    this.lastRater(); // whether it works
  }

  attempt(action, otherwise) {
    try { return action(); } catch { this.works = false; return otherwise; }
  }

  // The log of a rater, by identity.
  read(id) {
    const known = this.memory.get(id);
    const stored = () => this.attempt(() => JSON.parse(localStorage.getItem(`${this.start}of ${id}`)), null);
    const found = (this.works ? stored() || known : known || stored()) || {};
    return { log: found.log || [], sent: found.sent || 0 };
  }

  write(id, record) {
    this.memory.set(id, record);
    this.attempt(() => localStorage.setItem(`${this.start}of ${id}`, JSON.stringify(record)));
  }

  // The identities of all raters.
  raters() {
    const start = `${this.start}of `;
    const names = this.attempt(() => Object.keys(localStorage), []).filter((name) => name.startsWith(start));
    return [...new Set([...this.memory.keys(), ...names.map((name) => name.slice(start.length))])];
  }

  lastRater() {
    return this.attempt(() => localStorage.getItem(`${this.start}rater`), "") || "";
  }

  keepRater(name) {
    this.attempt(() => localStorage.setItem(`${this.start}rater`, name));
  }
}
