"""Answers for clients of Flight SQL as Arrow batches, in the process of the query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import quote_name
from sqlstream.errors import QueryError
from sqlstream.server.query_processes.protocol import ROW_BYTES
from sqlstream.server.query_processes.worker import Worker
from sqlstream.session.rendering import error_of_rows

# Rows per batch of DuckDB's. Clients refuse large messages, those in Go above 4 MiB: larger batches are split.
_ROWS = 65_536
MESSAGE_BYTES = 2 << 20
_ENUM = re.compile(r"ENUM\((?:'(?:[^']|'')*'(?:, )?)+\)")


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """A request for the answer to a query, or `is_described` for its columns only; `tells_memory`: report DuckDB's memory."""

    sql: str
    is_described: bool = False
    tells_memory: bool = False

    def open(self, worker: Worker) -> RecordAnswer:
        """Return the answer with its columns; its rows are not computed yet. Raises SqlStreamError."""
        return RecordAnswer(self, worker)


class RecordAnswer:
    """The columns of a query as `head`, and its batches, each with the bytes of memory that the query holds."""

    def __init__(self, request: RecordRequest, worker: Worker):
        self._request = request
        self._result = worker.open(request.sql)
        self.is_whole = request.is_described
        try:
            self._relation = _plain(self._result.relation)
            self._schema = _schema(self._relation)
        except duckdb.Error as error:
            self.close()
            raise error_of_rows(error, request.sql) from error
        except BaseException:
            self.close()
            raise
        self.head: bytes = self._schema.serialize().to_pybytes()
        self._batches = self._read()

    def part(self) -> tuple[bytes | None, int]:
        """Return (next batch, bytes of memory that the query holds); (None, 0) after the last one. Raises SqlStreamError."""
        try:
            batch = next(self._batches, None)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if isinstance(error, MemoryError):
                raise
            raise error_of_rows(error, self._request.sql) from error
        if batch is None:
            self.is_whole = True
            return None, 0
        if batch.nbytes > ROW_BYTES:
            raise QueryError(f"a row has more than {ROW_BYTES >> 20} MiB", hint="Select fewer or shorter columns.")
        return batch.serialize().to_pybytes(), batch.nbytes + self._held()

    def _read(self) -> Iterator[pa.RecordBatch]:
        reader = self._relation.to_arrow_reader(_ROWS)
        if not reader.schema.equals(self._schema):
            raise QueryError("the columns of the result have changed", hint="Run the query again.")
        for batch in reader:
            yield from in_parts(batch)

    def _held(self) -> int:
        """Return the bytes of DuckDB's memory that the query holds; 0 if they were not requested."""
        if not self._request.tells_memory or not self._result.connections:
            return 0
        # Another statement on the same connection would end the result.
        with self._result.connections[-1].cursor() as beside:
            [(held,)] = beside.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
        return int(held or 0)

    def close(self) -> None:
        """Close the query's connections."""
        self._result.close()


def _schema(relation: duckdb.DuckDBPyRelation) -> pa.Schema:
    """Return the columns of a relation as Arrow, without computing its rows."""
    schema = relation.limit(0).to_arrow_table().schema
    # DuckDB renames the second of two columns of one name.
    return pa.schema([field.with_name(name) for field, name in zip(schema, relation.columns, strict=True)])


def _plain(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return a relation with texts for enumerations: clients need Arrow's dictionaries before all rows."""
    types = list(map(str, relation.types))
    if not any("ENUM(" in kind for kind in types):
        return relation
    items = (
        f"CAST(#{i} AS {_ENUM.sub('VARCHAR', kind)}) AS {quote_name(name)}"
        for i, (name, kind) in enumerate(zip(relation.columns, types, strict=True), 1)
    )
    return relation.project(", ".join(items))


def in_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that are small enough for a message, unless a single row is larger."""
    count = -(-batch.nbytes // MESSAGE_BYTES)
    if count <= 1 or batch.num_rows <= 1:
        yield batch
        return
    rows = max(batch.num_rows // count, 1)
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        if rows > 1 and part.nbytes > 2 * MESSAGE_BYTES:
            # Some rows are much longer than others.
            yield from in_parts(part)
        else:
            yield part
