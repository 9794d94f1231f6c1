"""Temporary tables of a batch, and the rows that an operator emits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.types import encoded

# The most rows of an emitted record batch.
BATCH_ROWS = 100_000


def keep(con: duckdb.DuckDBPyConnection, name: str, sql: str) -> int:
    """Materialize a query as the temporary table `name`, replacing an older one, and return its number of rows."""
    [(count,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}").fetchall()
    return int(count)


def leaving(con: duckdb.DuckDBPyConnection, columns: Iterable[Column], sql: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a SELECT as DuckDB computes them, with `columns` encoded as they are stored."""
    yield from con.sql(encoded(columns, f"({sql})")).to_arrow_reader(BATCH_ROWS)
