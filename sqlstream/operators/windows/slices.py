"""Overlapping windows, composed of slices that they share: each row is aggregated once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Select, all_of, rows_where, same_columns, subquery, union_all
from sqlstream.duck.time_variables import NEVER
from sqlstream.operators.groups import ROWS_OF_BATCH, ComputedColumns
from sqlstream.operators.windows.assigners import (
    END,
    PARTIALS,
    AdmittedRows,
    Arrival,
    DueRows,
    Read,
    WindowSpan,
    ended,
    weights,
)
from sqlstream.operators.windows.grid import Grid
from sqlstream.storage.segments import Segment
from sqlstream.units import END_OF_INPUT, Duration, EventTime

SLICE = "_slice_end"
# Up to this many windows are selected one by one.
FEW_WINDOWS = 16


@dataclass(frozen=True)
class SlicedWindows:
    """Rows are stored per slice. A window combines its slices when it closes, so each row is aggregated once.

    `time` is the SQL of a row's event time. A slice is forgotten with the last window that contains it. A row is late when that
    window has closed; when only earlier windows have closed, it counts in the open ones.
    """

    time: str
    grid: Grid
    columns: ComputedColumns = field(init=False)

    def __post_init__(self) -> None:
        end = self.grid.slice_end(f"epoch_us({self.time})")
        last = f"make_timestamp({self.grid.last_end_sql(end)})"
        object.__setattr__(self, "columns", ((Column(SLICE, "BIGINT"), end), (Column(END, "TIMESTAMP"), last)))

    @property
    def value_columns(self) -> ComputedColumns:
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

    @property
    def may_be_late(self) -> str:
        return END

    @property
    def admits_late(self) -> bool:
        return False

    def late(self, rows: Relation, keys: Sequence[str], watermark: EventTime) -> Relation:
        return rows_where(rows, ended(watermark))

    def reach(self, watermark: EventTime) -> EventTime:
        return min(EventTime(watermark + self.grid.size), END_OF_INPUT)

    def source(self, keys: Sequence[str]) -> Relation:
        return ROWS_OF_BATCH

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        slices = read(segment, [SLICE]).column(SLICE)
        return bool((self.grid.first_end(slices.to_numpy()) > watermark).all())

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        """Split slices: all of their windows are open (before), only later ones are (after), or none is (late)."""
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
    ) -> DueRows | None:
        first = None if span.closed is None else self.grid.first_end(EventTime(span.closed + 1))
        if first is not None and first > span.watermark:
            return None
        if first is not None and (span.watermark - first) // self.grid.slide < FEW_WINDOWS:
            ends = [EventTime(end) for end in range(first, span.watermark + 1, self.grid.slide)]
            return DueRows({table: self._of_ends(rows, ends) for table, rows in relations.items()})
        return DueRows({table: self.spread(rows, first, str(span.watermark)) for table, rows in relations.items()})

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
        after = self.grid.first_end_sql(f"({watermark} + 1)")
        return {table: self.spread(rows, after, None) for table, rows in relations.items()}

    def count(self, rows: Relation, keys: Sequence[str], watermark: str) -> Select:
        slices = Relation(f"(SELECT DISTINCT {SLICE}, {END} FROM {rows})")
        windows = self.open({PARTIALS: slices}, keys, watermark)[PARTIALS]
        return Select(f"SELECT count(DISTINCT {END}) FROM {windows}")

    def _of_ends(self, rows: Relation, ends: Iterable[EventTime]) -> Relation:
        """Return rows of slices as rows of the windows with some ends. For few windows it costs half of `spread`."""
        selects = (
            f"SELECT * EXCLUDE ({SLICE}, {END}), make_timestamp({end}) AS {END} FROM {rows} "
            f"WHERE {SLICE} > {self.grid.start(end)} AND {SLICE} <= {end}"
            for end in ends
        )
        return subquery(union_all(map(Select, selects)))

    def spread(self, rows: Relation, from_end: EventTime | str | None, to_end: str | None) -> Relation:
        """Return rows of slices as rows of their windows that end from `from_end` to `to_end`, both included.

        The ends are microseconds, as SQL; None sets no bound. `from_end` must be the end of a window.
        """
        first, last = self.grid.first_end_sql(SLICE), f"epoch_us({END})"
        low = first if from_end is None else f"greatest({first}, {from_end})"
        high = last if to_end is None else f"least({last}, {to_end})"
        ends = f"unnest(generate_series({low}, {high}, {self.grid.slide}))"
        spread = f"SELECT * EXCLUDE ({SLICE}, {END}), {ends} AS _end FROM {rows}"
        return Relation(f"(SELECT * EXCLUDE (_end), make_timestamp(_end) AS {END} FROM ({spread}))")

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        if earliest is None:
            return None
        # No slice begins before the earliest end less the size.
        begin = earliest - self.grid.size + 1
        return self.grid.first_end(EventTime(begin if watermark is None else max(begin, watermark + 1)))

    @property
    def spread_over(self) -> Duration:
        return self.grid.size

    def ending(self, rows: Relation, after: EventTime | None, to: EventTime | None) -> Relation:
        # At the end of input there is no later window, and no later number either.
        first = None if after is None else self.grid.first_end(EventTime(min(after, -NEVER) + 1))
        return self.spread(rows, first, None if to is None else str(to))

    def among(self, rows: Relation, windows: Relation, keys: Sequence[str]) -> Relation:
        start = self.grid.start_sql(f"epoch_us(_in_.{END})")
        same = [same_columns("_row_", "_in_", keys)] if keys else []
        on = all_of([*same, f"_row_.{SLICE} > {start}", f"_row_.{SLICE} <= epoch_us(_in_.{END})"])
        items = f"_row_.* EXCLUDE ({SLICE}, {END}), _in_.{END}"
        return Relation(f"(SELECT {items} FROM {rows} _row_ JOIN {windows} _in_ ON {on})")
