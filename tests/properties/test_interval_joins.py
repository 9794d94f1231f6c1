"""Interval joins: after every batch exactly what can be known then, each row once, and the state as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.logical.plan.windows import UNTIL_PASSED
from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.interval_model import (
    FOREVER,
    Interval,
    Times,
    delays,
    feed,
    histories,
    hold,
    intervals,
    stream_of,
    text,
)
from tests.properties.model import Bag, bag, connection, emitted, limits
from tests.properties.strategies import Restart, Row, Step, micros

pytestmark = pytest.mark.slow

ONE = "a BIGINT, b BIGINT, c STRING, d TIMESTAMP"
BOTH = f"{ONE}, e BIGINT, f BIGINT, g STRING, h TIMESTAMP"


def query(join: Interval, tables: tuple[str, str]) -> str:
    left, right = tables
    if join.kind in ("SEMI JOIN", "ANTI JOIN"):
        if join.spelling % 2:
            word = "EXISTS" if join.kind == "SEMI JOIN" else "NOT EXISTS"
            return f"SELECT k, x, s, ts FROM {left} l WHERE {word} (SELECT 1 FROM {right} r WHERE {join.on()})"
        return f"SELECT l.k, l.x, l.s, l.ts FROM {left} l {join.kind} {right} r ON {join.on()}"
    columns = ", ".join(f"{t}.{c}" for t in "lr" for c in ("k", "x", "s", "ts"))
    return f"SELECT {columns} FROM {left} l {join.kind} {right} r ON {join.on()}"


class Sides:
    """The rows of both sides that were not late, and how many were."""

    def __init__(self, join: Interval, tables: tuple[str, str], delays: dict[str, int]):
        self.join, self.tables = join, tables
        self.times = Times(tuple(dict.fromkeys(tables)), delays)
        self.rows: tuple[list[Row], list[Row]] = ([], [])
        self.late = 0

    def feed(self, stream: Stream, step: Step) -> None:
        feed(stream, step, self.times.tables)
        if isinstance(step, Restart):
            return
        for side, table in enumerate(self.tables):
            came = [row for row in step.of(table) if row[3] is not None and self.join.reaches(row, side)]
            taken = self.times.on_time(step, table, UNTIL_PASSED)
            self.late += sum(row not in taken for row in came)
            self.rows[side].extend(taken)
        self.times.batch(step)

    def answer(self, watermark: int) -> Bag:
        """Return what can be known at a watermark: all pairs, and the rows that can have no match any more."""
        hold(dict(zip(("left_rows", "right_rows"), self.rows, strict=True)))
        found = connection().execute(query(self.join, ("left_rows", "right_rows"))).fetchall()
        if self.join.kind == "SEMI JOIN":
            return bag(found)
        due = []
        for row in found:
            times = [micros(row[i]) for i in (3, 7) if i < len(row)]
            alone = [place for place, time in enumerate(times) if time is not None]
            if len(alone) == 2 or (times[alone[0]] or 0) + self.join.wait(alone[0]) <= watermark:
                due.append(row)
        return bag(due)

    def kept(self, side: int, watermark: int) -> Bag:
        """Return the view of a side: what stays, until when, and whether it has matched (NULL: not known any more)."""
        join, stay = self.join, self.join.stay
        found = []
        for row in self.rows[side]:
            at = row[3] or 0
            if at + stay[side] <= watermark or not join.reaches(row, side):
                continue
            matches = [
                other
                for other in self.rows[1 - side]
                if (join.matches(other, row) if side else join.matches(row, other))
                and (other[3] or 0) + stay[1 - side] > watermark
            ]
            matched = True if matches else False if at + join.wait(side) > watermark else None
            found.append((*row[:3], text(at), text(at), text(at + stay[side]), matched))
        return bag(found)


tables = st.sampled_from([("a", "b"), ("a", "b"), ("b", "a"), ("a", "a")])


@examples(25)
@given(intervals(), histories(), delays, tables, st.integers(1, 3), st.booleans())
def test_rows_come_once_and_as_soon_as_they_are_known(
    join: Interval, history: list[Step], delay: dict[str, int], tables: tuple[str, str], parallelism: int, small: bool
) -> None:
    sides = Sides(join, tables, delay)
    columns = ONE if join.kind in ("SEMI JOIN", "ANTI JOIN") else BOTH
    views: list[tuple[int, int, Bag]] = []
    with limits(small=small), stream_of(query(join, tables), columns, delay, parallelism) as stream:
        for number, step in enumerate(history):
            sides.feed(stream, step)
            watermark = sides.times.watermark
            watermark = -FOREVER if watermark is None else watermark - UNTIL_PASSED
            assert emitted(stream) == sides.answer(watermark)
            # To look at the state after every batch would take longer than all the rest.
            if number % 3 or not stream.query("SELECT 1 FROM sqlstream.snapshots"):
                continue
            [(version,)] = stream.query("SELECT max(version) FROM sqlstream.snapshots")
            for side in range(1 if columns == ONE else 2):
                view = bag(stream.query(f"SELECT * FROM state.out.join_1_{'lr'[side]}"))
                assert view == sides.kept(side, watermark)
                views.append((version, side, view))
        stream.finish()
        assert emitted(stream) == sides.answer(FOREVER)
        assert stream.query("SELECT late_rows, state_rows FROM sqlstream.operators") == [(sides.late, 0)]
        for version, side, view in views:
            past = f"SELECT * FROM state.out.join_1_{'lr'[side]} AT (VERSION => {version})"
            assert bag(stream.query(past)) == view
