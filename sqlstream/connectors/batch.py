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
    """The rows that a job writes into a table in one batch. Tasks have stored them in Parquet files.

    - `number`: the number of the batch.
    - `columns`: the columns of the table.
    - `paths`: the Parquet files, as DuckDB's `read_parquet` takes them.
    - `is_changing`: rows are changes, with a column WEIGHT: +1 adds the row, -1 removes it.
    - `key`: the names of the PRIMARY KEY, if the sink upserts by it.
    - `order`: extra columns of the files. If set, all rows are upserts, and of several rows with the same key the one with the
      greatest values in these columns wins.
    - `part`: a SQL condition that selects some of the rows, "" for all. It may use ROW_NUMBER if `is_numbered`.

    Methods return SELECTs; run them with a `connection()`.
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
        """Return the keys to delete: keys whose row the batch removes without adding a new one."""
        if not self.is_changing or self.order:
            return Select(f"SELECT {self._key} FROM ({self.rows()}) WHERE false")
        return self.gone(subquery(self.changes()))

    def gone(self, changes: Relation) -> Select:
        """Return the keys to delete, like `deletes`, computed from `changes`, a relation of the rows of `changes()`."""
        return Select(f"SELECT {self._key} FROM {changes} GROUP BY {self._key} HAVING max({WEIGHT}) < 0")

    def updated(self, changes: Relation) -> Select:
        """Return the new rows of updated keys, which also lose a row, computed from the rows of `changes()`."""
        return self._added("SEMI", changes)

    def inserted(self, changes: Relation) -> Select:
        """Return the rows of new keys, which lose no row, computed from the rows of `changes()`."""
        return self._added("ANTI", changes)

    def _added(self, join: str, changes: Relation) -> Select:
        rows = f"(FROM {changes} WHERE {WEIGHT} > 0) _row {join} JOIN (FROM {changes} WHERE {WEIGHT} < 0) _taken"
        same = same_columns("_row", "_taken", map(quote_name, self.key))
        return Select(f"SELECT {names(self.columns)} FROM {rows} ON {same}")

    def table(self, sql: Select) -> pa.Table:
        """Run one of these SELECTs, and return its rows as an Arrow table."""
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
