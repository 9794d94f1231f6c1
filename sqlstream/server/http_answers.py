"""Answers to queries over HTTP, as JSON or as an Arrow stream. The query's process makes the bytes that the server sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import quote_name
from sqlstream.server.query_processes.protocol import PART_BYTES
from sqlstream.server.query_processes.worker import OpenRelation, Worker
from sqlstream.session.rendering import ROWS, error_of_rows, finite, plain_value, values_of
from sqlstream.session.state_tools import run_own_sql

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
_TEXT_PART = 1 << 16


@dataclass(frozen=True, slots=True)
class HttpQuery:
    """A query of an HTTP client. An answer in JSON has at most `limit` rows; with `text`, all values are texts.

    `is_made` says that the server wrote the SQL: errors then show no position in it, which would mean nothing to the client.
    """

    sql: str
    limit: int
    text: bool = False
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request for the answer to a query in the form JSON or ARROW."""

    query: HttpQuery
    form: str

    def open(self, worker: Worker) -> HttpAnswer:
        """Return the answer, with its first part. Raises SqlStreamError."""
        return HttpAnswer(self, worker)


class HttpAnswer:
    """The bytes of an answer, in parts."""

    def __init__(self, request: HttpRequest, worker: Worker):
        self._query = request.query
        if request.query.is_made:
            self._result = run_own_sql(worker.open, request.query.sql)
        else:
            self._result = worker.open(request.query.sql)
        self._parts = _small(_arrow(self._result) if request.form == ARROW else _json(self._result, request.query))
        self.is_whole = False
        try:
            self.head = self.part()
        except BaseException:
            self.close()
            raise

    def part(self, *arguments: Any) -> bytes:
        """Return the next part. Raises SqlStreamError."""
        try:
            part, self.is_whole = next(self._parts)
        except duckdb.Error as error:
            failed = error_of_rows(error, self._query.sql)
            if self._query.is_made and failed.span is not None:
                failed.span = None
            raise failed from error
        return part

    def close(self) -> None:
        """Close the query's connections."""
        self._result.close()


def _small(parts: Iterator[tuple[bytes, bool]]) -> Iterator[tuple[bytes, bool]]:
    """Yield parts of limited size: the server's memory must not depend on the size of a row."""
    for part, is_last in parts:
        for start in range(0, max(len(part), 1), PART_BYTES):
            yield part[start : start + PART_BYTES], is_last and start + PART_BYTES >= len(part)


def _arrow(result: OpenRelation) -> Iterator[tuple[bytes, bool]]:
    reader = result.relation.to_arrow_reader(ROWS)
    sink = _Parts()
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield sink.take(), False
    yield sink.take(), True


class _Parts:
    """A file in memory that collects what is written to it until `take` returns and removes it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        content, self._parts = b"".join(self._parts), []
        return content

    def flush(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


def _json(result: OpenRelation, query: HttpQuery) -> Iterator[tuple[bytes, bool]]:
    relation = result.relation
    types = zip(relation.columns, relation.types, strict=True)
    columns = json.dumps([{"name": name, "type": str(kind)} for name, kind in types])
    text = f'{{"columns":{columns},"rows":['
    # One more row shows whether the result is cut off.
    rows = relation.limit(query.limit + 1)
    is_cut = False
    for count, row in enumerate(values_of(_as_texts(rows) if query.text else rows)):
        if is_cut := count == query.limit:
            break
        values = json.dumps(list(map(finite, row)), default=plain_value, ensure_ascii=False)
        text += f",{values}" if count else values
        if len(text) > _TEXT_PART:
            yield text.encode(), False
            text = ""
    yield f'{text}],"truncated":{json.dumps(is_cut)}}}\n'.encode(), True


def _as_texts(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return a relation with its values as texts; of a STRUCT, each field is a text."""
    items = []
    # By position: names may repeat.
    for index, kind in enumerate(relation.types, 1):
        sql_type = "VARCHAR"
        if kind.id == "struct":
            sql_type = f"STRUCT({', '.join(f'{quote_name(field)} VARCHAR' for field, _ in kind.children)})"
        items.append(f"CAST(#{index} AS {sql_type})")
    return relation.project(", ".join(items))
