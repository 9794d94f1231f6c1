"""Window assigners: which windows rows are in, and when those windows close."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.sql import Condition, Relation, Relations, Select, all_of, rows_where, same_columns
from sqlstream.duck.types import time_literal
from sqlstream.operators.groups import ROWS_OF_BATCH, ComputedColumns, Grouping
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import NO_TIME, Duration, EventTime

# The table whose rows decide which windows exist.
PARTIALS = "partials"
START = "_window_start"
# The stored time: once the watermark reaches it, the row is no longer needed.
END = "_window_end"
# How many input rows a partial row aggregates: late rows are counted in input rows.
ROWS = "_rows"


# Reads columns of a segment that is not part of the state yet.
Read = Callable[[Segment, list[str]], pa.Table]


def window_time(end: str) -> str:
    """Return the SQL of the event time of a window's result; `end` is the SQL of the window's end, a TIMESTAMP.

    As in Flink, it is 1 ms before the end. Where the end is no whole millisecond, it is 1 us before the end: the watermark, in
    whole milliseconds, may pass the former while the window is open, and the operators above would drop the result as late.
    """
    whole = f"epoch_us({end}) % 1000 = 0"
    return f"{end} - CASE WHEN {whole} THEN INTERVAL 1 MILLISECOND ELSE INTERVAL 1 MICROSECOND END"


class WindowSpan(NamedTuple):
    """The windows to close: their end is after `closed` (None: no lower bound) and at most `watermark`."""

    closed: EventTime | None
    watermark: EventTime


@dataclass(frozen=True, slots=True)
class DueRows:
    """What is due when windows close, by table: `closed` are their rows with the windows' bounds, `again` rows to store again."""

    closed: Relations
    again: Relations = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdmittedRows:
    """Rows that arrived behind the watermark: `rows` to store after windows have closed, by table, and `late` partials."""

    rows: Relations
    late: Relation | None = None


@dataclass(slots=True)
class Arrival:
    """Arrived rows, split by the watermark: rows to add before windows close, and rows to add after.

    `late_rows` counts input rows whose windows have all closed. `missed_windows` counts, for each input row in `after`, its
    windows that have closed.
    """

    before: pa.Table
    after: pa.Table | None = None
    late_rows: int = 0
    missed_windows: int = 0


class WindowAssigner(Grouping, Protocol):
    """Assigns rows to windows: how they are stored until their windows close, and which windows a watermark closes.

    Throughout, `keys` are the stored key columns, and `relations` are stored rows by table.
    """

    @property
    def meeting(self) -> tuple[str, ...]:
        """The window columns whose hash picks the bucket if rows have no keys; if there are none, all rows are in one bucket."""
        ...

    @property
    def may_be_late(self) -> str:
        """The name of a TIMESTAMP column: a row can only be late once the watermark has reached its value there."""
        ...

    @property
    def admits_late(self) -> bool:
        """Whether `admit` decides which rows are late. Then a batch without rows behind the watermark has no late rows."""
        ...

    def late(self, rows: Relation, keys: Sequence[str], watermark: EventTime) -> Relation:
        """Return the rows whose windows have all closed. Sessions need `admit` of the same batch before."""
        ...

    def reach(self, watermark: EventTime) -> EventTime | None:
        """Return a stored time after which no row is in a window that `watermark` closes; None: such a row may have any time."""
        ...

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        """Return whether `watermark` closes no window of a segment's rows; the segment is not part of the state yet."""
        ...

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        """Split rows of one table that arrive while windows up to `watermark` close."""
        ...

    def due(
        self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan
    ) -> DueRows | None:
        """Return the rows of the windows in `span`, None if none closes. The relations may use temporary tables."""
        ...

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: EventTime,
    ) -> AdmittedRows:
        """Split the rows that arrived behind the watermark, `after`, into rows to store and late rows."""
        ...

    def open(self, relations: Relations, keys: Sequence[str], watermark: str) -> Relations:
        """Return stored rows as rows of open windows, with the columns `bounds`; `watermark` is SQL, in microseconds."""
        ...

    def count(self, rows: Relation, keys: Sequence[str], watermark: str) -> Select:
        """Return the number of open windows; `rows` are partials, `watermark` is SQL."""
        ...

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        """Return when the next window closes; `earliest` is the least stored time, None without rows."""
        ...


