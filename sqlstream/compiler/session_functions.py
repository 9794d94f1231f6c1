"""The functions of a session, and the database in which expressions that call them are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb

from sqlstream.catalog import AggregateFunction, AnyFunction, Catalog, Function
from sqlstream.errors import BindError, missing
from sqlstream.functions.databases import FunctionDatabase, open_database
from sqlstream.functions.declaration import builtin_names
from sqlstream.functions.load import find
from sqlstream.sql.nodes import CreateFunction, DropFunction

# Settings of the database that checks types.
_SETTINGS = {"threads": 1}


class SessionFunctions:
    """Adds functions to a catalog, and registers those that SQL calls in a database, which is opened on first use.

    `zone` returns the time zone of casts.
    """

    def __init__(self, catalog: Catalog, project: str, zone: Callable[[], str]):
        self._catalog, self._project, self._zone = catalog, project, zone
        self._database: FunctionDatabase | None = None
        self._cursor: duckdb.DuckDBPyConnection | None = None

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The connection in which types are checked."""
        if self._cursor is None:
            self._cursor = self._opened().cursor()
            self.use_zone()
        return self._cursor

    def _opened(self) -> FunctionDatabase:
        if self._database is None:
            self._database = open_database(self._catalog.duck_functions, _SETTINGS)
        return self._database

    def use_zone(self) -> None:
        """Let types be checked in the present time zone."""
        if self._cursor is not None:
            self._cursor.execute(f"SET TimeZone = '{self._zone()}'")

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection in which the functions are registered; its temporary tables are dropped at the end."""
        with self._opened().cursor() as con:
            yield con

    def close(self) -> None:
        """Close the database."""
        if self._cursor is not None:
            self._cursor.close()
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def add(self, functions: Iterable[AnyFunction]) -> None:
        """Add functions; each replaces a function of its name."""
        added = tuple(functions)
        callable_in_duckdb = [function for function in added if isinstance(function, Function | AggregateFunction)]
        if self._database is None and callable_in_duckdb:
            self._database = open_database((*self._catalog.duck_functions, *callable_in_duckdb), _SETTINGS)
            callable_in_duckdb = []
        for function in added:
            if (other := self._catalog.any_function(function.name)) is not None and type(other) is not type(function):
                self._remove(other)
            if self._database is not None and function in callable_in_duckdb:
                self._database.add(function)
            self._catalog.add(function)

    def created(self, statement: CreateFunction) -> Sequence[AnyFunction]:
        """Return the function of CREATE FUNCTION, for `add`; none if there is one, and IF NOT EXISTS says so.

        Raises BindError for the name of another function, and the errors of its module.
        """
        existing = self._catalog.any_function(statement.name.text)
        if existing is not None and statement.if_not_exists:
            return ()
        if (builtin := builtin_names().get(statement.name.text.lower())) is not None:
            raise BindError(f'"{statement.name.text}" is the name of {builtin} of SQL', statement.name.span)
        function = find(statement.reference, statement.reference_span, statement.name.text, self._project)
        if existing is not None and existing.location != function.location:
            raise BindError(
                f'function "{existing.name}" exists already, from {existing.location}',
                statement.name.span,
                hint="Give it another name, or write DROP FUNCTION first.",
            )
        return (function,)

    def drop(self, statement: DropFunction) -> None:
        """Remove the function of DROP FUNCTION. Raises BindError if there is none."""
        name = statement.name.text
        if (function := self._catalog.any_function(name)) is not None:
            self._remove(function)
        elif not statement.if_exists:
            hint = missing("function", name, self._catalog.function_names)
            raise BindError(f'function "{name}" does not exist', statement.name.span, hint=hint)

    def _remove(self, function: AnyFunction) -> None:
        self._catalog.drop_function(function.name)
        if isinstance(function, Function | AggregateFunction) and self._database is not None:
            self._database.remove(function)
