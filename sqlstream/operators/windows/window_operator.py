"""What all operators over windows share: rows are stored until the watermark closes their windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import duckdb
import pyarrow as pa

from sqlstream.duck.clock import NEVER
from sqlstream.duck.sql import Rows, no_rows, typed
from sqlstream.duck.types import encoded, time_literal
from sqlstream.operators.groups import Groups
from sqlstream.operators.operator import Clock, Inputs, Operator
from sqlstream.operators.windows.assigners import PARTIALS, WindowAssigner, WindowSpan, weights
from sqlstream.operators.windows.late_rows import LATE, MARK, LateRows
from sqlstream.state.bucket import Bucket
from sqlstream.state.segments import Segment
from sqlstream.units import EventTime
from sqlstream.warehouse.declarations import TableDeclaration

BATCH_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Received:
    """Rows of a batch: by part those that came when windows which they could be in had closed; those to keep if they are late.

    And the partials that were added, where the operator asks for them: they may be many.
    """

    after: dict[str, list[pa.Table]]
    late: list[pa.Table] = field(default_factory=list)
    added: list[pa.Table | Segment] = field(default_factory=list)


class WindowOperator(Groups, Operator):
    """An operator that emits a result per key and window when the watermark passes the window's end, then forgets it.

    `keys` are columns with the SQL that makes them from input rows. The first of `tables`, the partials, says by its rows which
    windows there are. `result` is the SELECT of the result over rows that are in windows. `late` says what is kept of late rows.
    """

    windows: WindowAssigner
    late: LateRows | None

    @property
    @abstractmethod
    def row_tables(self) -> tuple[TableDeclaration, ...]:
        """The tables that hold rows as they arrive."""

    @property
    @abstractmethod
    def row_parts(self) -> dict[str, str]:
        """What the fragment before the exchange computes from `_rows`, in the form in which it is stored."""

    @property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return (*self.row_tables, *([self.late.table] if self.late else []))

    @property
    def parts(self) -> dict[str, str]:
        return {**self.row_parts, **({LATE: self.late.part(self)} if self.late else {})}

    @abstractmethod
    def result(self, relations: Mapping[str, str]) -> str: ...

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        """The columns whose hash picks the bucket: without a key, all rows of a window must meet."""
        return self.key_names or self.windows.meeting

    def current(self, relations: Mapping[str, str], watermark: str) -> str:
        """Return the SELECT of the current result over the state tables, given as FROM-able SQL by name."""
        return self.result(self.windows.open(relations, self.key_names, watermark))

    def open_windows(self, relations: Mapping[str, str], watermark: str) -> str:
        """Return the SELECT of how many windows are open: windows that keys share are one, sessions are each key's own."""
        return self.windows.count(relations[PARTIALS], self.key_names, watermark)

    def late_view(self, name: str) -> Rows | None:
        return self.late.view(name) if self.late else None

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch, then emit and forget every window that the watermark has closed.

        Rows behind the watermark that are not late are added last: windows close without them, as they would have if an empty
        batch had come before.
        """
        received = self._receive(state, inputs, clock)
        if clock.watermark is not None:
            yield from self._fire(con, state, clock.watermark, clock.batch)
            self._forget(con, state, clock.watermark)
            if any(received.after.values()):
                self._admit(con, state, received.after, clock.watermark, clock.batch)
            self._keep_late(con, state, received.late, clock.watermark, clock)
        earliest = self._forget(con, state, NEVER if clock.watermark is None else clock.watermark)
        state.event_timer = self.windows.next_time(earliest, clock.watermark)

    def _receive(self, state: Bucket, inputs: Inputs, clock: Clock) -> Received:
        """Add the rows of a batch that are in no window which the clock's watermark has closed."""
        received = Received({t.name: [] for t in self.row_tables})
        for port, rows in inputs:
            if port.part == LATE:
                received.late.append(state.read(rows) if isinstance(rows, Segment) else rows)
                continue
            early = port.on_time or clock.watermark is None
            if isinstance(rows, Segment):
                if early or self._is_early(rows, state, clock):
                    state.adopt(port.part, [rows])
                    self._note(received, port.part, rows)
                    continue
                rows = state.read(rows)
            if early:
                state.append(port.part, rows, clock.batch)
                self._note(received, port.part, rows)
            else:
                self._arrive(state, port.part, rows, received, clock)
        return received

    def _note(self, received: Received, part: str, rows: pa.Table | Segment) -> None:
        """Remember rows that were added, where that is of use."""

    def _is_early(self, segment: Segment, state: Bucket, clock: Clock) -> bool:
        return clock.watermark is None or self.windows.is_early(segment, state.read, clock.watermark)

    def _arrive(self, state: Bucket, part: str, rows: pa.Table, received: Received, clock: Clock) -> None:
        if rows.num_rows == 0 or clock.watermark is None:
            return
        arrival = self.windows.arrive(rows, clock.watermark)
        state.append(part, arrival.before, clock.batch)
        self._note(received, part, arrival.before)
        if arrival.after is not None and arrival.after.num_rows:
            received.after[part].append(arrival.after)
        # Lateness is counted in rows of the input, and once for all parts.
        if part == PARTIALS:
            self._count_late(state, arrival.late_rows)
            state.count("missed_windows", arrival.missed_windows)

    def _count_late(self, state: Bucket, rows: int) -> None:
        # Rows that are kept are counted one by one.
        if self.late is None:
            state.count(LATE, rows)

    def _keep_late(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        rows: Sequence[pa.Table],
        watermark: EventTime,
        clock: Clock,
    ) -> None:
        """Keep the rows that are late where windows are closed up to a watermark."""
        if self.late is None or not rows:
            return
        con.register("_may_be_late", pa.concat_tables(rows, promote_options="permissive"))
        given = f"(SELECT {typed(self.late.arriving(self))} FROM _may_be_late)"
        mark = f"{time_literal(clock.watermark or EventTime(0), 'TIMESTAMP')} AS {MARK.name}"
        found = f"(SELECT *, {mark} FROM {self.late.dropped(self, given, watermark)})"
        dropped = con.sql(encoded(self.late.table.columns, found)).to_arrow_table()
        state.append(LATE, dropped, clock.batch)
        state.count(LATE, dropped.num_rows)

    def _forget(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: EventTime) -> EventTime | None:
        return min(
            (t for table in self.tables if (t := state.forget(con, table.name, watermark)) is not None), default=None
        )

    def _relations(self, state: Bucket, up_to: EventTime | None = None) -> dict[str, str]:
        return {t.name: state.relation(t.name, up_to=up_to) or empty_relation(t) for t in self.row_tables}

    def _fire(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: EventTime, batch: int
    ) -> Iterator[pa.RecordBatch]:
        reach = self.windows.reach(watermark)
        if state.relation(PARTIALS, up_to=reach) is None:
            return
        due = self.windows.due(con, self._relations(state, reach), self.key_names, WindowSpan(state.closed, watermark))
        if due is None:
            return
        self._store(con, state, due.again, batch)
        sql = self.result(due.closed)
        yield from con.sql(encoded(self.outputs, f"({sql})")).to_arrow_reader(BATCH_ROWS)

    def _admit(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        after: Mapping[str, Sequence[pa.Table]],
        watermark: EventTime,
        batch: int,
    ) -> dict[str, pa.Table]:
        """Add rows that came when windows which they could be in had closed, and return those that count."""
        relations = {}
        for table in self.row_tables:
            if not after[table.name]:
                relations[table.name] = empty_relation(table)
                continue
            con.register(f"_after_{table.name}", pa.concat_tables(after[table.name], promote_options="permissive"))
            relations[table.name] = f"(SELECT {typed(table.columns)} FROM _after_{table.name})"
        admitted = self.windows.admit(con, self._relations(state), relations, self.key_names, watermark)
        if admitted.late is not None:
            self._count_late(state, int(weights(con.sql(f"FROM {admitted.late}").to_arrow_table()).sum()))
        return self._store(con, state, admitted.rows, batch)

    def _store(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, rows: Mapping[str, str], batch: int
    ) -> dict[str, pa.Table]:
        tables = [t for t in self.tables if t.name in rows]
        found = {t.name: con.sql(encoded(t.columns, rows[t.name])).to_arrow_table() for t in tables}
        for table, stored in found.items():
            state.append(table, stored, batch)
        return found


def empty_relation(table: TableDeclaration) -> str:
    """Return a FROM-able relation with the table's columns and no rows."""
    return f"({no_rows(table.columns)})"
