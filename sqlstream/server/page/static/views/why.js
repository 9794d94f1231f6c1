// "Why?": what a state holds for a key, and what becomes of it, in a dialog.

import { call } from "../api.js";
import { fill, h } from "../dom.js";
import { problem } from "../problem.js";
import { table } from "../table.js";

// The parts of an explanation that are worth a sign of their own.
const SIGNS = { window: "◷", watermark: "≋", source: "⇥", expires: "⌛", "late rows": "↯", forgotten: "∅", nothing: "∅", version: "#" };

/** Explain a key of a state (`job.operator`) at a version, in a dialog over the page. */
export async function showWhy(state, key, version, signal) {
  const named = Object.entries(key).map(([name, value]) => `${name} = ${value ?? "NULL"}`);
  const closed = new AbortController();
  const stop = AbortSignal.any([signal, closed.signal]);
  const content = h("div", { class: "why", "aria-busy": "true" }, h("p", { class: "empty" }, "Looking…"));
  const closing = h("button", { class: "quiet", type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  const dialog = h(
    "dialog",
    {
      class: "dialog wide",
      "aria-label": "Why?",
      onclose: () => closed.abort(),
      // A click beside the dialog, on what is behind it.
      onclick: (event) => event.target === dialog && dialog.close(),
    },
    h("div", { class: "why-head" }, h("h2", {}, "Why? ", h("code", {}, named.join(", ") || "all rows")), closing),
    h("p", { class: "hint" }, `${state} at version ${version}`),
    content,
  );
  stop.addEventListener("abort", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  try {
    const found = await call("v1/why", { body: { state, key, version }, signal: stop });
    fill(content, parts(found));
  } catch (error) {
    if (!stop.aborted) fill(content, problem(error));
  } finally {
    content.removeAttribute("aria-busy");
  }
}

function parts(found) {
  const at = (name) => found.columns.findIndex((column) => column.name === name);
  const [part, name, text, content] = ["part", "name", "text", "content"].map(at);
  const shown = [];
  const tables = new Map();
  for (const row of found.rows) {
    if (row[content] !== null) {
      const title = row[part] === "last" ? `last rows of ${row[name]}` : `rows of ${row[name]}`;
      if (!tables.has(title)) {
        tables.set(title, []);
        shown.push(() => contents(title, tables.get(title)));
      }
      tables.get(title).push(row[content]);
    } else if (row[part] !== "version") {
      shown.push(() => h("p", { class: "finding", dataset: { part: row[part] } }, h("span", { "aria-hidden": "true" }, SIGNS[row[part]] ?? "·"), h("span", {}, row[text])));
    }
  }
  return shown.length ? shown.map((make) => make()) : h("p", { class: "empty" }, "There is nothing to say.");
}

/** A number of JSON as it is written: JavaScript's own have 53 bits. Browsers that do not know how it was written round it. */
function exact(name, value, { source } = {}) {
  return typeof value === "number" && source !== undefined && String(value) !== source ? source : value;
}

function contents(title, texts) {
  const [rounded, rows] = [texts.map((text) => JSON.parse(text)), texts.map((text) => JSON.parse(text, exact))];
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const columns = names.map((name) => ({ name, type: rounded.every((row) => typeof (row[name] ?? 0) === "number") ? "DOUBLE" : "" }));
  return h("section", {}, h("h3", {}, title), table(columns, rows.map((row) => names.map((name) => row[name] ?? null)), { caption: title }));
}
