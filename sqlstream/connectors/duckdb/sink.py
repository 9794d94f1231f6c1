"""The `duckdb` sink: a transaction in a DuckDB file has the rows of a batch and its number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.guarantees import Delivery
from sqlstream.connectors.interface import DriverSink, SinkContext
from sqlstream.connectors.relational.check import check_columns, no_table
from sqlstream.connectors.relational.database_file import FileWriter
from sqlstream.connectors.relational.dialect import (
    Dialect,
    FoundColumn,
    FoundTable,
    last_batch,
    make_batches,
    qualified,
    set_last_batch,
)
from sqlstream.connectors.relational.writer import Transaction
from sqlstream.duck.sql import names, quote_name, typed
from sqlstream.errors import DataError

if TYPE_CHECKING:
    from sqlstream.connectors.batch import Batch

_ROWS = "_sqlstream_rows"
_CHUNK = 100_000
# Types that hold all values of others, beside HUGEINT for all whole numbers.
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
    """DuckDB's SQL; rows travel as they are."""

    name = "DuckDB"

    def type(self, kind: str) -> str:
        return kind

    def fitting(self, kind: str) -> Sequence[str]:
        return (kind, *_WIDER.get(kind, ()))

    def fits(self, kind: str, found: str) -> bool:
        declared, there = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(found)
        if declared is not None and there is not None:
            digits, scale = int(declared[1]), int(declared[2])
            return int(there[2]) >= scale and int(there[1]) - int(there[2]) >= digits - scale
        return found in self.fitting(kind)

    def value(self, kind: str, sql: str) -> str:
        return sql

    def upsert(self, target: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str:
        """Return a MERGE, which needs no index of the key."""
        quoted = [quote_name(c) for c in columns]
        same = " AND ".join(f"_old.{quote_name(k)} = _new.{quote_name(k)}" for k in key)
        sets = ", ".join(f"{quote_name(c)} = _new.{quote_name(c)}" for c in columns if c not in key)
        update = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
        values = ", ".join(f"_new.{c}" for c in quoted)
        insert = f"INSERT ({', '.join(quoted)}) VALUES ({values})"
        return f"MERGE INTO {target} AS _old USING ({rows}) AS _new ON {same}{update} WHEN NOT MATCHED THEN {insert}"


class DuckDBTransaction(Transaction):
    """A transaction in a file."""

    def __init__(self, table: Table, identity: str, con: duckdb.DuckDBPyConnection):
        self._table, self._identity, self._con = table, identity, con
        self._target = qualified(table.options["table"])

    def last_batch(self) -> int | None:
        found = self._con.execute(last_batch(), [self._identity]).fetchall()
        return int(found[0][0]) if found else None

    def set_last_batch(self, number: int) -> None:
        self._con.execute(set_last_batch(), [self._identity, number])

    def insert(self, batch: Batch) -> None:
        with self._given(batch, batch.rows()):
            self._con.execute(f"INSERT INTO {self._target} ({names(batch.columns)}) {self._rows(batch.columns)}")

    def replace(self, batch: Batch) -> None:
        key = [c for c in batch.columns if c.name in self._table.primary_key]
        columns = [c.name for c in batch.columns]
        if batch.is_changing:
            same = " AND ".join(f"_row.{quote_name(c.name)} = _key.{quote_name(c.name)}" for c in key)
            with self._given(batch, batch.deletes()):
                gone = f"DELETE FROM {self._target} AS _row USING ({self._rows(key)}) AS _key WHERE {same}"
                self._con.execute(gone)
        with self._given(batch, batch.upserts()):
            self._con.execute(_DIALECT.upsert(self._target, columns, [c.name for c in key], self._rows(batch.columns)))

    def _rows(self, columns: Sequence[Column]) -> str:
        return f"SELECT {typed(columns)} FROM {_ROWS}"

    @contextmanager
    def _given(self, batch: Batch, sql: str) -> Iterator[None]:
        """Give the rows of a query to the connection of the file, to be read once."""
        with batch.connection() as con:
            self._con.register(_ROWS, con.sql(sql).to_arrow_reader(_CHUNK))
            yield
            self._con.unregister(_ROWS)


_DIALECT = DuckDB()


class DuckDBWriter(FileWriter):
    """Writes the batches of a job into a table of a file."""

    # Somebody else has the file open: another process, or a lookup of this one.
    passing_errors = (duckdb.IOException, duckdb.ConnectionException, duckdb.TransactionException)

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context, _DIALECT)

    def prepare(self) -> None:
        self.check_file()
        name = self.table.options["table"]
        with self._open() as con:
            if self.creates:
                # A MERGE finds rows without an index of the key, which costs more than it is worth here.
                con.execute(_DIALECT.create(qualified(name), self.table.writable, ()))
            try:
                described = con.execute(f"DESCRIBE {qualified(name)}").fetchall()
            except duckdb.CatalogException:
                raise no_table(self.table, name, _DIALECT) from None
            columns = [
                FoundColumn(c, kind, null == "NO" and default is None) for c, kind, null, _, default, _ in described
            ]
            check_columns(self.table, FoundTable(tuple(columns)), _DIALECT)
            con.execute(make_batches())

    @contextmanager
    def transaction(self) -> Iterator[DuckDBTransaction]:
        with self._open() as con:
            con.execute("BEGIN")
            try:
                yield DuckDBTransaction(self.table, self.identity, con)
                con.execute("COMMIT")
            except self.passing_errors:
                raise
            except duckdb.Error as error:
                message = f'DuckDB refuses rows of table "{self.table.name}"'
                raise DataError(message, self.table.span, detail=str(error).split("\n")[0]) from error

    @contextmanager
    def _open(self) -> Iterator[duckdb.DuckDBPyConnection]:
        # What is open at the end of a transaction that failed is rolled back.
        with duckdb.connect(self.path, config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            yield con


class DuckDBSink(DriverSink):
    """A table of a file."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "a transaction has the rows of a batch and its number"
    takes_changes = True
    replaces = True

    def open(self, context: SinkContext) -> DuckDBWriter:
        return DuckDBWriter(self.table, context)
