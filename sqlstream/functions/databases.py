"""Databases in memory that have users' functions.

To open one and to register the functions takes longer than a small batch, so a process keeps some that nobody uses, for the
next who asks for the same.
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
from sqlstream.functions.registration import Registered, register, unregister

# How many databases a process keeps that nobody uses, of 4 MiB each.
IDLE = 4
# The one that was used last comes last.
_idle: list[FunctionDatabase] = []
_lock = threading.Lock()


class FunctionDatabase:
    """A database with functions, for one user at a time, who works on cursors of it and closes them.

    Nothing may be made in it but temporary tables and settings of a cursor, which go with the cursor.
    """

    def __init__(self, settings: Mapping[str, str | int | bool]):
        self._process = os.getpid()
        self._settings = dict(settings)
        self._con = duckdb.connect(config=dict(settings))
        self._stores: set[str] = set()
        self._functions: dict[str, tuple[DuckFunction, Registered]] = {}

    def fits(self, functions: Iterable[DuckFunction], settings: Mapping[str, str | int | bool]) -> bool:
        """Tell whether it has these functions and settings. A forked process never uses its parent's databases."""
        own = (function for function, _ in self._functions.values())
        return self._process == os.getpid() and self._settings == settings and tuple(own) == tuple(functions)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection that has all functions, also those that are added later, and reads from all stores."""
        remote_files.register(self._con, self._stores)
        return self._con.cursor()

    def add(self, function: DuckFunction) -> None:
        """Add a function, in the place of one of its name."""
        self._functions[function.name.lower()] = function, register(self._con, [function])

    def remove(self, function: DuckFunction) -> None:
        """Remove a function; raises JobError when its resource cannot be closed."""
        _, registered = self._functions.pop(function.name.lower())
        unregister(self._con, function)
        registered.close()

    def close_resources(self) -> None:
        """Close the resources of all functions, which open them again when they are called; raises the first JobError."""
        failed: list[JobError] = []
        for _, registered in self._functions.values():
            try:
                registered.close()
            except JobError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def discard(self) -> None:
        """Close the database for good; it has no functions with resources."""
        self._con.close()

    def close(self) -> None:
        """Give the database back for the next user, with all resources closed; raises JobError for the first that fails."""
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
    """Return a database with functions and with settings of DuckDB's, which nobody else uses.

    `prepare` is called with a new one: all who ask for the same settings give the same.
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
    """Close the databases that nobody uses. DuckDB prints about functions of those still open when Python ends."""
    with _lock:
        surplus = list(_idle)
        _idle.clear()
    for database in surplus:
        if database._process == os.getpid():
            database._con.close()
