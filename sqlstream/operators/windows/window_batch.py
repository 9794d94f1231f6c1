"""One batch of a window operator: its reads and writes of state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import Condition, Relation, Relations, no_rows, subquery
from sqlstream.duck.types import encoded
from sqlstream.operators.operator import StepTimes
from sqlstream.operators.windows.retention import Retention
from sqlstream.storage.bucket import Bucket
from sqlstream.units import EventTime
from sqlstream.warehouse.declarations import TableDeclaration


@dataclass(frozen=True)
class WindowBatch:
    """A batch: the connection for temporary tables, the bucket, the time, and the declared tables by name.

    `row_tables` are the tables that store rows of windows as they arrive.
    """

    con: duckdb.DuckDBPyConnection
    state: Bucket
    times: StepTimes
    tables: Mapping[str, TableDeclaration]
    row_tables: tuple[str, ...]
    retention: Retention

    @property
    def closed(self) -> EventTime | None:
        """The time up to which windows are closed, None before the first watermark."""
        return self.retention.closed(self.times.watermark)

    def relation(self, table: str, up_to: EventTime | None = None) -> Relation:
        """Return a table's stored rows, with a time of at most `up_to` if set; without rows an empty relation."""
        return self.state.relation(table, up_to=up_to) or empty_relation(self.tables[table])

    def rows(self, up_to: EventTime | None = None) -> dict[str, Relation]:
        """Return the `relation` of each row table, by name."""
        return {table: self.relation(table, up_to) for table in self.row_tables}

    def store(self, rows: Relations) -> dict[str, pa.Table]:
        """Append rows to the state, by table. Return them by table, as they are stored."""
        stored = {
            name: self.con.sql(encoded(table.columns, self.retention.stored(table, rows[name]))).to_arrow_table()
            for name, table in self.tables.items()
            if name in rows
        }
        for name, new_rows in stored.items():
            self.state.append(name, new_rows, self.times.batch)
        return stored

    def forget(self, watermark: EventTime) -> EventTime | None:
        """Forget rows whose stored time the watermark has reached; return the least remaining stored time, None without rows."""
        times = [self.state.forget(self.con, table, watermark) for table in self.tables]
        return min((t for t in times if t is not None), default=None)

    def least(self, value: str, rows: Relation, condition: Condition | None = None) -> int | None:
        """Return the least value of an integer SQL expression over the rows that meet a condition, None without rows."""
        where = f" WHERE {condition}" if condition is not None else ""
        [(least,)] = self.con.execute(f"SELECT min({value}) FROM {rows}{where}").fetchall()
        return None if least is None else int(least)


def empty_relation(table: TableDeclaration) -> Relation:
    """Return a relation with the table's columns and no rows."""
    return subquery(no_rows(table.columns))
