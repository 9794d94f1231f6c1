"""SQLite's dialect: column types and their affinities, and the form in which values are sent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlstream.connectors.relational.dialect import Dialect, is_nested
from sqlstream.duck.sql import quote_name

_INTEGERS = ("BOOLEAN", "TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT")
# The digits that SQLite keeps of a number with a fraction.
_DIGITS = 15
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?\d+\)")
# By the type that is created: the affinities that keep its values unchanged. A column without a type has the affinity BLOB.
# https://sqlite.org/datatype3.html
_KEPT_BY = {
    "INTEGER": ("INTEGER", "NUMERIC", "BLOB"),
    "REAL": ("REAL", "NUMERIC", "BLOB"),
    "NUMERIC": ("NUMERIC", "TEXT", "BLOB"),
    "TEXT": ("TEXT", "BLOB"),
    "BLOB": ("BLOB", "TEXT", "NUMERIC", "INTEGER", "REAL"),
}


class SQLite(Dialect):
    """SQLite's dialect; values are sent as integers, floating-point numbers, texts and bytes."""

    name = "SQLite"

    def qualified(self, name: str) -> str:
        # There are no schemas.
        return quote_name(name)

    def type(self, kind: str) -> str:
        if kind in _INTEGERS:
            return "INTEGER"
        if kind in ("FLOAT", "DOUBLE"):
            return "REAL"
        if kind == "BLOB":
            return "BLOB"
        decimal = _DECIMAL.fullmatch(kind)
        return "NUMERIC" if decimal is not None and int(decimal[1]) <= _DIGITS else "TEXT"

    def fitting(self, kind: str) -> Sequence[str]:
        """Return the affinities, not the types, of columns that hold all values of a DuckDB type."""
        return _KEPT_BY[self.type(kind)]

    def fits(self, kind: str, column_type: str) -> bool:
        return affinity(column_type) in self.fitting(kind)

    def value(self, kind: str, sql: str) -> str:
        if kind == "BOOLEAN":
            return f"CAST({sql} AS TINYINT)"
        if is_nested(kind):
            return f"CAST(to_json({sql}) AS VARCHAR)"
        return sql if self.type(kind) in ("INTEGER", "REAL", "BLOB") else f"CAST({sql} AS VARCHAR)"


def affinity(declared: str) -> str:
    """Return the affinity that SQLite derives from the declared type of a column.

    >>> [affinity(kind) for kind in ("bigint", "varchar(10)", "", "double", "decimal(10, 2)")]
    ['INTEGER', 'TEXT', 'BLOB', 'REAL', 'NUMERIC']
    """
    upper = declared.upper()
    rules = (("INT", "INTEGER"), ("CHAR|CLOB|TEXT", "TEXT"), ("BLOB|^$", "BLOB"), ("REAL|FLOA|DOUB", "REAL"))
    return next((kind for pattern, kind in rules if re.search(pattern, upper)), "NUMERIC")
