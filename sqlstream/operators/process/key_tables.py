"""A batch of a vectorized function: its code gets the rows of a key as one Arrow table, and gives tables."""

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

# The event time of an emitted row, where the function gives one.
EVENT_TIME = Column(ROWTIME, "TIMESTAMP")


class KeyTablesRun(BatchRun):
    """One batch of one bucket. What is emitted are tables, and each counts as one."""

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
    """The tables of the output: each has an end, a key and a time, as a row has."""

    def __init__(self, result: ResultShape, timed: bool, watermark: EventTime | None):
        super().__init__(result, timed)
        columns = tuple(Column(name, type) for name, type, _ in result.fields)
        self.columns = TableShape(columns, EVENT_TIME if timed else None)
        # What is emitted now for a time before this is late; and those of the stretches.
        self.late_before = NEVER if watermark is None else watermark
        self.limits: list[EventTime] = []

    def mark(self, number: int, time: Any, *, late: bool) -> int:
        self.limits.append(self.late_before)
        return super().mark(number, time, late=late)

    def taken(self, keys: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        """Return the rows of the tables, and forget them. Raises Misfit, its place being the number of the key."""
        rows = self._fitted()
        sizes = np.cumsum([0, *(table.num_rows for table in self.rows)])
        # How many rows each stretch has: its tables' together.
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
    """Return the event times of rows, and whether they are late: their own, else those for which they were emitted."""
    own = pc.coalesce(given, times)
    # What a timer emits for its time is in time, though the watermark has passed it.
    is_behind = pc.less(own.cast(pa.int64()), limits)
    return {ROWTIME: own, LATE_RESULT.name: pc.and_(is_behind, pc.or_(late, pc.less(own, times)))}


class _Tables:
    """The rows of an input, a table for each key that has some, and the latest of their times."""

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
        # The first time of each table that is not late, None where all are, if their times do not tell.
        self.on_time: Iterator[dt.datetime | None] | None = None
        if marked:
            late, none = table.column(LATE.name).to_numpy(zero_copy_only=False), np.iinfo(np.int64).max
            first = np.minimum.reduceat(np.where(late, none, times), starts) if starts else times
            self.on_time = (None if micros == none else event_datetime(micros) for micros in first.tolist())
