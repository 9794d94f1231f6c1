// Tables of state: rows with a button that explains them, and the differences between two versions.

import { fill, h } from "./dom.js";
import { value } from "./format.js";
import { cell, headCell, scrolled } from "./table.js";

const SIGNS = { added: "+", removed: "−", changed: "~" };
const KINDS = { added: "inserted", removed: "deleted", changed: "changed" };

/**
 * Return {element, draw}. `why(key)` is called for a row whose key is {column: text}; `sorted({name, isDown} or null)` for a head
 * that was pressed. Cells whose value is another one than in the rows before, of the same key, are marked for a moment.
 */
export function stateTable({ why, sorted }) {
  const head = h("tr", {});
  const body = h("tbody", {});
  const table = h("table", { class: "rows" }, h("thead", {}, head), body);
  let before = null;
  return {
    element: scrolled("Rows of state", table),
    draw(columns, rows, key, sort) {
      const keys = key.map((name) => columns.findIndex((column) => column.name.toLowerCase() === name.toLowerCase()));
      const isExplained = keys.every((place) => place >= 0);
      const identify = (row) => JSON.stringify(row.filter((_, i) => keys.includes(i) || /^(window|session)_/.test(columns[i].name)));
      const signature = JSON.stringify(columns);
      const known = before?.signature === signature ? before.rows : null;
      const explained = (row) => whyCell(() => why(Object.fromEntries(keys.map((place) => [columns[place].name, row[place]]))));
      fill(head, columns.map((column) => sortHead(column, sort, sorted)), isExplained && h("th", { scope: "col" }, h("span", { class: "unseen" }, "Why")));
      fill(body, rows.map((row) => {
        const old = known?.get(identify(row));
        return h("tr", {}, row.map((item, i) => stateCell(item, columns[i].type, known && value(old?.[i]) !== value(item))), isExplained && explained(row));
      }));
      before = { signature, rows: new Map(rows.map((row) => [identify(row), row])) };
    },
  };
}

/** A head that sorts: downwards when it is pressed, then upwards, then no more. */
function sortHead({ name, type }, sort, sorted) {
  const direction = sort?.name === name ? (sort.isDown ? "descending" : "ascending") : null;
  const next = direction === "descending" ? { name, isDown: false } : direction === "ascending" ? null : { name, isDown: true };
  const sign = { ascending: " ↑", descending: " ↓" }[direction] ?? "";
  const content = h("button", { type: "button", class: "sort", title: type, onclick: () => sorted(next) }, name, sign);
  return headCell(name, type, { content, "aria-sort": direction });
}

/** A value, which a pointer shows whole where it may be cut off. */
function stateCell(item, type, isFresh) {
  const text = value(item);
  return cell(item, type, { kind: isFresh && "fresh", title: text.length > 30 ? text : null });
}

function whyCell(explain) {
  return h("td", { class: "act" }, h("button", { type: "button", class: "why-button", onclick: explain }, "Why?"));
}

/** Return {element, text} for what the server finds to differ: a table whose values stand as "old → new", and the counts. */
export function diffTable({ columns, rows }) {
  const at = Object.fromEntries(columns.map(({ name }, i) => [name, i]));
  const names = [...new Set(rows.flatMap((row) => Object.keys(row[at.after] ?? row[at.before] ?? {})))];
  const counts = {};
  const lines = rows.map((row) => {
    const [change, before, after] = [row[at.change], row[at.before], row[at.after]];
    counts[change] = (counts[change] ?? 0) + 1;
    const cells = names.map((name) => {
      const [old, now] = [before?.[name] ?? null, after?.[name] ?? null];
      if (change !== "changed" || old === now) return h("td", {}, (change === "removed" ? old : now) ?? "NULL");
      return h("td", { class: "moved" }, h("del", {}, old ?? "NULL"), h("span", { "aria-hidden": "true" }, " → "), h("ins", {}, now ?? "NULL"));
    });
    return h("tr", { class: KINDS[change] }, h("td", { class: "kind", title: change }, SIGNS[change]), h("td", {}, row[at.reason]), cells);
  });
  const heads = ["", "reason", ...names].map((name) => h("th", { scope: "col" }, name));
  const table = h("table", { class: "rows" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines));
  const text = ["added", "removed", "changed"].filter((change) => counts[change]).map((change) => `${counts[change]} ${change}`).join(", ");
  if (!rows.length) return { element: h("p", { class: "empty" }, "Nothing differs."), text: "No difference" };
  return { element: scrolled("Differences", table), text };
}
