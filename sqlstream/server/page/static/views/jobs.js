// All jobs of the warehouse, and a place to submit another one.

import { call, jobPath, listen } from "../api.js";
import { actions } from "../actions.js";
import { sparkline } from "../chart.js";
import { every, fill, h, say, throttled } from "../dom.js";
import { count, NOTHING, rate, short } from "../format.js";
import { fetchHistory, hearing, History } from "../history.js";
import { link } from "../link.js";
import { problem } from "../problem.js";
import { isActive, lagOf, statusPill } from "../status.js";
import { submitBox } from "../submit.js";

const LIST_MILLISECONDS = 5000;
const SHOWN_BATCHES = 40;
// Jobs beyond these show their rows per second once they have batches.
const MOST_HISTORIES = 40;

export async function show(root, params, signal) {
  const cards = new Map();
  const list = h("ul", { class: "jobs", "aria-label": "Jobs" });
  const empty = h("p", { class: "empty", hidden: true }, "No job yet. Submit SQL with an INSERT, or start one with `sqlstream run`.");
  const failure = h("div");
  const load = async () => {
    try {
      const { jobs } = await call("v1/jobs", { signal });
      fill(failure);
      update(list, cards, jobs, () => reload(), signal);
      empty.hidden = jobs.length > 0;
    } catch (error) {
      if (!signal.aborted) fill(failure, problem(error));
    }
  };
  const reload = throttled(300, signal, load);
  const submit = submitBox(reload, signal);
  fill(
    root,
    h("div", { class: "title" }, h("h1", {}, "Jobs"), submit.button),
    submit.element,
    failure,
    h("div", { class: "jobs-head", "aria-hidden": "true" }, ["Job", "Rows in", "Read", "Written", "Watermark lag", "Restarts", ""].map((t) => h("span", {}, t))),
    list,
    empty,
  );
  await load();
  every(LIST_MILLISECONDS, signal, () => document.hidden || reload());
  every(1000, signal, () => cards.forEach((card) => card.tick()));
  await listen(null, signal, (kind, data) => heard(cards, kind, data, reload), reload);
}

function heard(cards, kind, data, reload) {
  if (kind === "batch") cards.get(data.job)?.batch(data);
  if (kind === "dropped") cards.get(data.job)?.clear();
  if (kind === "job" || kind === "dropped" || !cards.has(data.job)) reload();
}

function update(list, cards, jobs, reload, signal) {
  const names = new Set(jobs.map((job) => job.job));
  for (const [name, card] of cards) {
    if (names.has(name)) continue;
    card.element.remove();
    cards.delete(name);
  }
  jobs.forEach((job, i) => {
    if (!cards.has(job.job)) cards.set(job.job, makeCard(job.job, reload, signal, cards.size < MOST_HISTORIES));
    const { element, draw } = cards.get(job.job);
    if (list.children[i] !== element) list.insertBefore(element, list.children[i] ?? null);
    draw(job);
  });
}

function makeCard(name, reload, signal, withHistory) {
  const history = new History();
  const spark = sparkline(`Rows per second of ${name}, batch by batch`);
  const status = statusPill();
  const told = { speed: cell("speed", "Rows in"), read: cell("read", "Read"), written: cell("written", "Written"), lag: cell("lag", "Watermark lag"), restarts: cell("restarts", "Restarts") };
  const error = h("p", { class: "job-error", hidden: true });
  const buttons = actions(name, reload, signal);
  const title = h("div", { class: "job-name" }, h("a", { href: link("job", name) }, name), status.element);
  told.speed.element.prepend(spark.element);
  const element = h("li", { class: "job", dataset: { job: name } }, title, Object.values(told).map((t) => t.element), buttons.element, error);
  let job = null;

  const tick = () => {
    if (job === null) return;
    const newest = history.newest;
    const isLive = isActive(job.status);
    say(told.speed.number, isLive ? rate(history.rowsPerSecond()) : NOTHING);
    say(told.read.number, short(Math.max(newest?.rows_in ?? 0, job.rows_in ?? 0)));
    say(told.written.number, short(Math.max(newest?.rows_out ?? 0, job.rows_out ?? 0)));
    say(told.lag.number, lagOf(newest?.watermark ?? job.watermark, isLive));
    say(told.restarts.number, count(job.restarts ?? 0));
    spark.draw(history.rates(SHOWN_BATCHES));
  };
  const path = jobPath(name, "batches");
  const fetchMissing = throttled(LIST_MILLISECONDS, signal, () =>
    fetchHistory(path, SHOWN_BATCHES + 2, signal, history).then(tick, () => {}),
  );
  const hear = hearing(history, fetchMissing);
  if (withHistory) fetchMissing();
  return {
    element,
    tick,
    clear: () => history.clear(),
    batch(data) {
      hear(data);
      tick();
    },
    draw(given) {
      job = given;
      status.draw(job.status, job.supervised);
      buttons.draw(job.status);
      const [first] = (job.error ?? "").split("\n");
      error.hidden = !first;
      say(error, first);
      tick();
    },
  };
}

function cell(kind, label) {
  const number = h("b", {});
  return { number, element: h("div", { class: `job-cell ${kind}` }, number, h("small", {}, label)) };
}
