"""Queries over each other, of any depth, over keys of any type: each has the columns k, v and s, so that any can read any."""

from __future__ import annotations

from random import Random

from tests.fuzz.functions import IN_ORDER

VALUE = "DECIMAL(18,3)"
# What begins a chain: tables, tables of changes, windows, process functions, times in the session's zone.
_BASES = (
    *("SELECT k, v, s FROM t", "SELECT k, w AS v, s FROM u", "SELECT k, v, s FROM c", "SELECT k, v, s FROM d") * 2,
    "SELECT k, SUM(v) AS v, MIN(s) AS s FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
    " GROUP BY k, window_start, window_end",
    "SELECT k, COUNT(*) AS v, MAX(s) AS s FROM HOP(TABLE c, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND)"
    " GROUP BY k, window_start, window_end",
    "SELECT k, COUNT(*) AS v, MIN(s) AS s FROM SESSION(TABLE u PARTITION BY k, DESCRIPTOR(ts), INTERVAL '7' SECOND)"
    " GROUP BY k, window_start, window_end",
    f"SELECT k, n * 10 + texts AS v, text AS s FROM numbered{IN_ORDER}",
    f'SELECT k, "value" AS v, NULL AS s FROM quiet{IN_ORDER}',
    'SELECT k, 1 AS v, "value" AS s FROM once(TABLE t PARTITION BY k)',
    "SELECT k, v, CAST(CAST(CAST(ts AS TIMESTAMPTZ) AS DATE) AS VARCHAR) AS s FROM t",
    "SELECT k, hour(CAST(ts AS TIMESTAMPTZ) AT TIME ZONE 'Asia/Kolkata') AS v, CAST(CAST(ts AS TIMESTAMPTZ) AS VARCHAR) AS s"
    " FROM u",
    "SELECT a.k AS k, b.w AS v, a.s AS s FROM t AS a LEFT JOIN u AS b ON a.k = b.k"
    " AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts + INTERVAL '40' SECOND",
    "SELECT a.k AS k, b.v AS v, a.s AS s FROM t AS a LEFT JOIN r FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k",
)
# A nested value made of a row, and the key and the text that it has.
_NESTED = (
    ("{'k': k, 's': s}", "r.k", "r.s"),
    ("[{'k': k, 's': s}]", "r[1].k", "r[1].s"),
    ("{'l': [s, 'ä'], 'm': {'k': k}}", "r.m.k", "r.l[1]"),
)


