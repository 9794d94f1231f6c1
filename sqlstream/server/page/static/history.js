// The last batches of a job, and what they say about its speed.

import { call, serverNow } from "./api.js";

const KEPT = 200;
// The speed of now is that of so many seconds.
const RECENT_MICROSECONDS = 5e6;

export class History {
  constructor() {
    this.batches = [];
  }

  get newest() {
    return this.batches.at(-1) ?? null;
  }

  /** Forget the batches of a job that was dropped: another one may have its name. */
  clear() {
    this.batches = [];
  }

  /** Add a batch as the server sends it, in its place; whether it was not known. */
  add(batch) {
    const newest = this.newest;
    // A job that was restored, or dropped and started anew, begins with a version of before.
    if (newest && batch.version <= newest.version && batch.committed_at > newest.committed_at) this.clear();
    if (this.batches.some(({ version }) => version === batch.version)) return false;
    this.batches.push(batch);
    this.batches.sort((a, b) => a.version - b.version);
    this.batches.splice(0, this.batches.length - KEPT);
    return true;
  }

  /** Rows that each of the last batches read, or what else `total` finds in a batch, with the seconds since the one before. */
  steps(most, total = (batch) => batch.rows_in) {
    const found = [];
    this.batches.slice(-most - 1).forEach((batch, i, all) => {
      const before = all[i - 1];
      if (before === undefined || before.version !== batch.version - 1) return;
      const seconds = Math.max((batch.committed_at - before.committed_at) / 1e6, 1e-3);
      found.push({ batch, rows: Math.max((total(batch) ?? 0) - (total(before) ?? 0), 0), seconds });
    });
    return found;
  }

  /** Rows per second at each of the last batches, as a mean of three: a batch without rows often follows one that has some. */
  rates(most) {
    const steps = this.steps(most + 2);
    const sum = (some, of) => some.reduce((all, step) => all + step[of], 0);
    const means = steps.map((_, i) => steps.slice(Math.max(i - 2, 0), i + 1)).map((some) => sum(some, "rows") / sum(some, "seconds"));
    return means.slice(-most);
  }

  /** Rows per second in the last seconds; of a job that reads less often, in its last batch, as long as that is not over. */
  rowsPerSecond(total = (batch) => batch.rows_in) {
    const now = serverNow();
    const steps = this.steps(KEPT, total);
    const recent = steps.filter(({ batch }) => now - batch.committed_at < RECENT_MICROSECONDS);
    if (!recent.length) {
      const last = steps.at(-1);
      return last && now - last.batch.committed_at < last.seconds * 1.5e6 ? last.rows / last.seconds : 0;
    }
    const sum = (of) => recent.reduce((all, step) => all + step[of], 0);
    return sum("rows") / Math.max(sum("seconds"), Math.min((now - recent[0].batch.committed_at) / 1e6, 5), 0.2);
  }
}

/**
 * Return a function that adds a batch which was heard, and says whether it was not known. Where there is a gap before it, as after
 * a broken connection, `fetchMissing` is called.
 */
export function hearing(history, fetchMissing) {
  return (batch) => {
    const before = history.newest;
    const isNew = history.add(batch);
    if (isNew && before !== null && batch.version > before.version + 1) fetchMissing();
    return isNew;
  };
}

/** Ask for the last batches, and add them to a history. Throws a Problem. */
export async function fetchHistory(path, last, signal, history) {
  const { batches } = await call(`${path}?last=${last}`, { signal });
  batches.forEach((batch) => history.add(batch));
}

/** Milliseconds that a batch took; null where the one before is not known. */
export function took(batch) {
  return batch.took === null ? null : Object.values(batch.took).reduce((all, time) => all + time, 0) / 1000;
}
