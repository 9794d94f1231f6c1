// The state of an operator: its rows, at any version that is kept, what differs between two, and why.

import { call, jobPath, listen, patiently, query } from "../api.js";
import { fill, h, say } from "../dom.js";
import { quoted, shownRows } from "../format.js";
import { link } from "../link.js";
import { openWindows } from "../open_windows.js";
import { problem } from "../problem.js";
import { diffTable, stateTable } from "../state_tables.js";
import { rowChart } from "./row_chart.js";
import { DRAFT } from "./sql.js";
import { versionLabel, versionSlider } from "./version_slider.js";
import { showWhy } from "./why.js";
import { windowList } from "./windows.js";

const MOST_ROWS = 300;
const MOST_WINDOWS = 200;
const PLAY_MILLISECONDS = 700;
// When so many versions have come the list is asked for again: the job has forgotten old ones meanwhile.
const MOST_ADDED = 1000;

export async function show(root, { job, state }, signal) {
  const { states } = await call(jobPath(job), { signal });
  const about = states.find(({ name }) => name.toLowerCase() === state.toLowerCase());
  if (!about) {
    fill(root, head(job, state, states), h("p", { class: "empty" }, `Job "${job}" keeps nothing of this name.`));
    return;
  }
  const view = new StateView(root, job, about, states, signal);
  await view.start();
}

class StateView {
  constructor(root, job, about, states, signal) {
    Object.assign(this, { job, about, signal, versions: [], follows: true, asking: null, again: false, sort: null, playing: null, added: 0 });
    this.label = versionLabel();
    this.slider = versionSlider({ moved: () => this.moved(), stopped: () => this.load(), signal });
    this.live = toggle("Live", "Follow the newest version", true, () => this.follow(!this.follows));
    this.two = toggle("Compare", "Show what differs between two versions", false, () => this.compare());
    this.play = h("button", { type: "button", "aria-label": "Play the versions", onclick: () => this.replay() }, "▶ Play");
    this.windows = windowList();
    this.chart = rowChart("What the chart shows");
    this.table = stateTable({ why: (key) => this.why(key), sorted: (sort) => this.sorted(sort) });
    this.note = h("p", { class: "hint", "aria-live": "polite" });
    this.failure = h("div", {});
    this.result = h("div", { class: "state-rows" });
    this.charts = toggle("Chart", "Show a chart above the rows", false, () => this.showChart());
    this.windows.element.hidden = this.chart.element.hidden = true;
    signal.addEventListener("abort", () => clearInterval(this.playing));
    const buttons = h("div", { class: "buttons" }, this.play, this.two, this.live);
    const toSql = h("a", { href: "#/sql", onclick: () => sessionStorage.setItem(DRAFT, `${this.sql()};`) }, "Open as SQL");
    fill(
      root,
      head(job, about.name, states),
      h("p", { class: "hint" }, `${about.kind}${about.key.length ? ` by ${about.key.join(", ")}` : ""} · ${about.bound}`),
      h("section", { class: "card", "aria-label": "Versions" }, h("div", { class: "version-head" }, this.label.element, buttons), this.slider.element),
      this.failure,
      this.windows.element,
      h(
        "section",
        { class: "card", "aria-label": "Rows" },
        h("div", { class: "version-head" }, this.note, h("div", { class: "buttons" }, toSql, this.charts)),
        this.chart.element,
        this.result,
      ),
    );
  }

  async start() {
    await this.refetch();
    await listen(this.job, this.signal, (kind, data) => this.heard(kind, data), () => this.refetch());
  }

  /** Ask which versions there are. */
  async refetch() {
    try {
      const { versions } = await call(`${jobPath(this.job, "versions")}?state=${encodeURIComponent(this.about.name)}`, { signal: this.signal });
      // What has come since the server looked stays; what another life of the job left does not.
      const newest = versions.at(-1);
      const later = newest ? this.versions.filter((one) => one.version > newest.version && one.committed_at > newest.committed_at) : [];
      this.versions = [...versions, ...later];
      this.added = 0;
      const before = this.slider.newer;
      this.slider.draw(this.versions, this.follows);
      this.moved(false);
      const now = this.slider.newer;
      if (now?.version !== before?.version || now?.committed_at !== before?.committed_at) this.load();
    } catch (error) {
      if (!this.signal.aborted) fill(this.failure, problem(error));
    }
  }

  heard(kind, data) {
    if (kind === "dropped") this.versions = [];
    if (kind !== "batch") return;
    const newest = this.versions.at(-1);
    if (newest && data.version <= newest.version && data.committed_at <= newest.committed_at) return;
    if (data.version !== (newest?.version ?? -1) + 1) {
      this.refetch();
      return;
    }
    const { version, committed_at, watermark, rows_in, rows_out } = data;
    const state_rows = data.operators[this.about.operator]?.state_rows ?? 0;
    this.versions.push({ version, committed_at, watermark, rows_in, rows_out, state_rows });
    this.added += 1;
    if (this.added % MOST_ADDED === 0) this.refetch();
    this.slider.draw(this.versions, this.follows);
    this.moved(false);
    if (this.follows) this.load();
  }

  /** A mark was moved: say where it is. Who moves the newer mark follows no more, unless to the end. */
  moved(byHand = true) {
    const { newer, older } = this.slider;
    this.label.draw(newer, older);
    if (byHand) this.follow(newer === this.versions.at(-1), false);
  }

  follow(is, moves = true) {
    this.follows = is;
    press(this.live, is);
    if (is && moves) {
      this.slider.draw(this.versions, true);
      this.moved(false);
      this.load();
    }
  }