class Chains:
    """Makes chains by chance."""

    def __init__(self, random: Random):
        self.random = random

    def one_of(self, *choices: str) -> str:
        return self.random.choice(choices)

    def chain(self, depth: int) -> str:
        """Return a query over others, so deep at most."""
        if depth == 0 or self.random.random() < 0.1:
            base = self.one_of(*_BASES)
            return f"SELECT k, CAST(v AS {VALUE}) AS v, CAST(s AS VARCHAR) AS s FROM ({base}) AS base"
        kinds = [self.grouped, self.grouped, self.ranked, self.limited, self.united, self.nested, self.unnested]
        kinds += [self.distinct, self.filtered, self.matched, self.joined, self.joined, self.joined]
        return self.random.choice(kinds)(depth - 1)

    def below(self, depth: int) -> str:
        return f"({self.chain(depth)})"

    def condition(self, a: str = "q", b: str = "q") -> str:
        return self.one_of(
            *(f"{a}.v > 1", f"{a}.v <= {b}.v", f"{a}.s <> 'ä'", f"{a}.s IS NULL", f"{a}.k IS NOT NULL"),
            *(f"{a}.s IS DISTINCT FROM {b}.s", f"NOT ({a}.v = 2 OR {b}.s = '日本')", f"{a}.k <= {b}.k"),
        )

    def measure(self) -> str:
        return self.one_of(
            *("SUM(v)", "COUNT(*)", "COUNT(DISTINCT s)", "MAX(v)", "MIN(v)", "SUM(DISTINCT v)", "COUNT(DISTINCT k)"),
            *("SUM(v) FILTER (WHERE s = 'ä')", "quantile_disc(v, 0.5)", "LEN(LIST(s ORDER BY s, v))"),
        )

    def label(self) -> str:
        return self.one_of(
            *("MAX(s)", "MIN(s)", "STRING_AGG(s, '-' ORDER BY s)", "STRING_AGG(DISTINCT s, '' ORDER BY s)"),
            "CAST(LIST(v ORDER BY v, s) AS VARCHAR)",
        )

    def grouped(self, depth: int) -> str:
        having = self.one_of("", "", " HAVING COUNT(*) > 1", " HAVING SUM(v) > 2", " HAVING COUNT(DISTINCT s) <= 1")
        label, group = self.random.choice((("s", "k, s"), (self.label(), "k"), (self.label(), "k")))
        if self.random.random() < 0.15:
            group, label = "ROLLUP (k, s)", "s"
        return (
            f"SELECT k, CAST({self.measure()} AS {VALUE}) AS v, {label} AS s FROM {self.below(depth)} AS q"
            f" GROUP BY {group}{having}"
        )

    def ranked(self, depth: int) -> str:
        order = self.one_of("v DESC, s, k", "s NULLS FIRST, v, k", "v, s DESC NULLS LAST, k DESC")
        call = f"{self.one_of('ROW_NUMBER', 'ROW_NUMBER', 'RANK', 'DENSE_RANK')}()"
        over = f"{call} OVER ({self.one_of('', 'PARTITION BY k ', 'PARTITION BY s ')}ORDER BY {order})"
        shown = self.one_of("v", "v", f"CAST(n AS {VALUE}) AS v")
        numbered = f"SELECT k, v, s, {over} AS n FROM {self.below(depth)} AS q"
        return f"SELECT k, {shown}, s FROM ({numbered}) AS r WHERE n <= {self.one_of('1', '2', '3')}"

    def limited(self, depth: int) -> str:
        order = self.one_of("v DESC, k, s", "k, v, s", "s DESC, v, k")
        return f"SELECT k, v, s FROM {self.below(depth)} AS q ORDER BY {order} LIMIT {self.one_of('1', '3', '5')}"

    def united(self, depth: int) -> str:
        word = self.one_of("UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
        sides = [f"SELECT k, v, s FROM {self.below(depth)} AS q" for _ in range(2)]
        return f" {word} ".join(sides)

    def nested(self, depth: int) -> str:
        value, k, s = self.random.choice(_NESTED)
        inner = f"SELECT {value} AS r, v FROM {self.below(depth)} AS q"
        total = f"CAST({self.one_of('SUM', 'MAX')}(v) AS {VALUE}) AS v"
        if self.random.random() < 0.5:
            return f"SELECT {k} AS k, {total}, {s} AS s FROM ({inner}) AS n GROUP BY r"
        return f"SELECT {k} AS k, v, {s} AS s FROM (SELECT r, {total} FROM ({inner}) AS n GROUP BY r) AS g"

    def unnested(self, depth: int) -> str:
        texts = "UNNEST([q.s, q.s || 'é', NULL]) AS e(e)"
        return f"SELECT q.k AS k, q.v AS v, e.e AS s FROM {self.below(depth)} AS q CROSS JOIN {texts}"

    def distinct(self, depth: int) -> str:
        shown = self.one_of("v", f"CAST(1 AS {VALUE}) AS v")
        return f"SELECT DISTINCT k, {shown}, s FROM {self.below(depth)} AS q"

    def filtered(self, depth: int) -> str:
        return f"SELECT k, v, s FROM {self.below(depth)} AS q WHERE {self.condition()}"

    def matched(self, depth: int) -> str:
        left, right = self.below(depth), self.below(depth)
        test = self.one_of(
            *(f"a.k {word} (SELECT k FROM {right} AS i)" for word in ("IN", "NOT IN")),
            *(
                f"{word} (SELECT 1 FROM {right} AS b WHERE a.k = b.k AND {self.condition('a', 'b')})"
                for word in _EXISTS
            ),
        )
        return f"SELECT k, v, s FROM {left} AS a WHERE {test}"

    def joined(self, depth: int) -> str:
        kind = self.one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN")
        on = self.one_of(
            "a.k = b.k", "a.k = b.k", "a.k = b.k AND a.s = b.s", "a.k IS NOT DISTINCT FROM b.k", "a.v = b.v"
        )
        more = f" AND {self.condition('a', 'b')}" if self.random.random() < 0.4 else ""
        shown = "COALESCE(a.k, b.k) AS k, {}.v AS v, {}.s AS s".format(*self.random.choice(("ab", "ba", "aa", "bb")))
        where = f" WHERE {self.condition('a', 'b')}" if self.random.random() < 0.3 else ""
        sql = f"FROM {self.below(depth)} AS a {kind} {self.below(depth)} AS b ON {on}{more}"
        if self.random.random() < 0.3:
            # A third one, joined by the same key or by another.
            kind = self.one_of("JOIN", "LEFT JOIN", "FULL JOIN")
            sql += f" {kind} {self.below(0)} AS e ON {self.one_of('a.k', 'b.k')} = e.k"
            shown = self.one_of(shown, "COALESCE(a.k, e.k) AS k, e.v AS v, b.s AS s")
        return f"SELECT {shown} {sql}{where}"


_EXISTS = ("EXISTS", "NOT EXISTS")
