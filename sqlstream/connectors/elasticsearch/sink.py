"""Indexes as sinks: a document for each row, in the place of the one with its id."""

from __future__ import annotations

from collections.abc import Iterator

from sqlstream.catalog import Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.elasticsearch.client import BulkClient, Write, shorten
from sqlstream.connectors.elasticsearch.documents import DOCUMENT, ID, INDEX_NAME, DocumentLayout
from sqlstream.connectors.formats.json_options import check_times
from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import BatchWriter, DriverSink, SinkContext
from sqlstream.errors import DataError, Span

# What one request holds at most: Elasticsearch takes 100 MB, and is fast with requests of some megabytes.
_ROWS, _BYTES = 5_000, 5_000_000


class ElasticsearchSink(DriverSink):
    """An index whose documents a job writes: by the PRIMARY KEY if there is one, else appended."""

    delivery = Delivery.IDEMPOTENT
    delivery_reason = "a document takes the place of the one that has its id"
    rollback = Rollback.ROWS_STAY
    for_changes = "a table with a PRIMARY KEY, which is the id of a document"

    def __init__(self, table: Table):
        super().__init__(table)
        self.takes_changes = self.replaces = bool(table.primary_key)

    def check(self, span: Span | None) -> None:
        check_times(self.table, "json")

    def open(self, context: SinkContext) -> DocumentWriter:
        return DocumentWriter(self.table, context)


class DocumentWriter(BatchWriter):
    """Writes the batches of a job as documents."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._identity = table, context.identity()
        self._layout, self._client = DocumentLayout(table), BulkClient(table)

    def recover(self) -> None:
        self._client.check()

    def write(self, batch: Batch) -> None:
        """Write the rows of a batch. One that comes again writes the same documents."""
        for part in self._parts(batch):
            self._client.write(part)

    def close(self) -> None:
        self._client.close()

    def _parts(self, batch: Batch) -> Iterator[list[Write]]:
        part, size = list[Write](), 0
        for write in self._writes(batch):
            length = len(write[2] or "")
            if part and (len(part) == _ROWS or size + length > _BYTES):
                yield part
                part, size = [], 0
            part.append(write)
            size += length
        if part:
            yield part

    def _writes(self, batch: Batch) -> Iterator[Write]:
        with batch.connection() as con:
            rows = con.sql(self._layout.writes(batch, self._identity)).to_arrow_reader(_ROWS)
            for some in rows:
                columns = (some.column(name).to_pylist() for name in (INDEX_NAME, ID, DOCUMENT))
                for index, id, document in zip(*columns, strict=True):
                    if index is None:
                        raise self._without_index(document)
                    yield index, id, document

    def _without_index(self, document: str | None) -> DataError:
        message = f'a row of table "{self._table.name}" has no index: the column in its name is NULL'
        hint = "Leave such rows out, or give the column another value: COALESCE(column, 'none')."
        return DataError(message, self._table.span, detail=shorten(document) if document else None, hint=hint)