  compare() {
    const is = this.two.getAttribute("aria-pressed") !== "true";
    press(this.two, is);
    if (is) this.follow(false, false);
    this.slider.compare(is);
    this.charts.hidden = is;
    this.moved(false);
    this.load();
  }

  replay() {
    const stop = this.playing !== null;
    clearInterval(this.playing);
    this.playing = null;
    say(this.play, stop ? "▶ Play" : "❚❚ Pause");
    if (stop) return;
    this.follow(false, false);
    if (this.slider.newer === this.versions.at(-1)) this.slider.put(this.slider.older?.version ?? this.versions[0]?.version ?? 0);
    this.playing = setInterval(() => {
      const next = this.versions[this.versions.indexOf(this.slider.newer) + 1];
      if (!next) return this.replay();
      if (this.asking) return undefined;
      this.slider.put(next.version);
      this.moved(false);
      return this.load();
    }, PLAY_MILLISECONDS);
  }

  sorted(sort) {
    this.sort = sort;
    this.load();
  }

  showChart() {
    const is = this.charts.getAttribute("aria-pressed") !== "true";
    press(this.charts, is);
    this.load();
  }

  relation() {
    return `state.${quoted(this.job)}.${quoted(this.about.name)} AT (VERSION => ${this.slider.newer?.version ?? 0})`;
  }

  sql() {
    const { older, newer } = this.slider;
    if (older) return `FROM sqlstream.diff('${this.state().replaceAll("'", "''")}', ${older.version}, ${newer.version})`;
    return this.rowsSql();
  }

  state() {
    return `${this.job}.${this.about.name}`;
  }

  rowsSql() {
    const { sort } = this;
    const ties = this.about.key.filter((name) => name !== sort?.name).map(quoted);
    const order = sort ? [`${quoted(sort.name)} ${sort.isDown ? "DESC" : "ASC"} NULLS LAST`, ...ties].join(", ") : "ALL";
    return `FROM ${this.relation()} ORDER BY ${order}`;
  }

  /** Ask for what the marks say. An answer that comes after they have moved on is dropped: whoever asks for another one leaves it. */
  async load() {
    const { newer, older } = this.slider;
    if (!newer) return;
    if (this.follows && this.asking) {
      // While a job commits faster than it can be asked, every answer is shown that comes.
      this.again = true;
      return;
    }
    this.again = false;
    this.asking?.abort();
    const mine = (this.asking = new AbortController());
    const stop = AbortSignal.any([mine.signal, this.signal]);
    this.result.setAttribute("aria-busy", "true");
    try {
      if (older) await this.loadDiff(older, newer, stop);
      else await this.loadRows(newer, stop);
      if (stop.aborted) return;
      fill(this.failure);
      this.result.dataset.version = newer.version;
    } catch (error) {
      if (!stop.aborted) this.failed(error);
    } finally {
      if (this.asking === mine) {
        this.asking = null;
        this.result.removeAttribute("aria-busy");
        if (this.again && !this.signal.aborted) {
          this.again = false;
          this.load();
        }
      }
    }
  }

  failed(error) {
    fill(this.failure, problem(error));
    // The version may have been forgotten meanwhile.
    if (error.status === 404) this.refetch();
  }

  async loadRows(version, signal) {
    const [found, windows] = await Promise.all([
      patiently(() => query(this.rowsSql(), { limit: MOST_ROWS, signal }), signal),
      openWindows(this.relation(), this.about.window, version.state_rows, MOST_WINDOWS, signal),
    ]);
    if (signal.aborted) return;
    say(this.note, `${shownRows(found)} of ${this.about.name} at version ${version.version}`);
    this.table.draw(found.columns, found.rows, this.about.key, this.sort);
    if (this.result.firstChild !== this.table.element) fill(this.result, this.table.element);
    const isCharted = this.charts.getAttribute("aria-pressed") === "true";
    this.chart.element.hidden = !isCharted;
    if (isCharted) this.chart.draw(found.columns, found.rows, this.about.key);
    this.windows.element.hidden = windows === null;
    if (windows !== null) this.windows.draw({ ...windows, watermark: version.watermark, ...this.about.window });
  }

  async loadDiff(older, newer, signal) {
    const body = { state: this.state(), older: older.version, newer: newer.version, limit: MOST_ROWS, text: true };
    const found = await patiently(() => call("v1/diff", { body, signal }), signal);
    if (signal.aborted) return;
    const { element, text } = diffTable(found);
    say(this.note, `${found.truncated ? `The first ${MOST_ROWS}: ` : ""}${text} between version ${older.version} and ${newer.version}`);
    fill(this.result, element);
    this.windows.element.hidden = this.chart.element.hidden = true;
  }

  why(key) {
    showWhy(this.state(), key, this.slider.newer.version, this.signal);
  }
}

function head(job, state, states) {
  const tabs = states.map(({ name }) =>
    h("a", { href: link("job", job, "state", name), "aria-current": name.toLowerCase() === state.toLowerCase() ? "page" : null }, name),
  );
  return [
    h("div", { class: "crumbs" }, h("a", { href: "#/" }, "Jobs"), " / ", h("a", { href: link("job", job) }, job), " / state"),
    h("div", { class: "title" }, h("h1", {}, state)),
    states.length > 1 && h("nav", { class: "tabs", "aria-label": "What the job keeps" }, tabs),
  ].filter(Boolean);
}

function toggle(text, label, isPressed, onclick) {
  return h("button", { type: "button", class: "toggle", title: label, "aria-pressed": String(isPressed), onclick }, text);
}

function press(button, is) {
  button.setAttribute("aria-pressed", String(is));
}
