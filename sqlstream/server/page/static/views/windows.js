// The windows that are open at a version: their bounds on one axis, the watermark, and when they close.

import { fill, h, say, svg } from "../dom.js";
import { duration, isEnd, micros, moment, rowCount } from "../format.js";

const MOST = 12;

/**
 * Return {element, draw}. `draw({windows, truncated, watermark, lateness, delay})` takes windows [{start, end, rows}], the first to
 * close first, whether there are more of them, and the watermark of the version.
 */
export function windowList() {
  const title = h("h2", {}, "Open windows");
  const list = h("ol", { class: "windows" });
  const note = h("p", { class: "hint" });
  const element = h("section", { class: "card", "aria-label": "Open windows" }, title, list, note);
  return {
    element,
    draw({ windows, truncated, watermark, lateness, delay }) {
      const mark = isEnd(watermark) || watermark === null ? null : micros(watermark) - delay;
      const shown = windows.slice(0, MOST);
      const first = Math.min(...shown.map(({ start, end }) => start ?? end), mark ?? Infinity);
      const last = Math.max(...shown.map(({ end }) => end + lateness), mark ?? -Infinity);
      const scale = (time) => ((time - first) / (last - first || 1)) * 1000;
      say(title, windows.length === 1 ? "1 open window" : `${truncated ? "More than " : ""}${windows.length || "No"} open windows`);
      fill(list, shown.map((one) => line(one, { mark, scale, lateness })));
      const more = windows.length > MOST ? `The ${MOST} that close first are shown. ` : "";
      say(note, more + (mark === null ? "There is no watermark that holds them open." : `The line is the watermark, ${moment(mark)}.`));
    },
  };
}

/** A bound of a window: without the day where both are of one, without seconds where both are of whole minutes. */
function bound(time, from, to) {
  const [first, last] = [moment(from ?? to), moment(to)];
  const text = moment(time);
  const clock = first.endsWith(":00") && last.endsWith(":00") ? text.slice(11, 16) : text.slice(11);
  return first.slice(0, 10) === last.slice(0, 10) ? clock : `${text.slice(5, 10)} ${clock}`;
}

function line({ start: from, end: to, rows }, { mark, scale, lateness }) {
  const begin = scale(from ?? to);
  const left = mark === null ? null : to + lateness - mark;
  const name = `${from === null ? "until " : `${bound(from, from, to)} – `}${bound(to, from, to)}`;
  const closes = left === null ? "" : left > 0 ? `closes in ${duration(left)}` : "closes with the next batch";
  return h(
    "li",
    {},
    h("span", { class: "window-name" }, name),
    svg(
      "svg",
      { viewBox: "0 0 1000 16", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "window-track", x: 0, y: 7, width: 1000, height: 2 }),
      lateness > 0 && svg("rect", { class: "window-late", x: scale(to), y: 3, width: Math.max(scale(to + lateness) - scale(to), 2), height: 10 }),
      svg("rect", { class: "window-bar", x: begin, y: 2, width: Math.max(scale(to) - begin, 4), height: 12 }),
      mark !== null && svg("rect", { class: "window-mark", x: Math.min(Math.max(scale(mark), 0), 996), y: 0, width: 4, height: 16 }),
    ),
    h("span", { class: "window-text" }, `${rowCount(rows)}${closes ? ` · ${closes}` : ""}`),
  );
}
