// A box for SQL over all state, and all tables of the warehouse.

import { call, query } from "../api.js";
import { fill, h, say } from "../dom.js";
import { quoted, shownRows } from "../format.js";
import { problem, select } from "../problem.js";
import { table } from "../table.js";
import { rowChart } from "./row_chart.js";

// What another view wants to have written into the box.
export const DRAFT = "sqlstream-draft";
const HISTORY = "sqlstream-history";
const MOST_KEPT = 50;
const MOST_ROWS = 1000;
// What names of tables may be that SQL takes for words of its own.
const RESERVED = new Set(
  ("all and any array as asc between both by case cast check collate column constraint create cross current default desc distinct do else end " +
    "except false fetch for foreign from full group having in initially inner intersect into is join lateral leading left like limit natural not " +
    "null offset on only or order outer primary references right select some table then to trailing true union unique user using values when where " +
    "window with").split(" "),
);
const FIRST = "SELECT job, status, version, watermark, rows_in, rows_out FROM sqlstream.jobs";

export async function show(root, params, signal) {
  const view = new SqlView(root, signal);
  await view.listRelations();
}

class SqlView {
  constructor(root, signal) {
    Object.assign(this, { signal, running: null, found: null });
    this.field = h("textarea", {
      class: "sql", id: "query", rows: "6", spellcheck: "false", autocapitalize: "off", "aria-label": "SQL",
      value: sessionStorage.getItem(DRAFT) ?? history()[0] ?? FIRST,
    });
    this.run = h("button", { type: "button", class: "primary", onclick: () => this.go() }, "Run");
    this.stop = h("button", { type: "button", hidden: true, onclick: () => this.running?.abort() }, "Cancel");
    this.form = h("button", { type: "button", class: "toggle", "aria-pressed": "false", hidden: true, onclick: () => this.draw(this.form.getAttribute("aria-pressed") !== "true") }, "Chart");
    this.note = h("p", { class: "hint", role: "status" });
    this.answer = h("div", { class: "answer" });
    this.chart = rowChart("What the chart shows");
    this.past = h("ol", { class: "history" });
    this.relations = h("ul", { class: "relations" });
    this.filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the relations", oninput: () => this.drawRelations() });
    this.listed = [];
    this.field.addEventListener("input", () => sessionStorage.setItem(DRAFT, this.field.value));
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.go();
      }
    });
    signal.addEventListener("abort", () => this.running?.abort());
    fill(
      root,
      h("div", { class: "title" }, h("h1", {}, "SQL")),
      h(
        "div",
        { class: "workbench" },
        h("aside", { class: "card", "aria-label": "What a query can read" }, h("h2", {}, "Relations"), this.filter, this.relations),
        h(
          "div",
          { class: "bench" },
          h(
            "section",
            { class: "card submit", "aria-label": "Query" },
            this.field,
            h("div", { class: "buttons" }, h("span", { class: "hint" }, "Ctrl+Enter runs it. Any version: AT (VERSION => 42)."), this.stop, this.run),
            h("details", {}, h("summary", {}, "History in this browser"), this.past),
          ),
          h("section", { class: "card result", "aria-label": "Result" }, h("div", { class: "version-head" }, this.note, this.form), this.answer),
        ),
      ),
    );
    say(this.note, "Nothing has been run yet.");
    this.drawHistory();
  }

  async go() {
    const sql = this.field.value.trim();
    if (!sql) return;
    this.running?.abort();
    const mine = (this.running = new AbortController());
    this.stop.hidden = false;
    say(this.note, "Running…");
    const begun = performance.now();
    try {
      const found = await query(this.field.value, { limit: MOST_ROWS, signal: mine.signal });
      if (this.running !== mine) return;
      this.found = found;
      keep(sql);
      this.drawHistory();
      say(this.note, `${shownRows(found)} in ${Math.round(performance.now() - begun)} ms`);
      this.form.hidden = false;
      this.draw(this.form.getAttribute("aria-pressed") === "true");
    } catch (error) {
      if (this.running !== mine) return;
      this.form.hidden = true;
      if (mine.signal.aborted) {
        say(this.note, "Cancelled.");
        return;
      }
      say(this.note, "");
      fill(this.answer, problem(error));
      select(this.field, error);
    } finally {
      if (this.running === mine) {
        this.running = null;
        this.stop.hidden = true;
      }
    }
  }

  draw(asChart) {
    this.form.setAttribute("aria-pressed", String(asChart));
    const { columns, rows } = this.found;
    if (!asChart) {
      fill(this.answer, rows.length ? table(columns, rows, { caption: "Result" }) : h("p", { class: "empty" }, "No rows."));
      return;
    }
    fill(this.answer, this.chart.element);
    this.chart.draw(columns, rows);
  }

  drawHistory() {
    const load = (sql) => {
      this.field.value = sql;
      sessionStorage.setItem(DRAFT, sql);
      this.field.focus();
    };
    const items = history().map((sql) => h("li", {}, h("button", { type: "button", class: "quiet", onclick: () => load(sql) }, sql)));
    fill(this.past, items.length ? items : h("li", { class: "hint" }, "Nothing yet."));
  }

  async listRelations() {
    try {
      ({ relations: this.listed } = await call("v1/relations", { signal: this.signal }));
      this.drawRelations();
    } catch (error) {
      if (!this.signal.aborted) fill(this.relations, h("li", {}, problem(error)));
    }
  }

  drawRelations() {
    const wanted = this.filter.value.toLowerCase();
    const shown = this.listed.filter(({ name, columns }) => `${name} ${columns}`.toLowerCase().includes(wanted));
    const choose = (path) => {
      this.field.value = `SELECT * FROM ${inSql(path)} LIMIT 100`;
      this.field.dispatchEvent(new Event("input"));
      this.go();
    };
    const items = shown.map(({ name, columns, path }) =>
      h("li", {}, h("button", { type: "button", class: "quiet", title: `Look into ${name}`, onclick: () => choose(path) }, h("code", {}, name), h("small", {}, columns))),
    );
    fill(this.relations, items.length ? items : h("li", { class: "hint" }, "There is nothing."));
  }
}

/** The name of a relation, by its parts, as SQL. */
function inSql(path) {
  return path.map((part) => (/^[a-z_][a-z0-9_]*$/.test(part) && !RESERVED.has(part) ? part : quoted(part))).join(".");
}

function history() {
  try {
    const kept = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(kept) ? kept.filter((sql) => typeof sql === "string") : [];
  } catch {
    return [];
  }
}

function keep(sql) {
  const kept = [sql, ...history().filter((one) => one !== sql)].slice(0, MOST_KEPT);
  try {
    localStorage.setItem(HISTORY, JSON.stringify(kept));
  } catch {
    // The browser keeps no more: the query ran all the same.
  }
}
