"""psycopg, which talks to PostgreSQL servers."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.extras import imported

# Errors of a connection after which another try is of no use; PostgreSQL gives them no number before a session has begun.
_LASTING = (
    *("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "permission denied"),
    *("is not permitted to log in", "does not support SSL", "certificate verify failed"),
)


def load(table: Table) -> ModuleType:
    """Return psycopg; raise UsageError where it is not installed."""
    return imported(table, "postgresql", ["psycopg", "psycopg.sql"])


def is_passing(error: Exception) -> bool:
    """Tell whether an error of a connection may be gone the next time."""
    return not any(word in str(error) for word in _LASTING)


def connect(table: Table, url: str) -> Any:
    """Open a connection in which texts of times mean the same everywhere."""
    psycopg = load(table)
    con = psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="sqlstream")
    con.execute(
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 3"
    )
    con.execute("SET client_encoding = 'UTF8'; SET standard_conforming_strings = on")
    return con


def run(con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement with values for its `%s`; return its rows."""
    cursor = con.execute(statement, values)
    return list(cursor.fetchall()) if cursor.description else []


def reason(error: Any) -> str:
    """Return what a server says about an error, in a line."""
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__qualname__
