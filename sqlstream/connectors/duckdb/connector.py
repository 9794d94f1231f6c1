"""The `duckdb` connector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.duckdb.sink import DuckDBSink
from sqlstream.connectors.interface import Connector, LookupFunction, Reach, TableLookup
from sqlstream.connectors.lookup_rows import KEYS, chosen, lookup_columns
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.connectors.relational.rows import CHUNK, CopiedRows
from sqlstream.connectors.relational.writer import SINK_OPTIONS
from sqlstream.duck.sql import Relation, quote_name, typed
from sqlstream.errors import DataError


class DuckDBFile(LookupFunction):
    """Looks up rows in a table of a DuckDB file, which is open only during a call, so that others can write it.

    Raises DataError if the file, the table or a column does not exist, duckdb.IOException while another process writes the file.
    """

    def __init__(self, table: Table, project: str):
        self._table = table
        self._path = os.path.join(project, table.options["path"])

    def __call__(self, keys: pa.Table) -> pa.Table:
        with self._opened() as con:
            con.register(KEYS, keys)
            return con.sql(chosen(self._table, self._relation, keys)).to_arrow_table()

    def scan(self) -> Iterator[pa.Table]:
        """Yield all rows of the table, of one moment, with the declared types; at most `CHUNK` at a time."""
        with self._opened() as con:
            rows = con.sql(f"SELECT {typed(lookup_columns(self._table))} FROM {self._relation}")
            for batch in rows.to_arrow_reader(CHUNK):
                yield pa.Table.from_batches([batch])

    @property
    def _relation(self) -> Relation:
        return Relation(".".join(map(quote_name, self._table.options["table"].split("."))))

    @contextmanager
    def _opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if not os.path.isfile(self._path):
            raise DataError(f'the file "{self._path}" of table "{self._table.name}" does not exist', self._table.span)
        check_files(self._table, [self._path])
        with duckdb.connect(self._path, read_only=True, config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            try:
                yield con
            except (duckdb.BinderException, duckdb.CatalogException) as error:
                message = f'table "{self._table.name}" is not declared as it is in "{self._path}"'
                raise DataError(message, self._table.span, detail=str(error)) from error


class DuckDBLookup(TableLookup):
    """A table of a DuckDB file in which jobs look up rows."""

    def function(self, *, warehouse: str, project: str) -> DuckDBFile:
        return DuckDBFile(self.table, project)


class DuckDBRows(CopiedRows):
    """The rows of a table of a DuckDB file."""

    def tables(self, project: str) -> Iterator[pa.Table]:
        return DuckDBFile(self.table, project).scan()


class DuckDBConnector(Connector):
    """Tables in DuckDB files."""

    name = "duckdb"
    summary = "a table of a DuckDB file"
    reach = Reach.FILE
    options = (
        TableOption("path", TEXT, "the DuckDB file, relative to the project", required=True, example="users.duckdb"),
        TableOption(
            "table",
            TEXT,
            "the table in the file, with its schema if it has one",
            required=True,
            example="users",
        ),
        *SINK_OPTIONS,
    )
    source_type = DuckDBRows
    lookup_type = DuckDBLookup
    sink_type = DuckDBSink
