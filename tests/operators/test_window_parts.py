"""Windows from their parts: an assigner says which windows, a trigger when they emit, a result what they amount to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.sql import quoted, typed
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.groups import Groups
from sqlstream.operators.operator import Operator, Port, StepTimes
from sqlstream.operators.windows.assigners import AssignedWindows, WindowAssigner
from sqlstream.operators.windows.changed_sessions import ChangedSessions
from sqlstream.operators.windows.changed_windows import ChangedWindows
from sqlstream.operators.windows.corrections import Corrections
from sqlstream.operators.windows.early_results import Early, EarlyResults, EveryRows
from sqlstream.operators.windows.emitted import EmittedResults
from sqlstream.operators.windows.grid import Grid
from sqlstream.operators.windows.retention import Retention
from sqlstream.operators.windows.session_pieces import ChangingPieces, Pieces
from sqlstream.operators.windows.sessions import Sessions
from sqlstream.operators.windows.slices import SlicedWindows
from sqlstream.operators.windows.triggers import AT_END, Trigger
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.operators.windows.window_rows import Ranking, WindowRows
from sqlstream.storage.bucket import Bucket
from sqlstream.units import NO_TIME, SECOND, Duration, EventTime, from_millis
from sqlstream.warehouse.filesystem import LocalFilesystem

TUMBLE = AssignedWindows("time_bucket(INTERVAL '10' SECOND, ts) + INTERVAL '10' SECOND", Duration(10 * SECOND))
HOP = SlicedWindows("ts", Grid(Duration(10 * SECOND), Duration(5 * SECOND)))
SESSION = Sessions(Pieces("ts", Duration(3 * SECOND)))
ASSIGNERS: dict[str, AssignedWindows | SlicedWindows | Sessions] = {"tumble": TUMBLE, "hop": HOP, "session": SESSION}
CALLS = (("n", AggregateCall("count", (), (), result_type="BIGINT")),)
KEYS = ((Column("k", "VARCHAR"), '"k"'),)
# Seconds after ten o'clock.
ON_TIME = [("u", 1), ("u", 4), ("v", 2)]
LATE = [("u", 6)]
# What a count of all rows gives: key, start, end, number.
WINDOWS = {
    "tumble": {("u", 0, 10): 3, ("v", 0, 10): 1},
    "hop": {("u", -5, 5): 2, ("u", 0, 10): 3, ("u", 5, 15): 1, ("v", -5, 5): 1, ("v", 0, 10): 1},
    "session": {("u", 1, 9): 3, ("v", 2, 5): 1},
}
TEN = 1_767_261_600


def aggregate(windows: AssignedWindows | SlicedWindows | Sessions) -> GroupedCalls:
    return GroupedCalls(Groups(KEYS, windows), ("s", "e", None), CALLS)


def correcting(windows: AssignedWindows | SlicedWindows | Sessions, lateness: int, early: Early | None) -> Corrections:
    result = aggregate(windows)
    emitted = EmittedResults(result, Retention(Duration(lateness * SECOND)))
    pending = EarlyResults(early, result.groups) if early else None
    if isinstance(windows, Sessions):
        return Corrections(emitted, ChangedSessions(emitted, pending), pending)
    return Corrections(emitted, ChangedWindows(windows, emitted, pending), pending)


def operator(windows: AssignedWindows | SlicedWindows | Sessions, trigger: Trigger = AT_END) -> WindowOperator:
    result = aggregate(windows)
    groups: Groups[WindowAssigner] = Groups(KEYS, windows)
    return WindowOperator("counts", groups, result, trigger)


class Driven:
    """An operator over one bucket, batch after batch."""

    def __init__(self, operator: WindowOperator, folder: Path):
        self.operator = operator
        self.folder = str(folder)
        self.con = duckdb.connect()
        self.manifest: str | None = None
        self.batch = 0
        self.event_timer: float | None = None

    def step(self, rows: list[tuple[str, int]], watermark: int | None) -> list[tuple[object, ...]]:
        """Advance by rows and a watermark in seconds after ten; return what leaves, with its weight where it has one."""
        reached = None if watermark is None else EventTime((TEN + watermark) * SECOND)
        state = Bucket.open(LocalFilesystem(), self.folder, 0, self.operator.tables, self.manifest, NO_TIME)
        times = StepTimes(self.batch, reached, from_millis(self.batch))
        found = self.operator.step(self.con, state, self._arriving(rows), times)
        batches = [rows for rows in found if isinstance(rows, pa.RecordBatch)]
        self.event_timer = None if state.event_timer is None else state.event_timer / SECOND - TEN
        self.manifest = state.commit(self.con, self.batch, times.time, reached)
        self.batch += 1
        if not batches:
            return []
        self.con.register("_left", pa.Table.from_batches(batches))
        return self.con.sql(f"SELECT {typed(self.operator.outputs)} FROM _left").fetchall()

    def _arriving(self, rows: list[tuple[str, int]]) -> list[tuple[Port, pa.Table]]:
        if not rows:
            return []
        values = ", ".join(f"('{k}', make_timestamp({(TEN + at) * SECOND}))" for k, at in rows)
        with_rows = f"WITH _rows AS (SELECT * FROM (VALUES {values}) r(k, ts)) "
        parts = self.operator.parts.items()
        return [(Port(part, False), self.con.sql(with_rows + sql).to_arrow_table()) for part, sql in parts]


def total(changes: list[tuple[object, ...]], *, weighted: bool) -> dict[tuple[object, ...], int]:
    """Return the counts that are left of emitted rows, by key and bounds in seconds after ten."""
    left: dict[tuple[object, ...], int] = {}
    for key, start, end, count, *weight in changes:
        assert isinstance(start, datetime)
        assert isinstance(end, datetime)
        assert isinstance(count, int)
        times = 1 if not weighted else weight[0]
        assert isinstance(times, int)
        place = (key, *(round(t.replace(tzinfo=UTC).timestamp()) - TEN for t in (start, end)))
        left[place] = left.get(place, 0) + count * times
    return {place: count for place, count in left.items() if count}


@pytest.mark.parametrize("name", ASSIGNERS)
def test_at_its_end_a_window_emits_once(name: str, tmp_path: Path) -> None:
    driven = Driven(operator(ASSIGNERS[name]), tmp_path)
    assert driven.step([*ON_TIME, *LATE], None) == []
    assert driven.step([], 1) == []
    # A session is looked at when the first piece of it ends.
    first = {"tumble": 10, "hop": 5, "session": 4}[name]
    assert driven.event_timer == first
    assert total(driven.step([], 60), weighted=False) == WINDOWS[name]
    assert driven.step([], 90) == []
    assert driven.event_timer is None


@pytest.mark.parametrize("name", ASSIGNERS)
def test_a_late_row_corrects_what_was_emitted(name: str, tmp_path: Path) -> None:
    windows = ASSIGNERS[name]
    driven = Driven(operator(windows, correcting(windows, 60, None)), tmp_path)
    assert driven.step(ON_TIME, None) == []
    first = driven.step([], 20)
    assert {row[-1] for row in first} == {1}
    changes = driven.step(LATE, 20)
    assert {row[-1] for row in changes} == {-1, 1}
    assert total([*first, *changes], weighted=True) == WINDOWS[name]
    # Once the lateness is over the row counts no more.
    assert driven.step(LATE, 100) == []


@pytest.mark.parametrize("name", ASSIGNERS)
def test_early_results_leave_before_the_end(name: str, tmp_path: Path) -> None:
    windows = ASSIGNERS[name]
    driven = Driven(operator(windows, correcting(windows, 0, EveryRows(1))), tmp_path)
    first = driven.step(ON_TIME, None)
    assert first
    changes = [*first, *driven.step(LATE, None)]
    assert total(changes, weighted=True) == WINDOWS[name]
    # At their end nothing has changed since.
    assert driven.step([], 60) == []


def test_a_late_row_does_not_go_on_with_a_session_that_its_batch_closes(tmp_path: Path) -> None:
    driven = Driven(operator(SESSION), tmp_path)
    assert driven.step([("u", 1), ("v", 1)], None) == []
    # The sessions from 1 end with this batch. A row that would have been in one of them begins another.
    closed = driven.step([("u", 4), ("v", 2)], 4)
    assert total(closed, weighted=False) == {("u", 1, 4): 1, ("v", 1, 4): 1}
    assert total(driven.step([], 10), weighted=False) == {("u", 4, 7): 1, ("v", 2, 5): 1}


def test_the_rows_of_windows_need_no_other_operator(tmp_path: Path) -> None:
    columns = (Column("k", "VARCHAR"), Column("ts", "TIMESTAMP"))
    groups: Groups[WindowAssigner] = Groups((), TUMBLE)
    latest = WindowRows(groups, columns, ranking=Ranking("place", "row_number", ('"ts" DESC',), 1))
    driven = Driven(WindowOperator("latest", groups, latest), tmp_path)
    driven.step([*ON_TIME, *LATE], None)
    [(key, _, place)] = driven.step([], 10)
    assert (key, place) == ("u", 1)


def test_rows_that_come_and_go_are_pieces_of_their_own() -> None:
    pieces = ChangingPieces("ts", "ts + INTERVAL '3' SECOND")
    starts = pa.table({"_window_start": pa.array([5, 15], pa.timestamp("us")), "__sqlstream_weight": [-1, 2]})
    arrival = pieces.arrive(starts, EventTime(10))
    assert (arrival.before.num_rows, arrival.after, arrival.late_rows) == (1, None, 1)
    # Rows that are only added may still be taken by a session that is open.
    arrival = Pieces("ts", Duration(3)).arrive(starts, EventTime(10))
    assert arrival.after is not None
    assert (arrival.before.num_rows, arrival.after.num_rows, arrival.late_rows) == (1, 1, 0)


def test_fixed_windows_say_which_windows_rows_are_in() -> None:
    with duckdb.connect() as con:
        stored = ", ".join(f"{sql} AS {c.name}" for c, sql in HOP.columns)
        con.execute(
            f"CREATE TABLE r AS SELECT 'u' AS k, {stored} FROM (SELECT make_timestamp({(TEN + 7) * SECOND}) AS ts)"
        )
        bound = EventTime((TEN + 10) * SECOND)
        ends = "list(epoch(_window_end)::BIGINT ORDER BY _window_end)"
        found = [
            con.sql(f"SELECT {ends} FROM {HOP.ending(quoted('r'), after, to)}").fetchall()
            for after, to in ((None, None), (bound, None), (None, bound))
        ]
        assert found == [[([TEN + 10, TEN + 15],)], [([TEN + 15],)], [([TEN + 10],)]]
        con.execute(f"CREATE TABLE w AS SELECT 'u' AS k, make_timestamp({(TEN + 15) * SECOND}) AS _window_end")
        assert con.sql(f"SELECT {ends} FROM {HOP.among(quoted('r'), quoted('w'), ['k'])}").fetchall() == [([TEN + 15],)]


def test_a_retention_without_lateness_stores_no_time_of_its_own() -> None:
    [table] = aggregate(TUMBLE).tables
    assert Retention().table(table) == table
    assert Retention().closed(EventTime(100)) == 100
    kept = Retention(Duration(7))
    assert [c.name for c in kept.table(table).columns] == [*(c.name for c in table.columns), "_kept_until"]
    assert kept.table(table).time_column == "_kept_until"
    assert (kept.closed(EventTime(100)), kept.stored_until(EventTime(100))) == (93, 107)


def test_no_operator_inherits_from_another() -> None:
    found = Operator.__subclasses__()
    assert WindowOperator in found
    assert [c for c in found if c.__subclasses__()] == []
