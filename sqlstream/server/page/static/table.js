// Tables of rows.

import { isNumeric } from "./column_types.js";
import { h } from "./dom.js";
import { value } from "./format.js";

/** A table of rows, which are lists of values; `columns` are [{name, type}], `caption` names it to those who do not see it. */
export function table(columns, rows, { caption = "Rows" } = {}) {
  const head = columns.map(({ name, type }) => headCell(name, type));
  const body = rows.map((row) => h("tr", {}, row.map((item, i) => cell(item, columns[i].type))));
  return scrolled(caption, h("table", { class: "rows" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** The head of a column; `content` where that is not its name alone. */
export function headCell(name, type, { content = name, ...attributes } = {}) {
  return h("th", { scope: "col", title: type, class: isNumeric(type) && "number", ...attributes }, content);
}

/** A value of a column of this type; `kind` is a class of its own. */
export function cell(item, type, { kind = null, title = null } = {}) {
  const classes = [item === null ? "null" : isNumeric(type) && "number", kind].filter(Boolean);
  return h("td", { class: classes.join(" ") || null, title }, value(item));
}

/** A table with a height of its own, which can be scrolled, also with the keyboard. */
export function scrolled(label, table) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}
