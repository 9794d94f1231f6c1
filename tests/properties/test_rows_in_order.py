"""Calls with OVER, of any frame: what has left is DuckDB's answer over the rows that were not late, up to the watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import Bag, bag, batch_tables, emitted, limits
from tests.properties.strategies import RESTART, Batch, Restart, Row, Step, keys, near, near_or_none, texts

pytestmark = pytest.mark.slow


# Rows that are equal in time are in the order in which they came.
WHOLE = "ts, rowid"
# Over rows in any order; {order} is that of the rows, which DuckDB is told where a frame of times leaves it open.
AGGREGATES = (
    *("COUNT(*)", "SUM(x)", "MIN(x)", "MAX(s)", "AVG(x)", "COUNT(DISTINCT x)", "median(x)", "bool_or(x > 1)"),
    *("round(stddev_pop(x), 6)", "SUM(x) FILTER (WHERE s = 'a')", "max(x, 2)", "approx_count_distinct(s)"),
    *(
        "regr_count(x, k)",
        "list_sort(list(x))",
        "COUNT(*) FILTER (WHERE x > 0)",
        "quantile_disc(x, 0.25)",
        "bit_xor(x)",
    ),
)
IN_ORDER: tuple[str, ...] = (
    "list(x{order})",
    "string_agg(s, ','{order})",
    "last_value(x{order})",
    "first_value(x{order})",
)
IN_ORDER += ("any_value(x{order})", "nth_value(x, 2{order})", "last_value(s{order} IGNORE NULLS)", "last(x{order})")
# Flink's leave NULLs out unless they say otherwise, DuckDB's do not.
WITHOUT_NULLS = ("last_value(x{order})", "first_value(x{order})")
POSITIONAL = ("LAG(x)", "LAG(s, 2, 'none')", "LAG(x, 0)", "ROW_NUMBER()", "LAG(x IGNORE NULLS)")
RANKS = ("RANK()", "DENSE_RANK()")
LATER = ("LEAD(x)", "LEAD(s, 2, 'none')", "LEAD(ts, 3)")
OF_TIMES: tuple[str, ...] = (
    "",
    "RANGE UNBOUNDED PRECEDING",
    "RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW",
)
OF_TIMES += ("RANGE BETWEEN INTERVAL '10.5' SECOND PRECEDING AND CURRENT ROW", "RANGE CURRENT ROW")
OF_ROWS: tuple[str, ...] = (
    "ROWS UNBOUNDED PRECEDING",
    "ROWS 1 PRECEDING",
    "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
    "ROWS CURRENT ROW",
)
OF_ROWS += ("ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING")
OF_LATER_ROWS: tuple[str, ...] = (
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING",
)
OF_LATER_ROWS += ("ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING")
OF_LATER_TIMES: tuple[str, ...] = ("RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND INTERVAL '2' SECOND FOLLOWING",)
OF_LATER_TIMES += ("RANGE BETWEEN CURRENT ROW AND INTERVAL '10' SECOND FOLLOWING",)
PARTITIONS = ("", "PARTITION BY k", "PARTITION BY s, k", "PARTITION BY x % 2")


@dataclass(frozen=True)
class Call:
    """A call with OVER. In a frame of times, rows that are equal in time are told apart only by the call itself."""

    partition: str
    function: str
    frame: str = ""

    @property
    def by_times(self) -> bool:
        return self.function in RANKS or not (self.frame.startswith("ROWS") or self.function in (*POSITIONAL, *LATER))

    def sql(self, *, streaming: bool) -> str:
        told = not streaming and self.by_times
        function = self.function
        if not streaming and function in WITHOUT_NULLS:
            function = function.replace("{order}", "{order} IGNORE NULLS")
        function = function.format(order=f" ORDER BY {WHOLE}" if told else "")
        order = "ts" if streaming or self.by_times else WHOLE
        over = f"OVER ({self.partition} ORDER BY {order} {self.frame})"
        # An expression around a call has OVER inside.
        head, _, rest = function.partition("(")
        if head in ("round", "list_sort"):
            inner, tail = (rest[:-4], rest[-4:]) if head == "round" else (rest[:-1], ")")
            return f"{head}({inner} {over}{tail}"
        return f"{function} {over}"


@dataclass(frozen=True)
class Query:
    """Calls over a table, whose rows may be filtered below, and whose results may be aggregated in windows above."""

    calls: tuple[Call, ...]
    where: str
    above: bool

    @property
    def waits(self) -> bool:
        return any(c.function in LATER or c.frame in (*OF_LATER_ROWS, *OF_LATER_TIMES) for c in self.calls)

    def sql(self, *, streaming: bool) -> str:
        calls = "".join(f", {c.sql(streaming=streaming)} AS c{i}" for i, c in enumerate(self.calls))
        rows = f"SELECT k, x, s, ts{calls} FROM a{self.where}"
        if not self.above:
            return rows
        measured = "COUNT(*) AS n, COUNT(c0) AS m, MAX(CAST(c0 AS VARCHAR)) AS most"
        if streaming:
            windows = f"TUMBLE(({rows}), DESCRIPTOR(ts), INTERVAL '2' SECOND)"
            return f"SELECT window_end, {measured} FROM {windows} GROUP BY window_start, window_end"
        end = "time_bucket(INTERVAL 2 SECONDS, ts) + INTERVAL 2 SECONDS"
        return f"SELECT {end} AS window_end, {measured} FROM ({rows}) GROUP BY ALL"


def _framed(functions: Sequence[str], frames: Sequence[str]) -> st.SearchStrategy[tuple[str, str]]:
    return st.tuples(st.sampled_from(functions), st.sampled_from(frames))


by_rows = _framed((*AGGREGATES, *IN_ORDER), OF_ROWS)
by_times = _framed((*AGGREGATES, *IN_ORDER), OF_TIMES)
placed = st.sampled_from((*POSITIONAL, *RANKS)).map(lambda f: (f, ""))
later_times = _framed((*AGGREGATES, *IN_ORDER), OF_LATER_TIMES)
later = st.one_of(_framed(AGGREGATES, OF_LATER_ROWS), st.sampled_from(LATER).map(lambda f: (f, "")))


@st.composite
def queries(draw: st.DrawFn) -> Query:
    partitions = draw(st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True))
    some = st.lists(st.one_of(by_rows, by_times, by_times, placed), min_size=1, max_size=3)
    calls = [Call(p, f, frame) for p in partitions for f, frame in draw(some)]
    waiting = draw(st.integers(0, 3)) == 0
    if waiting:
        following = draw(st.sampled_from([later, later, later_times]))
        calls += [Call(partitions[0], f, frame) for f, frame in draw(st.lists(following, min_size=1, max_size=2))]
    where = draw(st.sampled_from(["", "", " WHERE x > 0 OR k IS NULL"]))
    return Query(tuple(calls), where, above=not waiting and draw(st.integers(0, 3)) == 0)


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    times = draw(st.sampled_from([near_or_none, near.map(lambda micros: micros // 1_000_000 * 1_000_000)]))
    values = st.one_of(st.none(), st.integers(-2, 3))
    rows = st.lists(st.tuples(keys, values, texts, times), min_size=1, max_size=8).map(tuple)
    step = st.one_of(rows.map(lambda r: Batch((("a", r),))), rows.map(lambda r: Batch((("a", r),))), st.just(RESTART))
    return draw(st.lists(step, min_size=1, max_size=7))


def timeless(step: Step) -> Step:
    """Return a batch without event times: its rows are told apart by the rest."""
    return Batch((("a", tuple((*row[:3], None) for row in step.of("a"))),)) if isinstance(step, Batch) else step


class Accepted:
    """The rows that were not behind the watermark when they came, and the watermark."""

    def __init__(self, delay: int):
        self.delay = delay
        self.rows: list[Row] = []
        self.late: list[Row] = []
        self.watermark: int | None = None

    def batch(self, rows: Sequence[Row]) -> None:
        before = self.watermark
        for row in rows:
            if row[3] is None:
                continue
            (self.late if before is not None and row[3] < before else self.rows).append(row)
            mark = (row[3] - self.delay) // 1000 * 1000
            self.watermark = mark if self.watermark is None else max(self.watermark, mark)

    def answer(self, query: Query, *, up_to: int | None) -> Bag:
        """Return DuckDB's answer; up to a time, of the rows before it."""
        before = "" if up_to is None else f" WHERE ts < make_timestamp({up_to})"
        with batch_tables({"a": self.rows}) as con:
            return bag(con.execute(f"SELECT * FROM ({query.sql(streaming=False)}){before}").fetchall())

    def count(self, rows: Sequence[Row], where: str) -> int:
        with batch_tables({"a": list(rows)}) as con:
            [(count,)] = con.execute(f"SELECT count(*) FROM a{where}").fetchall()
            return int(count)


