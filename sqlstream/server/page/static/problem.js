// Shows what went wrong, with the SQL and its carets.

import { h } from "./dom.js";

/** Return an element that says an error; `text` in place of it where there is only a text. */
export function problem(error) {
  const text = typeof error === "string" ? error : (error.text ?? `error: ${error.message}`);
  return h("pre", { class: "problem", role: "alert" }, text.trimEnd());
}

/** Select the place in a field of SQL that a problem is about. */
export function select(field, error) {
  if (!error.position) return;
  // The server counts characters, the field units of UTF-16.
  const units = (characters) => Array.from(field.value).slice(0, characters).join("").length;
  field.focus();
  field.setSelectionRange(units(error.position.start), units(error.position.end));
}
