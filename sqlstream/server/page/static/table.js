// Tables of rows.

import { h } from "./dom.js";
import { value } from "./format.js";

const NUMERIC = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL)/;
const KINDS = { "+I": "inserted", "-U": "before", "+U": "after", "-D": "deleted" };

/**
 * Return a table of rows. `columns` are [{name, type}], `rows` lists of values.
 *
 * `kinds` has "+I", "-U", "+U" or "-D" for each row, which colours it; `chosen(row, index)` is called for a row that is clicked, or
 * chosen with the Enter key; `caption` says what the table is of to those who do not see it.
 */
export function table(columns, rows, { kinds = null, chosen = null, caption = null } = {}) {
  const isNumeric = columns.map(({ type }) => NUMERIC.test(type ?? ""));
  const cell = (item, i) => h("td", { class: item === null ? "null" : isNumeric[i] ? "number" : null }, value(item));
  const head = columns.map(({ name, type }, i) => h("th", { scope: "col", title: type, class: isNumeric[i] && "number" }, name));
  const body = rows.map((row, index) => {
    const kind = kinds?.[index] ?? null;
    const choose = chosen && {
      tabindex: "0",
      onclick: () => chosen(row, index),
      onkeydown: (event) => event.key === "Enter" && chosen(row, index),
    };
    const attributes = { class: [kind && KINDS[kind], chosen && "choosable"].filter(Boolean).join(" ") || null, ...choose };
    return h("tr", attributes, kinds && h("td", { class: "kind" }, kind ?? ""), row.map(cell));
  });
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption ?? "Rows" },
    h("table", { class: "rows" }, h("thead", {}, h("tr", {}, kinds && h("th", { scope: "col" }, "±"), head)), h("tbody", {}, body)),
  );
}
