// Event time as an axis: how far the watermark of each source is, which one holds the others, and which windows are open.

import { fill, h } from "./dom.js";
import { duration, isEnd, micros, moment, rowCount, tick } from "./format.js";

/**
 * Return {element, draw({watermark, sources, windows})}. Sources are {name, watermark, newest, holds, idle}, windows {operator, start,
 * end, closes, rows, grows}.
 */
export function timeAxis() {
  const element = h("div", { class: "axis" });
  return {
    element,
    draw(given) {
      const range = rangeOf(given);
      if (range === null) {
        fill(element, given.sources.map((source) => row(source.name, [h("small", {}, "no watermark")], [])));
        return;
      }
      const at = (time) => `${(Math.min(Math.max((time - range.from) / (range.to - range.from), 0), 1) * 100).toFixed(2)}%`;
      const line = () => mark("job-mark", micros(given.watermark), at);
      fill(
        element,
        given.sources.map((source) => sourceRow(source, at, line())),
        given.windows.map((window) => windowRow(window, micros(given.watermark), at, line())),
        row("", [], axisTicks(range, at), "axis-ticks"),
      );
    },
  };
}

function rangeOf({ watermark, sources, windows }) {
  const times = [
    micros(watermark),
    ...sources.flatMap((s) => [micros(s.watermark), s.newest]),
    ...windows.flatMap((w) => [w.start, w.end]),
  ].filter((time) => time !== null && time !== undefined);
  if (!times.length) return null;
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const edge = Math.max((to - from) * 0.05, 1e6);
  return { from: from - edge, to: to + edge };
}

function axisTicks({ from, to }, at) {
  const span = to - from;
  return [0.1, 0.37, 0.63, 0.9].map((part) => {
    const element = h("span", { class: "axis-tick" }, tick(from + part * span, span));
    element.style.left = at(from + part * span);
    return element;
  });
}

function sourceRow(source, at, line) {
  const { name, watermark, newest, holds, idle } = source;
  const notes = [
    holds && h("span", { class: "pill", dataset: { tone: "warning" } }, "holds the watermark"),
    idle && h("span", { class: "pill" }, "idle"),
    h("small", {}, watermark === null ? "no watermark" : isEnd(watermark) ? "read to its end" : `watermark ${moment(watermark)}`),
  ];
  const time = isEnd(watermark) ? newest : micros(watermark);
  const done = time !== null && h("div", { class: `axis-bar ${holds ? "holds" : ""}` });
  if (done) done.style.width = at(time);
  const ahead = time !== null && newest !== null && newest > time && h("div", { class: "axis-ahead" });
  if (ahead) Object.assign(ahead.style, { left: at(time), right: `calc(100% - ${at(newest)})` });
  return row(name, notes, [done, ahead, mark("newest", newest, at, "newest event"), line], holds ? "holds" : "");
}

function windowRow({ operator, start, end, closes, rows, grows }, watermark, at, line) {
  const left = watermark === null ? null : closes - watermark;
  // Rows may be late, and what reads a join is behind by the join's bounds.
  const after = closes > end ? `, ${duration(closes - end)} after its end` : "";
  const when = left === null ? "" : left > 0 ? `closes in ${duration(left)} of event time${after}` : "closes with the next batch";
  const bar = h("div", { class: "axis-window", title: `${moment(start)} to ${moment(end)}` });
  Object.assign(bar.style, { left: at(start ?? end - 1e6), right: `calc(100% - ${at(end)})` });
  const title = `${grows ? "session" : "window"} to ${moment(end).slice(11)}`;
  return row(title, [h("small", {}, `${operator} · ${rowCount(rows)} · ${when}`)], [bar, line], "of-window");
}

function mark(kind, time, at, title = null) {
  if (time === null || time === undefined) return null;
  const element = h("div", { class: `axis-mark ${kind}`, title: title && `${title} ${moment(time)}` });
  element.style.left = at(time);
  return element;
}

function row(name, notes, items, kind = "") {
  return h("div", { class: `axis-row ${kind}` }, h("div", { class: "axis-name" }, h("b", {}, name), notes), h("div", { class: "axis-track" }, items));
}
