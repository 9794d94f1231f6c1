"""The SQL of a database: its types, what values travel as, and the statements that change rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlstream.catalog import Column
from sqlstream.duck.sql import quote_name

# Where a sink remembers the last batch of each job.
BATCHES = "sqlstream_batches"
_NESTED = re.compile(r"(STRUCT|MAP)\(|.*\[\d*\]$", re.DOTALL)


def qualified(name: str) -> str:
    """Return the name of a table, with or without its schema, as it stands in SQL.

    >>> print(qualified("shop.orders"))
    "shop"."orders"
    """
    return ".".join(map(quote_name, name.split(".")))


def is_nested(kind: str) -> bool:
    """Tell whether a DuckDB type is one of lists, structs or maps.

    >>> [is_nested(kind) for kind in ("INTEGER[]", "STRUCT(a INTEGER)", "VARCHAR")]
    [True, True, False]
    """
    return _NESTED.match(kind) is not None


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column as it is in a database.

    `must_be_given` says that it takes no NULL and has no default. `generated` that the database computes it.
    """

    name: str
    type: str
    must_be_given: bool = False
    generated: bool = False


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as it is in a database: its columns, and the sets of columns that no two rows share."""

    columns: tuple[FoundColumn, ...]
    unique: tuple[frozenset[str], ...] = ()


class Dialect(ABC):
    """A database's SQL. Types are DuckDB's where sqlstream declares them."""

    name: ClassVar[str]
    # Whether rows are found by a unique index over the columns of the PRIMARY KEY.
    needs_index: ClassVar[bool] = True

    def qualified(self, name: str) -> str:
        """Return the name of a table as it stands in SQL."""
        return qualified(name)

    @abstractmethod
    def type(self, kind: str) -> str:
        """Return the type of the column that is created for a DuckDB type."""

    @abstractmethod
    def fitting(self, kind: str) -> Sequence[str]:
        """Return the types of columns that hold all values of a DuckDB type, as `fits` looks for them."""

    @abstractmethod
    def value(self, kind: str, sql: str) -> str:
        """Return DuckDB SQL of a value of a type as it travels to the database."""

    def fits(self, kind: str, found: str) -> bool:
        """Tell whether a column of the database holds all values of a DuckDB type."""
        return found in self.fitting(kind)

    def values(self, columns: Iterable[Column], rows: str) -> str:
        """Return the SELECT of rows, given as a SELECT, as their values travel."""
        items = (f"{self.value(c.type, quote_name(c.name))} AS {quote_name(c.name)}" for c in columns)
        return f"SELECT {', '.join(items)} FROM ({rows})"

    def create(self, target: str, columns: Iterable[Column], key: Sequence[str]) -> str:
        """Return the statement that makes a table unless it is there."""
        items = [
            f"{quote_name(c.name)} {self.type(c.type)}{' NOT NULL' if c.not_null or c.name in key else ''}"
            for c in columns
        ]
        if key:
            items.append(f"PRIMARY KEY ({_names(key)})")
        return f"CREATE TABLE IF NOT EXISTS {target} ({', '.join(items)})"

    def upsert(self, target: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str:
        """Return the statement by which rows, a SELECT or VALUES, take the places of those that have their keys."""
        others = [c for c in columns if c not in key]
        sets = ", ".join(f"{quote_name(c)} = excluded.{quote_name(c)}" for c in others)
        action = f"UPDATE SET {sets}" if others else "NOTHING"
        return f"INSERT INTO {target} ({_names(columns)}) {rows} ON CONFLICT ({_names(key)}) DO {action}"

    def insert(self, target: str, columns: Sequence[str], rows: str) -> str:
        """Return the statement that adds rows, a SELECT or VALUES."""
        return f"INSERT INTO {target} ({_names(columns)}) {rows}"


def set_last_batch() -> str:
    """Return the statement that writes the number of a batch; it has the parameters sink and batch, as `?`."""
    return f"INSERT INTO {BATCHES} (sink, batch) VALUES (?, ?) ON CONFLICT (sink) DO UPDATE SET batch = excluded.batch"


def make_batches() -> str:
    """Return the statement that makes the table of batch numbers."""
    return f"CREATE TABLE IF NOT EXISTS {BATCHES} (sink VARCHAR PRIMARY KEY, batch BIGINT NOT NULL)"


def last_batch() -> str:
    """Return the query of the number of the last batch; it has the parameter sink, as `?`."""
    return f"SELECT batch FROM {BATCHES} WHERE sink = ?"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quote_name, columns))
