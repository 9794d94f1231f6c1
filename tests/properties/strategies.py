"""Random rows, queries and histories: what the property tests draw from.

A `Query` can be written for the stream and for DuckDB, which answers it over all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

BASE = datetime(2026, 1, 1, 10, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# k, x, s, ts in microseconds since 1970.
Row = tuple[int | None, int | None, str | None, int | None]

_SECOND = 1_000_000
_BASE_MICROS = round((BASE - EPOCH).total_seconds()) * _SECOND
# 0001-01-01, 1582-10-15, 2262-04-12, 9999-12-31, and a day in the year 12000.
_FAR = (-62_135_596_800, -12_219_292_800, 9_223_372_037, 253_402_214_400, 316_520_000_000)

# Mostly few and round, so that times meet the bounds of windows, and each other.
near = st.one_of(
    st.integers(-1, 2).map(lambda n: n * 10_000),
    st.integers(-1, 2).map(lambda n: n * 10_000 - 1),
    st.integers(-10, 20).map(lambda n: n * 1000),
    st.integers(-10_000, 20_000),
).map(lambda ms: _BASE_MICROS + ms * 1000)
near_or_none = st.one_of(near, near, near, near, near, st.none())
far = st.one_of(
    near,
    st.integers(-20, 20).map(lambda seconds: seconds * _SECOND + 1),
    st.tuples(st.sampled_from(_FAR), st.integers(0, 20)).map(lambda t: (t[0] + t[1]) * _SECOND),
)
keys = st.one_of(st.none(), st.integers(-2, 3))
values = st.one_of(st.none(), st.integers(-3, 5), st.sampled_from([2**31, -(2**40)]))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "b", "NULL", "ä|,'\""]))


def rows_of(time: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(keys, values, texts, time), min_size=1, max_size=10)


# -- queries

KEYS = ("k", "s", "k % 2", "x > 1")
# Over k, x and s; results that do not depend on the order of the rows, nor on how ties are broken.
AGGREGATES = (
    *("COUNT(*)", "COUNT(x)", "SUM(x)", "MIN(x)", "MAX(s)", "AVG(k)", "bool_or(x > 1)", "bit_xor(x)", "SUM(k + 1)"),
    *("median(x)", "quantile_disc(x, 0.25)", "round(stddev_pop(k), 6)", "approx_count_distinct(s)", "regr_count(x, k)"),
    *("COUNT(DISTINCT x)", "SUM(DISTINCT k)", "COUNT(DISTINCT s)", "list_sort(list(DISTINCT x))", "MIN(DISTINCT x)"),
    *("string_agg(s, '-' ORDER BY s)", "list(x ORDER BY x DESC NULLS LAST)", "first(x ORDER BY x NULLS LAST)"),
    *("histogram(k)", "list_sort(list(s))", "max(x, 2)", "round(entropy(k), 6)"),
    *("COUNT(*) FILTER (WHERE x > 0)", "SUM(x) FILTER (WHERE s = 'a')", "COUNT(DISTINCT k) FILTER (WHERE x IS NULL)"),
    *(
        "list_sort(list(x) FILTER (WHERE k > 0))",
        "MAX(x) FILTER (WHERE false)",
        "SUM(x) + COUNT(*) * 2",
        "COUNT(*) > 1",
    ),
)
HAVING = (None, None, "COUNT(*) > 1", "SUM(x) IS NOT NULL", "MAX(x) > 0 OR COUNT(DISTINCT s) > 1")
WHERE = (None, None, "x > 0", "k IS NOT NULL AND s <> 'b'", "ts > TIMESTAMP '2026-01-01 10:00:05'")
BRANCHES = (
    "SELECT k, x, s, ts FROM {0}",
    "SELECT k + 1, x * 2, s || s, ts FROM {0}",
    "SELECT x % 3, k, 'z', ts FROM {0}",
)
SIZES = (1_000, 3_000, 10_000, 10_000, 60_000, 86_400_000)
OFFSETS = (0, 0, 0, 500, -4_000, 93_000)


@dataclass(frozen=True)
class Above:
    """A second level: over the same windows, or over larger or smaller ones of window_time."""

    keyed: bool
    size: int | None
    aggregates: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """A window aggregate over one or several branches of tables a and b; sizes and offsets are milliseconds."""

    branches: tuple[tuple[str, str, str | None], ...]
    size: int
    offset: int
    keys: tuple[str, ...]
    aggregates: tuple[str, ...]
    having: str | None
    above: Above | None

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(table for _, table, _ in self.branches))

    @property
    def source(self) -> str:
        """The rows that are put into windows: `SELECT k, x, s, ts`."""
        selects = [
            f"{select.format(table)}{f' WHERE {where}' if where else ''}" for select, table, where in self.branches
        ]
        return " UNION ALL ".join(selects)

    def sql(self, window: Callable[[str, str, int, int], str]) -> str:
        """Return the query; `window` writes FROM-able windows of a relation, by a time column, a size and an offset."""
        keys = "".join(f"{sql} AS g{i}, " for i, sql in enumerate(self.keys))
        calls = "".join(f", {sql} AS a{i}" for i, sql in enumerate(self.aggregates))
        group = ", ".join([*(f"g{i}" for i in range(len(self.keys))), "window_start", "window_end", "window_time"])
        having = f" HAVING {self.having}" if self.having else ""
        source = window("src", "ts", self.size, self.offset)
        low = f"SELECT {keys}window_start, window_end, window_time, COUNT(*) AS n{calls} FROM {source} GROUP BY {group}{having}"
        return f"WITH src(k, x, s, ts) AS ({self.source}), low AS ({low}) {self._above(window)}"

    def _above(self, window: Callable[[str, str, int, int], str]) -> str:
        above = self.above
        if above is None:
            return "SELECT * FROM low"
        key = "g0" if above.keyed and self.keys else None
        source = "low"
        if above.size is not None:
            inner = f"(SELECT {f'{key}, ' if key else ''}n, window_time AS t FROM low)"
            source = window(inner, "t", above.size, 0)
        items = [*([key] if key else []), "window_start", "window_end"]
        calls = ", ".join(f"{sql} AS b{i}" for i, sql in enumerate(above.aggregates))
        return f"SELECT {', '.join(items)}, {calls} FROM {source} GROUP BY {', '.join(items)}"

    def streaming(self) -> str:
        return self.sql(_tumble)

    def batch(self) -> str:
        return self.sql(_bucketed)


def _tumble(relation: str, time: str, size: int, offset: int) -> str:
    data = relation if relation.startswith("(") else f"TABLE {relation}"
    return f"TUMBLE({data}, DESCRIPTOR({time}), INTERVAL '{size}' MILLISECOND, INTERVAL '{offset}' MILLISECOND)"


def _bucketed(relation: str, time: str, size: int, offset: int) -> str:
    start = (
        f"time_bucket(INTERVAL {size} MILLISECONDS, {time}, TIMESTAMP '1970-01-01' + INTERVAL ({offset}) MILLISECONDS)"
    )
    return (
        f"(SELECT *, window_start + INTERVAL {size} MILLISECONDS AS window_end,"
        f" window_start + INTERVAL {size - 1} MILLISECONDS AS window_time"
        f" FROM (SELECT *, {start} AS window_start FROM {relation} AS r) AS w)"
    )


def window_end(ts: int, query: Query) -> int:
    """Return the end of the window that holds a time, in microseconds."""
    size, offset = query.size * 1000, query.offset * 1000
    return (ts - offset) // size * size + offset + size


aboves = st.builds(
    Above,
    keyed=st.booleans(),
    size=st.sampled_from([None, None, 4_000, 60_000, 3_600_000]),
    aggregates=st.lists(
        st.sampled_from(["COUNT(*)", "SUM(n)", "MAX(n)", "COUNT(DISTINCT n)", "list(n ORDER BY n)", "AVG(n)"]),
        min_size=1,
        max_size=2,
        unique=True,
    ).map(tuple),
)
queries = st.builds(
    Query,
    branches=st.lists(
        st.tuples(st.sampled_from(BRANCHES), st.sampled_from("ab"), st.sampled_from(WHERE)), min_size=1, max_size=3
    ).map(tuple),
    size=st.sampled_from(SIZES),
    offset=st.sampled_from(OFFSETS),
    keys=st.lists(st.sampled_from(KEYS), max_size=2, unique=True).map(tuple),
    aggregates=st.lists(st.sampled_from(AGGREGATES), max_size=3, unique=True).map(tuple),
    having=st.sampled_from(HAVING),
    above=st.one_of(st.none(), st.none(), aboves),
)

# -- histories


@dataclass(frozen=True)
class Batch:
    """Rows of one or both tables in one micro-batch."""

    rows: tuple[tuple[str, tuple[Row, ...]], ...]

    def of(self, table: str) -> tuple[Row, ...]:
        return dict(self.rows).get(table, ())


class Restart:
    def __repr__(self) -> str:
        return "RESTART"


RESTART = Restart()
Step = Batch | Restart


def histories() -> st.SearchStrategy[list[Step]]:
    """Return batches of tables a and b, with restarts between them; in some, times are centuries apart."""
    # One row of a far future makes all others late, so such rows have histories of their own.
    return st.sampled_from([near_or_none, near_or_none, near_or_none, far]).flatmap(_history)


def _history(time: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Step]]:
    given = rows_of(time).map(tuple)
    one = st.tuples(st.sampled_from("ab"), given).map(lambda t: Batch((t,)))
    both = st.tuples(given, given).map(lambda t: Batch((("a", t[0]), ("b", t[1]))))
    return st.lists(st.one_of(one, both, both, st.just(RESTART)), min_size=1, max_size=8)


@st.composite
def splits(draw: st.DrawFn, rows: Sequence[tuple[str, Row]]) -> list[Step]:
    """Cut rows, in their order, into batches, with restarts between them."""
    steps: list[Step] = []
    at = 0
    while at < len(rows):
        count = draw(st.integers(1, len(rows) - at))
        part = rows[at : at + count]
        at += count
        steps.append(Batch(tuple((t, tuple(r for owner, r in part if owner == t)) for t in "ab")))
        if draw(st.integers(0, 3)) == 0:
            steps.append(RESTART)
    return steps


def micros(at: datetime | None) -> int | None:
    """Return a time of DuckDB's as microseconds."""
    return None if at is None else (at.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
