"""The rows of a batch on the driver, as sinks outside of the warehouse write them: appended, or as net changes per key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlstream.catalog import Column
from sqlstream.duck import databases
from sqlstream.duck.sql import (
    Condition,
    Items,
    Relation,
    Select,
    names,
    quote_name,
    quote_text,
    rows_where,
    same_columns,
    subquery,
    typed,
)
from sqlstream.storage.zsets import WEIGHT, summed

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# The number of a row in its file, from 0 on, as DuckDB calls it.
ROW_NUMBER = "file_row_number"


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows that a job writes into a table in one batch, in Parquet files.

    `paths` are the files, as DuckDB takes them. If the batch `is_changing`, rows have a WEIGHT (+1 added, -1 removed). `key` has
    the names of the PRIMARY KEY, if rows are upserted by it. With `order`, all rows are upserts, and the last row of a key
    counts: `order` are columns in the files, behind `columns`, whose greatest values belong to the last row. `part` is a
    condition that limits the batch to some of its rows; if it `is_numbered`, the condition may use ROW_NUMBER.

    Methods return SQL for a `connection()`.
    """

    number: int
    columns: tuple[Column, ...]
    paths: tuple[str, ...]
    is_changing: bool = False
    key: tuple[str, ...] = ()
    order: tuple[Column, ...] = ()
    part: str = ""
    is_numbered: bool = False

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Connect to a database that can read the files."""
        with databases.passing() as con:
            yield con

    def rows(self) -> Select:
        """Return the rows of an append-only batch, with their declared types."""
        return Select(f"SELECT {typed(self.columns)} FROM {self._files}")

    def changes(self) -> Select:
        """Return the net changes: `columns` and WEIGHT, the sum of the weights of equal rows."""
        if not self.is_changing:
            return Select(f"SELECT {typed(self.columns)}, CAST(1 AS BIGINT) AS {WEIGHT} FROM {self._files}")
        weighed = Relation(f"(SELECT {typed(self.columns)}, {WEIGHT} FROM {self._files})")
        return summed(self.columns, weighed)

    def upserts(self) -> Select:
        """Return the rows to upsert: the new row of each key that has a row after the batch."""
        if not self.is_changing:
            return self.rows()
        if self.order:
            last = f"row_number() OVER (PARTITION BY {self._key} ORDER BY {self._newest_first}) = 1"
            return Select(f"SELECT {typed(self.columns)} FROM {self._files} QUALIFY {last}")
        return Select(f"SELECT {names(self.columns)} FROM ({self.changes()}) WHERE {WEIGHT} > 0")

    def deletes(self) -> Select:
        """Return the keys to delete: the ones that have lost their row, and have no new one."""
        if not self.is_changing or self.order:
            return Select(f"SELECT {self._key} FROM ({self.rows()}) WHERE false")
        return self.gone(subquery(self.changes()))

    def gone(self, changes: Relation) -> Select:
        """Return the keys to delete, like `deletes`, from the rows of `changes()`."""
        return Select(f"SELECT {self._key} FROM {changes} GROUP BY {self._key} HAVING max({WEIGHT}) < 0")

    def updated(self, changes: Relation) -> Select:
        """Return updated rows, whose key also loses a row, from the rows of `changes()`."""
        return self._added("SEMI", changes)

    def inserted(self, changes: Relation) -> Select:
        """Return inserted rows, whose key loses no row, from the rows of `changes()`."""
        return self._added("ANTI", changes)

    def _added(self, join: str, changes: Relation) -> Select:
        rows = f"(FROM {changes} WHERE {WEIGHT} > 0) _row {join} JOIN (FROM {changes} WHERE {WEIGHT} < 0) _taken"
        same = same_columns("_row", "_taken", map(quote_name, self.key))
        return Select(f"SELECT {names(self.columns)} FROM {rows} ON {same}")

    def table(self, sql: Select) -> pa.Table:
        """Run one of these queries, and return its rows."""
        with self.connection() as con:
            return con.sql(sql).to_arrow_table()

    @property
    def _files(self) -> Relation:
        listed = ", ".join(map(quote_text, self.paths))
        numbered = f", {ROW_NUMBER} = true" if self.part and self.is_numbered else ""
        files = Relation(f"read_parquet([{listed}]{numbered})")
        return rows_where(files, Condition(self.part)) if self.part else files

    @property
    def _key(self) -> Items:
        return names([column for column in self.columns if column.name in self.key])

    @property
    def _newest_first(self) -> str:
        return ", ".join(f"{column.name} DESC" for column in self.order)
