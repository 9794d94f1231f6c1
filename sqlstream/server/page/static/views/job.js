// A job: how it is, its plan, its watermarks and windows, its batches, and its SQL.

import { actions } from "../actions.js";
import { call, jobPath, listen, serverNow } from "../api.js";
import { chart } from "../chart.js";
import { every, fill, h, say, throttled } from "../dom.js";
import { count, duration, isEnd, micros, milliseconds, moment, NOTHING, quoted, rate, short } from "../format.js";
import { fetchHistory, hearing, History, took } from "../history.js";
import { link } from "../link.js";
import { openWindows } from "../open_windows.js";
import { operatorCards } from "../operators.js";
import { planGraph } from "../plan_graph.js";
import { problem } from "../problem.js";
import { isActive, lagOf, statusPill } from "../status.js";
import { timeAxis } from "../time_axis.js";

const SHOWN_BATCHES = 60;
// Of each operator.
const SHOWN_WINDOWS = 12;
// Times that change with the clock are said anew this often, and what has to be asked for at most.
const TICK_MILLISECONDS = 1000;
const ASK_MILLISECONDS = 2000;
const DRAW_MILLISECONDS = 120;

export async function show(root, { name }, signal) {
  const history = new History();
  let details = null;
  try {
    [details] = await Promise.all([call(jobPath(name), { signal }), fetchBatches(name, history, signal)]);
  } catch (error) {
    if (error.status !== 404) throw error;
    await showMissing(root, name, error, signal);
    return;
  }
  const state = { name: details.job.job, details, history, windows: [] };
  const parts = [head(state, () => ask(), signal), ...sections(state)];
  const draw = throttled(DRAW_MILLISECONDS, signal, () => parts.forEach((part) => part.draw()));
  const ask = throttled(ASK_MILLISECONDS, signal, () => refresh(state, signal).then(draw, (error) => failed(error, signal)));
  fill(root, parts.map((part) => part.element));
  draw();
  ask();
  every(TICK_MILLISECONDS, signal, draw);
  document.addEventListener("visibilitychange", ask, { signal });
  const fetchMissing = throttled(ASK_MILLISECONDS, signal, () => fetchBatches(name, history, signal).then(draw, () => {}));
  const hear = hearing(history, fetchMissing);
  await listen(state.name, signal, (kind, data) => {
    if (kind === "dropped") history.clear();
    if (kind === "batch" && !hear(data)) return;
    draw();
    ask();
  });
}

function fetchBatches(name, history, signal) {
  return fetchHistory(jobPath(name, "batches"), SHOWN_BATCHES + 1, signal, history);
}

function sections(state) {
  const timeline = charts(state);
  const operators = operatorCards(state);
  return [
    tiles(state),
    // What a job of another version of sqlstream was planned to do cannot be read.
    state.details.graph.nodes.length > 0 && plan(state),
    section("Event time", "watermarks of the sources, and the windows that are open", axis(state)),
    section("Batches", `the last ${SHOWN_BATCHES}`, timeline),
    state.details.operators.length > 0 && section("State", "what the operators keep, and what bounds it", operators),
    texts(state),
  ].filter(Boolean);
}

/** Ask for what no event says. */
async function refresh(state, signal) {
  // Nobody looks: the server has better things to do.
  if (document.hidden) return;
  const { name } = state;
  const graph = JSON.stringify(state.details.graph);
  state.details = await call(jobPath(name), { signal });
  // It was submitted again with another query.
  if (JSON.stringify(state.details.graph) !== graph) showAnew();
  const nodes = state.details.graph.nodes.filter((node) => node.window);
  state.windows = (await Promise.all(nodes.map((node) => windowsOf(state, node, signal).catch(() => [])))).flat();
}

async function windowsOf({ name, history }, { id, window }, signal) {
  const stored = history.newest?.operators[id]?.state_rows ?? 0;
  const found = await openWindows(`state.${quoted(name)}.${quoted(id)}`, window, stored, SHOWN_WINDOWS, signal);
  const { lateness, delay, grows } = window;
  return (found?.windows ?? []).map((one) => ({ ...one, operator: id, closes: one.end + lateness + delay, grows }));
}

/** Notice that a job was dropped. What else goes wrong may be over when it is asked for again. */
function failed(error, signal) {
  if (!signal.aborted && error.status === 404) showAnew();
}

