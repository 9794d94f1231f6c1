"""Overlapping windows, sessions and ranks against a model that takes one batch after another, and DuckDB for the aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import Bag, bag, connection, limits
from tests.properties.strategies import RESTART, Batch, Restart, Row, Step, keys, texts, values

pytestmark = pytest.mark.slow

SECOND = 1_000_000
BASE = 1_767_261_600 * SECOND  # 2026-01-01 10:00
Pair = tuple[Row, int, int]


@dataclass(frozen=True)
class Kind:
    """A window table function: its lengths are seconds; sessions are by key where `keyed`, with `own` gaps by a row's text."""

    name: str
    first: int
    second: int = 0
    keyed: bool = False
    own: bool = False

    def gap(self, row: Row) -> int:
        return self.first * SECOND * (1 + len(row[2] or "") if self.own else 1)

    def sql(self) -> str:
        by = " PARTITION BY k" if self.name == "SESSION" and self.keyed else ""
        lengths = [self.first] if self.name == "SESSION" else [self.first, self.second]
        intervals = ", ".join(f"INTERVAL '{length}' SECOND" for length in lengths)
        intervals += " * (1 + coalesce(length(s), 0))" if self.own else ""
        return f"{self.name}(TABLE a{by}, DESCRIPTOR(ts), {intervals})"

    def windows(self, ts: int) -> Iterator[tuple[int, int]]:
        """Yield the windows that hold a time, by trying all that are near."""
        slide, size = self.first * SECOND, self.second * SECOND
        every = size if self.name == "CUMULATE" else slide
        start = (ts // every) * every
        while start + size > ts:
            ends = range(start + slide, start + size + 1, slide) if self.name == "CUMULATE" else [start + size]
            yield from ((start, end) for end in ends if end > ts)
            start -= every


@dataclass
class Model:
    """Which rows count in which windows, batch by batch; windows close when the watermark is the lateness past their end."""

    kind: Kind
    delay: int
    lateness: int = 0
    watermark: int | None = None
    pairs: list[Pair] = field(default_factory=list)
    late: int = 0
    missed: int = 0
    open: list[Row] = field(default_factory=list)
    dropped: list[Row] = field(default_factory=list)

    @property
    def closing(self) -> int | None:
        return None if self.watermark is None else self.watermark - self.lateness

    def batch(self, rows: Iterable[Row]) -> None:
        timed = [row for row in rows if row[3] is not None]
        if self.kind.name == "SESSION":
            self._sessions(timed)
        else:
            for row in timed:
                self._overlapping(row)
        marks = [(row[3] or 0) - self.delay for row in timed]
        self.watermark = max(
            [m // 1000 * 1000 for m in marks] + ([self.watermark] if self.watermark else []), default=None
        )

    def _overlapping(self, row: Row) -> None:
        found = list(self.kind.windows(row[3] or 0))
        taken = [w for w in found if self.closing is None or w[1] > self.closing]
        self.pairs += [(row, *w) for w in taken]
        if not taken and found:
            self.late += 1
            self.dropped.append(row)
        else:
            self.missed += len(found) - len(taken)

    def _sessions(self, rows: list[Row]) -> None:
        self.close()
        known = list(self.open)
        for members, _, end in self._grouped(known + rows):
            if self.closing is not None and end <= self.closing:
                self.late += len(members)
                self.dropped += members
                assert not any(any(m is k for k in known) for m in members)
            else:
                self.open += [m for m in members if not any(m is k for k in known)]

    def close(self, watermark: int | None = None) -> None:
        """Emit the sessions that the watermark has closed."""
        mark = self.closing if watermark is None else watermark
        if mark is None:
            return
        for members, start, end in self._grouped(self.open):
            if end <= mark:
                self.pairs += [(m, start, end) for m in members]
                self.open = [r for r in self.open if not any(r is m for m in members)]

    def so_far(self) -> list[Pair]:
        """Return all rows with the windows that they are in, also those that are open."""
        return self.pairs + [(m, start, end) for members, start, end in self._grouped(self.open) for m in members]

    def _grouped(self, rows: list[Row]) -> Iterator[tuple[list[Row], int, int]]:
        groups: dict[object, list[tuple[list[Row], int]]] = {}
        for row in sorted(rows, key=lambda r: r[3] or 0):
            sessions = groups.setdefault(row[0] if self.kind.keyed else None, [])
            end = (row[3] or 0) + self.kind.gap(row)
            if sessions and (row[3] or 0) <= sessions[-1][1]:
                members, last = sessions.pop()
                sessions.append(([*members, row], max(end, last)))
            else:
                sessions.append(([row], end))
        for session, end in (s for found in groups.values() for s in found):
            yield session, session[0][3] or 0, end


CALLS = "COUNT(*) AS n, SUM(x) AS total, COUNT(DISTINCT s) AS d, list(x ORDER BY ts, x) AS l, MAX(s) AS m"


def answer(pairs: list[Pair], select: str, came: Mapping[int, int] | None = None) -> Bag:
    """Return DuckDB's answer over rows in windows; `came` has the places of rows in the order of arrival, by their `id`."""
    con = connection()
    bounds = "window_start TIMESTAMP, window_end TIMESTAMP, came BIGINT"
    con.execute(f"CREATE OR REPLACE TEMP TABLE w (k BIGINT, x BIGINT, s VARCHAR, ts TIMESTAMP, {bounds})")
    for row, start, end in pairs:
        con.execute(
            "INSERT INTO w VALUES (?, ?, ?, make_timestamp(?), make_timestamp(?), make_timestamp(?), ?)",
            [*row, start, end, came[id(row)] if came is not None else None],
        )
    return bag(con.execute(select).fetchall())


def stream_of(select: str, columns: str, delay: int, parallelism: int) -> Stream:
    watermark = f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' MICROSECOND"
    script = f"""CREATE TABLE a (k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, {watermark});
    CREATE TABLE out ({columns}); INSERT INTO out {select}"""
    return Stream(script, parallelism=parallelism)


def micros_text(micros: int | None) -> object:
    return connection().execute("SELECT make_timestamp(?)", [micros]).fetchall()[0][0]


def play(stream: Stream, model: Model, history: list[Step]) -> None:
    for step in history:
        if isinstance(step, Restart):
            stream.restart()
            continue
        rows = step.of("a")
        texts = [(*row[:3], micros_text(row[3])) for row in rows]
        stream.batch("a", texts)
        model.batch(rows)


def finish(stream: Stream, model: Model) -> None:
    stream.finish()
    model.close(2**62)


kinds = st.one_of(
    st.builds(Kind, st.just("HOP"), st.integers(1, 7), st.integers(1, 12)),
    st.builds(lambda step, n: Kind("CUMULATE", step, step * n), st.integers(1, 5), st.integers(1, 4)),
    st.builds(Kind, st.just("SESSION"), st.integers(1, 5), keyed=st.booleans(), own=st.booleans()),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Draw batches whose times move on, a little out of order, so that windows stay open over some of them."""
    now, steps = BASE, list[Step]()
    for ahead in draw(st.lists(st.integers(0, 6), min_size=1, max_size=12)):
        now += ahead * SECOND
        near = st.one_of(
            st.none(), st.integers(-8, 4).map(SECOND.__mul__), st.integers(-8000, 4000).map((1000).__mul__)
        )
        rows = draw(st.lists(st.tuples(keys, values, texts, near), min_size=1, max_size=4))
        steps.append(Batch((("a", tuple((*row[:3], None if row[3] is None else now + row[3]) for row in rows)),)))
        if draw(st.integers(0, 4)) == 0:
            steps.append(RESTART)
    return steps


delays = st.sampled_from([0, 2 * SECOND, 10 * SECOND])


@examples(30)
@given(kinds, histories(), delays, st.integers(1, 3), st.booleans(), st.booleans())
def test_aggregates_count_each_row_in_every_window_that_is_open_when_it_comes(
    kind: Kind, history: list[Step], delay: int, parallelism: int, keyed: bool, small: bool
) -> None:
    keyed = kind.keyed if kind.name == "SESSION" else keyed
    key = "k, " if keyed else ""
    model = Model(kind, delay)
    select = f"SELECT {key}window_start, window_end, {CALLS} FROM {{}} GROUP BY {key}window_start, window_end"
    columns = f"{'k BIGINT, ' if keyed else ''}a TIMESTAMP, b TIMESTAMP, n BIGINT, total HUGEINT, d BIGINT, l BIGINT[], m STRING"
    with limits(small=small), stream_of(select.format(kind.sql()), columns, delay, parallelism) as stream:
        play(stream, model, history)
        # A session is its key's own.
        windows = f"{key if kind.name == 'SESSION' else ''}window_start, window_end"
        shown = stream.query(f"SELECT DISTINCT {windows} FROM state.out.window_aggregate_1")
        assert stream.query("SELECT open_windows FROM sqlstream.operators") == [(len(shown),)]
        assert stream.verify()
        finish(stream, model)
        assert stream.verify()
        assert bag(stream.rows("out")) == answer(model.pairs, select.format("w"))
        numbers = "late_rows, missed_windows, state_rows, open_windows, next_end"
        found = stream.query(f"SELECT {numbers} FROM sqlstream.operators")
        assert found == [(model.late, model.missed, 0, 0, None)]


RANKED = """SELECT k, x, ts, window_start, window_end,
ROW_NUMBER() OVER (PARTITION BY window_start, window_end{key} ORDER BY x DESC NULLS LAST{ties}) AS rn FROM {windows}"""


@examples(25)
@given(kinds, histories(), delays, st.integers(1, 3), st.booleans(), st.integers(1, 3), st.booleans())
def test_ranks_are_those_among_all_rows_of_a_window(
    kind: Kind, history: list[Step], delay: int, parallelism: int, keyed: bool, limit: int, small: bool
) -> None:
    model = Model(kind, delay)
    key = ", k" if keyed else ""
    all_rows = (row for step in history if not isinstance(step, Restart) for row in step.of("a"))
    came = {id(row): place for place, row in enumerate(all_rows)}
    select = f"SELECT * FROM ({RANKED}) WHERE rn <= {limit}"
    columns = "k BIGINT, x BIGINT, ts TIMESTAMP, a TIMESTAMP, b TIMESTAMP, rn BIGINT"
    with (
        limits(small=small),
        stream_of(select.format(key=key, ties="", windows=kind.sql()), columns, delay, parallelism) as stream,
    ):
        play(stream, model, history)
        assert stream.verify()
        finish(stream, model)
        assert bag(stream.rows("out")) == answer(model.pairs, select.format(key=key, ties=", came", windows="w"), came)
