"""The `duckdb` sink: a transaction in a DuckDB file has the rows of a batch and its number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from sqlstream.catalog import Column
from sqlstream.connectors.relational.database_file import FileTransaction, FileWriter
from sqlstream.connectors.relational.dialect import DatabaseColumn, DatabaseTable, Dialect
from sqlstream.connectors.relational.writer import DatabaseSink
from sqlstream.duck.sql import Select, names, quote_name, typed

if TYPE_CHECKING:
    from sqlstream.connectors.batch import Batch

_ROWS = "_sqlstream_rows"
_CHUNK = 100_000
# By type: the other types that hold all its values.
_WIDER: dict[str, tuple[str, ...]] = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE"),
    "SMALLINT": ("INTEGER", "BIGINT", "HUGEINT", "DOUBLE"),
    "INTEGER": ("BIGINT", "HUGEINT", "DOUBLE"),
    "BIGINT": ("HUGEINT",),
    "FLOAT": ("DOUBLE",),
    "JSON": ("VARCHAR",),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


class DuckDB(Dialect):
    """DuckDB's dialect; values are sent as they are."""

    name = "DuckDB"
    # A MERGE finds rows without an index of the key, which costs more than it is worth here.
    needs_index = False

    def type(self, kind: str) -> str:
        return kind

    def fitting(self, kind: str) -> Sequence[str]:
        return (kind, *_WIDER.get(kind, ()))

    def fits(self, kind: str, column_type: str) -> bool:
        declared, there = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(column_type)
        if declared is not None and there is not None:
            digits, scale = int(declared[1]), int(declared[2])
            return int(there[2]) >= scale and int(there[1]) - int(there[2]) >= digits - scale
        return column_type in self.fitting(kind)

    def value(self, kind: str, sql: str) -> str:
        return sql

    def create(self, target: str, columns: Iterable[Column], key: Sequence[str]) -> str:
        """Return a CREATE TABLE without a PRIMARY KEY, which upserts do not need."""
        return super().create(target, columns, ())

    def upsert(self, target: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str:
        """Return a MERGE, which needs no index over the key."""
        quoted = [quote_name(c) for c in columns]
        same = " AND ".join(f"_old.{quote_name(k)} = _new.{quote_name(k)}" for k in key)
        sets = ", ".join(f"{quote_name(c)} = _new.{quote_name(c)}" for c in columns if c not in key)
        update = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
        values = ", ".join(f"_new.{c}" for c in quoted)
        insert = f"INSERT ({', '.join(quoted)}) VALUES ({values})"
        return f"MERGE INTO {target} AS _old USING ({rows}) AS _new ON {same}{update} WHEN NOT MATCHED THEN {insert}"


class DuckDBTransaction(FileTransaction):
    """A transaction in a DuckDB file. Rows are passed to DuckDB as Arrow streams."""

    def insert(self, batch: Batch) -> None:
        with self._stream(batch, batch.rows()):
            self.con.execute(f"INSERT INTO {self.target} ({names(batch.columns)}) {self._rows(batch.columns)}")

    def delete(self, batch: Batch, key: Sequence[Column]) -> None:
        same = " AND ".join(f"_row.{quote_name(c.name)} = _key.{quote_name(c.name)}" for c in key)
        with self._stream(batch, batch.deletes()):
            self.con.execute(f"DELETE FROM {self.target} AS _row USING ({self._rows(key)}) AS _key WHERE {same}")

    def upsert(self, batch: Batch, key: Sequence[Column]) -> None:
        columns, rows = [c.name for c in batch.columns], self._rows(batch.columns)
        with self._stream(batch, batch.upserts()):
            self.con.execute(_DIALECT.upsert(self.target, columns, [c.name for c in key], rows))

    def _rows(self, columns: Sequence[Column]) -> str:
        return f"SELECT {typed(columns)} FROM {_ROWS}"

    @contextmanager
    def _stream(self, batch: Batch, sql: Select) -> Iterator[None]:
        """Register the rows of a query with the connection of the file, as a stream that a statement can read once."""
        with batch.connection() as con:
            self.con.register(_ROWS, con.sql(sql).to_arrow_reader(_CHUNK))
            yield
            self.con.unregister(_ROWS)


_DIALECT = DuckDB()


class DuckDBWriter(FileWriter):
    """Writes the batches of a job into a table of a DuckDB file."""

    dialect = _DIALECT
    transaction_type = DuckDBTransaction
    # Another process, or a lookup of this one, has the file open.
    passing_errors = (duckdb.IOException, duckdb.ConnectionException, duckdb.TransactionException)
    refusals = (duckdb.Error,)

    def reason(self, error: Exception) -> str:
        # The further lines show the statement, which the user has not written.
        return str(error).split("\n")[0]

    def describe(self, con: Any, name: str) -> DatabaseTable | None:
        try:
            described = con.execute(f"DESCRIBE {self.dialect.qualified(name)}").fetchall()
        except duckdb.CatalogException:
            return None
        return DatabaseTable(
            tuple(
                DatabaseColumn(c, kind, null == "NO" and default is None) for c, kind, null, _, default, _ in described
            )
        )

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with duckdb.connect(self.path, config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            yield con


class DuckDBSink(DatabaseSink):
    """A table of a DuckDB file that a job writes."""

    writer_type = DuckDBWriter
