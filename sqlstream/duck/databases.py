"""Connections to a database in memory that a process shares: opening one takes DuckDB ten milliseconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb

from sqlstream.duck import remote_files
from sqlstream.duck.profiled import profiled

# For databases that stay open: without this, DuckDB keeps about a kilobyte for every file that it has opened, and a job opens new
# files in each batch. DuckDB's file cache is not needed, since remote files have their own cache (`warehouse/file_cache`).
FORGETS_FILES = {"enable_external_file_cache": False}


def prepared(con: duckdb.DuckDBPyConnection, zone: str) -> duckdb.DuckDBPyConnection:
    """Return a connection for statements in a time zone; while a run is profiled it records each of them."""
    con.execute(f"SET TimeZone = '{zone}'")
    return profiled(con)


@contextmanager
def passing() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection for a few statements, in UTC; its settings and temporary tables are dropped at the end.

    All connections of the process share one database, in which a caller may create nothing but temporary tables.
    """
    shared, stores = _shared(os.getpid())
    remote_files.register(shared, stores)
    with shared.cursor() as con:
        yield prepared(con, "UTC")


@cache
def _shared(process: int) -> tuple[duckdb.DuckDBPyConnection, set[str]]:
    """Return the connection of a process to its shared database, and the schemes of the object stores that it can read.

    The process id is the cache key, so that a forked process never uses its parent's connection.
    """
    config: dict[str, str | bool | int | float | list[str]] = {"threads": 1}
    config |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False, **FORGETS_FILES}
    return duckdb.connect(config=config), set()
