"""Connections to databases in memory. DuckDB takes ten milliseconds to open one, longer than most that is asked of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb

from sqlstream.duck import remote_files

# For databases that stay open. DuckDB remembers every file that it ever opened, in a kilobyte or so, and a job opens other ones
# in each batch. That serves a cache of remote files: ours are local to it, or have their own one (`warehouse/file_cache`).
FORGETS_FILES = {"enable_external_file_cache": False}


@contextmanager
def passing() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection for a few statements, in UTC; what it leaves behind (settings, temporary tables) goes with it.

    Whoever is in this process shares the database behind it: nothing but temporary tables may be made there.
    """
    shared, stores = _shared(os.getpid())
    remote_files.register(shared, stores)
    with shared.cursor() as con:
        con.execute("SET TimeZone = 'UTC'")
        yield con


@cache
def _shared(process: int) -> tuple[duckdb.DuckDBPyConnection, set[str]]:
    """Return the connection of a process to the database that all share, and which stores that can read.

    A forked process never uses its parent's.
    """
    config: dict[str, str | bool | int | float | list[str]] = {"threads": 1}
    config |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False, **FORGETS_FILES}
    return duckdb.connect(config=config), set()
