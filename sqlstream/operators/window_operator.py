"""What all operators over windows share: rows are stored until the watermark closes their windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.operators.groups import Groups
from sqlstream.operators.step import Clock, Port
from sqlstream.operators.windowing import PARTIALS, Span, Windowing, weights
from sqlstream.storage.manifests import TableDeclaration
from sqlstream.storage.segments import Segment, encoded, quote_name
from sqlstream.storage.tables import Bucket

BATCH_ROWS = 100_000
# Before any event time: nothing is forgotten, no window is closed.
NEVER = -(2**62)


class WindowOperator(Groups, ABC):
    """An operator that emits a result per key and window when the watermark passes the window's end, then forgets it.

    `keys` are columns with the SQL that makes them from input rows. The first of `tables`, the partials, says by its rows which
    windows there are. `result` is the SELECT of the result over rows that are in windows.
    """

    windows: Windowing

    @property
    @abstractmethod
    def kind(self) -> str: ...

    @property
    @abstractmethod
    def tables(self) -> tuple[TableDeclaration, ...]: ...

    @property
    @abstractmethod
    def parts(self) -> dict[str, str]: ...

    @property
    @abstractmethod
    def outputs(self) -> tuple[Column, ...]: ...

    @abstractmethod
    def result(self, relations: Mapping[str, str]) -> str: ...

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        """The columns whose hash picks the bucket: without a key, all rows of a window must meet."""
        return self.key_names or self.windows.meeting

    def current(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the current result over the state tables, given as FROM-able SQL by name."""
        return self.result(self.windows.open(relations, self.key_names))

    def count(self, partials: str) -> str:
        """Return the SELECT of how many windows are open: windows that keys share are one, sessions are each key's own."""
        return self.windows.count(partials, self.key_names)

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Iterable[tuple[Port, pa.Table | Segment]],
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch, then emit and forget every window that the watermark has closed.

        Rows behind the watermark that are not late are added last: windows close without them, as they would have if an empty
        batch had come before.
        """
        after: dict[str, list[pa.Table]] = {t.name: [] for t in self.tables}
        for port, rows in inputs:
            if port.on_time or clock.watermark is None:
                self._add(state, port.part, rows, clock.batch)
            elif not isinstance(rows, Segment):
                self._arrive(state, port.part, rows, after, clock)
            elif self.windows.is_early(rows, state.read, clock.watermark):
                self._add(state, port.part, rows, clock.batch)
            else:
                self._arrive(state, port.part, state.read(rows), after, clock)
        if clock.watermark is not None:
            yield from self._fire(con, state, clock.watermark, clock.batch)
            self._forget(con, state, clock.watermark)
            if any(after.values()):
                self._admit(con, state, after, clock.watermark, clock.batch)
        earliest = self._forget(con, state, NEVER if clock.watermark is None else clock.watermark)
        state.wake_at = self.windows.next_time(earliest, clock.watermark)

    @staticmethod
    def _add(state: Bucket, part: str, rows: pa.Table | Segment, batch: int) -> None:
        if isinstance(rows, Segment):
            state.adopt(part, [rows])
        else:
            state.append(part, rows, batch)

    def _arrive(self, state: Bucket, part: str, rows: pa.Table, after: dict[str, list[pa.Table]], clock: Clock) -> None:
        if rows.num_rows == 0 or clock.watermark is None:
            return
        arrival = self.windows.arrive(rows, clock.watermark)
        state.append(part, arrival.before, clock.batch)
        if arrival.after is not None and arrival.after.num_rows:
            after[part].append(arrival.after)
        # Lateness is counted in rows of the input, and once for all parts.
        if part == PARTIALS:
            state.count("late_rows", arrival.late_rows)
            state.count("missed_windows", arrival.missed_windows)

    def _forget(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: int) -> int | None:
        return min(
            (t for table in self.tables if (t := state.forget(con, table.name, watermark)) is not None), default=None
        )

    def _relations(self, state: Bucket, up_to: int | None = None) -> dict[str, str]:
        return {t.name: state.relation(t.name, up_to=up_to) or empty_relation(t) for t in self.tables}

    def _fire(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: int, batch: int
    ) -> Iterator[pa.RecordBatch]:
        reach = self.windows.reach(watermark)
        if state.relation(PARTIALS, up_to=reach) is None:
            return
        due = self.windows.due(con, self._relations(state, reach), self.key_names, Span(state.closed, watermark))
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
        watermark: int,
        batch: int,
    ) -> None:
        """Add rows that came when windows which they could be in had closed."""
        relations = {}
        for table in self.tables:
            if not after[table.name]:
                relations[table.name] = empty_relation(table)
                continue
            con.register(f"_after_{table.name}", pa.concat_tables(after[table.name], promote_options="permissive"))
            columns = ", ".join(
                f"CAST({quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in table.columns
            )
            relations[table.name] = f"(SELECT {columns} FROM _after_{table.name})"
        admitted = self.windows.admit(con, self._relations(state), relations, self.key_names, watermark)
        if admitted.late is not None:
            state.count("late_rows", int(weights(con.sql(f"FROM {admitted.late}").to_arrow_table()).sum()))
        self._store(con, state, admitted.rows, batch)

    def _store(self, con: duckdb.DuckDBPyConnection, state: Bucket, rows: Mapping[str, str], batch: int) -> None:
        found = {t: con.sql(encoded(t.columns, rows[t.name])).to_arrow_table() for t in self.tables if t.name in rows}
        for table, stored in found.items():
            state.append(table.name, stored, batch)


def empty_relation(table: TableDeclaration) -> str:
    """Return a FROM-able relation with the table's columns and no rows."""
    columns = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in table.columns)
    return f"(SELECT {columns} WHERE false)"
