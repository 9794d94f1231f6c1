"""Windows of so many rows against DuckDB's numbers of the rows that were not late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.examples import examples
from tests.properties.model import Bag, bag, batch_tables, limits
from tests.properties.strategies import Row, Step
from tests.properties.test_windows import Kind as Window
from tests.properties.test_windows import Model as Windows
from tests.properties.test_windows import delays, histories, play, stream_of

pytestmark = pytest.mark.slow

COLUMNS = "k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, a TIMESTAMP, b TIMESTAMP, id BIGINT"


class Model(Windows):
    """Which rows come before the watermark has passed them."""

    def batch(self, rows: object) -> None:
        assert isinstance(rows, tuple)
        before = self.watermark
        timed: list[Row] = [row for row in rows if row[3] is not None]
        super().batch(rows)
        self.open += [row for row in timed if before is None or (row[3] or 0) >= before]
        self.late = self.late + sum(before is not None and (row[3] or 0) < before for row in timed)


def answer(rows: list[Row], size: int, slide: int, keyed: bool) -> Bag:
    by = "k" if keyed else "1"
    numbered = f"""SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY ts, rowid) AS n,
        count(*) OVER (PARTITION BY {by}) AS c FROM a"""
    ends = f"SELECT *, unnest(range(1, c // {slide} + 1)) AS id FROM ({numbered})"
    held = f"SELECT * FROM ({ends}) WHERE n <= id * {slide} AND n > id * {slide} - {size}"
    bounds = ", ".join(f"{f}(ts) OVER (PARTITION BY {by}, id)" for f in ("min", "max"))
    with batch_tables({"a": rows}) as con:
        return bag(con.execute(f"SELECT k, x, s, ts, {bounds}, id FROM ({held})").fetchall())


@examples(20)
@given(histories(), delays, st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(1, 3), st.booleans())
def test_windows_hold_the_rows_that_are_next_to_each_other(
    history: list[Step], delay: int, size: int, slide: int, keyed: bool, parallelism: int, small: bool
) -> None:
    # Windows of a kind of which no row is ever in one: the model says only how far the watermark is.
    model = Model(Window("HOP", 1, 0), delay)
    by = " PARTITION BY k" if keyed else ""
    windows = f"HOP_ROWS(TABLE a{by}, DESCRIPTOR(ts), {slide}, {size})"
    select = f"SELECT k, x, s, ts, window_start, window_end, window_id FROM {windows}"
    with limits(small=small), stream_of(select, COLUMNS, delay, parallelism) as stream:
        play(stream, model, history)
        stream.finish()
        assert bag(stream.rows("out")) == answer(model.open, size, slide, keyed)
        assert stream.query("SELECT late_rows FROM sqlstream.operators") == [(model.late,)]
