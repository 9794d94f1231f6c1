"""A batch of an operator over windows: what it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import no_rows
from sqlstream.duck.types import encoded
from sqlstream.operators.operator import Clock
from sqlstream.operators.windows.assigners import Relations
from sqlstream.operators.windows.retention import Retention
from sqlstream.storage.bucket import Bucket
from sqlstream.units import EventTime
from sqlstream.warehouse.declarations import TableDeclaration


@dataclass(frozen=True)
class WindowBatch:
    """The connection for temporary tables, the stored tables by name, and the time.

    Those of `row_tables` hold rows of windows as they arrive. Windows that end by `closed` are closed.
    """

    con: duckdb.DuckDBPyConnection
    state: Bucket
    clock: Clock
    tables: Mapping[str, TableDeclaration]
    row_tables: tuple[str, ...]
    retention: Retention

    @property
    def closed(self) -> EventTime | None:
        return self.retention.closed(self.clock.watermark)

    def relation(self, table: str, up_to: EventTime | None = None) -> str:
        """Return the stored rows of a table, to go behind FROM."""
        return self.state.relation(table, up_to=up_to) or empty_relation(self.tables[table])

    def rows(self, up_to: EventTime | None = None) -> dict[str, str]:
        """Return the stored rows of windows by table, to go behind FROM; those up to a stored time are there for certain."""
        return {table: self.relation(table, up_to) for table in self.row_tables}

    def store(self, rows: Relations) -> dict[str, pa.Table]:
        """Add rows, which are given by table and go behind FROM, and return them as they are stored."""
        stored = {
            name: self.con.sql(encoded(table.columns, self.retention.stored(table, rows[name]))).to_arrow_table()
            for name, table in self.tables.items()
            if name in rows
        }
        for name, made in stored.items():
            self.state.append(name, made, self.clock.batch)
        return stored

    def forget(self, watermark: EventTime) -> EventTime | None:
        """Forget what the watermark has passed, and return the least stored time that is left."""
        times = [self.state.forget(self.con, table, watermark) for table in self.tables]
        return min((t for t in times if t is not None), default=None)

    def least(self, value: str, rows: str) -> int | None:
        """Return the least value among rows, which go behind FROM."""
        [(least,)] = self.con.execute(f"SELECT min({value}) FROM {rows}").fetchall()
        return None if least is None else int(least)


def empty_relation(table: TableDeclaration) -> str:
    """Return a FROM-able relation with the table's columns and no rows."""
    return f"({no_rows(table.columns)})"
