"""A batch of a vectorized function: its code gets the rows of a key as one Arrow table, and gives tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.clock import NEVER
from sqlstream.duck.internal_columns import internal
from sqlstream.functions.process.context import Timer
from sqlstream.functions.process.vectors import TableShape
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.operators.process.arrivals import NUMBER
from sqlstream.operators.process.runs import BatchRun

# The event time of an emitted row, where the function gives one.
EVENT_TIME = Column(ROWTIME, "TIMESTAMP")
_TIME = pa.timestamp("us")


class KeyTablesRun(BatchRun):
    """One batch of one bucket. What is emitted are tables, and each counts as one."""

    most = 1_000

    def _inputs(self) -> list[Any]:
        return [
            _Tables(self.arrivals.rows(i), [c.name for c, _ in one.columns], self.count, self.timed)
            for i, one in enumerate(self.arrivals.inputs)
        ]

    def _raised(self, error: BaseException, method: Any, row: Any) -> Exception:
        # A table is too long to be shown.
        return super()._raised(error, method, row if isinstance(row, Timer) else None)

    def _flushed(self) -> pa.RecordBatch:
        """Return the rows of the tables that were emitted since the last time."""
        shape = TableShape(self.function.outputs, EVENT_TIME if self.timed else None)
        with self._placed():
            rows = shape.fitted(self.emitted, "emitted")
        sizes = np.cumsum([0, *(table.num_rows for table in self.emitted)])
        # How many rows each stretch has: its tables' together.
        lengths = np.diff(sizes[[0, *self.ends]])
        columns: dict[str, Any] = {}
        if self.keys:
            of_keys = self.touched.take(pa.array(np.repeat(np.array(self.numbers, dtype=np.int64), lengths)))
            columns = {c.name: of_keys.column(f"k{i}") for i, c in enumerate(self.keys)}
        columns |= {c.name: rows.column(c.name) for c in self.function.outputs}
        if self.timed:
            stretches = pa.array(np.repeat(np.arange(len(self.times)), lengths))
            columns |= self._timed(
                rows.column(ROWTIME), pa.array(self.times, _TIME).take(stretches), pa.array(self.late).take(stretches)
            )
        for one in (self.emitted, self.ends, self.numbers, self.times, self.late):
            one.clear()
        table = pa.table(columns)
        # Tables without rows are no batch.
        return next(iter(table.combine_chunks().to_batches()), pa.RecordBatch.from_pylist([], table.schema))

    def _timed(self, given: pa.ChunkedArray, times: pa.Array, late: pa.Array) -> dict[str, Any]:
        """Return the event times of rows, and whether they are late: their own, else those for which they were emitted."""
        own = pc.coalesce(given, times)
        # What a timer emits for its time is in time, though the watermark has passed it.
        watermark = pa.scalar(NEVER if self.clock.watermark is None else self.clock.watermark, pa.int64())
        is_behind = pc.less_equal(own.cast(pa.int64()), watermark)
        return {ROWTIME: own, internal("late"): pc.and_(is_behind, pc.or_(late, pc.less(own, times)))}


class _Tables:
    """The rows of an input, a table for each key that has some, and the latest of their times."""

    def __init__(self, table: pa.Table, names: list[str], count: int, timed: bool):
        numbers = table.column(NUMBER).to_numpy()
        ends = np.searchsorted(numbers, np.arange(count + 1))
        # A key that has rows has one table.
        self.sizes: list[int] = (np.diff(ends) > 0).astype(int).tolist()
        rows = table.drop_columns([NUMBER, "_time"] if timed else [NUMBER]).combine_chunks().rename_columns(names)
        stretches = [(start, end) for start, end in pairwise(ends.tolist()) if end > start]
        self.rows: Iterator[pa.Table] = (rows.slice(start, end - start) for start, end in stretches)
        self.times: Iterator[Any] | None = None
        if timed:
            times = table.column("_time").to_numpy()
            starts = [start for start, _ in stretches]
            latest = np.maximum.reduceat(times, starts) if starts else times
            self.times = iter(latest.astype("datetime64[us]").tolist())