function showAnew() {
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Say that there is no such job, until there is one. */
async function showMissing(root, name, error, signal) {
  fill(root, problem(error), h("p", {}, h("a", { href: "#/" }, "Jobs")));
  const look = throttled(TICK_MILLISECONDS, signal, () => call(jobPath(name), { signal }).then(showAnew, () => {}));
  await listen(name, signal, look);
}

function section(title, about, { element, draw }) {
  return { element: h("section", { class: "card", "aria-label": title }, h("h2", {}, title, h("small", {}, about)), element), draw };
}

function head(state, changed, signal) {
  const status = statusPill();
  const buttons = actions(state.name, changed, signal);
  const failure = h("div");
  const said = { error: null };
  return {
    element: h(
      "div",
      { class: "head" },
      h("div", { class: "crumbs" }, h("a", { href: "#/" }, "Jobs"), " /"),
      h("div", { class: "title" }, h("div", { class: "with" }, h("h1", {}, state.name), status.element), buttons.element),
      failure,
    ),
    draw() {
      const { job } = state.details;
      status.draw(job.status, job.supervised);
      buttons.draw(job.status);
      if (said.error === job.error) return;
      said.error = job.error;
      fill(failure, job.error && problem(job.error));
    },
  };
}

const TILES = [
  ["Rows in", ({ history, details }) => (isActive(details.job.status) ? rate(history.rowsPerSecond()) : NOTHING)],
  ["Rows out", ({ history, details }) => (isActive(details.job.status) ? rate(history.rowsPerSecond((b) => b.rows_out)) : NOTHING)],
  ["Read", ({ history, details }) => short(history.newest?.rows_in ?? details.job.rows_in)],
  ["Written", ({ history, details }) => short(history.newest?.rows_out ?? details.job.rows_out)],
  ["Batch", ({ history, details }) => count(history.newest?.version ?? details.job.version)],
  ["Last batch took", ({ history }) => milliseconds(history.newest && took(history.newest))],
  ["Watermark", ({ history }) => clock(history.newest?.watermark)],
  ["Watermark lag", ({ history, details }) => lagOf(history.newest?.watermark, isActive(details.job.status))],
  ["Restarts", ({ details }) => count(details.job.restarts ?? 0)],
  ["Started", ({ details }) => ago(details.job.started_at)],
];

function tiles(state) {
  const numbers = TILES.map(([label, told]) => ({ told, element: h("dd", {}), label: h("dt", {}, label) }));
  return {
    element: h("dl", { class: "tiles" }, numbers.map(({ label, element }) => h("div", { class: "tile" }, label, element))),
    draw: () => numbers.forEach(({ told, element }) => say(element, told(state))),
  };
}

function clock(time) {
  const text = moment(time);
  return micros(time) !== null && serverNow() - micros(time) < 86_400e6 ? text.slice(11) : text;
}

function ago(time) {
  return micros(time) === null ? NOTHING : `${duration(serverNow() - micros(time))} ago`;
}

function plan(state) {
  const { graph } = state.details;
  const titleOf = (node) => (node.kind === "fragment" ? fragmentTitle(node) : (node.label ?? node.table ?? node.id));
  const targetOf = (node) => {
    if (node.kind === "source" || node.kind === "fragment") return null;
    if (node.kind === "sink") return node.connector ? null : link("results", node.table);
    return link("job", state.name, "state", node.id);
  };
  const drawn = planGraph(graph, titleOf, targetOf);
  const isRunning = () => isActive(state.details.job.status);
  const speed = (total) => (isRunning() ? state.history.rowsPerSecond(total) : 0);
  const sourceSpeed = (id) => speed((batch) => batch.sources[id]?.rows);
  const sinkSpeed = (id) => speed((batch) => sinkRows(batch, id.slice("sink ".length)));
  const operatorSpeed = (id) => speed((batch) => batch.operators[id]?.rows_out ?? 0);
  const nodeOf = (id) => graph.nodes.find((node) => node.id === id);
  const leaving = (id) => (nodeOf(id)?.kind === "source" ? sourceSpeed(id) : operatorSpeed(id));
  return section("Plan", "rows per second on its edges", {
    element: drawn.element,
    draw: () =>
      drawn.draw({
        lines: (node) => nodeLines(state, node),
        tone: (node) => (holders(state).has(node.id) ? "warning" : null),
        flow: ({ from, to }) => {
          const isSink = nodeOf(to)?.kind === "sink";
          if (nodeOf(from)?.kind === "fragment" && !isSink) {
            // What passes it is not counted.
            return { label: "", isFlowing: leaving(graph.edges.find((edge) => edge.to === from).from) > 0 };
          }
          const found = isSink && nodeOf(from)?.kind !== "source" ? sinkSpeed(to) : leaving(from);
          return { label: rate(found), isFlowing: found > 0 };
        },
      }),
  });
}

function fragmentTitle({ steps }) {
  return steps.every((step) => step.startsWith("WHERE ")) ? "filter" : "fragment";
}

function sinkRows(batch, table) {
  const found = Object.entries(batch.sinks).find(([name]) => name.toLowerCase() === table.toLowerCase());
  return found?.[1].rows ?? (Object.keys(batch.sinks).length ? 0 : batch.rows_out);
}

function nodeLines({ history, details }, node) {
  const batch = history.newest;
  if (node.kind === "fragment") return node.steps;
  if (node.kind === "source") {
    const source = batch?.sources[node.id];
    return [`${short(source?.rows ?? 0)} rows`, source && source.watermark !== null ? clock(source.watermark) : "no watermark"];
  }
  if (node.kind === "sink") return [`${short(batch ? sinkRows(batch, node.table) : 0)} rows`];
  const operator = batch?.operators[node.id];
  const listed = details.operators.find((o) => o.operator === node.id);
  return [
    `${short(operator?.state_rows ?? 0)} rows of state`,
    listed?.open_windows ? `${count(listed.open_windows)} open windows` : "",
    operator?.late_rows ? `${short(operator.late_rows)} late` : "",
    waitsAlone(details, listed) ? `${clock(operator?.watermark ?? null)}, waits for ${listed.waits_for.join(" and ")}` : "",
  ].filter(Boolean);
}

/** Whether other operators of the job wait for other sources. */
function waitsAlone({ operators }, listed) {
  const sets = operators.map((o) => (o.waits_for ?? []).join(" ")).filter(Boolean);
  return Boolean(listed?.waits_for?.length) && new Set(sets).size > 1;
}

function holders({ details }) {
  const active = details.watermarks.filter((w) => w.partition === null);
  const held = active.filter((w) => w.holds_minimum && !isEnd(w.watermark));
  // All of one are no news.
  return new Set(held.length < active.length ? held.map((w) => w.source) : []);
}

function axis(state) {
  const drawn = timeAxis();
  return {
    element: drawn.element,
    draw() {
      const holding = holders(state);
      const batch = state.history.newest;
      const sources = state.details.graph.nodes.filter((node) => node.kind === "source").map((node) => {
        const source = batch?.sources[node.id] ?? { watermark: null, newest: null, idle: null };
        return { name: node.label, ...source, idle: source.idle !== null, holds: holding.has(node.id) };
      });
      drawn.draw({ watermark: batch?.watermark ?? null, sources, windows: state.windows });
    },
  };
}

function charts(state) {
  const label = (version) => `batch ${version}`;
  const length = chart({ title: "Duration", kind: "bar", format: milliseconds, label });
  const speed = chart({ title: "Rows read", kind: "bar", format: short, label });
  const lag = chart({ title: "Watermark lag", format: (seconds) => duration(seconds * 1e6), label });
  return {
    element: h("div", { class: "charts" }, length.element, speed.element, lag.element),
    draw() {
      const shown = state.history.batches.slice(-SHOWN_BATCHES);
      length.draw(phases(shown));
      speed.draw([{ name: "rows", points: state.history.steps(SHOWN_BATCHES).map(({ batch, rows }) => [batch.version, rows]) }]);
      lag.draw(lags(shown, state.details.graph));
    },
  };
}

function phases(batches) {
  const known = batches.filter((batch) => batch.took !== null);
  const names = [...new Set(known.flatMap((batch) => Object.keys(batch.took)))];
  return names.map((name) => ({ name, points: known.map((batch) => [batch.version, (batch.took[name] ?? 0) / 1000]) }));
}

/** How far each source was behind the clock when a batch was committed. */
function lags(batches, { nodes }) {
  const labels = new Map(nodes.filter((node) => node.kind === "source").map((node) => [node.id, node.label]));
  const names = [...new Set(batches.flatMap((batch) => Object.keys(batch.sources)))];
  return names
    .map((name) => ({
      name: labels.get(name) ?? name,
      points: batches
        .filter((batch) => typeof batch.sources[name]?.watermark === "number")
        .map((batch) => [batch.version, (batch.committed_at - batch.sources[name].watermark) / 1e6]),
    }))
    .filter(({ points }) => points.length > 0);
}

const TEXTS = [
  ["SQL", ({ job }) => job.sql],
  ["Plan as text", (details) => details.plan],
  ["Restarts", ({ restarts }) => lines(restarts, ["failed_at", "error"])],
  ["State checks", ({ checks }) => lines(checks, ["name", "operator", "status", "detail"])],
];

function lines(rows, columns) {
  return rows.map((row) => columns.map((column) => row[column]).filter(Boolean).join("  ")).join("\n");
}

function texts(state) {
  const folded = TEXTS.map(([title, told]) => {
    const text = h("pre", { class: "code", tabindex: "0" });
    return { told, text, element: h("details", { class: "card" }, h("summary", {}, title), text) };
  });
  return {
    element: h("div", { class: "texts" }, folded.map(({ element }) => element)),
    draw() {
      for (const { told, text, element } of folded) {
        say(text, told(state.details) ?? "");
        element.hidden = !text.textContent;
      }
    },
  };
}
