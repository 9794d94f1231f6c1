"""Which windows the stored rows of a window aggregate belong to: one that is given, or all that share a slice."""

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
from sqlstream.operators.groups import Grouping
from sqlstream.operators.windows.grid import Grid
from sqlstream.state.segments import Segment
from sqlstream.state.zsets import WEIGHT
from sqlstream.units import END_OF_INPUT, Duration, EventTime

# The table whose rows say which windows there are.
PARTIALS = "partials"
START = "_window_start"
# The stored time: once the watermark reaches it, a row is not needed any more.
END = "_window_end"
SLICE = "_slice_end"
# How many input rows a partial row stands for: lateness is counted in rows.
ROWS = "_rows"
# So many windows at once are looked for one by one.
FEW_WINDOWS = 16
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
    """

    @property
    def meeting(self) -> tuple[str, ...]: ...

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


@dataclass(frozen=True)
class AssignedWindows:
    """Every row is in one window, whose end is a column; the start too, unless all windows have one size."""

    end: str
    size: Duration | None
    start_column: str | None = None

    @property
    def columns(self) -> tuple[tuple[Column, str], ...]:
        start = () if self.size is not None else ((Column(START, "TIMESTAMP"), str(self.start_column)),)
        return (*start, (Column(END, "TIMESTAMP"), self.end))

    @property
    def value_columns(self) -> tuple[tuple[Column, str], ...]:
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


@dataclass(frozen=True)
class SlicedWindows:
    """Rows are stored per slice; a window is made of its slices when it closes, so a row is aggregated once.

    `time` is the DuckDB expression of a row's event time. A slice is forgotten with the last window that holds it. A row is late
    when that window has closed; when only earlier ones have, it counts in those that are open.
    """

    time: str
    grid: Grid
    columns: tuple[tuple[Column, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        end = self.grid.slice_end(f"epoch_us({self.time})")
        last = f"make_timestamp({self.grid.last_end_sql(end)})"
        object.__setattr__(self, "columns", ((Column(SLICE, "BIGINT"), end), (Column(END, "TIMESTAMP"), last)))

    @property
    def value_columns(self) -> tuple[tuple[Column, str], ...]:
        return self.columns

    @property
    def group_by(self) -> tuple[str, ...]:
        return tuple(sql for _, sql in self.columns)

    @property
    def bounds(self) -> tuple[str, ...]:
        return (END,)

    @property
    def start(self) -> str:
        return f"make_timestamp({self.grid.start_sql(f'epoch_us({END})')})"

    @property
    def meeting(self) -> tuple[str, ...]:
        # Slices of one window must meet, and each is in several: all of them go to one bucket.
        return ()

    @property
    def mergeable(self) -> bool:
        return True

    def reach(self, watermark: EventTime) -> EventTime:
        return min(EventTime(watermark + self.grid.size), END_OF_INPUT)

    def source(self, keys: Sequence[str]) -> str:
        return "_rows"

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        slices = read(segment, [SLICE]).column(SLICE)
        return bool((self.grid.first_end(slices.to_numpy()) > watermark).all())

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        slices = rows.column(SLICE).to_numpy()
        first = self.grid.first_end(slices)
        if (first > watermark).all():
            return Arrival(rows)
        last = rows.column(END).cast(pa.int64()).to_numpy()
        late = last <= watermark
        after = (first <= watermark) & ~late
        missed = (watermark - first[after]) // self.grid.slide + 1
        return Arrival(
            rows.filter(pa.array(first > watermark)),
            rows.filter(pa.array(after)),
            int(weights(rows)[late].sum()),
            int(np.dot(missed, weights(rows)[after])),
        )

    def due(
        self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan
    ) -> Due | None:
        first = None if span.closed is None else self.grid.first_end(EventTime(span.closed + 1))
        if first is not None and first > span.watermark:
            return None
        if first is not None and (span.watermark - first) // self.grid.slide < FEW_WINDOWS:
            ends = [EventTime(end) for end in range(first, span.watermark + 1, self.grid.slide)]
            return Due({table: self._of_ends(rows, ends) for table, rows in relations.items()})
        return Due({table: self.spread(rows, first, str(span.watermark)) for table, rows in relations.items()})

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
        after = self.grid.first_end_sql(f"({watermark} + 1)")
        return {table: self.spread(rows, after, None) for table, rows in relations.items()}

    def count(self, rows: str, keys: Sequence[str], watermark: str) -> str:
        slices = f"(SELECT DISTINCT {SLICE}, {END} FROM {rows})"
        return f"SELECT count(DISTINCT {END}) FROM {self.open({PARTIALS: slices}, keys, watermark)[PARTIALS]}"

    def _of_ends(self, rows: str, ends: Iterable[EventTime]) -> str:
        """Return rows of slices as rows of some windows: for a few, to look for each one's costs half of what a spread does."""
        selects = [
            f"SELECT * EXCLUDE ({SLICE}, {END}), make_timestamp({end}) AS {END} FROM {rows} "
            f"WHERE {SLICE} > {self.grid.start(end)} AND {SLICE} <= {end}"
            for end in ends
        ]
        return f"({' UNION ALL '.join(selects)})"

    def spread(self, rows: str, from_end: EventTime | str | None, to_end: str | None) -> str:
        """Return rows of slices as rows of the windows whose ends lie in a range."""
        first, last = self.grid.first_end_sql(SLICE), f"epoch_us({END})"
        low = first if from_end is None else f"greatest({first}, {from_end})"
        high = last if to_end is None else f"least({last}, {to_end})"
        ends = f"unnest(generate_series({low}, {high}, {self.grid.slide}))"
        spread = f"SELECT * EXCLUDE ({SLICE}, {END}), {ends} AS _end FROM {rows}"
        return f"(SELECT * EXCLUDE (_end), make_timestamp(_end) AS {END} FROM ({spread}))"

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        if earliest is None:
            return None
        # No slice begins before the earliest end less the size.
        begin = earliest - self.grid.size + 1
        return self.grid.first_end(EventTime(begin if watermark is None else max(begin, watermark + 1)))


def ended(watermark: EventTime) -> str:
    """Return the condition that the stored time of a row lies at the watermark or before."""
    return f"{END} <= {time_literal(watermark, 'TIMESTAMP')}"


def weights(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many input rows each stored row stands for; of rows with weights, how many changes."""
    if WEIGHT in rows.column_names:
        changes: np.ndarray[tuple[int], np.dtype[np.int64]] = np.abs(rows.column(WEIGHT).to_numpy())
        return changes
    if ROWS not in rows.column_names:
        return np.ones(rows.num_rows, np.int64)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = rows.column(ROWS).to_numpy()
    return found
