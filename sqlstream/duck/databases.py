"""Connections to databases in memory. DuckDB takes ten milliseconds to open one, longer than most that is asked of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb


@contextmanager
def passing() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection for a few statements, in UTC; what it leaves behind (settings, temporary tables) goes with it.

    Whoever is in this process shares the database behind it: nothing but temporary tables may be made there.
    """
    with _shared(os.getpid()).cursor() as con:
        con.execute("SET TimeZone = 'UTC'")
        yield con


@cache
def _shared(process: int) -> duckdb.DuckDBPyConnection:
    """Return the connection of a process to the database that all share; a forked one never uses its parent's."""
    return duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
