"use strict";
// Small helpers for building the page. Texts of users only ever become text nodes or attributes.

const $ = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const END = "␄";
const shown = (symbol) => (symbol === " " ? "␣" : symbol === END ? "▪" : symbol);
const spoken = (symbol) => (symbol === " " ? "a space" : symbol === END ? "the end" : symbol);
const fixed = (number, digits = 2) => (number === null ? "–" : number.toFixed(digits).replace(/^-/, "−"));

// How wide a text of the fixed-width font is, in letters; wide characters count twice.
const letters = (text) => [...text].reduce((sum, c) => sum + (c.codePointAt(0) > 0x2e7f ? 2 : 1), 0);
