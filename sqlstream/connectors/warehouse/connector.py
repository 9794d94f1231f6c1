"""Tables of the warehouse, which are declared without a connector: jobs of sqlstream write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.guarantees import Delivery, Replay, Rollback
from sqlstream.connectors.interface import (
    Connector,
    LookupFunction,
    Reach,
    ReadContext,
    SinkContext,
    TableLookup,
    TableSink,
    TableSource,
)
from sqlstream.connectors.lookup_rows import KEYS, chosen
from sqlstream.connectors.options import MAX_BYTES, MONITOR
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.connectors.registry import WAREHOUSE
from sqlstream.connectors.warehouse.publishing import PUBLISH, Publisher, check_published, is_published
from sqlstream.connectors.warehouse.source import BatchRange, TableDiscovery, read_tables
from sqlstream.duck.sql import quoted
from sqlstream.errors import Span, UnsupportedError
from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse

if TYPE_CHECKING:
    import duckdb


class CommittedBatches(TableSource):
    """A warehouse table as a source: the batches that jobs have committed to it, in order for each job."""

    replay = Replay.REPLAYABLE
    replay_reason = "committed batches are read again"
    rewinds = True
    slot: str | None = None
    split_type = BatchRange

    def check(self, span: Span | None) -> None:
        if self.table.primary_key:
            raise UnsupportedError(
                f'reading table "{self.table.name}" with a PRIMARY KEY in a job',
                span,
                hint="Rows that were replaced are not there any more: read what the job reads that writes it, with its query in "
                "FROM. Or leave out PRIMARY KEY, if rows are only added: a job reads them in the order of the appends.",
            )

    def discovery(self, position: Offsets, context: DiscoveryContext) -> TableDiscovery:
        return TableDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[BatchRange], context: ReadContext) -> ReadPlan:
        return read_tables(Warehouse(context.warehouse), splits, self.table)


class WarehouseSink(TableSink):
    """A table that the engine itself writes, beside the state of the job."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "rows are committed with the batch"
    # A job that goes back to a savepoint writes its later rows again.
    rollback = Rollback.ROWS_REMOVED
    takes_changes = True
    replaces = True

    def check(self, span: Span | None) -> None:
        check_published(self.table, span)

    def publisher(self, warehouse: Warehouse, context: SinkContext) -> Publisher | None:
        """Return the publisher of the rows that a job commits, for other engines; None if the table is not published."""
        return Publisher(warehouse, context.job, self.table, context) if is_published(self.table) else None


class CommittedRows(LookupFunction):
    """Looks up rows of a warehouse table, among the rows that jobs have committed at the time of the call."""

    def __init__(self, table: Table, warehouse: str):
        self._table, self._warehouse = table, Warehouse(warehouse)

    def __call__(self, keys: pa.Table) -> pa.Table:
        sql = chosen(self._table, quoted(self._table.name), keys)
        rows = open_query(self._warehouse, sql, functions=[lambda con: con.register(KEYS, keys)])
        return rows.to_arrow_table()


class WarehouseLookup(TableLookup):
    """The rows of a table at the time of a lookup."""

    def function(self, *, warehouse: str, project: str) -> CommittedRows:
        return CommittedRows(self.table, warehouse)


class WarehouseConnector(Connector):
    """Tables that name no connector."""

    name = shown = WAREHOUSE
    summary = "a table in the warehouse; state queries can read it while it grows"
    reach = Reach.ELSEWHERE
    options = (replace(MONITOR, mutable=True), MAX_BYTES, PUBLISH)
    source_type = CommittedBatches
    sink_type = WarehouseSink
    lookup_type = WarehouseLookup
