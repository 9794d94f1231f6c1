"""Joins of windows, and joins and windows over joins: DuckDB's answer over the rows that were not late at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.logical.plan.windows import UNTIL_PASSED
from tests.properties.examples import examples
from tests.properties.interval_model import (
    KINDS,
    SECOND,
    Interval,
    Times,
    delays,
    feed,
    histories,
    hold,
    intervals,
    stream_of,
)
from tests.properties.model import Bag, bag, connection, emitted, limits
from tests.properties.strategies import Restart, Row, Step
from tests.properties.test_windows import Kind, Model, Pair

pytestmark = pytest.mark.slow

BOUNDS = "window_start, window_end"


def window_end(size: int, ts: int) -> int:
    return ts // size * size + size


kinds = st.one_of(
    st.builds(Kind, st.just("HOP"), st.integers(1, 5), st.integers(1, 8)),
    st.builds(lambda size: Kind("HOP", size, size), st.integers(1, 10)),
    st.builds(lambda step, n: Kind("CUMULATE", step, step * n), st.integers(1, 5), st.integers(1, 3)),
    st.builds(Kind, st.just("SESSION"), st.integers(1, 5), keyed=st.just(True)),
)


def answer(pairs: dict[str, list[Pair]], select: str) -> Bag:
    """Return what DuckDB says of rows with their windows."""
    con = connection()
    for table, rows in pairs.items():
        columns = "k BIGINT, x BIGINT, s VARCHAR, ts TIMESTAMP, window_start TIMESTAMP, window_end TIMESTAMP"
        con.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({columns})")
        for row, start, end in rows:
            times = "make_timestamp(?), make_timestamp(?), make_timestamp(?)"
            con.execute(f"INSERT INTO {table} VALUES (?, ?, ?, {times})", [*row, start, end])
    return bag(con.execute(select).fetchall())


COUNTED = f"SELECT k, COUNT(*) AS x, MIN(s) AS s, MIN(ts) AS ts, {BOUNDS} FROM {{}} GROUP BY k, {BOUNDS}"


@examples(15)
@given(
    kinds,
    st.sampled_from([*KINDS]),
    st.sampled_from(["true", "l.x < r.x", "l.s = r.s", "r.x > 0"]),
    st.tuples(st.booleans(), st.booleans()),
    histories(),
    delays,
    st.integers(1, 3),
    st.booleans(),
)
def test_windows_are_joined_with_all_that_came_into_them(
    window: Kind,
    kind: str,
    extra: str,
    counted: tuple[bool, bool],
    history: list[Step],
    delay: dict[str, int],
    parallelism: int,
    small: bool,
) -> None:
    names = ("k", "x", "s", "ts", "window_start", "window_end")
    shown = ", ".join(f"{t}.{c}" for t in ("l" if kind in ("SEMI JOIN", "ANTI JOIN") else "lr") for c in names)
    on = f"l.window_start = r.window_start AND l.window_end = r.window_end AND l.k = r.k AND {extra}"
    template = f"SELECT {shown} FROM {{}} l {kind} {{}} r ON {on}"
    sides = [f"({COUNTED})" if c else "(SELECT * EXCLUDE (window_time) FROM {})" for c in counted]
    plain = [f"({COUNTED})" if c else "{}" for c in counted]
    windows = [window.sql(), window.sql().replace("TABLE a", "TABLE b")]
    streaming = template.format(*(side.format(sql) for side, sql in zip(sides, windows, strict=True)))
    one = "{0}k BIGINT, {0}x BIGINT, {0}s STRING, {0}ts TIMESTAMP, {0}start TIMESTAMP, {0}end TIMESTAMP"
    columns = ", ".join(one.format(t) for t in ("l" if "r.k" not in shown else "lr"))
    models, both = {t: Model(window, delay[t]) for t in "ab"}, Times(("a", "b"), delay)
    # Operators of windows, which count or make sessions, wait for their table alone; what only the join reads waits as it does.
    alone = {t: c or window.name == "SESSION" for t, c in zip("ab", counted, strict=True)}
    times = {t: Times((t,), delay) if alone[t] else both for t in "ab"}
    early = []
    with limits(small=small), stream_of(streaming, columns, delay, parallelism) as stream:
        for step in history:
            feed(stream, step, "ab")
            early.append(emitted(stream))
            if isinstance(step, Restart):
                continue
            for table, model in models.items():
                model.watermark = times[table].watermark
                model.batch(step.of(table))
            for clock in {id(clock): clock for clock in (both, *times.values())}.values():
                clock.batch(step)
            for table, model in models.items():
                model.watermark = times[table].watermark
        stream.finish()
        for model in models.values():
            model.close(2**62)
        batch = template.format(plain[0].format("a"), plain[1].format("b"))
        expected = answer({table: model.pairs for table, model in models.items()}, batch)
        assert emitted(stream) == expected
        assert all(found <= expected for found in early)
        assert stream.query("SELECT sum(state_rows) FROM sqlstream.operators") == [(0,)]


@dataclass(frozen=True)
class Cascade:
    """A join, windows of what comes out of it (or not), and a join of that with another table, or with windows of it."""

    first: Interval
    size: int | None
    second: Interval
    windowed: bool
    time: str

    def sql(self, a: str, b: str, c: str, tumble: str) -> str:
        """Return the query over three tables; `tumble` has {0} for the rows, {1} for their time and {2} for the size."""
        low = f"SELECT l.k, l.x, l.ts AS lt, r.ts AS rt FROM {a} l {self.first.kind} {b} r ON {self.first.on()}"
        size = (self.size or 0) // SECOND
        if self.size is None:
            mid = f"(SELECT k, x AS n, NULL::BIGINT AS m, {self.time} AS t FROM low WHERE {self.time} IS NOT NULL)"
        else:
            mid = (
                f"(SELECT k, COUNT(*) AS n, COUNT(rt) AS m, window_time AS t, {BOUNDS}"
                f" FROM {tumble.format('low', self.time, size)} GROUP BY k, {BOUNDS}, window_time)"
            )
        if self.windowed:
            other = f"(SELECT k, COUNT(*) AS x, {BOUNDS} FROM {tumble.format(c, 'ts', size)} GROUP BY k, {BOUNDS})"
            on = "l.window_start = r.window_start AND l.window_end = r.window_end AND l.k = r.k"
            time = "r.window_end"
        else:
            other, on, time = c, self.second.on("l.t", "r.ts"), "r.ts"
        select = "l.k, l.n, l.m, l.t"
        if self.second.kind not in ("SEMI JOIN", "ANTI JOIN"):
            select += f", r.k AS rk, r.x AS rx, {time} AS rt"
        return f"WITH low AS ({low}) SELECT {select} FROM {mid} l {self.second.kind} {other} r ON {on}"


@st.composite
def cascades(draw: st.DrawFn) -> Cascade:
    first = draw(intervals(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN"]))
    size = draw(st.sampled_from([None, 2 * SECOND, 5 * SECOND, 5 * SECOND]))
    second = draw(intervals())
    # Of the columns that tests beside keys look at, there are no others above.
    second = Interval(second.kind, second.low, second.high, second.strict, second.spelling, "l.k = r.k", "true")
    time = {"LEFT JOIN": "lt", "RIGHT JOIN": "rt"}.get(first.kind) or draw(st.sampled_from(["lt", "rt"]))
    return Cascade(first, size, second, size is not None and draw(st.booleans()), time)


BUCKETED = (
    "(SELECT *, window_start + INTERVAL {2} SECONDS AS window_end,"
    " window_start + INTERVAL {2} SECONDS - INTERVAL 1 MILLISECOND AS window_time"
    " FROM (SELECT *, time_bucket(INTERVAL {2} SECONDS, {1}, TIMESTAMP '1970-01-01') AS window_start FROM {0}))"
)
TUMBLE = "TUMBLE(TABLE {0}, DESCRIPTOR({1}), INTERVAL '{2}' SECOND)"
MILLISECOND = 1000


@examples(25)
@given(cascades(), histories(), delays, st.sampled_from("ab"), st.integers(1, 3), st.booleans())
def test_what_joins_delay_is_late_for_nothing_above(
    cascade: Cascade, history: list[Step], delay: dict[str, int], third: str, parallelism: int, small: bool
) -> None:
    # The windows of the third table wait for that table alone.
    times, alone = Times(("a", "b"), delay), Times((third,), delay)
    rows: dict[str, list[Row]] = {"a": [], "b": [], "c": []}
    columns = "k BIGINT, n BIGINT, m BIGINT, t TIMESTAMP"
    if cascade.second.kind not in ("SEMI JOIN", "ANTI JOIN"):
        columns += ", rk BIGINT, rx BIGINT, rt TIMESTAMP"
    # A row whose time is the watermark is in time for a join.
    behind = cascade.first.delay + (MILLISECOND if cascade.size is not None else 0) + UNTIL_PASSED
    early = []
    with limits(small=small), stream_of(cascade.sql("a", "b", third, TUMBLE), columns, delay, parallelism) as stream:
        for step in history:
            feed(stream, step, "ab")
            early.append(emitted(stream))
            if isinstance(step, Restart):
                continue
            for table in "ab":
                rows[table] += times.on_time(step, table, UNTIL_PASSED)
            if cascade.windowed:
                size = cascade.size or 1
                rows["c"] += alone.on_time(step, third, end=partial(window_end, size))
            else:
                rows["c"] += times.on_time(step, third, behind)
            times.batch(step)
            alone.batch(step)
        stream.finish()
        hold(rows)
        expected = bag(connection().execute(cascade.sql("a", "b", "c", BUCKETED)).fetchall())
        assert emitted(stream) == expected
        assert all(found <= expected for found in early)
        assert stream.query("SELECT sum(state_rows) FROM sqlstream.operators") == [(0,)]
