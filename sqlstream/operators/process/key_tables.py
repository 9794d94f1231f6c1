"""A batch of a function that is vectorized by key: it gets the rows of a key as one Arrow table, and emits tables."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.clock import NEVER
from sqlstream.functions.process.context import Timer, event_datetime
from sqlstream.functions.process.shapes import Misfit, ResultShape
from sqlstream.functions.process.vectors import TableShape
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.operators.process.arrivals import LATE, NUMBER
from sqlstream.operators.process.emitted import LATE_RESULT, EmittedRows
from sqlstream.operators.process.runs import BatchRun
from sqlstream.units import EventTime

# The optional column of emitted tables with the event times of their rows.
EVENT_TIME = Column(ROWTIME, "TIMESTAMP")


class KeyTablesRun(BatchRun):
    """Runs a function that is vectorized by key over one batch of one bucket; an emitted table counts as one row."""

    most = 1_000

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.output: _EmittedTables = _EmittedTables(
            self.instance.implementation.result, self.timed, self.clock.watermark
        )
        self.emitted = self.output.rows

    def _inputs(self) -> list[Any]:
        return [
            _Tables(self.arrivals.rows(i), [c.name for c, _ in one.columns], self.count, self.timed)
            for i, one in self.arrivals.keyed
        ]

    def _see(self, time: dt.datetime | None) -> None:
        super()._see(time)
        self.output.late_before = self.timers.late_before

    def raised(self, error: BaseException, method: Any, row: Any) -> Exception:
        # A table is too long to be shown.
        return super().raised(error, method, row if isinstance(row, Timer) else None)


class _EmittedTables(EmittedRows):
    """The emitted tables: what is a row in EmittedRows is a table here."""

    def __init__(self, result: ResultShape, timed: bool, watermark: EventTime | None):
        super().__init__(result, timed)
        columns = tuple(Column(name, type) for name, type, _ in result.fields)
        self.columns = TableShape(columns, EVENT_TIME if timed else None)
        # Rows with an earlier event time are late: now, and for each stretch.
        self.late_before = NEVER if watermark is None else watermark
        self.limits: list[EventTime] = []

    def mark(self, number: int, time: Any, *, late: bool) -> int:
        self.limits.append(self.late_before)
        return super().mark(number, time, late=late)

    def taken(self, keys: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        """Return the rows of the waiting tables in one, with the columns of EmittedRows.taken, and clear the output.

        A row without an event time of its own gets its stretch's. Raises Misfit, with the key's number, for a table that does not
        have the declared columns and types.
        """
        rows = self._fitted()
        sizes = np.cumsum([0, *(table.num_rows for table in self.rows)])
        # How many rows each stretch has, in all of its tables.
        lengths = np.diff(sizes[[0, *self.ends]])
        of_keys = pa.array(np.repeat(np.array(self.numbers, dtype=np.int64), lengths))
        found: dict[str, Any] = {name: values.take(of_keys) for name, values in keys.items()}
        found |= {name: rows.column(name) for name, _, _ in self.shape.fields}
        if self.timed:
            places = pa.array(np.repeat(np.arange(len(self.times)), lengths))
            times, late = pa.array(self.times, pa.timestamp("us")), pa.array(self.late, pa.bool_())
            limits = pa.array(self.limits, pa.int64())
            found |= _timed(rows.column(ROWTIME), times.take(places), late.take(places), limits.take(places))
        for one in (self.rows, self.ends, self.numbers, self.times, self.late, self.limits):
            one.clear()
        return pa.table(found)

    def _fitted(self) -> pa.Table:
        try:
            return self.columns.fitted(self.rows, "emitted")
        except Misfit as error:
            raise Misfit(self.numbers[bisect_right(self.ends, error.number)], error.what) from error


def _timed(given: pa.ChunkedArray, times: pa.Array, late: pa.Array, limits: pa.Array) -> dict[str, Any]:
    """Return the columns of the rows' event times, `given` or else `times`, and of whether each is late."""
    own = pc.coalesce(given, times)
    # A row for the time of a timer is on time, although the watermark has passed it.
    is_behind = pc.less(own.cast(pa.int64()), limits)
    return {ROWTIME: own, LATE_RESULT.name: pc.and_(is_behind, pc.or_(late, pc.less(own, times)))}


class _Tables:
    """The rows of an input as one table for each key that has rows, with the latest of their event times."""

    def __init__(self, table: pa.Table, names: list[str], count: int, timed: bool):
        numbers = table.column(NUMBER).to_numpy()
        ends = np.searchsorted(numbers, np.arange(count + 1))
        # A key that has rows has one table.
        self.sizes: list[int] = (np.diff(ends) > 0).astype(int).tolist()
        marked = LATE.name in table.column_names
        own = table.drop_columns([NUMBER, *(["_time"] if timed else []), *([LATE.name] if marked else [])])
        rows = own.combine_chunks().rename_columns(names)
        stretches = [(start, end) for start, end in pairwise(ends.tolist()) if end > start]
        self.rows: Iterator[pa.Table] = (rows.slice(start, end - start) for start, end in stretches)
        self.timed: Iterator[tuple[pa.Table, Any]] | None = None
        if timed:
            times = table.column("_time").to_numpy()
            starts = [start for start, _ in stretches]
            latest = np.maximum.reduceat(times, starts) if starts else times
            self.timed = zip(self.rows, latest.astype("datetime64[us]").tolist(), strict=True)
        # If rows are marked by LATE, the least time in each table that is not late, None if all are.
        self.on_time: Iterator[dt.datetime | None] | None = None
        if marked:
            late, none = table.column(LATE.name).to_numpy(zero_copy_only=False), np.iinfo(np.int64).max
            first = np.minimum.reduceat(np.where(late, none, times), starts) if starts else times
            self.on_time = (None if micros == none else event_datetime(micros) for micros in first.tolist())
