// Numbers, sizes, durations and times for people. Times of the server are microseconds since 1970, or texts in UTC.

export const NOTHING = "–";
const UNITS = [[86_400 * 365.25, "y"], [86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const SIZES = ["B", "kB", "MB", "GB", "TB"];
const THOUSANDS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1234567 -> "1,234,567". */
export function count(number) {
  return number === null || number === undefined ? NOTHING : THOUSANDS.format(number);
}

/** 1234567 -> "1.23 M": three digits that are read at a glance. */
export function short(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return NOTHING;
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(number) >= size) return `${digits(number / (unit === "k" ? 1e3 : size))} ${unit}`;
  }
  return Math.abs(number) >= 10 || Number.isInteger(number) ? count(number) : number.toFixed(1);
}

function digits(number) {
  return number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2);
}

/** 2048 -> "2.05 kB". */
export function bytes(number) {
  if (number === null || number === undefined) return NOTHING;
  let power = 0;
  while (number >= 1000 && power < SIZES.length - 1) [number, power] = [number / 1000, power + 1];
  return `${power === 0 ? number : digits(number)} ${SIZES[power]}`;
}

/** Rows in a second. */
export function rate(number) {
  return number === null || number === undefined ? NOTHING : `${short(number)}/s`;
}

/** Milliseconds -> "340 ms", "1.2 s". */
export function milliseconds(number) {
  if (number === null || number === undefined) return NOTHING;
  if (number === 0) return "0 ms";
  return number < 1 ? `${number.toFixed(2)} ms` : number < 1000 ? `${Math.round(number)} ms` : duration(number * 1000);
}

/** Microseconds -> "3.4 s", "2 min 5 s", "4 d 3 h": two units at most. */
export function duration(microseconds) {
  if (microseconds === null || microseconds === undefined) return NOTHING;
  if (microseconds === 0) return "0 s";
  const seconds = Math.abs(microseconds) / 1e6;
  const sign = microseconds < 0 ? "−" : "";
  if (seconds < 1) return `${sign}${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${sign}${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  const first = UNITS.findIndex(([size]) => seconds >= size);
  const whole = Math.floor(seconds / UNITS[first][0]);
  const next = UNITS[first + 1];
  const rest = Math.floor((seconds - whole * UNITS[first][0]) / next[0]);
  return `${sign}${whole} ${UNITS[first][1]}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

/** A time of the server -> microseconds since 1970; null for none, and for the end of the input. */
export function micros(time) {
  if (time === null || time === undefined || time === "") return null;
  if (typeof time === "number") return time;
  const parts = /^(\d{4,})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?/.exec(time);
  if (!parts) return null;
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number);
  // Date.UTC would take the years up to 99 for those from 1900 on.
  const seconds = new Date(0).setUTCFullYear(year, month - 1, day) / 1000 + (hour * 60 + minute) * 60 + second;
  return seconds * 1e6 + Number((parts[7] ?? "").padEnd(6, "0"));
}

export function isEnd(time) {
  return time === "end of input" || time === "infinity";
}

/** A time of the server -> "2026-03-01 10:00:00", in UTC. */
export function moment(time) {
  if (isEnd(time)) return "end of input";
  const at = micros(time);
  if (at === null) return time ? String(time) : NOTHING;
  const text = iso(at);
  if (!text) return typeof time === "string" ? time : NOTHING;
  return text.replace("T", " ").split(".")[0];
}

/** Microseconds since 1970 -> "2026-03-01T10:00:00.000", in UTC; "" for a time that Date lacks. */
function iso(time) {
  const date = new Date(time / 1000);
  // A year beyond 9999 has a sign and six digits.
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().replace(/^\+0*/, "").slice(0, -1);
}

/** The part of a time that tells it from others nearby: "10:00:05", or with the day where `span` is longer than one. */
export function tick(time, span) {
  const [day, clock = ""] = iso(time).split("T");
  if (span > 20 * 86_400e6) return day;
  if (span > 86_400e6) return `${day.slice(-5)} ${clock.slice(0, 5)}`;
  return span > 600e6 ? clock.slice(0, 5) : span > 5e6 ? clock.slice(0, 8) : clock.slice(3);
}

/** How many rows an answer of the server has: "1 row", or "The first 300 rows" where there are more. */
export function shownRows({ rows, truncated }) {
  return `${truncated ? "The first " : ""}${rowCount(rows.length)}`;
}

/** 1 -> "1 row", 1234 -> "1,234 rows". */
export function rowCount(number) {
  return `${count(number)} ${number === 1 ? "row" : "rows"}`;
}

/** A name in SQL. */
export function quoted(name) {
  return `"${String(name).replaceAll('"', '""')}"`;
}

/** A value of a row. */
export function value(given) {
  if (given === null || given === undefined) return "NULL";
  return typeof given === "object" ? JSON.stringify(given) : String(given);
}
