"""DuckDB databases in memory with users' functions.

To open a database and to register functions takes longer than a small batch. So a process keeps a few idle databases, and lends
them again to callers that need the same functions and settings.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Mapping

import duckdb

from sqlstream.catalog import DuckFunction
from sqlstream.duck import remote_files
from sqlstream.errors import JobError
from sqlstream.functions.registration import RegisteredFunctions, register, unregister

# How many idle databases a process keeps. Each takes 4 MiB.
IDLE = 4
# The most recently used one is last.
_idle: list[FunctionDatabase] = []
_lock = threading.Lock()


class FunctionDatabase:
    """A DuckDB database with users' functions. One caller at a time has it, works on cursors of it, and closes these.

    The caller may create temporary tables and set options on a cursor only: they disappear with the cursor.
    """

    def __init__(self, settings: Mapping[str, str | int | bool]):
        self._process = os.getpid()
        self._settings = dict(settings)
        self._con = duckdb.connect(config=dict(settings))
        self._stores: set[str] = set()
        self._functions: dict[str, tuple[DuckFunction, RegisteredFunctions]] = {}

    def fits(self, functions: Iterable[DuckFunction], settings: Mapping[str, str | int | bool]) -> bool:
        """Return whether the database has exactly these functions and settings, and is this process's, not its parent's."""
        own = (function for function, _ in self._functions.values())
        return self._process == os.getpid() and self._settings == settings and tuple(own) == tuple(functions)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection that can read from all stores, and sees all functions, also functions that are added later."""
        remote_files.register(self._con, self._stores)
        return self._con.cursor()

    def add(self, function: DuckFunction) -> None:
        """Add a function. It replaces a function of the same name."""
        self._functions[function.name.lower()] = function, register(self._con, [function])

    def remove(self, function: DuckFunction) -> None:
        """Remove a function. Raises JobError if its resource cannot be closed."""
        _, registered = self._functions.pop(function.name.lower())
        unregister(self._con, function)
        registered.close()

    def close_resources(self) -> None:
        """Close the resources of all functions, which the next call opens again. Raises the first JobError after that."""
        failed: list[JobError] = []
        for _, registered in self._functions.values():
            try:
                registered.close()
            except JobError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def discard(self) -> None:
        """Close the database instead of making it idle. Its functions must have no open resources."""
        self._con.close()

    def close(self) -> None:
        """Close all resources and make the database idle. If closing a resource fails, close the database, and raise JobError."""
        try:
            self.close_resources()
        except BaseException:
            self._con.close()
            raise
        with _lock:
            _idle.append(self)
            surplus = _idle[:-IDLE]
            del _idle[:-IDLE]
        for database in surplus:
            database._con.close()


def open_database(
    functions: Iterable[DuckFunction],
    settings: Mapping[str, str | int | bool],
    prepare: Callable[[duckdb.DuckDBPyConnection], None] = lambda connection: None,
) -> FunctionDatabase:
    """Return a database with these functions and DuckDB settings for the caller alone: an idle one or a new one.

    `prepare` is called with the connection of a new one. It must do the same for equal settings.
    """
    functions = tuple(functions)
    with _lock:
        for database in reversed(_idle):
            if database.fits(functions, settings):
                _idle.remove(database)
                return database
    database = FunctionDatabase(settings)
    try:
        prepare(database._con)
        for function in functions:
            database.add(function)
    except BaseException:
        database._con.close()
        raise
    return database


@atexit.register
def close_idle() -> None:
    """Close the idle databases at exit; DuckDB would print warnings about leaked functions when Python ends."""
    with _lock:
        surplus = list(_idle)
        _idle.clear()
    for database in surplus:
        if database._process == os.getpid():
            database._con.close()
