"""The columns and unique indexes of a table in a SQLite file."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlstream.connectors.relational.dialect import DatabaseColumn, DatabaseTable
from sqlstream.duck.sql import quote_text


def file_table(con: sqlite3.Connection, name: str) -> DatabaseTable | None:
    """Return the columns of a table, and the columns of its PRIMARY KEY and unique indexes; None if it does not exist."""

    def pragma(what: str, of: str) -> list[Any]:
        return con.execute(f"SELECT * FROM pragma_{what}({quote_text(of)})").fetchall()

    described = pragma("table_xinfo", name)
    if not described:
        return None
    columns, key = [], set()
    for _, column, kind, not_null, default, in_key, hidden in described:
        columns.append(
            DatabaseColumn(column, kind, bool(not_null) and default is None and not in_key, hidden in (2, 3))
        )
        key |= {column} if in_key else set()
    unique = [frozenset(key)]
    for _, index, is_unique, _, partial in pragma("index_list", name):
        if is_unique and not partial:
            unique.append(frozenset(column for _, _, column in pragma("index_info", index)))
    return DatabaseTable(tuple(columns), tuple(unique))


def is_passing(error: Exception) -> bool:
    """Whether a retry may succeed after an error: another connection has locked the file."""
    return "locked" in str(error) or "busy" in str(error)
