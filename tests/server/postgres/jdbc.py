"""PostgreSQL's JDBC driver, for tests: `python -m tests.server.postgres.jdbc` fetches it into the user's cache."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kafka_broker import BrokerError, fetch_jars

JARS = Path(__file__).with_name("jdbc_jars.txt")


def fetch() -> list[Path]:
    """Return the driver, downloaded once."""
    return fetch_jars(JARS, "jdbc")


if __name__ == "__main__":
    try:
        fetch()
    except BrokerError as failed:
        sys.exit(f"error: {failed}")