def stream_of(query: Query, delay: int, parallelism: int) -> Stream:
    with batch_tables({}) as con:
        columns = con.execute(f"DESCRIBE {query.sql(streaming=False)}").fetchall()
    declared = ", ".join(f'"{name}" {type}' for name, type, *_ in columns)
    source = f"k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '{delay}' MICROSECOND"
    script = f"CREATE TABLE a ({source}); CREATE TABLE out ({declared}); INSERT INTO out {query.sql(streaming=True)}"
    return Stream(script, parallelism=parallelism)


@examples(12)
@given(queries(), histories(), st.lists(st.integers(1, 4000), min_size=7, max_size=7), st.integers(1, 3), st.booleans())
def test_rows_leave_at_once_by_the_clock(
    query: Query, history: list[Step], steps: list[int], parallelism: int, small: bool
) -> None:
    """The time of a row is that of its batch."""
    assume(not query.above and not any(c.frame in OF_LATER_TIMES for c in query.calls))
    so_far: list[Row] = []
    history = [timeless(step) for step in history]
    with batch_tables({}) as con:
        columns = con.execute(f"DESCRIBE {query.sql(streaming=False)}").fetchall()
    declared = ", ".join(f'"{name}" {type}' for name, type, *_ in columns)
    script = f"CREATE TABLE a (k BIGINT, x BIGINT, s STRING, p AS PROCTIME()); CREATE TABLE out ({declared});"
    calls = (
        query.sql(streaming=True).replace("ORDER BY ts", "ORDER BY p").replace("LEAD(ts", "LEAD(CAST(p AS TIMESTAMP)")
    )
    insert = f"INSERT INTO out {calls.replace('s, ts,', 's, CAST(p AS TIMESTAMP) AS ts,')}"
    with limits(small=small), Stream(f"{script} {insert}", parallelism=parallelism) as stream:
        for step, passed in zip(history, steps, strict=False):
            if isinstance(step, Restart):
                stream.restart()
                continue
            stream.advance(passed)
            so_far += [(*row[:3], stream.now) for row in step.of("a")]
            stream.batch("a", [row[:3] for row in step.of("a")])
            if not query.waits:
                assert emitted(stream) == _answer(query, so_far)
        stream.finish()
        assert emitted(stream) == _answer(query, so_far)


