"""Answers for PostgreSQL's clients, in the process of a query: queries of the warehouse, and of the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from sqlstream.errors import SourceText
from sqlstream.server.postgres.catalog import ClientCatalog, catalog_query
from sqlstream.server.postgres.encoding import encoded, expression
from sqlstream.server.postgres.errors import ProtocolError
from sqlstream.server.postgres.messages import ResultColumn, data_rows
from sqlstream.server.postgres.session import ClientSession
from sqlstream.server.postgres.types import column_type
from sqlstream.server.query_processes.protocol import PART_BYTES, ROW_BYTES
from sqlstream.server.query_processes.worker import OpenRelation, Worker
from sqlstream.session.rendering import error_of_rows

# The number of rows in memory at a time.
ROWS = 10_000
# The most rows of a query of the catalog, which are all in memory.
COMPUTED_ROWS = 1_000_000
_CATALOG = "postgres catalog"


@dataclass(frozen=True, slots=True)
class PostgresRequest:
    """A request for the answer to a query of a session; with `is_described` for its columns only."""

    sql: str
    session: ClientSession
    process: int
    formats: Sequence[int] = ()
    row_limit: int | None = None
    is_described: bool = False

    def open(self, worker: Worker) -> PostgresAnswer:
        """Return the answer with its columns; its rows are not computed yet. Raises SqlStreamError and ProtocolError."""
        source = SourceText("query", self.sql)
        query = catalog_query(self.sql)
        if query is None:
            return PostgresAnswer(self, source, worker.open(self.sql))
        relation = _catalog(self, worker).answer(query, source, worker.tables())
        return PostgresAnswer(self, source, OpenRelation(relation), is_computed=True)


@dataclass(frozen=True, slots=True)
class _CachedCatalog:
    """The catalog of a session, kept for its next query. `of` identifies the session: process, user, database, parameters."""

    of: object
    catalog: ClientCatalog


def _catalog(request: PostgresRequest, worker: Worker) -> ClientCatalog:
    session = request.session
    of = request.process, session.user, session.database, dict(session.values())
    entry = worker.memory.get(_CATALOG)
    if entry is None or entry.of != of:
        if entry is not None:
            entry.catalog.close()
        entry = worker.memory[_CATALOG] = _CachedCatalog(of, ClientCatalog(session, request.process))
    catalog: ClientCatalog = entry.catalog
    return catalog


class PostgresAnswer:
    """The rows of a query as messages, in parts; `head` has the columns, `is_whole` is True after the last part."""

    def __init__(
        self, request: PostgresRequest, source: SourceText, result: OpenRelation, *, is_computed: bool = False
    ):
        self._source, self._result, self._limit, self._sent = source, result, request.row_limit, 0
        self.is_whole = request.is_described
        self._batch: pa.RecordBatch | None = None
        try:
            relation = result.relation
            names = zip(relation.columns, relation.types, strict=True)
            columns = [ResultColumn(name, column_type(str(type))) for name, type in names]
            self.head: Sequence[ResultColumn] = _formatted(columns, request.formats)
            self._batches = self._read()
            if is_computed and not request.is_described:
                # The next query of the catalog uses the same database, which ends the result of this one.
                self._batches = iter(self._computed())
        except BaseException:
            self.close()
            raise

    def part(self, count: int | None) -> tuple[bytes, int, bool]:
        """Return (messages of at most `count` rows, number of these rows, whether there may be more).

        Raises SqlStreamError, and ProtocolError for too many rows or too large a row.
        """
        if self._batch is None:
            self._batch = next(self._batches, None)
        if self._batch is None:
            self.is_whole = True
            return b"", 0, False
        rows = _fitting(self._batch, self._batch.num_rows if count is None else count)
        batch = self._batch.slice(0, rows)
        self._batch = self._batch.slice(rows) if rows < self._batch.num_rows else None
        self._sent += batch.num_rows
        if self._limit is not None and self._sent > self._limit:
            hint = "Aggregate in the query, or write LIMIT."
            raise ProtocolError(f"the result has more than {self._limit} rows", "54000", hint=hint)
        values = [encoded(column, part) for column, part in zip(self.head, batch.columns, strict=True)]
        messages = data_rows(values)
        if len(messages) > ROW_BYTES + PART_BYTES:
            hint = "Select fewer or shorter columns."
            raise ProtocolError(f"a row has more than {ROW_BYTES >> 20} MiB", "54000", hint=hint)
        return messages, batch.num_rows, True

    def _read(self) -> Iterator[pa.RecordBatch]:
        items = (f"{expression(column, f'#{i}')} AS c{i}" for i, column in enumerate(self.head, 1))
        try:
            yield from self._result.relation.project(", ".join(items)).to_arrow_reader(ROWS)
        except (duckdb.Error, OSError) as error:
            raise error_of_rows(error, self._source) from error

    def _computed(self) -> Sequence[pa.RecordBatch]:
        """Return all rows. Raises ProtocolError if there are more than COMPUTED_ROWS."""
        batches, count = [], 0
        for batch in self._read():
            batches.append(batch)
            count += batch.num_rows
            if count > COMPUTED_ROWS:
                raise ProtocolError(f"a query of the catalog has more than {COMPUTED_ROWS} rows", "54000")
        return batches

    def close(self) -> None:
        """Close the database of the query."""
        self._result.close()


def _fitting(batch: pa.RecordBatch, most: int) -> int:
    """Return how many rows of a batch, at most `most`, fit into PART_BYTES; at least one."""
    rows: int = min(most, batch.num_rows)
    while rows > 1 and batch.slice(0, rows).nbytes > PART_BYTES:
        rows //= 2
    return rows


def _formatted(columns: Sequence[ResultColumn], formats: Sequence[int]) -> Sequence[ResultColumn]:
    """Return columns with the formats that a client requests: none means text, and one holds for all columns."""
    if len(formats) not in (0, 1, len(columns)):
        raise ProtocolError(f"there are {len(formats)} result formats for {len(columns)} columns")
    column_formats = formats if len(formats) == len(columns) else [*formats, 0][:1] * len(columns)
    return [replace(column, binary=bool(one)) for column, one in zip(columns, column_formats, strict=True)]
