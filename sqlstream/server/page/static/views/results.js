// The changes of a table of results, as the jobs that write it commit them.

import { call, stream } from "../api.js";
import { fill, h, say } from "../dom.js";
import { count, moment } from "../format.js";
import { link } from "../link.js";
import { cell, headCell, scrolled } from "../table.js";

const MOST = 300;
// While it is paused so many versions wait; of more the oldest go.
const MOST_WAITING = 300;
const KINDS = { "+I": ["inserted", "added"], "-U": ["before", "before an update"], "+U": ["after", "after an update"], "-D": ["deleted", "taken away"] };

export async function show(root, { table }, signal) {
  if (table === undefined) {
    await showTables(root, signal);
    return;
  }
  const view = new Tail(root, table);
  await stream(`v1/tables/${encodeURIComponent(table)}/changes`, signal, (kind, data) => view.heard(kind, data), () => view.opened());
}

async function showTables(root, signal) {
  const { relations } = await call("v1/relations", { signal });
  const tables = relations.filter(({ path }) => path.length === 1);
  const items = tables.map(({ name, columns }) => h("li", { class: "card" }, h("a", { href: link("results", name) }, name), h("small", {}, columns)));
  fill(
    root,
    h("div", { class: "title" }, h("h1", {}, "Results")),
    items.length ? h("ul", { class: "tables" }, items) : h("p", { class: "empty" }, "No table yet. A job that writes one makes it."),
  );
}

class Tail {
  constructor(root, name) {
    Object.assign(this, { name, columns: [], waiting: [], isPaused: false, isReopened: false, seen: new Map() });
    this.totals = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, 0]));
    this.pause = h("button", { type: "button", class: "toggle", "aria-pressed": "false", onclick: () => this.toggle() }, "Pause");
    this.clear = h("button", { type: "button", onclick: () => fill(this.body) }, "Clear");
    this.note = h("p", { class: "hint", role: "status" }, "Waiting for changes…");
    this.damage = h("p", { class: "problem", role: "alert", hidden: true });
    this.counts = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, h("b", {}, "0")]));
    const legend = Object.entries(KINDS).map(([kind, [style, text]]) => h("li", { class: style, title: text }, h("code", {}, kind), " ", this.counts[kind]));
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.jobs = h("span", { class: "hint" });
    fill(
      root,
      h("div", { class: "crumbs" }, h("a", { href: "#/results" }, "Results"), " / changes"),
      h("div", { class: "title" }, h("div", { class: "with" }, h("h1", {}, name), this.jobs), h("div", { class: "buttons" }, this.pause, this.clear)),
      h(
        "section",
        { class: "card", "aria-label": "Changes" },
        this.damage,
        h("div", { class: "version-head" }, this.note, h("ul", { class: "legend", "aria-label": "Changes since this view was opened" }, legend)),
        scrolled(`Changes of ${name}, the newest first`, h("table", { class: "rows tail" }, h("thead", {}, this.head), this.body)),
      ),
    );
  }

  heard(kind, data) {
    if (kind === "table") this.describe(data);
    if (kind === "unreadable") {
      this.damage.hidden = false;
      say(this.damage, `What ${data.job} writes cannot be read: ${data.error}`);
    }
    if (kind === "skipped") say(this.note, `${data.versions} versions were skipped: they came faster than they could be read.`);
    if (kind !== "changes") return;
    // A stream that was opened again begins with what is known, unless too much has come meanwhile.
    const known = this.seen.get(data.job);
    const isKnown = known !== undefined && known.version >= data.version && known.committed_at >= (data.committed_at ?? 0);
    const isBehindGap = this.isReopened && known !== undefined && data.version > known.version + 1;
    this.isReopened &&= !isKnown && !isBehindGap;
    if (isKnown) return;
    this.seen.set(data.job, data);
    this.damage.hidden = true;
    this.show({ ...data, isBehindGap });
  }

  show(data) {
    for (const [change] of data.rows) {
      this.totals[change] += 1;
      say(this.counts[change], count(this.totals[change]));
    }
    if (this.isPaused) {
      this.waiting = [...this.waiting, data].slice(-MOST_WAITING);
      say(this.note, `Paused: ${count(this.waiting.reduce((all, { rows }) => all + rows.length, 0))} changes wait`);
    } else {
      this.put(data);
    }
  }

  opened() {
    this.isReopened = this.seen.size > 0;
  }

  describe({ columns, jobs }) {
    // Rows of before have the columns of before.
    if (JSON.stringify(columns) !== JSON.stringify(this.columns)) fill(this.body);
    this.columns = columns;
    fill(this.jobs, "written by ", jobs.flatMap((job, i) => [i ? ", " : null, h("a", { href: link("job", job) }, job)]));
    fill(this.head, headCell("±", null), headCell("version", "BIGINT"), columns.map(({ name, type }) => headCell(name, type)));
  }

  put({ version, committed_at, count: all, rows, isBehindGap }) {
    const lines = rows.map(([kind, ...values]) =>
      h(
        "tr",
        { class: KINDS[kind][0] },
        h("td", { class: "kind", title: KINDS[kind][1] }, kind),
        h("td", { class: "number", title: moment(committed_at) }, version),
        values.map((value, i) => cell(value, this.columns[i]?.type)),
      ),
    );
    if (all > rows.length) {
      lines.unshift(this.remark(`… and ${count(all - rows.length)} more changes in version ${version}`));
    }
    if (isBehindGap) lines.unshift(this.remark("The connection was broken: there may be changes of meanwhile that are not shown"));
    this.body.prepend(...lines.reverse());
    while (this.body.childElementCount > MOST) this.body.lastElementChild.remove();
    say(this.note, `Version ${version}, committed ${moment(committed_at)} UTC · the last ${MOST} changes, the newest first`);
  }

  remark(text) {
    return h("tr", {}, h("td", { class: "hint", colspan: this.columns.length + 2 }, text));
  }

  toggle() {
    this.isPaused = !this.isPaused;
    this.pause.setAttribute("aria-pressed", String(this.isPaused));
    say(this.pause, this.isPaused ? "Go on" : "Pause");
    if (this.isPaused) {
      say(this.note, "Paused");
      return;
    }
    const waiting = this.waiting;
    this.waiting = [];
    say(this.note, "Waiting for changes…");
    waiting.forEach((data) => this.put(data));
  }
}
