"""Which windows rows belong to, and when those are over: the part of an operator over windows that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.types import time_literal
from sqlstream.operators.groups import Grouping, Made
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import NO_TIME, Duration, EventTime

# The table whose rows say which windows there are.
PARTIALS = "partials"
START = "_window_start"
# The stored time: once the watermark reaches it, a row is not needed any more.
END = "_window_end"
# How many input rows a partial row stands for: lateness is counted in rows.
ROWS = "_rows"
# What to write behind FROM, by table.
Relations = Mapping[str, str]


# Reads columns of a segment that is not part of the state yet.
Read = Callable[[Segment, list[str]], pa.Table]


def window_time(end: str) -> str:
    """Return the SQL of the event time that a window's result has, from that of the window's end, a TIMESTAMP.

    As in Flink it is 1 ms before the end. But the watermark is whole milliseconds, and may have reached the one in which a window
    ends before it closes: where that is no whole one, what is above takes no time before it, and has the last microsecond.
    """
    whole = f"epoch_us({end}) % 1000 = 0"
    return f"{end} - CASE WHEN {whole} THEN INTERVAL 1 MILLISECOND ELSE INTERVAL 1 MICROSECOND END"


class WindowSpan(NamedTuple):
    """The windows to close: those that end after `closed` (None: all), up to the watermark."""

    closed: EventTime | None
    watermark: EventTime


@dataclass(frozen=True, slots=True)
class Due:
    """Relations of the rows whose windows close, each with its window's bounds, and of rows that are to be stored again."""

    closed: Relations
    again: Relations = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Relations of the rows that are to be stored after windows have closed, and of those that came too late."""

    rows: Relations
    late: str | None = None


@dataclass(slots=True)
class Arrival:
    """Rows of a batch at a watermark: those to add before windows close, those to add after, and what came too late."""

    before: pa.Table
    after: pa.Table | None = None
    late_rows: int = 0
    missed_windows: int = 0


class WindowAssigner(Grouping, Protocol):
    """How rows are stored between a scan and the close of their windows.

    `columns` are stored behind the keys, with the SQL that makes them from input rows; a fragment groups by `group_by` over
    `source`. `bounds` are the columns that tell windows apart once `due` or `open` has put rows into windows; `start` is the
    SQL of a window's start over them. The hash of `meeting` picks the bucket of rows without a key. Rows whose stored time is
    beyond `reach` are not needed to close windows (None: all may be). `count` selects how many open windows rows are in.
    Before the watermark reaches the column `may_be_late` a row is not late; `late` are those of some rows that are, once `admit`
    has seen what came with them.
    """

    @property
    def meeting(self) -> tuple[str, ...]: ...

    @property
    def may_be_late(self) -> str: ...

    def late(self, rows: str, keys: Sequence[str], watermark: EventTime) -> str: ...

    def reach(self, watermark: EventTime) -> EventTime | None: ...

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool: ...

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival: ...

    def due(
        self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan
    ) -> Due | None: ...

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: EventTime,
    ) -> Admitted: ...

    def open(self, relations: Relations, keys: Sequence[str], watermark: str) -> Relations: ...

    def count(self, rows: str, keys: Sequence[str], watermark: str) -> str: ...

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None: ...


class FixedWindows(WindowAssigner, Protocol):
    """Windows that lie where they lie, whatever rows come.

    A row is in windows that end at most `spread_over` apart. `ending` are rows as rows of those windows that end
    after one time and by another, `among` of those that are in the table `windows`, by their keys and bounds.
    """

    @property
    def spread_over(self) -> Duration: ...

    def ending(self, rows: str, after: EventTime | None, to: EventTime | None) -> str: ...

    def among(self, rows: str, windows: str, keys: Sequence[str]) -> str: ...


@dataclass(frozen=True)
class AssignedWindows:
    """Every row is in one window, whose end is a column; the start too, unless all windows have one size."""

    end: str
    size: Duration | None
    start_column: str | None = None

    @property
    def columns(self) -> Made:
        start = () if self.size is not None else ((Column(START, "TIMESTAMP"), str(self.start_column)),)
        return (*start, (Column(END, "TIMESTAMP"), self.end))

    @property
    def value_columns(self) -> Made:
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

    def late(self, rows: str, keys: Sequence[str], watermark: EventTime) -> str:
        return f"(SELECT * FROM {rows} WHERE {ended(watermark)})"

    def reach(self, watermark: EventTime) -> EventTime:
        return watermark

    def source(self, keys: Sequence[str]) -> str:
        return "_rows"

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        return segment.low is not None and segment.low > watermark

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        late = pc.less_equal(rows.column(END).cast(pa.int64()), watermark)
        if not pc.any(late).as_py():
            return Arrival(rows)
        return Arrival(rows.filter(pc.invert(late)), late_rows=int(weights(rows.filter(late)).sum()))

    def due(self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan) -> Due:
        return Due(relations)

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: EventTime,
    ) -> Admitted:
        return Admitted(after)

    def open(self, relations: Relations, keys: Sequence[str], watermark: str) -> Relations:
        return relations

    def count(self, rows: str, keys: Sequence[str], watermark: str) -> str:
        return f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(self.bounds)} FROM {rows})"

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        return earliest

    @property
    def spread_over(self) -> Duration:
        return NO_TIME

    def ending(self, rows: str, after: EventTime | None, to: EventTime | None) -> str:
        return f"(SELECT * FROM {rows} WHERE {between(after, to)})"

    def among(self, rows: str, windows: str, keys: Sequence[str]) -> str:
        same = same_columns("_row_", "_in_", (*keys, *self.bounds))
        return f"(SELECT * FROM {rows} _row_ SEMI JOIN {windows} _in_ ON {same})"


def ended(watermark: EventTime) -> str:
    """Return the condition that the stored time of a row lies at the watermark or before."""
    return f"{END} <= {time_literal(watermark, 'TIMESTAMP')}"


def between(after: EventTime | None, to: EventTime | None, column: str = END) -> str:
    """Return the condition that a window ends after one time, and by another."""
    bounds = [] if after is None else [f"{column} > {time_literal(after, 'TIMESTAMP')}"]
    bounds += [] if to is None else [f"{column} <= {time_literal(to, 'TIMESTAMP')}"]
    return " AND ".join(bounds) or "true"


def same_columns(left: str, right: str, names: Iterable[str]) -> str:
    """Return the condition that rows of two relations agree in some columns, at least one."""
    return " AND ".join(f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in names)


def weights(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many input rows each stored row stands for; of rows with weights, how many changes."""
    if WEIGHT in rows.column_names:
        changes: np.ndarray[tuple[int], np.dtype[np.int64]] = np.abs(rows.column(WEIGHT).to_numpy())
        return changes
    if ROWS not in rows.column_names:
        return np.ones(rows.num_rows, np.int64)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = rows.column(ROWS).to_numpy()
    return found
