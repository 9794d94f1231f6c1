"""How long clients of PostgreSQL and of Flight SQL wait for many rows, and for few (`python -m tests.bench.sql_clients`).

The servers are processes of their own, the clients psycopg and ADBC's driver; medians of so many runs. The many rows have seven
columns. PostgreSQL's client is asked for fewer of them: each takes it longer.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi
import psycopg

from tests.queries.small_job import SmallJob
from tests.server.flight import serving as flight
from tests.server.postgres import serving as postgres

ROWS, ARROW_ROWS, RUNS = 100_000, 1_000_000, 9


def many(rows: int) -> str:
    """Return a query with so many rows."""
    return f"""
    SELECT range AS a, range * 2 AS b, 'text ' || range AS c, range / 3 AS d, TIMESTAMP '2024-01-01' + to_seconds(range) AS e,
        range % 2 = 0 AS f, (range / 7)::DECIMAL(12, 3) AS g FROM range({rows})
    """


TABLE, STATE = "FROM counts", "FROM state.hourly.departures"


def measure() -> dict[str, float]:
    """Return the seconds that a client waits, by what it asks for."""
    with tempfile.TemporaryDirectory() as folder:
        SmallJob(Path(folder) / "warehouse").batch([("a", 1, 10)], [("a", 1)])
        return {**_postgres(Path(folder)), **_flight(Path(folder))}


def _postgres(folder: Path) -> dict[str, float]:
    with (
        postgres.started(folder) as port,
        psycopg.connect(f"host=127.0.0.1 port={port} user=bench", autocommit=True) as con,
    ):

        def ask(sql: str, *, binary: bool) -> None:
            with con.cursor(binary=binary) as cursor:
                # libpq has all rows then; to make Python's values of them is the client's own work.
                cursor.execute(sql.encode())

        return {
            f"PostgreSQL: {ROWS:,} rows as text": _seconds(lambda: ask(many(ROWS), binary=False)),
            f"PostgreSQL: {ROWS:,} rows in binary": _seconds(lambda: ask(many(ROWS), binary=True)),
            "PostgreSQL: a small table": _seconds(lambda: ask(TABLE, binary=False)),
            "PostgreSQL: state": _seconds(lambda: ask(STATE, binary=False)),
        }


def _flight(folder: Path) -> dict[str, float]:
    with (
        flight.started(folder) as port,
        adbc_driver_flightsql.dbapi.connect(f"grpc://127.0.0.1:{port}") as con,
        con.cursor() as cursor,
    ):

        def ask(sql: str) -> None:
            cursor.execute(sql)
            cursor.fetch_arrow_table()

        return {
            f"Flight SQL: {ROWS:,} rows": _seconds(lambda: ask(many(ROWS))),
            f"Flight SQL: {ARROW_ROWS:,} rows": _seconds(lambda: ask(many(ARROW_ROWS))),
            f"Flight SQL: {ARROW_ROWS:,} rows of a number": _seconds(lambda: ask(f"FROM range({ARROW_ROWS})")),
            "Flight SQL: a small table": _seconds(lambda: ask(TABLE)),
            "Flight SQL: state": _seconds(lambda: ask(STATE)),
        }


def _seconds(ask: Callable[[], None]) -> float:
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        ask()
        found.append(time.perf_counter() - began)
    return median(found)


if __name__ == "__main__":
    for name, seconds in measure().items():
        sys.stdout.write(f"{name:<44} {seconds * 1000:8.1f} ms\n")
