// Tables of state: rows with a button that explains them, and the differences between two versions.

import { fill, h } from "./dom.js";

const NUMERIC = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL)/;
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
  const element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows of state" }, table);
  let before = null;
  return {
    element,
    draw(columns, rows, key, sort) {
      const keys = key.map((name) => columns.findIndex((column) => column.name.toLowerCase() === name.toLowerCase()));
      const explains = keys.every((place) => place >= 0);
      const isNumber = columns.map(({ type }) => NUMERIC.test(type));
      const identify = (row) => JSON.stringify(row.filter((_, i) => keys.includes(i) || /^(window|session)_/.test(columns[i].name)));
      const signature = JSON.stringify(columns);
      const known = before?.signature === signature ? before.rows : null;
      const headCell = ({ name, type }, i) => {
        const direction = sort?.name === name ? (sort.isDown ? "descending" : "ascending") : null;
        const next = direction === "descending" ? { name, isDown: false } : direction === "ascending" ? null : { name, isDown: true };
        const sign = { ascending: " ↑", descending: " ↓" }[direction] ?? "";
        const button = h("button", { type: "button", class: "sort", title: type, onclick: () => sorted(next) }, name, sign);
        return h("th", { scope: "col", "aria-sort": direction, class: isNumber[i] ? "number" : null }, button);
      };
      fill(head, columns.map(headCell), explains && h("th", { scope: "col" }, h("span", { class: "unseen" }, "Why")));
      fill(body, rows.map((row) => {
        const old = known?.get(identify(row));
        const cells = row.map((value, i) => {
          const classes = [value === null ? "null" : isNumber[i] ? "number" : "", known && old?.[i] !== value ? "fresh" : ""];
          return h("td", { class: classes.filter(Boolean).join(" ") || null, title: long(value) }, value ?? "NULL");
        });
        const given = () => Object.fromEntries(keys.map((place) => [columns[place].name, row[place]]));
        return h("tr", {}, cells, explains && h("td", { class: "act" }, h("button", { type: "button", class: "why-button", onclick: () => why(given()) }, "Why?")));
      }));
      before = { signature, rows: new Map(rows.map((row) => [identify(row), row])) };
    },
  };
}

/** What a pointer shows of a value that may be cut off. */
function long(value) {
  return value !== null && value.length > 30 ? value : null;
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
  const table = h("table", { class: "rows diff" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines));
  const text = ["added", "removed", "changed"].filter((change) => counts[change]).map((change) => `${counts[change]} ${change}`).join(", ");
  if (!rows.length) return { element: h("p", { class: "empty" }, "Nothing differs."), text: "No difference" };
  return { element: h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Differences" }, table), text };
}
