"""Queries over typed tables, small and made by chance, whose answer DuckDB knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

TABLES = """
CREATE TABLE t (k BIGINT, v BIGINT, s STRING, d DOUBLE, l ARRAY<BIGINT>, ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '1' DAY);
CREATE TABLE u (k BIGINT, w BIGINT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' DAY);
"""
COLUMNS = {
    "t": "k BIGINT, v BIGINT, s VARCHAR, d DOUBLE, l BIGINT[], ts TIMESTAMP",
    "u": "k BIGINT, w BIGINT, s VARCHAR, ts TIMESTAMP",
}
_WINDOWS = re.compile(
    r"(TUMBLE|HOP)\(TABLE (\w+), DESCRIPTOR\((\w+)\), INTERVAL '(\d+)' SECOND(?:, INTERVAL '(\d+)' SECOND)?\)"
)
Columns = dict[str, str]


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the types of its columns by name."""

    sql: str
    columns: Columns


def rows(random: Random, table: str) -> list[tuple[object, ...]]:
    """Return a few rows with NULLs, duplicates and times within some minutes."""
    found = []
    for _ in range(random.choice((0, 1, 3, 8, 20))):
        number = lambda: random.choice((None, 0, 1, 2, 2, 3, 5, -1))  # noqa: E731
        text = random.choice((None, "", "a", "b", "ab", "B"))
        ts = f"2026-01-01 10:0{random.randrange(3)}:{random.randrange(60):02d}"
        values = random.choice((None, [], [1], [2, None], [3, 1, 3]))
        half = random.choice((None, 0.0, 0.5, 1.5, -2.0))
        found.append((number(), number(), text, half, values, ts) if table == "t" else (number(), number(), text, ts))
    return found


def batch_sql(sql: str) -> str:
    """Return a query with its windows written as DuckDB can make them."""

    def windows(found: re.Match[str]) -> str:
        _, table, time, slide, size = found.groups()
        size = size or slide
        last = f"time_bucket(INTERVAL '{slide}' SECOND, {time}, TIMESTAMP '2000-01-01')"
        starts = f"unnest([{last} - INTERVAL '{slide}' SECOND * i FOR i IN range(0, {-(-int(size) // int(slide))})])"
        return (
            f"(SELECT *, window_start + INTERVAL '{size}' SECOND AS window_end FROM (SELECT *, {starts} AS window_start"
            f" FROM {table}) WHERE {time} < window_start + INTERVAL '{size}' SECOND)"
        )

    return _WINDOWS.sub(windows, sql)


class Queries:
    """Makes queries by chance."""

    def __init__(self, random: Random):
        self.random = random

    def one_of(self, *choices: str) -> str:
        return self.random.choice(choices)

    def query(self, depth: int = 2) -> Query:
        """Return a query; what it reads may be another one."""
        kinds = [self.plain, self.plain, self.grouped, self.grouped, self.windowed, self.joined, self.ranked]
        kinds += [self.united, self.unnested, self.matched]
        return self.random.choice(kinds)(depth)

    # -- what is read

    def source(self, depth: int) -> Query:
        """Return what can stand behind FROM."""
        if depth > 0 and self.random.random() < 0.5:
            below = self.query(depth - 1)
            return Query(f"({below.sql}) AS q{depth}", below.columns)
        table = self.one_of("t", "u")
        return Query(table, dict(c.split(" ") for c in COLUMNS[table].split(", ")))

    def where(self, columns: Columns) -> str:
        return f" WHERE {self.condition(columns)}" if self.random.random() < 0.5 else ""

    # -- kinds of queries

    def plain(self, depth: int) -> Query:
        below = self.source(depth)
        kinds = [self.one_of("BIGINT", "VARCHAR", "BIGINT", "BOOLEAN") for _ in range(self.random.randint(1, 3))]
        items = [f"{self.value(kind, below.columns)} AS c{i}" for i, kind in enumerate(kinds)]
        distinct = self.one_of("", "", "", "DISTINCT ")
        sql = f"SELECT {distinct}{', '.join(items)} FROM {below.sql}{self.where(below.columns)}"
        return Query(sql, {f"c{i}": kind for i, kind in enumerate(kinds)})

    def grouped(self, depth: int, below: Query | None = None, keys: Columns | None = None) -> Query:
        below = below or self.source(depth)
        columns = dict(keys or {})
        items, group = [*columns], [*columns]
        for i in range(self.random.randint(0, 2)):
            kind = self.one_of("BIGINT", "VARCHAR")
            value = self.value(kind, below.columns, 1)
            # A constant would be taken for a place in the select list.
            if any(re.search(rf"\b{name}\b", value) for name in below.columns):
                items.append(f"{value} AS g{i}")
                group.append(value)
                columns[f"g{i}"] = kind
        for i in range(self.random.randint(1, 3)):
            call, kind = self.aggregate(below.columns)
            items.append(f"{call} AS a{i}")
            columns[f"a{i}"] = kind
        sql = f"SELECT {', '.join(items)} FROM {below.sql}{self.where(below.columns)}"
        if group:
            way = self.one_of("{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})") if not keys else "{}"
            sql += f" GROUP BY {way.format(', '.join(group))}"
            if self.random.random() < 0.2:
                sql += f" HAVING COUNT(*) {self.one_of('>', '<=')} {self.random.randint(0, 3)}"
        return Query(sql, columns)

    def windowed(self, depth: int) -> Query:
        table = self.one_of("t", "u")
        columns = dict(c.split(" ") for c in COLUMNS[table].split(", "))
        slide, times = self.random.choice((1, 7, 10, 60)), self.random.choice((1, 2, 3))
        call = f"TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '{slide}' SECOND)"
        if times > 1:
            size = slide * times - self.random.choice((0, 0, 1))
            if size > slide:
                call = f"HOP(TABLE {table}, DESCRIPTOR(ts), INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND)"
        return self.grouped(depth, Query(call, columns), {"window_start": "TIMESTAMP", "window_end": "TIMESTAMP"})

    def joined(self, depth: int) -> Query:
        kind = self.one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        more = self.one_of("", "", " AND a.v < b.w", " AND a.s IS NOT DISTINCT FROM b.s", " AND a.s <> b.s")
        left, right = (
            self.one_of("t", "(SELECT DISTINCT k, v, s FROM t)"),
            self.one_of("u", "(SELECT k, MAX(w) AS w, MIN(s) AS s FROM u GROUP BY k)"),
        )
        sql = f"SELECT a.k AS x, a.v AS y, b.w AS z, b.s AS p FROM {left} AS a {kind} {right} AS b ON a.k = b.k{more}"
        return Query(sql, {"x": "BIGINT", "y": "BIGINT", "z": "BIGINT", "p": "VARCHAR"})

    def matched(self, depth: int) -> Query:
        test = self.one_of(
            *(
                "k IN (SELECT w FROM u)",
                "EXISTS (SELECT 1 FROM u WHERE u.k = t.v)",
                "NOT EXISTS (SELECT 1 FROM u WHERE u.w = t.k)",
            ),
            *("v IN (SELECT k + 1 FROM u WHERE s IS NOT NULL)", "k IN (SELECT MAX(w) FROM u GROUP BY s)"),
        )
        return Query(f"SELECT k, v, s FROM t WHERE {test}", {"k": "BIGINT", "v": "BIGINT", "s": "VARCHAR"})

    def ranked(self, depth: int) -> Query:
        function, most = self.one_of("ROW_NUMBER", "RANK", "DENSE_RANK"), self.random.randint(1, 3)
        order = self.one_of("v, s", "v DESC, s", "s DESC NULLS LAST, v", "v NULLS FIRST, s DESC")
        inner = f"SELECT k, v, s, {function}() OVER (PARTITION BY k ORDER BY {order}) AS n FROM t"
        return Query(
            f"SELECT k, v, s, n FROM ({inner}) AS r WHERE n <= {most}",
            dict.fromkeys("kvn", "BIGINT") | {"s": "VARCHAR"},
        )

    def united(self, depth: int) -> Query:
        word = self.one_of("UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
        sides = []
        for _ in range(2):
            below = self.source(depth)
            kinds = {"c0": "BIGINT", "c1": "VARCHAR"}
            items = [f"{self.value(kind, below.columns, 1)} AS {name}" for name, kind in kinds.items()]
            sides.append(f"SELECT {', '.join(items)} FROM {below.sql}{self.where(below.columns)}")
        return Query(f"{sides[0]} {word} {sides[1]}", {"c0": "BIGINT", "c1": "VARCHAR"})

    def unnested(self, depth: int) -> Query:
        if self.random.random() < 0.5:
            return Query("SELECT k, UNNEST(l) AS e FROM t", {"k": "BIGINT", "e": "BIGINT"})
        return Query(
            "SELECT k, e, s FROM t CROSS JOIN UNNEST(l) AS x(e)", {"k": "BIGINT", "e": "BIGINT", "s": "VARCHAR"}
        )

    # -- expressions

    def value(self, kind: str, columns: Columns, depth: int = 2) -> str:
        """Return an expression of a type."""
        own = [name for name, type in columns.items() if type == kind]
        if own and self.random.random() < (0.5 if depth else 0.9):
            return self.random.choice(own)
        if depth == 0:
            return {"BIGINT": self.one_of("1", "0", "7"), "VARCHAR": self.one_of("'a'", "''"), "BOOLEAN": "true"}[kind]

        def part(kind: str) -> str:
            return self.value(kind, columns, depth - 1)

        a, b = part(kind), part(kind)
        if kind == "BOOLEAN":
            return f"({self.condition(columns, depth - 1)})"
        if kind == "BIGINT":
            lists = [name for name, type in columns.items() if type == "BIGINT[]"]
            some = [
                f"({a} + {b})",
                f"({a} - {b})",
                f"({a} * 2)",
                f"ABS({a})",
                f"COALESCE({a}, {b})",
                f"NULLIF({a}, {b})",
            ]
            some += [
                f"CASE WHEN {self.condition(columns, 0)} THEN {a} ELSE {b} END",
                f"CAST(LENGTH({part('VARCHAR')}) AS BIGINT)",
            ]
            some += (
                [f"{name}[1]" for name in lists]
                + [f"LEN({name})" for name in lists]
                + [f"TRY_CAST({part('VARCHAR')} AS BIGINT)"]
            )
        else:
            some = [
                f"({a} || {b})",
                f"UPPER({a})",
                f"SUBSTRING({a}, 1, 1)",
                f"COALESCE({a}, {b})",
                f"CAST({part('BIGINT')} AS VARCHAR)",
            ]
            some += [f"CASE WHEN {self.condition(columns, 0)} THEN {a} ELSE {b} END"]
        return self.random.choice(some)

    def condition(self, columns: Columns, depth: int = 1) -> str:
        kind = self.one_of("BIGINT", "VARCHAR")
        a, b = self.value(kind, columns, depth), self.value(kind, columns, depth)
        some = [f"{a} {self.one_of('<', '<=', '=', '<>', '>')} {b}", f"{a} IS NULL", f"{a} IS NOT DISTINCT FROM {b}"]
        some += [f"{a} IN ({b}, {a})", f"{a} BETWEEN {b} AND {a}"]
        if kind == "VARCHAR":
            some.append(f"{a} LIKE '%a%'")
        if depth:
            some += [f"({self.condition(columns, 0)} {self.one_of('AND', 'OR')} {self.condition(columns, 0)})"]
            some.append(f"NOT ({self.condition(columns, 0)})")
        return self.random.choice(some)

    def aggregate(self, columns: Columns) -> tuple[str, str]:
        x, s = self.value("BIGINT", columns, 1), self.value("VARCHAR", columns, 1)
        call, kind = self.random.choice(
            (
                *(("COUNT(*)", "BIGINT"), (f"COUNT({x})", "BIGINT"), (f"CAST(SUM({x}) AS BIGINT)", "BIGINT")),
                *((f"MIN({x})", "BIGINT"), (f"MAX({s})", "VARCHAR"), (f"COUNT(DISTINCT {s})", "BIGINT")),
                *((f"CAST(SUM(DISTINCT {x}) AS BIGINT)", "BIGINT"), (f"STRING_AGG({s}, ',' ORDER BY {s})", "VARCHAR")),
                *((f"AVG({x})", "DOUBLE"), (f"COUNT(*) FILTER (WHERE {self.condition(columns, 0)})", "BIGINT")),
            )
        )
        return call, kind
