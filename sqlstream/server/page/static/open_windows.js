// The windows that are open in a state.

import { patiently, query } from "./api.js";
import { micros, quoted } from "./format.js";

// Looking through more stored rows for their windows would keep the server busy.
const MOST_ROWS = 1_000_000;

/**
 * Ask for the windows in a relation of state, in SQL: {windows, truncated}, the `most` that end first. Each is {start, end, rows} in
 * microseconds, with a `start` of null where windows have none.
 *
 * `bounds` are the columns {start, end}, and `stored` is how many rows there are. Return null for a state without windows, and for
 * one that is too large. Throws a Problem.
 */
export async function openWindows(relation, bounds, stored, most, signal) {
  if (!bounds || stored > MOST_ROWS) return null;
  const [start, end] = [bounds.start ? quoted(bounds.start) : "NULL", quoted(bounds.end)];
  const sql = `SELECT ${start}, ${end}, count(*) FROM ${relation} WHERE ${end} IS NOT NULL GROUP BY ALL ORDER BY 2, 1`;
  const { rows, truncated } = await patiently(() => query(sql, { limit: most, signal }), signal);
  const windows = rows.map(([from, to, number]) => ({ start: micros(from), end: micros(to), rows: Number(number) }));
  // There may be one without an end that a clock can show.
  return { windows: windows.filter((one) => one.end !== null), truncated };
}
