"""How long a PostgreSQL client waits for 100,000 rows of seven columns, and for few (`python -m tests.bench.sql_clients`).

The server is a process of its own, the client is psycopg; medians of so many runs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psycopg

from tests.queries.small_job import SmallJob
from tests.server.postgres import serving

ROWS, RUNS = 100_000, 9
MANY = f"""
SELECT range AS a, range * 2 AS b, 'text ' || range AS c, range / 3 AS d, TIMESTAMP '2024-01-01' + to_seconds(range) AS e,
    range % 2 = 0 AS f, (range / 7)::DECIMAL(12, 3) AS g FROM range({ROWS})
"""


def measure() -> dict[str, float]:
    """Return the seconds that a client waits, by what it asks for."""
    with tempfile.TemporaryDirectory() as folder:
        SmallJob(Path(folder) / "warehouse").batch([("a", 1, 10)], [("a", 1)])
        with (
            serving.started(Path(folder)) as port,
            psycopg.connect(f"host=127.0.0.1 port={port} user=bench", autocommit=True) as con,
        ):
            return {
                f"{ROWS:,} rows as text": _seconds(con, MANY, binary=False),
                f"{ROWS:,} rows in binary": _seconds(con, MANY, binary=True),
                "a small table": _seconds(con, "FROM counts", binary=False),
                "state": _seconds(con, "FROM state.hourly.departures", binary=False),
            }


def _seconds(con: psycopg.Connection[tuple[object, ...]], sql: str, *, binary: bool) -> float:
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        with con.cursor(binary=binary) as cursor:
            cursor.execute(sql.encode())
            # libpq has all rows then; to make Python's values of them is the client's own work.
            found.append(time.perf_counter() - began)
    return median(found)


if __name__ == "__main__":
    for name, seconds in measure().items():
        sys.stdout.write(f"{name:<24} {seconds * 1000:8.1f} ms\n")
