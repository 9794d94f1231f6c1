// A chart of rows: a column of numbers, by another column, as lines or bars.

import { chart } from "../chart.js";
import { isNumeric, isTemporal } from "../column_types.js";
import { fill, h, say } from "../dom.js";
import { micros, short, tick } from "../format.js";

const MOST_BARS = 60;
const MOST_SERIES = 6;

/** Return {element, draw}: `draw(columns, rows, key)` shows rows of texts; what was chosen stays as long as the columns do. */
export function rowChart(title) {
  const controls = h("div", { class: "controls" });
  const place = h("div", {});
  const note = h("p", { class: "hint" });
  const element = h("div", { class: "row-chart" }, controls, place, note);
  let known = "";
  let chosen = null;
  let drawn = null;
  let last = null;

  const pick = (name, label, options, value) =>
    h(
      "label",
      {},
      `${label} `,
      h(
        "select",
        {
          "aria-label": label,
          onchange: (event) => {
            chosen[name] = event.target.value;
            drawn = null;
            redraw();
          },
        },
        options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
      ),
    );

  const redraw = () => {
    const { columns, rows } = last;
    if (chosen.of === null) {
      fill(place, h("p", { class: "empty" }, "No column has numbers."));
      say(note, "");
      return;
    }
    const found = pointsOf(columns, rows, chosen);
    if (drawn === null) {
      drawn = { label: String };
      drawn.chart = chart({
        title: `${chosen.of} by ${chosen.by}`,
        kind: chosen.kind,
        height: 260,
        format: short,
        label: (x) => drawn.label(x),
      });
      fill(place, drawn.chart.element);
    }
    drawn.label = found.label;
    drawn.chart.draw(found.series);
    say(note, found.note);
  };

  return {
    element,
    draw(columns, rows, key = []) {
      last = { columns, rows };
      const signature = JSON.stringify(columns);
      if (signature !== known) {
        known = signature;
        chosen = defaults(columns, rows, key);
        drawn = null;
        const numbers = columns.filter(({ type }) => isNumeric(type)).map(({ name }) => [name, name]);
        const all = columns.map(({ name }) => [name, name]);
        fill(
          controls,
          numbers.length > 0 && pick("of", "Show", numbers, chosen.of),
          pick("by", "by", all, chosen.by),
          pick("split", "one series for each", [["", "–"], ...all], chosen.split),
          pick("kind", "as", [["bar", "bars"], ["line", "lines"]], chosen.kind),
        );
        controls.setAttribute("aria-label", title);
      }
      redraw();
    },
  };
}

function defaults(columns, rows, key) {
  const isKey = ({ name }) => key.some((one) => one.toLowerCase() === name.toLowerCase());
  const times = columns.filter(({ type }) => isTemporal(type));
  const numbers = columns.filter((column) => isNumeric(column.type) && !isKey(column));
  const anyNumber = columns.filter(({ type }) => isNumeric(type));
  const rest = columns.filter((column) => !times.includes(column) && !numbers.includes(column));
  const time = times.find(({ name }) => new Set(rows.map((row) => row[index(columns, name)])).size > 1);
  const by = time ?? rest[0] ?? times[0] ?? columns[0];
  const split = time ? (rest[0]?.name ?? "") : "";
  return { of: (numbers[0] ?? anyNumber.at(-1))?.name ?? null, by: by.name, split, kind: time ? "line" : "bar" };
}

function index(columns, name) {
  return columns.findIndex((column) => column.name === name);
}

function pointsOf(columns, rows, { of, by, split, kind }) {
  const [ofIndex, byIndex, splitIndex] = [index(columns, of), index(columns, by), split ? index(columns, split) : -1];
  const isTime = isTemporal(columns[byIndex].type);
  const isNumber = isNumeric(columns[byIndex].type);
  const isLine = kind === "line" && (isTime || isNumber);
  const labels = new Map();
  const groups = new Map();
  let left = 0;
  for (const row of rows) {
    const y = row[ofIndex] === null ? Number.NaN : Number(row[ofIndex]);
    const text = row[byIndex] === null ? "NULL" : String(row[byIndex]);
    const x = isLine ? (isTime ? micros(text.length === 10 ? `${text} 00:00:00` : text) : Number(text)) : placeOf(labels, text);
    const name = splitIndex < 0 ? of : String(row[splitIndex] ?? "NULL");
    if (!Number.isFinite(y) || x === null || Number.isNaN(x) || (!isLine && x >= MOST_BARS)) {
      left += 1;
      continue;
    }
    if (!groups.has(name) && groups.size >= MOST_SERIES) {
      left += 1;
      continue;
    }
    const points = groups.get(name) ?? new Map();
    points.set(x, (points.get(x) ?? 0) + y);
    groups.set(name, points);
  }
  const series = [...groups].map(([name, points]) => ({ name, points: [...points].sort((a, b) => a[0] - b[0]) }));
  const texts = [...labels.keys()];
  const span = isLine && isTime ? spanOf(series) : 0;
  const label = isLine ? (isTime ? (x) => tick(x, span) : short) : (x) => texts[x] ?? "";
  const note = left ? `${left} of ${rows.length} rows are not shown: a chart has ${MOST_BARS} bars, or ${MOST_SERIES} lines, at most.` : "";
  return { series, label, note };
}

function placeOf(labels, text) {
  if (!labels.has(text)) labels.set(text, labels.size);
  return labels.get(text);
}

function spanOf(series) {
  const xs = series.flatMap(({ points }) => points.map(([x]) => x));
  return xs.length ? Math.max(...xs) - Math.min(...xs) : 0;
}
