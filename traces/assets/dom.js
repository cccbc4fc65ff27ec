"use strict";
// Making elements. Foreign text only ever becomes text: nothing here or elsewhere parses markup.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, options, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "css") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat());
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

// Figures as people read them.

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds <= 0) return "0";
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 100) return `${digits(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
}

function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function whole(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–";
}

function rate(value) {
  return !Number.isFinite(value) ? "–" : value >= 1000 ? whole(value) : digits(value);
}

function percent(share) {
  return Number.isFinite(share) ? `${Math.round(share * 100)} %` : "–";
}

function words(text) {
  return String(text).replaceAll("_", " ");
}

// Figures of a page, each a name, a value and perhaps a note.
function figureBoxes(list) {
  return list.map(([name, value, note]) =>
    make("div", { class: "figure" }, make("span", {}, name), make("strong", {}, value), make("span", {}, note || "")));
}
