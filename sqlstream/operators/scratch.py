"""Temporary tables of a batch, and the rows that an operator emits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select, subquery
from sqlstream.duck.types import encoded

# The most rows of an emitted record batch.
BATCH_ROWS = 100_000


def keep(con: duckdb.DuckDBPyConnection, name: str, sql: Select) -> Relation:
    """Materialize a query as the temporary table `name`, replacing an older one, and return the table."""
    return keep_and_count(con, name, sql)[0]


def keep_and_count(con: duckdb.DuckDBPyConnection, name: str, sql: Select) -> tuple[Relation, int]:
    """Materialize a query as the temporary table `name`, replacing an older one; return the table and its number of rows."""
    [(count,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}").fetchall()
    return Relation(name), int(count)


def keep_view(con: duckdb.DuckDBPyConnection, name: str, sql: Select) -> Relation:
    """Make a query the temporary view `name`, replacing an older one, and return the view."""
    con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")
    return Relation(name)


def leaving(con: duckdb.DuckDBPyConnection, columns: Iterable[Column], sql: Select) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a SELECT as DuckDB computes them, with `columns` encoded as they are stored."""
    yield from con.sql(encoded(columns, subquery(sql))).to_arrow_reader(BATCH_ROWS)
