"""Connections whose statements are spans of a profile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import duckdb
import pyarrow as pa

from sqlstream import profiling
from sqlstream.profiling import DUCKDB, TimedSpan
from sqlstream.secrets import masked

# Letters of a statement that a trace has, and of the name of one that makes no table.
_LONGEST, _LONGEST_NAME = 2_000, 60
_CREATES = re.compile(r"CREATE OR REPLACE TEMP (TABLE|VIEW) (\w+)")
_SETS = re.compile(r"(SET \w+)")
_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d+")


def profiled(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Return a connection for the engine's statements: while a run is profiled, one that records each of them."""
    return cast(duckdb.DuckDBPyConnection, _Connection(con)) if profiling.is_on() else con


def statement_name(sql: str) -> str:
    """Return a short name of a statement, the same in each batch.

    >>> statement_name("CREATE OR REPLACE TEMP TABLE _new AS SELECT 1"), statement_name("SET VARIABLE now = 1")
    ('table _new', 'SET VARIABLE')
    >>> statement_name("SELECT  count(*) FROM read_parquet(['rows-17-0123456789abcdef.parquet'])")
    "SELECT count(*) FROM read_parquet(['rows-#-#.parquet'])"
    """
    head = sql[: 4 * _LONGEST_NAME]
    if (creation := _CREATES.match(head)) is not None:
        return f"{creation[1].lower()} {_NUMBER.sub('#', creation[2])}"
    if (setting := _SETS.match(head)) is not None:
        return setting[1]
    return _NUMBER.sub("#", " ".join(head.split()))[:_LONGEST_NAME]


def _statement(sql: str) -> TimedSpan:
    """Return the span of a statement, with its text without secrets."""
    of = profiling.span(statement_name(sql), DUCKDB)
    of.note(sql=masked(sql)[:_LONGEST])
    return cast(TimedSpan, of)


class _Passing:
    """What DuckDB has, and no profile asks for."""

    def __init__(self, behind: Any):
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


class _Connection(_Passing):
    def execute(self, query: str, *parameters: Any, **named: Any) -> _Result:
        with _statement(query) as of:
            result = self._behind.execute(query, *parameters, **named)
        return _Result(result, of, counts=_CREATES.match(query) is not None)

    def sql(self, query: str, *parameters: Any, **named: Any) -> _Relation | None:
        # DuckDB binds it now, and runs it when rows are asked for.
        with _statement(query) as of:
            relation = self._behind.sql(query, *parameters, **named)
        return None if relation is None else _Relation(relation, of)


class _Result(_Passing):
    """The result of a statement; `counts` if its only value is the number of rows that it has stored."""

    def __init__(self, behind: Any, of: TimedSpan, *, counts: bool):
        super().__init__(behind)
        self._of, self._counts = of, counts

    def fetchall(self) -> list[Any]:
        rows: list[Any] = self._behind.fetchall()
        self._of.note(rows=rows[0][0] if self._counts and rows else len(rows))
        return rows


class _Relation(_Passing):
    def __init__(self, behind: Any, of: TimedSpan):
        super().__init__(behind)
        self._of = of

    def fetchall(self) -> list[Any]:
        with profiling.span(self._of.name, DUCKDB):
            rows: list[Any] = self._behind.fetchall()
        self._of.note(rows=len(rows))
        return rows

    def to_arrow_table(self, *arguments: Any) -> pa.Table:
        with profiling.span(self._of.name, DUCKDB):
            rows = self._behind.to_arrow_table(*arguments)
        self._of.note(rows=rows.num_rows)
        return rows

    def to_arrow_reader(self, *arguments: Any) -> pa.RecordBatchReader:
        with profiling.span(self._of.name, DUCKDB):
            reader = self._behind.to_arrow_reader(*arguments)
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while True:
            with profiling.span(self._of.name, DUCKDB):
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
            self._of.note(rows=batch.num_rows)
            yield batch
