// Small charts as SVG, in the colours of the page. A chart is made once, and drawn again with other numbers.

import { fill, h, say, svg } from "./dom.js";

const MARGIN = { top: 10, right: 12, bottom: 22, left: 64 };
// A character of a label is about as wide; labels of the y axis get as much room as the longest needs.
const CHARACTER = 7;

/** A line without axes. `draw(numbers)`; `label` says what it shows to those who do not see it. */
export function sparkline(label, width = 120, height = 28) {
  const line = svg("polyline", { class: "spark-line" });
  const area = svg("polygon", { class: "spark-area" });
  const element = svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    area,
    line,
  );
  return {
    element,
    draw(numbers) {
      const most = Math.max(...numbers, 0) || 1;
      const step = width / Math.max(numbers.length - 1, 1);
      const points = numbers.map((n, i) => `${(i * step).toFixed(1)},${(height - 2 - (n / most) * (height - 5)).toFixed(1)}`);
      const shown = numbers.length > 1 ? points : [];
      line.setAttribute("points", shown.join(" "));
      area.setAttribute("points", shown.length ? [`0,${height}`, ...shown, `${width},${height}`].join(" ") : "");
    },
  };
}

/**
 * A chart with axes. `kind` is "line" or "bar", `format` writes a number of the y axis, `label` one of the x axis.
 *
 * `draw([{name, points: [[x, y], ..]}, ..])` draws series of points in the order of x; bars are stacked. A pointer over the chart,
 * or the arrow keys, show the numbers at one x.
 */
export function chart({ title, kind = "line", height = 180, format = String, label = String }) {
  const drawing = svg("svg", { class: "chart-drawing", height, tabindex: "0", role: "img", "aria-label": title });
  const readout = h("div", { class: "chart-readout" });
  const element = h("figure", { class: "chart" }, h("figcaption", {}, title, readout), drawing);
  let series = [];
  let at = null;

  const width = () => Math.max(drawing.clientWidth, 200);
  const plotted = () => {
    const plot = scaled(series, kind, width(), height, MARGIN.left);
    if (!plot) return null;
    const longest = Math.max(...ticks(plot.low, plot.high).map((tick) => format(tick).length));
    return scaled(series, kind, width(), height, Math.min(Math.max(longest * CHARACTER + 12, MARGIN.left), width() / 2));
  };
  const redraw = () => {
    const plot = plotted();
    fill(drawing, plot ? [axes(plot, format, label), marks(plot, series, kind), cursor(plot, at)] : empty(width(), height));
    say(readout, plot ? told(series, at ?? plot.xs.at(-1), format, label) : "");
  };
  const look = (x) => {
    at = x;
    redraw();
  };
  drawing.addEventListener("pointermove", (event) => {
    const plot = plotted();
    if (plot) look(nearest(plot, event.clientX - drawing.getBoundingClientRect().left));
  });
  drawing.addEventListener("pointerleave", () => look(null));
  drawing.addEventListener("blur", () => look(null));
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const plot = step && plotted();
    if (!plot) return;
    event.preventDefault();
    const index = at === null ? plot.xs.length - 1 : plot.xs.indexOf(at) + step;
    look(plot.xs[Math.min(Math.max(index, 0), plot.xs.length - 1)]);
  });
  new ResizeObserver(redraw).observe(drawing);
  return {
    element,
    draw(given) {
      series = given;
      redraw();
    },
  };
}

/** Round numbers from 0, or below, to `most`: four or so. */
export function ticks(least, most, wanted = 4) {
  const rough = (most - least) / wanted || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= rough);
  const found = [];
  for (let tick = Math.ceil(least / step) * step; tick <= most + step * 1e-9; tick += step) found.push(tick);
  return found;
}

