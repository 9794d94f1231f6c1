"""The tables that queries read: their rows are made by chance, and DuckDB is told what they hold in the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

import duckdb

# Rows come so many seconds after their time at most, and watermarks wait so long: no row is late.
DELAY = 30
_WATERMARK = f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY}' SECOND"
_CHANGES = (
    "WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{}', 'changelog.op-column' = 'op', "
    "'source.monitor-interval' = '100 ms')"
)
Row = tuple[object, ...]
# What each table is fed, in the order in which it comes.
Fed = dict[str, list[Row]]
# What the numbers of a key, NULL aside, become in columns of other types; DuckDB reads the text.
NUMBERS = (0, 1, 2, 3, 5, -1)
KEYS = {
    "VARCHAR": ("", "ä", "日本", "a\u0301", "\u00e1", "NULL"),
    "DECIMAL(10,2)": ("0.00", "1.10", "-1.10", "99999999.99", "0.01", "1.00"),
    "DECIMAL(38,10)": ("0", "1.1", "-1234567890123456789012345678.9", "0.0000000001", "5", "-1"),
    "DOUBLE": ("0.0", "1.5", "-1.5", "1e300", "1e-300", "inf"),
    "BOOLEAN[]": ("[]", "[true]", "[false]", "[NULL]", "[true, NULL]", "[NULL, true]"),
    "DATE": ("1970-01-01", "2026-03-29", "0001-01-01", "9999-12-31", "1969-12-31", "2024-02-29"),
    "BLOB": ("", "a", "\\x00", "\\xFF\\x00", "ab", "\\x00\\x00"),
    "TIMESTAMPTZ": (
        *("2026-03-29 00:30:00+00", "2026-03-29 01:30:00+00", "2026-10-25 00:30:00+00", "2026-10-25 01:30:00+00"),
        *("1969-12-31 23:59:59.999+00", "2026-01-01 10:00:00+14"),
    ),
    "VARCHAR[]": ("[]", "[ä]", "[NULL]", "[ä, NULL]", "['']", "[日本, ä]"),
    "STRUCT(a INTEGER, b VARCHAR)": (
        *("{'a': 1, 'b': ä}", "{'a': NULL, 'b': ä}", "{'a': 1, 'b': NULL}", "{'a': NULL, 'b': NULL}"),
        *("{'a': 1, 'b': 'NULL'}", "{'a': 2, 'b': ''}"),
    ),
}
ZONES = ("UTC", "UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia")
_UNICODE = {"": "", "a": "ä", "b": "日本", "ab": "a\u0301'", "B": "𝄞"}


@dataclass(frozen=True, slots=True)
class Types:
    """Of what type the columns `k` and `v` (or `w`) are, in which zone the job runs, and whether texts are Unicode."""

    key: str = "BIGINT"
    value: str = "BIGINT"
    zone: str = "UTC"
    unicode: bool = False

    def row(self, columns: Iterable[str], row: Row) -> Row:
        """Return a row of plain numbers and texts with values of these types."""
        return tuple(self._value(column, value) for column, value in zip(columns, row, strict=True))

    def _value(self, column: str, value: object) -> object:
        match column:
            case "k" if isinstance(value, int) and self.key in KEYS:
                return KEYS[self.key][NUMBERS.index(value)]
            case "v" | "w" if isinstance(value, int) and self.value != "BIGINT":
                return f"{value}.{value % 3}25"
            case "s" if isinstance(value, str) and self.unicode:
                return _UNICODE[value]
        return value


PLAIN = Types()
# t has rows of equal time, u has not; c has changes without a key, d with one; r has versions of its keys.
_COLUMNS = {
    "t": "k {key}, v {value}, s VARCHAR, d DOUBLE, l BIGINT[], ts TIMESTAMP",
    "u": "k {key}, w {value}, s VARCHAR, ts TIMESTAMP",
    "c": "k {key}, v {value}, s VARCHAR, ts TIMESTAMP",
    "d": "k {key}, v {value}, s VARCHAR, ts TIMESTAMP",
    "r": "k {key}, v {value}, s VARCHAR, ts TIMESTAMP",
}
# The types of the columns of each table, by name, where keys and values are numbers.
COLUMNS = {
    table: dict(column.split(" ") for column in columns.format(key="BIGINT", value="BIGINT").split(", "))
    for table, columns in _COLUMNS.items()
}


def typed(table: str, types: Types) -> str:
    """Return the columns of a table as DuckDB declares them."""
    return _COLUMNS[table].format(key=types.key, value=types.value)


def statements(types: Types = PLAIN) -> str:
    """Return the statements that create the tables."""
    columns = {table: typed(table, types).removesuffix("ts TIMESTAMP") + "ts TIMESTAMP(3)" for table in _COLUMNS}
    key = ", PRIMARY KEY (k) NOT ENFORCED"
    return f"""
CREATE TABLE t ({columns["t"]}, {_WATERMARK});
CREATE TABLE u ({columns["u"]}, {_WATERMARK});
CREATE TABLE c (op STRING, {columns["c"]}, {_WATERMARK}) {_CHANGES.format("c")};
CREATE TABLE d (op STRING, {columns["d"]}, {_WATERMARK}{key}) {_CHANGES.format("d")};
CREATE TABLE r ({columns["r"]}, {_WATERMARK}{key});
"""


class NoAnswer(Exception):
    """There is nothing to compare with: what was fed makes no table, or DuckDB does not run the query."""


def fed(random: Random, types: Types = PLAIN) -> Fed:
    """Return a few rows for every table, with NULLs, duplicates and times within some minutes."""
    plain = {table: _arriving(random, table) for table in COLUMNS}
    return {table: [types.row(_fed_columns(table), row) for row in rows] for table, rows in plain.items()}


def types(random: Random) -> Types:
    """Return types that keys and values rarely have together."""
    value = random.choice(("BIGINT", "DECIMAL(18,3)"))
    return Types(random.choice(("BIGINT", *KEYS)), value, random.choice(ZONES), unicode=random.random() < 0.8)


def _fed_columns(table: str) -> list[str]:
    return [*(["op"] if table in "cd" else []), *COLUMNS[table]]


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


def fill(con: duckdb.DuckDBPyConnection, fed: Fed, types: Types = PLAIN, *, backwards: bool = False) -> None:
    """Make the tables as they are in the end, and `d_versions` and `r_versions` with the time of each version."""
    for table in _COLUMNS:
        _insert(con, table, typed(table, types), _held(table, fed[table])[:: -1 if backwards else 1])
    for table in "dr":
        changes = fed[table] if table == "d" else [("I", *row) for row in fed[table]]
        _insert(con, f"{table}_changes", f"op VARCHAR, {typed(table, types)}", changes)
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
