"""What DuckDB says to a query over all rows at once, in which windows and versions are written as DuckDB can make them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import duckdb

from tests.fuzz.functions import AS_QUERIES
from tests.fuzz.tables import PLAIN, Fed, NoAnswer, Row, Types, fill, reads

_WINDOWS = re.compile(
    r"(TUMBLE|HOP|CUMULATE|SESSION)\(TABLE (\w+)(?: PARTITION BY (\w+))?, DESCRIPTOR\((\w+)\), "
    r"INTERVAL '(\d+)' SECOND(?:, INTERVAL '(\d+)' SECOND)?\)"
)
_VERSIONS = re.compile(r"\bJOIN (\w+) FOR SYSTEM_TIME AS OF a\.ts AS b ON\b")


def batch_answer(sql: str, fed: Fed, types: Types = PLAIN) -> tuple[Counter[Row], str]:
    """Return the rows of a query, and its columns with their types; raise NoAnswer if DuckDB has none, or not just one."""
    answers, fed = [], {table: rows if reads(sql, table) else [] for table, rows in fed.items()}
    for backwards in False, True:
        with duckdb.connect(config={"threads": 1}) as con:
            con.execute(f"SET TimeZone = '{types.zone}'")
            fill(con, fed, types, backwards=backwards)
            try:
                query = batch_sql(sql)
                described = con.execute(f"DESCRIBE {query}").fetchall()
                answers.append(counted(con.execute(query).fetchall()))
            except duckdb.Error as error:
                raise NoAnswer from error
    if answers[0] != answers[1]:
        raise NoAnswer
    return answers[0], ", ".join(f"c{i} {type}" for i, (_, type, *_) in enumerate(described))


def counted(rows: Iterable[Row]) -> Counter[Row]:
    """Count equal rows: floating-point numbers are rounded, and nested values are text, which can be counted."""
    return Counter(tuple(map(_countable, row)) for row in rows)


def _countable(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, datetime) and value.tzinfo is not None:
        # Python takes no two times of different zones for equal in the hour that clocks go through twice.
        return value.astimezone(UTC)
    return str(value) if isinstance(value, list | dict) else value


def batch_sql(sql: str) -> str:
    """Return a query as DuckDB can run it."""
    for call, query in AS_QUERIES.items():
        sql = sql.replace(call, query)
    return _VERSIONS.sub(r"JOIN \1_versions AS b ON a.ts >= b.ts AND a.ts < b.until AND", _WINDOWS.sub(_windows, sql))


def _windows(found: re.Match[str]) -> str:
    kind, table, key, time, first, second = found.groups()
    if kind == "SESSION":
        rows = _sessions(table, key, time, first)
    else:
        step, size = int(first), int(second or first)
        rows = _cumulated(table, time, step, size) if kind == "CUMULATE" else _hopped(table, time, step, size)
    return f"(SELECT *, window_end - INTERVAL '1' MILLISECOND AS window_time FROM {rows})"


def _hopped(table: str, time: str, slide: int, size: int) -> str:
    last = f"time_bucket(INTERVAL '{slide}' SECOND, {time}, TIMESTAMP '1970-01-01')"
    starts = f"unnest([{last} - INTERVAL '{slide}' SECOND * i FOR i IN range(0, {-(-size // slide)})])"
    return (
        f"(SELECT *, window_start + INTERVAL '{size}' SECOND AS window_end FROM (SELECT *, {starts} AS window_start"
        f" FROM {table}) WHERE {time} < window_start + INTERVAL '{size}' SECOND)"
    )


def _cumulated(table: str, time: str, step: int, size: int) -> str:
    start = f"time_bucket(INTERVAL '{size}' SECOND, {time}, TIMESTAMP '1970-01-01')"
    ends = f"unnest([window_start + INTERVAL '{step}' SECOND * i FOR i IN range(1, {size // step + 1})])"
    return (
        f"(SELECT * FROM (SELECT *, {ends} AS window_end FROM (SELECT *, {start} AS window_start FROM {table}))"
        f" WHERE {time} < window_end)"
    )


def _sessions(table: str, key: str | None, time: str, gap: str) -> str:
    keys = f"PARTITION BY {key} " if key else ""
    same = f"PARTITION BY {key + ', ' if key else ''}_session"
    first = f"(SELECT *, {time} > lag({time}) OVER ({keys}ORDER BY {time}) + INTERVAL '{gap}' SECOND AS _first FROM {table})"
    numbered = f"(SELECT *, count(*) FILTER (_first) OVER ({keys}ORDER BY {time}) AS _session FROM {first})"
    return (
        f"(SELECT * EXCLUDE (_first, _session), min({time}) OVER ({same}) AS window_start,"
        f" max({time}) OVER ({same}) + INTERVAL '{gap}' SECOND AS window_end FROM {numbered})"
    )
