"""psycopg, which talks to PostgreSQL servers."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.extras import imported

# Texts of connection errors after which a retry is of no use. Before a session has begun, errors have no SQLSTATE.
_LASTING = (
    *("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "permission denied"),
    *("is not permitted to log in", "does not support SSL", "certificate verify failed"),
)


def load(table: Table) -> ModuleType:
    """Return the module `psycopg`. Raises UsageError if it is not installed."""
    return imported(table, "postgresql", ["psycopg", "psycopg.sql"])


def is_passing(error: Exception) -> bool:
    """Whether a retry may succeed after an error of a connection."""
    return not any(word in str(error) for word in _LASTING)


def connect(table: Table, url: str) -> Any:
    """Open a session in autocommit mode, with settings that fix the texts of values: time zone UTC, ISO dates, UTF-8.

    Raises psycopg's errors, after 10 seconds without an answer.
    """
    psycopg = load(table)
    con = psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="sqlstream")
    con.execute(
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 3"
    )
    con.execute("SET client_encoding = 'UTF8'; SET standard_conforming_strings = on")
    return con


def run(con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement with values for its `%s`; return its rows, none if it has no result."""
    cursor = con.execute(statement, values)
    return list(cursor.fetchall()) if cursor.description else []


def reason(error: Any) -> str:
    """Return the server's message of an error in one line."""
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__qualname__
