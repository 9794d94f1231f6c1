"""Deduplication by processing time, then windows of event time, against DuckDB's answer over the rows that were not late."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import Bag, bag, batch_tables, emitted, limits
from tests.properties.strategies import RESTART, Restart, Row, near_or_none, rows_of

pytestmark = pytest.mark.slow

SIZE = 10_000_000
# All columns, so that no rows of a batch tie.
FIRST, LAST = "p, x, s, ts", "p DESC, x, s, ts"


class Model:
    """The rows that the windows have got, and take back, by the rule: a change of a window that has closed is late."""

    def __init__(self, delay: int, order: str):
        self.delay = delay
        self.keeps_last = order == LAST
        self.watermark: int | None = None
        self.best: dict[int | None, Row] = {}
        self.rows: list[Row] = []
        self.late = 0

    def batch(self, rows: list[Row]) -> None:
        before = self.watermark
        with batch_tables({"a": [row for row in rows if row[3] is not None]}) as con:
            first = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY x, s, ts) = 1"
            best = con.execute(f"SELECT k, x, s, epoch_us(ts) FROM a {first}").fetchall()
        for row in best:
            old = self.best.get(row[0])
            if old is None or (self.keeps_last and old != row):
                self.best[row[0]] = row
                self._change(old, row, before)
        marks = [(row[3] - self.delay) // 1000 * 1000 for row in rows if row[3] is not None]
        self.watermark = max([*marks, *([] if before is None else [before])], default=None)

    def _change(self, old: Row | None, new: Row, before: int | None) -> None:
        # What the windows read of both is the same: it is no change for them, and so none that is late.
        if old is not None and _read(old) == _read(new):
            self._replace(old, new)
            return
        for row, adds in ((old, False), (new, True)):
            if row is None or row[3] is None:
                continue
            if before is not None and row[3] // SIZE * SIZE + SIZE <= before:
                self.late += 1
            elif adds:
                self.rows.append(row)
            else:
                self.rows.remove(row)

    def _replace(self, old: Row, new: Row) -> None:
        if old in self.rows:
            self.rows[self.rows.index(old)] = new

    def answer(self, *, up_to: int | None) -> Bag:
        """Return DuckDB's answer; up to a watermark, of the windows that it has closed."""
        start = f"time_bucket(INTERVAL '{SIZE} microseconds', ts)"
        having = "" if up_to is None else f" HAVING epoch_us({start}) + {SIZE} <= {up_to}"
        with batch_tables({"a": self.rows}) as con:
            return bag(
                con.execute(f"SELECT s, {start}, COUNT(*), SUM(x) FROM a GROUP BY s, {start}{having}").fetchall()
            )


@examples(25)
@given(
    st.lists(
        st.tuples(st.integers(1, 4000), st.one_of(rows_of(near_or_none), st.just(RESTART))), min_size=1, max_size=8
    ),
    st.sampled_from([FIRST, LAST]),
    st.sampled_from([0, 500_000, 4_000_000]),
    st.integers(1, 3),
    st.booleans(),
)
def test_rows_kept_by_processing_time_are_in_windows_of_event_time(
    history: list[tuple[int, list[Row] | Restart]], order: str, delay: int, parallelism: int, small: bool
) -> None:
    mark = f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' MICROSECOND"
    source = f"k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, p AS PROCTIME(), {mark}"
    kept = f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS n FROM a) WHERE n = 1"
    script = f"""
        CREATE TABLE a ({source});
        CREATE TABLE out (s STRING, window_start TIMESTAMP, n BIGINT, x DECIMAL(38, 0));
        CREATE VIEW kept AS {kept};
        INSERT INTO out SELECT s, window_start, COUNT(*), SUM(x)
        FROM TUMBLE(TABLE kept, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY s, window_start, window_end
    """
    model = Model(delay, order)
    with limits(small=small), Stream(script, parallelism=parallelism) as stream:
        for passed, rows in history:
            stream.advance(passed)
            if isinstance(rows, Restart):
                stream.restart()
                continue
            model.batch(rows)
            stream.batch("a", [_text(row) for row in rows])
            if model.watermark is not None:
                assert emitted(stream) == model.answer(up_to=model.watermark)
        stream.finish()
        assert emitted(stream) == model.answer(up_to=None)
        assert stream.query("SELECT sum(late_rows) FROM sqlstream.operators") == [(model.late,)]
        event("some rows are late" if model.late else "no row is late")


def _read(row: Row) -> tuple[object, ...]:
    """Return what the query reads of a row: its window, and the columns that it groups by and adds."""
    return None if row[3] is None else row[3] // SIZE, row[1], row[2]


def _text(row: Row) -> tuple[object, ...]:
    if row[3] is None:
        return row
    with batch_tables({}) as con:
        [(time,)] = con.execute("SELECT make_timestamp(?)::VARCHAR", [row[3]]).fetchall()
    return (*row[:3], time)
