"""Tables that live as long as a batch."""

from __future__ import annotations

import duckdb


def keep(con: duckdb.DuckDBPyConnection, name: str, sql: str) -> int:
    """Make a temporary table of a query, and return how many rows it has."""
    [(count,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}").fetchall()
    return int(count)
