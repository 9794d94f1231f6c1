"""Queries over typed tables, small and made by chance, whose answer DuckDB knows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.fuzz.expressions import Columns, Expressions
from tests.fuzz.tables import COLUMNS

BOUNDS = {"window_start": "TIMESTAMP", "window_end": "TIMESTAMP"}
_SUMMED = "(SELECT k, MAX(w) AS w, MIN(s) AS s FROM u GROUP BY k)"


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the types of its columns by name."""

    sql: str
    columns: Columns


def table(name: str) -> Query:
    return Query(name, COLUMNS[name])


def _number(of: str) -> str:
    return "w" if of == "u" else "v"


class Queries(Expressions):
    """Makes queries by chance."""

    def query(self, depth: int = 2) -> Query:
        """Return a query; what it reads may be another one."""
        kinds = [self.plain, self.plain, self.grouped, self.grouped, self.limited, self.united, self.united]
        kinds += [self.windowed, self.windowed, self.ranked, self.ranked_in_windows, self.over, self.over]
        kinds += [self.joined, self.joined, self.joined_in_time, self.joined_windows, self.as_of, self.matched]
        kinds += [self.unnested]
        return self.random.choice(kinds)(depth)

    # -- what is read

    def source(self, depth: int) -> Query:
        """Return what can stand behind FROM."""
        if depth > 0 and self.random.random() < 0.5:
            below = self.query(depth - 1)
            return Query(f"({below.sql}) AS q{depth}", below.columns)
        return table(self.one_of("t", "t", "u", "u", "c", "d"))

    def where(self, columns: Columns) -> str:
        return f" WHERE {self.condition(columns)}" if self.random.random() < 0.5 else ""

    def some(self, columns: Columns) -> list[str]:
        """Return some columns, but no lists."""
        names = [name for name, type in columns.items() if type != "BIGINT[]"]
        return self.random.sample(names, self.random.randint(1, len(names)))

    def seconds(self, *choices: int) -> str:
        return f"INTERVAL '{self.random.choice(choices)}' SECOND"

    # -- kinds of queries

    def plain(self, depth: int) -> Query:
        below = self.source(depth)
        kinds = [self.one_of("BIGINT", "VARCHAR", "BIGINT", "BOOLEAN") for _ in range(self.random.randint(1, 3))]
        items = [f"{self.value(kind, below.columns)} AS c{i}" for i, kind in enumerate(kinds)]
        distinct = self.one_of("", "", "", "DISTINCT ")
        sql = f"SELECT {distinct}{', '.join(items)} FROM {below.sql}{self.where(below.columns)}"
        return Query(sql, {f"c{i}": kind for i, kind in enumerate(kinds)})

    def grouped(self, depth: int) -> Query:
        """Return aggregates by some keys, or of all rows."""
        return self.aggregated(self.source(depth), {})

    def aggregated(self, below: Query, keys: Columns) -> Query:
        columns = dict(keys)
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

    def limited(self, depth: int) -> Query:
        """Return the first rows in an order that leaves nothing open."""
        below = self.source(depth)
        names = self.some(below.columns)
        order = ", ".join(f"{name}{self.one_of('', ' DESC', ' NULLS FIRST')}" for name in names)
        most = self.one_of("LIMIT 1", "LIMIT 3", "LIMIT 2 OFFSET 1")
        return _select(names, f"{below.sql}{self.where(below.columns)} ORDER BY {order} {most}", below.columns)

    def united(self, depth: int) -> Query:
        word = self.one_of("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
        sides = []
        for _ in range(self.random.choice((2, 2, 3))):
            below = self.source(depth)
            kinds = {"c0": "BIGINT", "c1": "VARCHAR"}
            items = [f"{self.value(kind, below.columns, 1)} AS {name}" for name, kind in kinds.items()]
            sides.append(f"SELECT {', '.join(items)} FROM {below.sql}{self.where(below.columns)}")
        return Query(f" {word} ".join(sides), {"c0": "BIGINT", "c1": "VARCHAR"})

    def unnested(self, depth: int) -> Query:
        if self.random.random() < 0.5:
            return Query("SELECT k, UNNEST(l) AS e FROM t", {"k": "BIGINT", "e": "BIGINT"})
        return Query(
            "SELECT k, e, s FROM t CROSS JOIN UNNEST(l) AS x(e)", {"k": "BIGINT", "e": "BIGINT", "s": "VARCHAR"}
        )

    # -- windows

    def windows(self, of: Query) -> Query:
        """Return rows with windows of all kinds."""
        step, times = self.random.choice((1, 7, 10, 60)), self.random.choice((2, 3))
        match self.one_of("TUMBLE", "HOP", "CUMULATE", "SESSION"):
            case "TUMBLE":
                call = f"TUMBLE(TABLE {of.sql}, DESCRIPTOR(ts), INTERVAL '{step}' SECOND)"
            case "SESSION":
                key = self.one_of("", " PARTITION BY k", " PARTITION BY s")
                call = f"SESSION(TABLE {of.sql}{key}, DESCRIPTOR(ts), INTERVAL '{step}' SECOND)"
            case kind:
                # Windows may overlap by parts of a step.
                size = step * times - (self.random.choice((0, 1)) if kind == "HOP" and step > 1 else 0)
                call = f"{kind}(TABLE {of.sql}, DESCRIPTOR(ts), INTERVAL '{step}' SECOND, INTERVAL '{size}' SECOND)"
        return Query(call, {**of.columns, **BOUNDS})

    def timed(self, changing: bool = False) -> tuple[str, Query]:
        """Return what a query begins with, and rows with k, s and the time attribute ts, whatever made them."""
        a, b = self.one_of("t", "u"), self.one_of("t", "u")
        v, w = _number(a), _number(b)
        match self.one_of("", "", "rows", "windows", "over", "united", "joined", "as of"):
            case "":
                return "", table(self.one_of("t", "u", "c") if changing else a)
            case "rows":
                of = table(self.one_of("t", "u", "c") if changing else a)
                items = ", ".join(f"{self.value(type, of.columns, 1)} AS {name}" for name, type in _KVS.items())
                sql = f"SELECT {items}, ts FROM {of.sql}{self.where(of.columns)}"
            case "windows":
                sql = f"SELECT k, COUNT(*) AS v, MIN(s) AS s, window_time AS ts FROM {self.windows(table(a)).sql}"
                sql += " GROUP BY k, window_start, window_end, window_time"
            case "over":
                frame = self.one_of("", f" RANGE BETWEEN {self.seconds(3, 20)} PRECEDING AND CURRENT ROW")
                sql = f"SELECT k, MAX({v}) OVER (PARTITION BY k ORDER BY ts{frame}) AS v, s, ts FROM {a}"
            case "united":
                sql = f"SELECT k, {v} AS v, s, ts FROM {a} UNION ALL SELECT {w} AS k, k AS v, s, ts FROM {b}"
            case "joined":
                near = f"b.ts BETWEEN a.ts - {self.seconds(0, 5, 40)} AND a.ts + {self.seconds(0, 5, 40)}"
                sql = f"SELECT a.k AS k, b.{w} AS v, a.s AS s, a.ts AS ts FROM {a} AS a"
                sql += f" {self.one_of('JOIN', 'LEFT JOIN')} {b} AS b ON a.k = b.k AND {near}"
            case _:
                sql = (
                    f"SELECT a.k AS k, b.v AS v, a.s AS s, a.ts AS ts FROM {a} AS a {self.one_of('JOIN', 'LEFT JOIN')}"
                )
                sql += f" {self.one_of('r', 'd')} FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k"
        return f"WITH w AS ({sql}) ", Query("w", {**_KVS, "ts": "TIMESTAMP"})

    def windowed(self, depth: int) -> Query:
        before, rows = self.timed(changing=True)
        window = self.windows(rows)
        if self.random.random() < 0.2:
            below = _select(self.some(window.columns), window.sql + self.where(window.columns), window.columns)
        else:
            below = self.aggregated(window, BOUNDS)
        return Query(before + below.sql, below.columns)

    def ranked_in_windows(self, depth: int) -> Query:
        before, rows = self.timed(changing=True)
        window = self.windows(rows)
        names = list(dict.fromkeys([*self.some(rows.columns), *BOUNDS]))
        order = ", ".join(f"{name}{self.one_of('', ' DESC')}" for name in names if name not in BOUNDS)
        key = self.one_of("", ", k")
        call = (
            f"{self.one_of('ROW_NUMBER', 'RANK')}() OVER (PARTITION BY window_start, window_end{key} ORDER BY {order})"
        )
        if key and "k" not in names:
            names.append("k")
        inner = f"SELECT {', '.join(names)}, {call} AS n FROM {window.sql}"
        columns = {**window.columns, "n": "BIGINT"}
        ranked = _select([*names, "n"], f"({inner}) AS r WHERE n <= {self.random.randint(1, 3)}", columns)
        return Query(before + ranked.sql, ranked.columns)

    # -- rows in order

    def ranked(self, depth: int) -> Query:
        function, most = self.one_of("ROW_NUMBER", "RANK", "DENSE_RANK"), self.random.randint(1, 3)
        order = self.one_of("v, s", "v DESC, s", "s DESC NULLS LAST, v", "v NULLS FIRST, s DESC")
        below = self.one_of("t", "c", "d", "(SELECT k, MAX(w) AS v, s FROM u GROUP BY k, s) AS g")
        inner = f"SELECT k, v, s, {function}() OVER (PARTITION BY k ORDER BY {order}) AS n FROM {below}"
        return Query(
            f"SELECT k, v, s, n FROM ({inner}) AS r WHERE n <= {most}",
            dict.fromkeys("kvn", "BIGINT") | {"s": "VARCHAR"},
        )

    def over(self, depth: int) -> Query:
        """Return aggregates and neighbours in the order of time; within ranges only where times may be equal."""
        before, rows = self.timed() if self.random.random() < 0.6 else ("", table("u"))
        apart = rows.sql == "u"
        key = self.one_of("", "PARTITION BY k ", "PARTITION BY k, s ")
        low, high = (f"INTERVAL '{self.random.choice((0, 3, 20))}' SECOND" for _ in range(2))
        frames = ["", "RANGE UNBOUNDED PRECEDING", f"RANGE BETWEEN {low} PRECEDING AND CURRENT ROW"]
        frames += [f"RANGE BETWEEN {low} PRECEDING AND {high} FOLLOWING"]
        if apart:
            frames = [
                *frames[:2],
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                f"ROWS BETWEEN {self.random.randint(1, 3)} PRECEDING AND CURRENT ROW",
                f"ROWS BETWEEN 3 PRECEDING AND {self.random.randint(0, 2)} PRECEDING",
                f"ROWS BETWEEN 1 PRECEDING AND {self.random.randint(1, 2)} FOLLOWING",
            ]
        names, items, columns = self.some(rows.columns), [], {}
        for i in range(self.random.randint(1, 3)):
            call, kind = self.aggregate(rows.columns)
            frame = self.random.choice(frames)
            if apart and self.random.random() < 0.3:
                call, frame, kind = self.neighbour(), "", "BIGINT"
            over = f"OVER ({key}ORDER BY ts{' ' + frame if frame else ''})"
            # A cast stands outside of the call with OVER.
            cast = re.fullmatch(r"CAST\((.*) AS BIGINT\)", call)
            items.append(f"CAST({cast[1]} {over} AS BIGINT) AS a{i}" if cast else f"{call} {over} AS a{i}")
            columns[f"a{i}"] = kind
        sql = f"{before}SELECT {', '.join([*names, *items])} FROM {rows.sql}{self.where(rows.columns)}"
        return Query(sql, {n: rows.columns[n] for n in names} | columns)

    def neighbour(self) -> str:
        return self.one_of("LAG(w)", "LAG(w, 2, 0)", "LEAD(w)", "FIRST_VALUE(k)", "LAST_VALUE(w)", "ROW_NUMBER()")

    # -- joins

    def joined(self, depth: int) -> Query:
        kind = self.one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        same = self.one_of(*["a.k = b.k"] * 6, "a.k < b.w", "a.v = b.w AND a.s = b.s", "a.k IS NOT DISTINCT FROM b.k")
        more = self.one_of("", "", " AND a.v < b.w", " AND a.s IS NOT DISTINCT FROM b.s", " AND a.s <> b.s")
        left = self.one_of("t", "c", "d", "(SELECT DISTINCT k, v, s FROM t)")
        joined = f"FROM {left} AS a {kind} {self.right_side()} AS b ON {same}{more}"
        match self.random.randrange(6):
            case 0:
                side = self.one_of("SEMI", "ANTI")
                return Query(f"SELECT a.k, a.v, a.s {joined.replace(kind, f'{side} JOIN')}", _KVS)
            case 1 | 2:
                kind = self.one_of("JOIN", "JOIN", "LEFT JOIN", "FULL JOIN")
                on = self.one_of("a.k = e.k", "b.k = e.k", "b.w = e.w")
                sql = f"{_PAIR}, e.w AS q {joined} {kind} {self.right_side()} AS e ON {on}"
                return Query(
                    f"{sql}{self.one_of('', ' WHERE b.w > 0', ' WHERE e.w IS NULL')}", {**_PAIRED, "q": "BIGINT"}
                )
        return Query(f"{_PAIR} {joined}", _PAIRED)

    def right_side(self) -> str:
        return self.one_of("u", "(SELECT k, v AS w, s FROM c)", "(SELECT k, v AS w, s FROM d)", _SUMMED)

    def joined_in_time(self, depth: int) -> Query:
        kind = self.one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        low, high = self.seconds(0, 5, 40), self.seconds(0, 5, 40)
        near = f"b.ts BETWEEN a.ts - {low} AND a.ts + {high}"
        before, rows = self.timed()
        v = _number(rows.sql)
        more = self.one_of("", "", f" AND a.{v} < b.w", f" AND a.{v} > 1", " AND b.w > 1")
        sql = (
            f"{before}{_PAIR.replace('a.v', f'a.{v}')} FROM {rows.sql} AS a {kind} u AS b ON a.k = b.k AND {near}{more}"
        )
        return Query(sql, _PAIRED)

    def joined_windows(self, depth: int) -> Query:
        kind = self.one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        before, rows = self.timed()
        window = self.windows(rows).sql
        if "SESSION" in window:
            window = f"TUMBLE(TABLE {rows.sql}, DESCRIPTOR(ts), {self.seconds(7, 20)})"
        bounds = "window_start, window_end"
        left = f"(SELECT k, COUNT(*) AS v, MIN(s) AS s, {bounds} FROM {window} GROUP BY k, {bounds})"
        window = window.replace(f"TABLE {rows.sql},", "TABLE u,")
        right = self.one_of(
            f"(SELECT k, MAX(w) AS w, MAX(s) AS s, {bounds} FROM {window} GROUP BY k, {bounds})",
            f"(SELECT k, w, s, {bounds} FROM {window})",
        )
        same = "a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end"
        return Query(f"{before}{_PAIR} FROM {left} AS a {kind} {right} AS b ON {same}", _PAIRED)

    def as_of(self, depth: int) -> Query:
        """Return rows with the version of a key that is valid at their time."""
        kind, versions = self.one_of("JOIN", "LEFT JOIN"), self.one_of("r", "d")
        before, rows = self.timed()
        items = f"{_PAIR.replace('b.w', 'b.v').replace('a.v', f'a.{_number(rows.sql)}')}, a.ts"
        where = self.one_of("", "", " WHERE b.v > 1", " WHERE a.k > 0")
        sql = f"{before}{items} FROM {rows.sql} AS a {kind} {versions} FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k{where}"
        return Query(sql, {**_PAIRED, "ts": "TIMESTAMP"})

    def matched(self, depth: int) -> Query:
        outer, inner = self.one_of("t", "c", "d"), self.one_of("u", "(SELECT k, v AS w, s FROM c)", _SUMMED)
        test = self.one_of(
            *(
                f"o.k {self.one_of('IN', 'NOT IN')} (SELECT w FROM {inner} AS i)",
                f"(k, s) IN (SELECT w, s FROM {inner})",
            ),
            f"{self.one_of('', 'NOT ')}EXISTS (SELECT 1 FROM {inner} AS i WHERE i.k = o.v{self.one_of('', ' AND i.w > o.k')})",
            *("v IN (SELECT k + 1 FROM u WHERE s IS NOT NULL)", "k IN (SELECT MAX(w) FROM u GROUP BY s)"),
        )
        return Query(f"SELECT k, v, s FROM {outer} AS o WHERE {test}", _KVS)


_KVS = {"k": "BIGINT", "v": "BIGINT", "s": "VARCHAR"}
_PAIR = "SELECT a.k AS x, a.v AS y, b.w AS z, b.s AS p"
_PAIRED = {"x": "BIGINT", "y": "BIGINT", "z": "BIGINT", "p": "VARCHAR"}


def _select(names: Iterable[str], rest: str, columns: Columns) -> Query:
    return Query(f"SELECT {', '.join(names)} FROM {rest}", {name: columns[name] for name in names})
