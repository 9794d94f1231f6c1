"""The queries, each with what is right: DuckDB's answer over the same rows, with the order of arrival as the column `place`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

# k, v, n, ts: of each key the values are in no order, and n is the number of the row. All rows of a key have one time.
Row = tuple[str, int, int, str]
FEW: tuple[Row, ...] = (
    ("a", 9, 0, "2026-01-01 10:00:00"),
    ("a", 3, 1, "2026-01-01 10:00:00"),
    ("a", 7, 2, "2026-01-01 10:00:00"),
    ("b", 5, 3, "2026-01-01 10:00:01"),
    ("b", 1, 4, "2026-01-01 10:00:01"),
)
MANY: tuple[Row, ...] = tuple(
    (f"c{number * 7 % 20}", number * 7919 % 101, number, "2026-01-01 10:00:02") for number in range(5, 405)
)
ROWS = FEW + MANY
COLUMNS = "k STRING, v INT, n INT, ts TIMESTAMP(3)"
WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
_WINDOW = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
_ENDS = "FIRST(v), LAST(v), FIRST_VALUE(v), LAST_VALUE(v), LISTAGG(v, '-'), ARRAY_AGG(v)"
_ENDS_RIGHT = """first(v ORDER BY place), last(v ORDER BY place), first(v ORDER BY place), last(v ORDER BY place),
string_agg(v, '-' ORDER BY place), list(v ORDER BY place)"""
_ENDS_COLUMNS = "k STRING, first INT, last INT, first_value INT, last_value INT, joined STRING, list INT[]"


@dataclass(frozen=True)
class Case:
    """A query over `t`, whose result goes into a table of the case's name, and the query of what is right over `t` in DuckDB.

    With `watermark` it needs event time. With `appends` its rows must come from a source that never takes a row back.
    """

    name: str
    columns: str
    query: str
    right: str
    watermark: bool = False
    appends: bool = False
    key: str = ""

    @property
    def table(self) -> str:
        """The SQL that creates the table of its result."""
        key = f", PRIMARY KEY ({self.key}) NOT ENFORCED" if self.key else ""
        return f"CREATE TABLE {self.name} ({self.columns}{key});\n"

    @property
    def insert(self) -> str:
        return f"INSERT INTO {self.name} {self.query};\n"


def _first(name: str, order: str, right: str, by: str = "k", rows: str = "t", *, watermark: bool = False) -> Case:
    """Return the case of the first row of each key in an order."""
    return Case(
        name,
        "k STRING, n INT",
        f"SELECT k, n FROM {rows} QUALIFY ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) = 1",
        f"SELECT k, n FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY {right}) = 1",
        watermark,
    )


_LATEST = "PARTITION BY k ORDER BY ts, place"
_BY_TIME = "PARTITION BY k ORDER BY ts"
_UNION = "SELECT k, n FROM t UNION ALL SELECT k || '!', n FROM t"
CASES = (
    _first("last_by_p", "p DESC", "place DESC"),
    _first("first_by_p", "p", "place"),
    # Without a watermark ts is no time of rows, but a column like others.
    _first("last_by_ts", "ts DESC", "ts DESC, place DESC", watermark=True),
    _first("first_by_v", "v > 4", "v > 4, place"),
    _first("last_in_window", "ts DESC", "ts DESC, place DESC", "k, window_start, window_end", _WINDOW, watermark=True),
    Case(
        "lag_by_p",
        "n INT, before INT",
        "SELECT n, LAG(n) OVER (PARTITION BY k ORDER BY p) FROM t",
        "SELECT n, lag(n) OVER (PARTITION BY k ORDER BY place) FROM t",
        appends=True,
    ),
    Case(
        "over_by_ts",
        "n INT, before INT, two BIGINT, number BIGINT, last INT, of_time BIGINT",
        f"""SELECT n, LAG(n) OVER w, SUM(v) OVER (w ROWS 1 PRECEDING), ROW_NUMBER() OVER w,
LAST_VALUE(v) OVER (w ROWS 1 PRECEDING), SUM(v) OVER w FROM t WINDOW w AS ({_BY_TIME})""",
        f"""SELECT n, lag(n) OVER w, sum(v) OVER (w ROWS 1 PRECEDING), row_number() OVER w,
last_value(v) OVER (w ROWS 1 PRECEDING), sum(v) OVER ({_BY_TIME}) FROM t WINDOW w AS ({_LATEST})""",
        watermark=True,
        appends=True,
    ),
    Case("ends", _ENDS_COLUMNS, f"SELECT k, {_ENDS} FROM t GROUP BY k", f"SELECT k, {_ENDS_RIGHT} FROM t GROUP BY k"),
    Case(
        "ends_in_windows",
        _ENDS_COLUMNS,
        f"SELECT k, {_ENDS} FROM {_WINDOW} GROUP BY k, window_start, window_end",
        f"SELECT k, {_ENDS_RIGHT} FROM t GROUP BY k",
        watermark=True,
    ),
    # Rows of one time are versions of one time, too: the last one counts.
    Case(
        "versions_valid",
        "k STRING, n INT, v INT",
        "SELECT t.k, t.n, versions.v FROM t JOIN versions FOR SYSTEM_TIME AS OF t.ts ON t.k = versions.k",
        f"SELECT k, n, last_value(v) OVER ({_LATEST} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM t",
        watermark=True,
        appends=True,
    ),
    Case(
        "keyed",
        "k STRING, n INT",
        f"SELECT k, n FROM ({_UNION})",
        "SELECT k, last(n ORDER BY place) FROM (FROM t UNION ALL SELECT * REPLACE (k || '!' AS k) FROM t) GROUP BY k",
        appends=True,
        key="k",
    ),
)


def script(cases: Iterable[Case]) -> str:
    """Return the SQL of one job that has the results of all cases, each in its table."""
    cases = tuple(cases)
    inserts = "".join(case.insert for case in cases)
    return f"{''.join(case.table for case in cases)}EXECUTE STATEMENT SET BEGIN\n{inserts}END;\n"


def right(case: Case, rows: Sequence[Row] = ROWS) -> list[tuple[Any, ...]]:
    """Return what is right over rows that have come in this order, sorted."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (k VARCHAR, v INTEGER, n INTEGER, ts TIMESTAMP, place INTEGER)")
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [(*row, place) for place, row in enumerate(rows)])
        return in_order(con.execute(case.right).fetchall())


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort rows by their texts: they have NULLs and lists."""
    return sorted(rows, key=repr)
