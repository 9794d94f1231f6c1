"""Where rows are looked up: files, warehouse tables, DuckDB files, PostgreSQL, Python functions."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import IGNORE, Column, Table
from sqlstream.connectors.filesystem.listing import Place
from sqlstream.connectors.filesystem.splits import Split
from sqlstream.connectors.formats.changelogs import present, source_table
from sqlstream.connectors.formats.faults import translate
from sqlstream.connectors.formats.malformed import format_of, skip_hint
from sqlstream.connectors.formats.reading import read
from sqlstream.connectors.lookup import Lookup, Outside, lookup_of
from sqlstream.connectors.python import source as python
from sqlstream.duck.sql import quote_name
from sqlstream.errors import DataError, JobError, UsageError, missing
from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse

# Calls of an asynchronous function that wait at a time.
_AT_A_TIME = 100
_KEYS = "_sqlstream_keys"


def open_lookup(table: Table, keys: Sequence[str], *, warehouse: str, project: str) -> Lookup:
    """Return what looks up rows of a table by some of its columns, the same one for all of this process."""

    def make() -> Outside:
        match table.connector:
            case None:
                return _Warehouse(table, warehouse)
            case "filesystem":
                return _Files(table, project)
            case "duckdb":
                return _DuckDB(table, project)
            case "postgresql":
                return _PostgreSQL(table)
            case "python":
                return _Python(table)
        raise TypeError(f'connector "{table.connector}" cannot be looked up')

    return lookup_of(table, keys, (warehouse, project), make)


def files_relation(con: duckdb.DuckDBPyConnection, table: Table, project: str) -> str:
    """Return a declared table as DuckDB SQL: the rows of all files that it has now, with its physical columns.

    Of a table of changes, the rows that they amount to.
    """
    return _relation(con, table, _files(table, project))


def _files(table: Table, project: str) -> list[Split]:
    place = Place(table.options["path"], project)
    return [Split(f.path, f.size, f.mtime_ns, f.size) for f in sorted(place.files() or ()) if f.size]


def _relation(con: duckdb.DuckDBPyConnection, table: Table, splits: Sequence[Split]) -> str:
    rows = read(con, splits, source_table(table)).relation
    return f"({present(table, rows)})" if table.has_changes else rows


def _columns(table: Table) -> tuple[Column, ...]:
    return tuple(c for c in table.physical if c is not table.operation)


def _chosen(table: Table, rows: str, keys: pa.Table) -> str:
    """Return the SELECT of those of some rows that have the keys, with the declared types."""
    items = ", ".join(f"CAST(_own.{quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in _columns(table))
    types = {c.name: c.type for c in table.physical}
    wanted = ", ".join(f"CAST({quote_name(n)} AS {types[n]}) AS {quote_name(n)}" for n in keys.column_names)
    same = " AND ".join(f"_row.{quote_name(n)} = _key.{quote_name(n)}" for n in keys.column_names)
    return f"SELECT * FROM (SELECT {items} FROM {rows} AS _own) _row SEMI JOIN (SELECT {wanted} FROM {_KEYS}) _key ON {same}"


class _Files:
    """Reads the files that a table has at the moment."""

    def __init__(self, table: Table, project: str):
        self._table, self._project = table, project

    def __call__(self, keys: pa.Table) -> pa.Table:
        with duckdb.connect(config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            con.register(_KEYS, keys)
            splits = _files(self._table, self._project)
            try:
                rows = _relation(con, self._table, splits)
                return con.sql(_chosen(self._table, rows, keys)).to_arrow_table()
            except duckdb.Error as error:
                # Not a DataError: a file may be whole when it is read again.
                wrong = translate(error, splits, self._table)
                raise _again(wrong, self._table) if wrong else error from error


def _again(error: DataError, table: Table) -> JobError:
    """Return the error of a file for one that looks rows up: such rows are neither counted nor kept."""
    skip = f"Set '{format_of(table)}.{IGNORE}' = 'true' to leave out such rows."
    hint = skip if error.hint == skip_hint(table) else error.hint
    return JobError(error.message, detail=error.detail, hint=hint)


class _Warehouse:
    """Reads what jobs have committed to a table by now."""

    def __init__(self, table: Table, warehouse: str):
        self._table, self._warehouse = table, Warehouse(warehouse)

    def __call__(self, keys: pa.Table) -> pa.Table:
        sql = _chosen(self._table, quote_name(self._table.name), keys)
        found = open_query(self._warehouse, sql, functions=[lambda con: con.register(_KEYS, keys)])
        return found.to_arrow_table()


class _DuckDB:
    """Reads a table of a DuckDB file, which is open only meanwhile: others may write it."""

    def __init__(self, table: Table, project: str):
        self._table = table
        self._path = os.path.join(project, table.options["path"])

    def __call__(self, keys: pa.Table) -> pa.Table:
        if not os.path.isfile(self._path):
            raise DataError(f'the file "{self._path}" of table "{self._table.name}" does not exist', self._table.span)
        with duckdb.connect(self._path, read_only=True, config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            con.register(_KEYS, keys)
            rows = ".".join(map(quote_name, self._table.options["table"].split(".")))
            try:
                return con.sql(_chosen(self._table, rows, keys)).to_arrow_table()
            except (duckdb.BinderException, duckdb.CatalogException) as error:
                message = f'table "{self._table.name}" is not declared as it is in "{self._path}"'
                raise DataError(message, self._table.span, detail=str(error)) from error


# What keys are sent as, by their DuckDB types; decimals are numeric, all others text.
_PG_TYPES = {
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "DOUBLE": "float8",
    "FLOAT": "float4",
    "BOOLEAN": "boolean",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "UUID": "uuid",
    "BLOB": "bytea",
    "TIME": "time",
}


def _pg_type(kind: str) -> str:
    return "numeric" if kind.startswith("DECIMAL") else _PG_TYPES.get(kind, "text")


class _PostgreSQL:
    """Asks a PostgreSQL server; the connection stays open between questions, and is made anew where it is lost."""

    def __init__(self, table: Table):
        self._table = table
        self._connection: Any = None

    def __call__(self, keys: pa.Table) -> pa.Table:
        psycopg = _psycopg(self._table)
        con = self._open(psycopg)
        try:
            rows = con.execute(self._sql(psycopg, keys), [column.to_pylist() for column in keys.columns]).fetchall()
        except psycopg.OperationalError:
            self._close()
            raise
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise DataError(f'table "{self._table.name}": {error.diag.message_primary}', self._table.span) from error
        return _typed(
            self._table, [dict(zip((c.name for c in _columns(self._table)), row, strict=True)) for row in rows]
        )

    def _open(self, psycopg: Any) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._table.options["url"], autocommit=True, connect_timeout=10)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _sql(self, psycopg: Any, keys: pa.Table) -> Any:
        """Return the query of the rows for lists of key values."""
        sql, types = psycopg.sql, {c.name: c.type for c in _columns(self._table)}
        items = [
            sql.SQL("_row.{}::text" if c.type == "VARCHAR" else "_row.{}").format(sql.Identifier(c.name))
            for c in _columns(self._table)
        ]
        kinds = {name: _pg_type(types[name]) for name in keys.column_names}
        names = [f"k{i}" for i in range(keys.num_columns)]
        lists = sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in kinds.values())
        same = [
            sql.SQL("_row.{}::text" if kind == "text" else "_row.{}").format(sql.Identifier(name))
            + sql.SQL(f" = _key.{k}")
            for (name, kind), k in zip(kinds.items(), names, strict=True)
        ]
        return sql.SQL("SELECT {} FROM {} AS _row JOIN unnest({}) AS _key({}) ON {}").format(
            sql.SQL(", ").join(items),
            sql.Identifier(*self._table.options["table"].split(".")),
            lists,
            sql.SQL(", ").join(map(sql.SQL, names)),
            sql.SQL(" AND ").join(same),
        )


def _psycopg(table: Table) -> Any:
    try:
        import psycopg
        import psycopg.sql
    except ImportError as error:
        message = f'table "{table.name}": the connector "postgresql" needs psycopg, which cannot be imported: {error}'
        raise UsageError(message, table.span, hint="Install it: pip install 'sqlstream[postgresql]'.") from error
    return psycopg


def check_driver(table: Table) -> None:
    """Raise UsageError unless what the table's connector needs is installed."""
    if table.connector == "postgresql":
        _psycopg(table)


