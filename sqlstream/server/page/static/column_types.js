// The types of columns, as DuckDB names them.

const NUMERIC = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL)/;
const TEMPORAL = /^(TIMESTAMP|DATE)/;

export function isNumeric(type) {
  return NUMERIC.test(type ?? "");
}

/** Whether values are points in time: TIME and INTERVAL are not. */
export function isTemporal(type) {
  return TEMPORAL.test(type ?? "");
}
