"""The databases of a session, which qualify names of tables. All tables share one catalog, whichever database they belong to.

So a name alone finds a table, and two databases cannot have tables of one name.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, SourceText, Span, missing
from sqlstream.sql.nodes import (
    CATALOG,
    DATABASE,
    CreateDatabase,
    CreateTable,
    CreateView,
    Drop,
    DropDatabase,
    Name,
    Use,
)
from sqlstream.sql.spans import span_of

# The databases of state and of system tables, which jobs cannot read.
_OF_STATE = ("state", "sqlstream")


class Databases:
    """The databases that statements have created, the current one, and the database of each table."""

    def __init__(self) -> None:
        self._names = {DATABASE: DATABASE}
        self.current = DATABASE
        # The database by the table or view, both in lower case. A table that is not here is one of the project's catalog.
        self._of: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the databases, as they were written, in order."""
        return tuple(sorted(self._names.values(), key=str.lower))

    @property
    def use_current(self) -> str:
        """The statement that makes the current database current again, for a text of its own; "" if there is but one database."""
        return f"USE {quote_name(self._names[self.current])};\n" if len(self._names) > 1 else ""

    def create(self, statement: CreateDatabase) -> None:
        """Add a database. Raises BindError if it exists, unless IF NOT EXISTS is written."""
        name = statement.name
        if name.text.lower() in _OF_STATE:
            raise BindError(f'the database "{name.text}" has tables of its own', name.span, hint="Choose another name.")
        if name.text.lower() in self._names and not statement.if_not_exists:
            hint = "Write CREATE DATABASE IF NOT EXISTS."
            raise BindError(f'database "{name.text}" exists already', name.span, hint=hint)
        self._names.setdefault(name.text.lower(), name.text)

    def drop(self, statement: DropDatabase) -> None:
        """Remove a database. Raises BindError if it is the first or the current one, or has tables.

        Also raises it if the database does not exist, unless IF EXISTS is written.
        """
        name, key = statement.name, statement.name.text.lower()
        if key not in self._names:
            if not statement.if_exists:
                self._check(name.text, name.span)
            return
        if key in (DATABASE, self.current):
            what = "the first one, which stays" if key == DATABASE else "in use"
            raise BindError(f'database "{name.text}" is {what}', name.span)
        if tables := sorted(table for table, database in self._of.items() if database == key):
            hint = f"Write DROP TABLE first, for: {', '.join(tables)}."
            raise BindError(f'database "{name.text}" has tables', name.span, hint=hint)
        del self._names[key]

    def use(self, statement: Use) -> None:
        """Make a database the current one; USE CATALOG makes it the first one."""
        name = statement.database
        if name is not None:
            self._check(name.text, name.span)
        self.current = DATABASE if name is None else name.text.lower()

    def declare(self, statement: CreateTable | CreateView, *, exists: bool) -> None:
        """Record the database of a new table or view; `exists` says whether the catalog already has its name.

        Raises BindError if the existing one belongs to another database, or if the database does not exist.
        """
        name = statement.name
        if name.database is not None:
            self._check(name.database, name.span)
        key, database = name.text.lower(), (name.database or self.current).lower()
        if exists and self._of.get(key, DATABASE) != database:
            other = self._names[self._of.get(key, DATABASE)]
            hint = "All tables are in one catalog: give one of them another name."
            raise BindError(f'database "{other}" has a table "{name.text}" already', name.span, hint=hint)
        self._of[key] = database

    def rename(self, table: str, name: Name) -> None:
        """Record that a table has another name. Raises BindError for a name of another database, or one that does not exist."""
        key = table.lower()
        if name.database is not None:
            self._check(name.database, name.span)
            if name.database.lower() != self._of.get(key, DATABASE):
                hint = "A table stays in its database: write DROP TABLE, then CREATE TABLE."
                raise BindError(f'table "{table}" cannot go into database "{name.database}"', name.span, hint=hint)
        if key in self._of:
            self._of[name.text.lower()] = self._of.pop(key)

    def forget(self, statement: Drop) -> None:
        """Forget the database of a table or view that is about to be dropped. Raises BindError as `check` does."""
        self.check(statement.name)
        self._of.pop(statement.name.text.lower(), None)

    def check(self, name: Name) -> None:
        """Raise BindError if a name has a database that does not exist, or that has no table of this name."""
        if name.database is not None:
            self._check_table(name.text, name.database, name.span)

    def check_query(self, query: exp.Expr, source: SourceText) -> None:
        """Check the names of tables in a query, and remove databases and catalogs from them, in place.

        Raises BindError as `check` does, and for a catalog that does not exist.
        """
        for table in query.find_all(exp.Table):
            database, catalog = table.text("db"), table.text("catalog")
            if not database or (database.lower() in _OF_STATE and database.lower() not in self._names):
                continue
            span = span_of(table, source)
            if catalog and catalog.lower() != CATALOG:
                hint = f"There is one catalog, {CATALOG}: put CREATE TABLE statements into files under catalog/."
                raise BindError(f'the catalog "{catalog}" does not exist', span, hint=hint)
            self._check_table(table.name, database, span)
            table.set("db", None)
            table.set("catalog", None)

    def _check_table(self, table: str, database: str, span: Span | None) -> None:
        self._check(database, span)
        own = self._of.get(table.lower(), DATABASE)
        if own != database.lower() and table.lower() in self._of:
            hint = f'"{table}" is of database "{self._names[own]}".'
            raise BindError(f'table "{database}.{table}" does not exist', span, hint=hint)

    def _check(self, database: str, span: Span | None) -> None:
        if database.lower() not in self._names:
            existing: Iterable[str] = self.names
            raise BindError(f'database "{database}" does not exist', span, hint=missing("database", database, existing))