class _Python:
    """Calls a function of the user's for every key, an asynchronous one for many at a time."""

    def __init__(self, table: Table):
        self._table = table
        self._function = python.function(table)

    def __call__(self, keys: pa.Table) -> pa.Table:
        wanted = keys.to_pylist()
        with python.errors(self._table):
            answers = self._answers(wanted)
            rows = [row for key, found in zip(wanted, answers, strict=True) for row in self._rows(key, found)]
        return _typed(self._table, rows)

    def _answers(self, keys: Sequence[Mapping[str, Any]]) -> list[Any]:
        function = self._function
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(type(function).__call__):
            return [function(**key) for key in keys]

        async def ask() -> list[Any]:
            free = asyncio.Semaphore(_AT_A_TIME)

            async def one(key: Mapping[str, Any]) -> Any:
                async with free:
                    return await function(**key)

            return await asyncio.gather(*map(one, keys))

        # This thread may have a loop of its own: a notebook's has.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, ask()).result()

    def _rows(self, key: Mapping[str, Any], found: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of an answer: None, a mapping, or several of those; what they leave out of the key is that."""
        for row in () if found is None else (found,) if isinstance(found, Mapping) else found:
            if not isinstance(row, Mapping):
                raise TypeError(f"a row is a mapping, not a {type(row).__name__}")
            known = {c.name for c in _columns(self._table)}
            if unknown := [name for name in row if name not in known]:
                hint = missing("column", str(unknown[0]), known)
                raise DataError(f'table "{self._table.name}" has no column "{unknown[0]}"', hint=hint)
            yield {**key, **row}


def _typed(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows with the columns that are declared."""
    columns = _columns(table)
    with duckdb.connect(config={"threads": 1}) as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("_given", pa.table({c.name: _values([row.get(c.name) for row in rows]) for c in columns}))
        items = ", ".join(f"CAST({quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in columns)
        try:
            return con.sql(f"SELECT {items} FROM _given").to_arrow_table()
        except duckdb.Error as error:
            raise DataError(
                f'a row of table "{table.name}" does not have the declared types', detail=str(error)
            ) from error


def _values(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if v is None else str(v) for v in values])
