"""The `duckdb` connector."""

from __future__ import annotations

import os

import duckdb
import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.duckdb.sink import DuckDBSink
from sqlstream.connectors.interface import Connector, LookupFunction, Reach, TableLookup
from sqlstream.connectors.lookup_rows import KEYS, chosen
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.connectors.relational.writer import SINK_OPTIONS
from sqlstream.duck.sql import Relation, quote_name
from sqlstream.errors import DataError


class DuckDBFile(LookupFunction):
    """Looks up rows in a table of a DuckDB file, which is open only during a call, so that others can write it.

    Raises DataError if the file, the table or a column does not exist, duckdb.IOException while another process writes the file.
    """

    def __init__(self, table: Table, project: str):
        self._table = table
        self._path = os.path.join(project, table.options["path"])

    def __call__(self, keys: pa.Table) -> pa.Table:
        if not os.path.isfile(self._path):
            raise DataError(f'the file "{self._path}" of table "{self._table.name}" does not exist', self._table.span)
        check_files(self._table, [self._path])
        with duckdb.connect(self._path, read_only=True, config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            con.register(KEYS, keys)
            rows = Relation(".".join(map(quote_name, self._table.options["table"].split("."))))
            try:
                return con.sql(chosen(self._table, rows, keys)).to_arrow_table()
            except (duckdb.BinderException, duckdb.CatalogException) as error:
                message = f'table "{self._table.name}" is not declared as it is in "{self._path}"'
                raise DataError(message, self._table.span, detail=str(error)) from error


class DuckDBLookup(TableLookup):
    """A table of a DuckDB file in which jobs look up rows."""

    def function(self, *, warehouse: str, project: str) -> DuckDBFile:
        return DuckDBFile(self.table, project)


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
    lookup_type = DuckDBLookup
    sink_type = DuckDBSink