function scaled(series, kind, width, height, left) {
  const xs = [...new Set(series.flatMap((s) => s.points.map(([x]) => x)))].sort((a, b) => a - b);
  if (!xs.length) return null;
  const tops = kind === "bar" ? totals(series, xs) : series.flatMap((s) => s.points.map(([, y]) => y));
  const [low, high] = [Math.min(0, ...tops), Math.max(...tops, 0) || 1];
  const right = width - MARGIN.right;
  const slot = (right - left) / xs.length;
  const [first, last] = [xs[0], xs.at(-1)];
  const x = kind === "bar"
    ? (value) => left + (xs.indexOf(value) + 0.5) * slot
    : (value) => left + (last === first ? 0.5 : (value - first) / (last - first)) * (right - left);
  const bottom = height - MARGIN.bottom;
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - MARGIN.top);
  return { xs, x, y, low, high, slot, left, right, bottom };
}

function totals(series, xs) {
  const sums = new Map(xs.map((x) => [x, 0]));
  for (const { points } of series) for (const [x, y] of points) sums.set(x, sums.get(x) + y);
  return [...sums.values()];
}

function axes(plot, format, label) {
  const lines = ticks(plot.low, plot.high).map((tick) => [
    svg("line", { class: "grid", x1: plot.left, x2: plot.right, y1: plot.y(tick), y2: plot.y(tick) }),
    svg("text", { class: "tick", x: plot.left - 8, y: plot.y(tick) + 4, "text-anchor": "end" }, format(tick)),
  ]);
  const wanted = Math.max(2, Math.floor((plot.right - plot.left) / 90));
  const step = Math.max(1, Math.ceil(plot.xs.length / wanted));
  const shown = plot.xs.filter((_, i) => i % step === 0);
  const below = shown.map((x) => {
    const anchor = plot.x(x) > plot.right - 30 ? "end" : "middle";
    return svg("text", { class: "tick", x: plot.x(x), y: plot.bottom + 16, "text-anchor": anchor }, label(x));
  });
  return [lines, below];
}

function marks(plot, series, kind) {
  if (kind === "bar") return bars(plot, series);
  return series.map(({ points }, i) => {
    const line = points.map(([x, y]) => `${plot.x(x).toFixed(1)},${plot.y(y).toFixed(1)}`).join(" ");
    return [
      svg("polyline", { class: `line series-${i % 6}`, points: line }),
      points.length === 1 && svg("circle", { class: `dot series-${i % 6}`, cx: plot.x(points[0][0]), cy: plot.y(points[0][1]), r: 3 }),
    ];
  });
}

function bars(plot, series) {
  const base = new Map(plot.xs.map((x) => [x, 0]));
  const width = Math.max(Math.min(plot.slot * 0.78, 34), 1);
  return series.map(({ points }, i) =>
    points.map(([x, y]) => {
      const from = base.get(x);
      base.set(x, from + y);
      const [top, bottom] = [plot.y(Math.max(from, from + y)), plot.y(Math.min(from, from + y))];
      return svg("rect", {
        class: `bar series-${i % 6}`, x: plot.x(x) - width / 2, y: top, width, height: Math.max(bottom - top, 0.5), rx: Math.min(2, width / 4),
      });
    }),
  );
}

function cursor(plot, at) {
  if (at === null || !plot.xs.includes(at)) return null;
  return svg("line", { class: "cursor", x1: plot.x(at), x2: plot.x(at), y1: MARGIN.top, y2: plot.bottom });
}

function nearest(plot, x) {
  return plot.xs.reduce((best, one) => (Math.abs(plot.x(one) - x) < Math.abs(plot.x(best) - x) ? one : best));
}

function told(series, at, format, label) {
  const numbers = series.map(({ name, points }) => {
    const point = points.find(([x]) => x === at);
    return point && `${name} ${format(point[1])}`;
  });
  return [label(at), ...numbers.filter(Boolean)].join("  ·  ");
}

function empty(width, height) {
  return svg("text", { class: "tick", x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing yet");
}
