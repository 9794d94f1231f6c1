"""Tables that live as long as a batch, and the rows that leave it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.types import encoded

BATCH_ROWS = 100_000


def keep(con: duckdb.DuckDBPyConnection, name: str, sql: str) -> int:
    """Make a temporary table of a query, and return how many rows it has."""
    [(count,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}").fetchall()
    return int(count)


def leaving(con: duckdb.DuckDBPyConnection, columns: Iterable[Column], sql: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a SELECT as they are computed, in the form in which they are stored."""
    yield from con.sql(encoded(columns, f"({sql})")).to_arrow_reader(BATCH_ROWS)
