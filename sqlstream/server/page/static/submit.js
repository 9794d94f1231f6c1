// A box in which SQL is written that becomes jobs.

import { call } from "./api.js";
import { fill, h } from "./dom.js";
import { link } from "./link.js";
import { problem, select } from "./problem.js";
import { table } from "./table.js";

const KEPT = "sqlstream-submit";
const EXAMPLE = `CREATE TABLE bids (auction BIGINT, price BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '100');

CREATE TABLE highest (auction BIGINT, price BIGINT);

INSERT INTO highest
SELECT auction, MAX(price) FROM bids GROUP BY auction, TUMBLE(ts, INTERVAL '10' SECOND);`;

/** Return {button, element}: the button shows the box; `submitted` is called when there are new jobs. */
export function submitBox(submitted, signal) {
  const field = h("textarea", {
    id: "sql", class: "sql", rows: "10", spellcheck: "false", autocapitalize: "off", placeholder: EXAMPLE, "aria-label": "SQL to submit",
    value: sessionStorage.getItem(KEPT) ?? "",
  });
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  const element = h("section", { class: "card submit", hidden: true, "aria-label": "Submit SQL" });
  const button = h("button", { type: "button", class: "primary", "aria-expanded": "false", onclick: () => toggle() }, "Submit SQL");
  const toggle = (shown = element.hidden) => {
    element.hidden = !shown;
    button.setAttribute("aria-expanded", String(shown));
    if (shown) field.focus();
  };
  const run = async (path, said) => {
    fill(answer, h("p", { class: "hint" }, "…"));
    go.disabled = plan.disabled = true;
    try {
      said(await call(path, { body: { sql: field.value }, signal }));
    } catch (error) {
      if (signal.aborted) return;
      fill(answer, problem(error));
      select(field, error);
    } finally {
      go.disabled = plan.disabled = false;
    }
  };
  const submit = () => run("v1/jobs", (found) => {
    fill(answer, outcome(found));
    submitted();
  });
  const go = h("button", { type: "button", class: "primary", onclick: submit }, "Submit");
  const plan = h("button", { type: "button", onclick: () => run("v1/plan", (found) => fill(answer, h("pre", { class: "plan-text" }, found.plan))) }, "Show the plan");
  field.addEventListener("input", () => sessionStorage.setItem(KEPT, field.value));
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    // Keys that are held down, or pressed again, must not submit it twice.
    if (!go.disabled) submit();
  });
  fill(element, field, h("div", { class: "buttons" }, h("span", { class: "hint" }, "Ctrl+Enter submits"), plan, go), answer);
  return { button, element };
}

function outcome({ jobs, warnings, answers }) {
  const started = jobs.map((name) => h("a", { href: link("job", name) }, name)).flatMap((a, i) => (i ? [", ", a] : [a]));
  return [
    started.length > 0 && h("p", { class: "done" }, "Submitted: ", started),
    !started.length && !answers.length && h("p", { class: "done" }, "Done. There was no job to run."),
    warnings.map((text) => h("pre", { class: "warning" }, text)),
    answers.map(({ columns, rows }) => table(columns.map((name) => ({ name })), rows, { caption: "Answer" })),
  ];
}
