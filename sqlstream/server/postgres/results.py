"""The rows of an answer, as messages: as they are computed, in as many parts as the client asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import duckdb
import pyarrow as pa

from sqlstream.errors import SourceText
from sqlstream.server.postgres.encoding import encoded, expression
from sqlstream.server.postgres.errors import ProtocolError
from sqlstream.server.postgres.messages import ResultColumn, data_rows, text_rows
from sqlstream.server.postgres.types import TEXT, SentType, column_type
from sqlstream.server.state_reader import RunningQuery, failure

# Rows that are in memory at a time.
ROWS = 10_000
# More than that a query of the catalog, whose rows are all in memory, does not give.
COMPUTED_ROWS = 1_000_000


class ClientAnswer(Protocol):
    """What a statement is answered with: columns, and rows that are taken once."""

    @property
    def columns(self) -> Sequence[ResultColumn]: ...

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        """Return the messages of the next rows, at most so many, how many they are, and whether there may be more."""


class TextRows:
    """Rows of texts that are there already."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str | None]]):
        self.columns: Sequence[ResultColumn] = [ResultColumn(name, SentType(TEXT)) for name in columns]
        self._rows = list(rows)

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        taken, self._rows = (self._rows, []) if count is None else (self._rows[:count], self._rows[count:])
        return text_rows(taken, len(self.columns)), len(taken), bool(self._rows)


class SentRows:
    """The rows of a query, which may be interrupted."""

    def __init__(
        self,
        relation: duckdb.DuckDBPyRelation,
        source: SourceText,
        running: RunningQuery,
        formats: Sequence[int] = (),
        limit: int | None = None,
    ):
        names = zip(relation.columns, relation.types, strict=True)
        described = [ResultColumn(name, column_type(str(type))) for name, type in names]
        self.columns: Sequence[ResultColumn] = _formatted(described, formats)
        self._relation, self._source, self._running = relation, source, running
        self._limit, self._sent = limit, 0
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None

    def computed(self) -> SentRows:
        """Return these rows when all are computed: they need their connection no more. Raises ProtocolError for very many."""
        batches, count = [], 0
        for batch in self._read():
            batches.append(batch)
            count += batch.num_rows
            if count > COMPUTED_ROWS:
                raise ProtocolError(f"a query of the catalog has more than {COMPUTED_ROWS} rows", "54000")
        self._batches = iter(batches)
        return self

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        """Return the messages of a batch of rows at most. Raises SqlStreamError, QueryStopped and ProtocolError."""
        if self._batches is None:
            self._batches = self._read()
        if self._batch is None:
            self._batch = next(self._batches, None)
        if self._batch is None:
            return b"", 0, False
        taken = self._batch if count is None else self._batch.slice(0, count)
        self._batch = self._batch.slice(taken.num_rows) if taken.num_rows < self._batch.num_rows else None
        self._sent += taken.num_rows
        if self._limit is not None and self._sent > self._limit:
            hint = "Aggregate in the query, or write LIMIT."
            raise ProtocolError(f"the result has more than {self._limit} rows", "54000", hint=hint)
        values = [encoded(column, part) for column, part in zip(self.columns, taken.columns, strict=True)]
        return data_rows(values), taken.num_rows, True

    def _read(self) -> Iterator[pa.RecordBatch]:
        items = (f"{expression(column, f'#{i}')} AS c{i}" for i, column in enumerate(self.columns, 1))
        try:
            self._running.check()
            for batch in self._relation.project(", ".join(items)).to_arrow_reader(ROWS):
                self._running.check()
                yield batch
        except (duckdb.Error, OSError) as error:
            raise failure(error, self._source, self._running) from error


def _formatted(columns: Sequence[ResultColumn], formats: Sequence[int]) -> Sequence[ResultColumn]:
    """Return columns with the formats that a client wants: none is text for all, one is for all."""
    if len(formats) not in (0, 1, len(columns)):
        raise ProtocolError(f"there are {len(formats)} result formats for {len(columns)} columns")
    wanted = formats if len(formats) == len(columns) else [*formats, 0][:1] * len(columns)
    return [replace(column, binary=bool(one)) for column, one in zip(columns, wanted, strict=True)]