def _answer(query: Query, rows: list[Row]) -> Bag:
    with batch_tables({"a": rows}) as con:
        return bag(con.execute(query.sql(streaming=False)).fetchall())


def _text(row: Row) -> tuple[object, ...]:
    with batch_tables({}) as con:
        [(time,)] = con.execute("SELECT make_timestamp(?)::VARCHAR", [row[3]]).fetchall()
    return (*row[:3], time)


@examples(30)
@given(queries(), histories(), st.sampled_from([0, 500_000, 4_000_000]), st.integers(1, 3), st.booleans())
def test_rows_leave_with_the_batch_answer(
    query: Query, history: list[Step], delay: int, parallelism: int, small: bool
) -> None:
    model = Accepted(delay)
    with limits(small=small), stream_of(query, delay, parallelism) as stream:
        for step in history:
            if isinstance(step, Restart):
                stream.restart()
                continue
            model.batch(step.of("a"))
            stream.batch("a", [_text(row) if row[3] is not None else row for row in step.of("a")])
            if model.watermark is not None and not query.waits and not query.above:
                assert emitted(stream) == model.answer(query, up_to=model.watermark)
        stream.finish()
        assert emitted(stream) == model.answer(query, up_to=None)
        late = stream.query("SELECT sum(late_rows) FROM sqlstream.operators")
        assert late == [(model.count(model.late, query.where),)]
        event("waits" if query.waits else "above" if query.above else "plain")
