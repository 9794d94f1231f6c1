"""The tables that queries read: their rows are made by chance, and DuckDB is told what they hold in the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from random import Random

import duckdb

# Rows come so many seconds after their time at most, and watermarks wait so long: no row is late.
DELAY = 30
_WATERMARK = f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY}' SECOND"
_CHANGES = (
    "WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{}', 'changelog.op-column' = 'op', "
    "'source.monitor-interval' = '100 ms')"
)
# t has rows of equal time, u has not; c has changes without a key, d with one; r has versions of its keys.
TABLES = f"""
CREATE TABLE t (k BIGINT, v BIGINT, s STRING, d DOUBLE, l ARRAY<BIGINT>, ts TIMESTAMP(3), {_WATERMARK});
CREATE TABLE u (k BIGINT, w BIGINT, s STRING, ts TIMESTAMP(3), {_WATERMARK});
CREATE TABLE c (op STRING, k BIGINT, v BIGINT, s STRING, ts TIMESTAMP(3), {_WATERMARK}) {_CHANGES.format("c")};
CREATE TABLE d (op STRING, k BIGINT, v BIGINT, s STRING, ts TIMESTAMP(3), {_WATERMARK}, PRIMARY KEY (k) NOT ENFORCED)
{_CHANGES.format("d")};
CREATE TABLE r (k BIGINT, v BIGINT, s STRING, ts TIMESTAMP(3), {_WATERMARK}, PRIMARY KEY (k) NOT ENFORCED);
"""
_COLUMNS = {
    "t": "k BIGINT, v BIGINT, s VARCHAR, d DOUBLE, l BIGINT[], ts TIMESTAMP",
    "u": "k BIGINT, w BIGINT, s VARCHAR, ts TIMESTAMP",
    "c": "k BIGINT, v BIGINT, s VARCHAR, ts TIMESTAMP",
    "d": "k BIGINT, v BIGINT, s VARCHAR, ts TIMESTAMP",
    "r": "k BIGINT, v BIGINT, s VARCHAR, ts TIMESTAMP",
}
# The types of the columns of each table, by name.
COLUMNS = {table: dict(column.split(" ") for column in columns.split(", ")) for table, columns in _COLUMNS.items()}
Row = tuple[object, ...]
# What each table is fed, in the order in which it comes.
Fed = dict[str, list[Row]]


class NoAnswer(Exception):
    """There is nothing to compare with: what was fed makes no table, or DuckDB does not run the query."""


def fed(random: Random) -> Fed:
    """Return a few rows for every table, with NULLs, duplicates and times within some minutes."""
    return {table: _arriving(random, table) for table in COLUMNS}


def _arriving(random: Random, table: str) -> list[Row]:
    count = random.choice((0, 1, 4, 8, 20, 20, 20, 40))
    seconds = random.choices(range(180), k=count) if table in "tc" else random.sample(range(180), count)
    arriving: list[tuple[float, Row]] = []
    for second in seconds:
        at = second + random.uniform(0, DELAY - 1)
        row = _row(random, table, f"2026-01-01 10:0{second // 60}:{second % 60:02d}")
        match table:
            case "c":
                arriving.append((at, (random.choice(("I", "+I")), *row)))
                if random.random() < 0.4:
                    # Mostly after the row that it takes away.
                    earliest = at if random.random() < 0.9 else second
                    arriving.append(
                        (random.uniform(earliest, second + DELAY - 0.5), (random.choice(("D", "-D")), *row))
                    )
            case "d":
                op = random.choice(("I", "U", "U", "D"))
                arriving.append((at, (op, *row) if op != "D" else (op, row[0], None, None, row[-1])))
            case _:
                arriving.append((at, row))
    return [row for _, row in sorted(arriving, key=lambda pair: pair[0])]


def _row(random: Random, table: str, time: str) -> Row:
    def number() -> int | None:
        return random.choice((None, 0, 1, 2, 2, 3, 5, -1))

    key = random.choice((0, 1, 2, 3)) if table in "dr" else number()
    text = random.choice((None, "", "a", "b", "ab", "B"))
    if table == "t":
        values = random.choice((None, [], [1], [2, None], [3, 1, 3]))
        return key, number(), text, random.choice((None, 0.0, 0.5, 1.5, -2.0)), values, time
    return key, number(), text, time


def pieces(fed: Fed, cuts: Random) -> Iterator[Fed]:
    """Cut what is fed into a few batches, or so many that state is compacted."""
    count = cuts.choice((2, 3, 3, 4, 4, 8, 8, 24))
    ends = {table: sorted(cuts.choices(range(len(rows) + 1), k=count - 1)) for table, rows in fed.items()}
    for i in range(count):
        yield {table: rows[([0, *ends[table]])[i] : ([*ends[table], len(rows)])[i]] for table, rows in fed.items()}


def reads(sql: str, table: str) -> bool:
    return re.search(rf"\b{table}\b", sql) is not None


def fill(con: duckdb.DuckDBPyConnection, fed: Fed, backwards: bool = False) -> None:
    """Make the tables as they are in the end, and `d_versions` and `r_versions` with the time of each version."""
    for table, columns in _COLUMNS.items():
        _insert(con, table, columns, _held(table, fed[table])[:: -1 if backwards else 1])
    for table in "dr":
        changes = fed[table] if table == "d" else [("I", *row) for row in fed[table]]
        _insert(con, f"{table}_changes", f"op VARCHAR, {_COLUMNS[table]}", changes)
        con.execute(
            f"CREATE TABLE {table}_versions AS SELECT * EXCLUDE op FROM (SELECT *, "
            f"coalesce(lead(ts) OVER (PARTITION BY k ORDER BY ts), 'infinity') AS until FROM {table}_changes) WHERE op <> 'D'"
        )


def _insert(con: duckdb.DuckDBPyConnection, table: str, columns: str, rows: list[Row]) -> None:
    con.execute(f"CREATE TABLE {table} ({columns})")
    if rows:
        con.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in rows[0])})", rows)


def _held(table: str, fed: list[Row]) -> list[Row]:
    if table == "d":
        last = {row[0]: (op, row) for op, *row in fed}
        return [tuple(row) for op, row in last.values() if op != "D"]
    if table == "c":
        counted: Counter[Row] = Counter()
        for op, *row in fed:
            counted[tuple(row)] += -1 if "D" in str(op) else 1
        if min(counted.values(), default=0) < 0:
            raise NoAnswer
        return list(counted.elements())
    return fed
