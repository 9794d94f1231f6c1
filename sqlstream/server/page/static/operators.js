// What each operator of a job keeps: rows and bytes of state, what bounds it, windows, and late rows.

import { sparkline } from "./chart.js";
import { fill, h, say } from "./dom.js";
import { bytes, count, moment, short } from "./format.js";
import { link } from "./link.js";

const SHOWN = 60;

/** Return {element, draw()} for the state of a job's view. */
export function operatorCards(state) {
  const cards = state.details.operators.map((operator) => card(state, operator));
  return {
    element: h("ul", { class: "operators" }, cards.map((one) => one.element)),
    draw: () => cards.forEach((one) => one.draw()),
  };
}

function card(state, { operator: id, kind, key_columns: keys, bound }) {
  const name = h("a", { href: link("job", state.name, "state", id) }, id);
  const spark = sparkline(`Rows of state of ${id}, batch by batch`, 200, 36);
  const [rows, size, facts] = [h("b", { class: "big" }), h("span", { class: "muted" }), h("dl", { class: "facts" })];
  const element = h(
    "li",
    { class: "operator" },
    h("h3", {}, name, h("small", {}, kind.replaceAll("_", " "))),
    h("div", { class: "operator-numbers" }, h("div", {}, rows, h("small", {}, " rows"), h("br"), size), spark.element),
    bound && h("p", { class: "bound", title: "what bounds the state" }, bound),
    facts,
  );
  return {
    element,
    draw() {
      const newest = state.history.newest?.operators[id];
      const listed = state.details.operators.find((operator) => operator.operator === id) ?? {};
      say(rows, short(newest?.state_rows ?? listed.state_rows ?? 0));
      say(size, bytes(newest?.state_bytes ?? listed.state_bytes ?? 0));
      spark.draw(state.history.batches.slice(-SHOWN).map((batch) => batch.operators[id]?.state_rows ?? 0));
      const told = [
        ["Keys", keys?.join(", ")],
        ["Open windows", listed.open_windows === null ? null : count(listed.open_windows)],
        ["Next closes at", listed.next_end && moment(listed.next_end)],
        ["Late rows", (newest?.late_rows ?? listed.late_rows) || null],
        ["Expired keys", listed.expired_keys || null],
      ];
      fill(facts, told.filter(([, value]) => value).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
    },
  };
}
