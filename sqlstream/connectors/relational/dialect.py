"""SQL dialects of databases: column types, the form in which values are sent, and the statements that change rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlstream.catalog import Column
from sqlstream.duck.sql import Select, quote_name

# The table that holds the number of the last batch of each sink of a job.
BATCHES = "sqlstream_batches"
_NESTED = re.compile(r"(STRUCT|MAP)\(|.*\[\d*\]$", re.DOTALL)


def qualified(name: str) -> str:
    """Return the name of a table, with or without its schema, quoted for SQL.

    >>> print(qualified("shop.orders"))
    "shop"."orders"
    """
    return ".".join(map(quote_name, name.split(".")))


def is_nested(kind: str) -> bool:
    """Whether a DuckDB type is a list, an array, a struct or a map.

    >>> [is_nested(kind) for kind in ("INTEGER[]", "STRUCT(a INTEGER)", "VARCHAR")]
    [True, True, False]
    """
    return _NESTED.match(kind) is not None


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column of a table in a database; `type` is the database's name of its type.

    `must_be_given` says that it is NOT NULL without a default, `generated` that the database computes it.
    """

    name: str
    type: str
    must_be_given: bool = False
    generated: bool = False


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table in a database: its columns, and the sets of columns with a unique index."""

    columns: tuple[DatabaseColumn, ...]
    unique: tuple[frozenset[str], ...] = ()


class Dialect(ABC):
    """The SQL dialect of a database. A `kind` is a DuckDB type; all other types are the database's."""

    name: ClassVar[str]
    # Whether upserts need a unique index over the columns of the PRIMARY KEY.
    needs_index: ClassVar[bool] = True

    def qualified(self, name: str) -> str:
        """Return the name of a table, quoted for SQL."""
        return qualified(name)

    @abstractmethod
    def type(self, kind: str) -> str:
        """Return the type with which a column of a DuckDB type is created."""

    @abstractmethod
    def fitting(self, kind: str) -> Sequence[str]:
        """Return the names of the database's types that hold all values of a DuckDB type, to list them in an error."""

    @abstractmethod
    def value(self, kind: str, sql: str) -> str:
        """Return DuckDB SQL that converts `sql`, a value of the DuckDB type `kind`, to the form in which the value is sent."""

    def fits(self, kind: str, column_type: str) -> bool:
        """Whether a column of the type `column_type` in the database holds all values of a DuckDB type."""
        return column_type in self.fitting(kind)

    def values(self, columns: Iterable[Column], rows: Select) -> Select:
        """Return rows of DuckDB in the form in which they are sent to the database."""
        items = (f"{self.value(c.type, quote_name(c.name))} AS {quote_name(c.name)}" for c in columns)
        return Select(f"SELECT {', '.join(items)} FROM ({rows})")

    def create(self, target: str, columns: Iterable[Column], key: Sequence[str]) -> str:
        """Return the CREATE TABLE IF NOT EXISTS of a table with columns and, unless `key` is empty, a PRIMARY KEY.

        `target` is the quoted name of the table, here and below.
        """
        items = [
            f"{quote_name(c.name)} {self.type(c.type)}{' NOT NULL' if c.not_null or c.name in key else ''}"
            for c in columns
        ]
        if key:
            items.append(f"PRIMARY KEY ({_names(key)})")
        return f"CREATE TABLE IF NOT EXISTS {target} ({', '.join(items)})"

    def upsert(self, target: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str:
        """Return the statement that inserts `rows`, a SELECT or VALUES, or updates the rows with the same keys."""
        others = [c for c in columns if c not in key]
        sets = ", ".join(f"{quote_name(c)} = excluded.{quote_name(c)}" for c in others)
        action = f"UPDATE SET {sets}" if others else "NOTHING"
        return f"INSERT INTO {target} ({_names(columns)}) {rows} ON CONFLICT ({_names(key)}) DO {action}"

    def insert(self, target: str, columns: Sequence[str], rows: str) -> str:
        """Return the statement that inserts `rows`, a SELECT or VALUES."""
        return f"INSERT INTO {target} ({_names(columns)}) {rows}"


def set_last_batch() -> str:
    """Return the statement that stores the number of a sink's last batch; its `?` are the sink and the number."""
    return f"INSERT INTO {BATCHES} (sink, batch) VALUES (?, ?) ON CONFLICT (sink) DO UPDATE SET batch = excluded.batch"


def make_batches() -> str:
    """Return the statement that creates the table of batch numbers."""
    return f"CREATE TABLE IF NOT EXISTS {BATCHES} (sink VARCHAR PRIMARY KEY, batch BIGINT NOT NULL)"


def last_batch() -> str:
    """Return the query for the number of a sink's last batch; its `?` is the sink."""
    return f"SELECT batch FROM {BATCHES} WHERE sink = ?"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quote_name, columns))
