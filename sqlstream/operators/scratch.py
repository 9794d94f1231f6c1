"""Tables that live as long as a batch."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from sqlstream.catalog import Column
from sqlstream.duck.sql import quote_name


def keep(con: duckdb.DuckDBPyConnection, name: str, sql: str) -> int:
    """Make a temporary table of a query, and return how many rows it has."""
    [(count,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}").fetchall()
    return int(count)


def nothing(columns: Iterable[Column]) -> str:
    """Return a SELECT with some columns and no rows."""
    items = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in columns)
    return f"SELECT {items} WHERE false"