class FixedWindows(WindowAssigner, Protocol):
    """Windows whose bounds do not depend on rows: TUMBLE, HOP and CUMULATE."""

    @property
    def spread_over(self) -> Duration:
        """The greatest distance between the ends of two windows of one row."""
        ...

    def ending(self, rows: Relation, after: EventTime | None, to: EventTime | None) -> Relation:
        """Return rows as rows of their windows that end after `after`, at most at `to`; None sets no bound."""
        ...

    def among(self, rows: Relation, windows: Relation, keys: Sequence[str]) -> Relation:
        """Return rows as rows of their windows in the table `windows`, which has the keys and `bounds`."""
        ...


@dataclass(frozen=True)
class AssignedWindows:
    """Each row is in one window; `end` is the SQL of its end over input rows.

    The start is `size` before the end. Without `size`, it is stored as well, and `start_column` is its SQL.
    """

    end: str
    size: Duration | None
    start_column: str | None = None

    @property
    def columns(self) -> ComputedColumns:
        start = () if self.size is not None else ((Column(START, "TIMESTAMP"), str(self.start_column)),)
        return (*start, (Column(END, "TIMESTAMP"), self.end))

    @property
    def value_columns(self) -> ComputedColumns:
        return self.columns

    @property
    def group_by(self) -> tuple[str, ...]:
        return tuple(sql for _, sql in self.columns)

    @property
    def bounds(self) -> tuple[str, ...]:
        return tuple(c.name for c, _ in self.columns)

    @property
    def start(self) -> str:
        return START if self.size is None else f"{END} - to_microseconds({self.size})"

    @property
    def meeting(self) -> tuple[str, ...]:
        return (END,)

    @property
    def mergeable(self) -> bool:
        return True

    @property
    def may_be_late(self) -> str:
        return END

    @property
    def admits_late(self) -> bool:
        return False

    def late(self, rows: Relation, keys: Sequence[str], watermark: EventTime) -> Relation:
        return rows_where(rows, ended(watermark))

    def reach(self, watermark: EventTime) -> EventTime:
        return watermark

    def source(self, keys: Sequence[str]) -> Relation:
        return ROWS_OF_BATCH

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        return segment.low is not None and segment.low > watermark

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        late = pc.less_equal(rows.column(END).cast(pa.int64()), watermark)
        if not pc.any(late).as_py():
            return Arrival(rows)
        return Arrival(rows.filter(pc.invert(late)), late_rows=int(weights(rows.filter(late)).sum()))

    def due(
        self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan
    ) -> DueRows:
        return DueRows(relations)

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: EventTime,
    ) -> AdmittedRows:
        return AdmittedRows(after)

    def open(self, relations: Relations, keys: Sequence[str], watermark: str) -> Relations:
        return relations

    def count(self, rows: Relation, keys: Sequence[str], watermark: str) -> Select:
        return Select(f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(self.bounds)} FROM {rows})")

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        return earliest

    @property
    def spread_over(self) -> Duration:
        return NO_TIME

    def ending(self, rows: Relation, after: EventTime | None, to: EventTime | None) -> Relation:
        return rows_where(rows, between(after, to))

    def among(self, rows: Relation, windows: Relation, keys: Sequence[str]) -> Relation:
        same = same_columns("_row_", "_in_", (*keys, *self.bounds))
        return Relation(f"(SELECT * FROM {rows} _row_ SEMI JOIN {windows} _in_ ON {same})")


def ended(watermark: EventTime) -> Condition:
    """Return the condition that a row's stored time is at most the watermark."""
    return Condition(f"{END} <= {time_literal(watermark, 'TIMESTAMP')}")


def between(after: EventTime | None, to: EventTime | None, column: str = END) -> Condition:
    """Return the condition that a TIMESTAMP column is after `after`, and at most `to`; None sets no bound."""
    bounds = [] if after is None else [f"{column} > {time_literal(after, 'TIMESTAMP')}"]
    bounds += [] if to is None else [f"{column} <= {time_literal(to, 'TIMESTAMP')}"]
    return all_of(bounds)


def weights(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many input rows each stored row aggregates; for rows with weights, how many changes each stands for."""
    if WEIGHT in rows.column_names:
        changes: np.ndarray[tuple[int], np.dtype[np.int64]] = np.abs(rows.column(WEIGHT).to_numpy())
        return changes
    if ROWS not in rows.column_names:
        return np.ones(rows.num_rows, np.int64)
    counts: np.ndarray[tuple[int], np.dtype[np.int64]] = rows.column(ROWS).to_numpy()
    return counts
