"""The `blackhole` connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column
from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import Committer, Connector, Reach, SinkContext, WorkerSink, Writer
from sqlstream.duck.sql import Select

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 100_000


class _DiscardingSink(Writer, Committer):
    """A writer and committer that computes the rows, counts them, and keeps none."""

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, batch: int
    ) -> tuple[int, list[Any]]:
        return sum(b.num_rows for b in con.sql(rows).to_arrow_reader(_BATCH_ROWS)), []

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        pass


class Blackhole(WorkerSink):
    """A table whose rows are counted and dropped."""

    delivery = Delivery.IDEMPOTENT
    delivery_reason = "nothing is written"
    rollback = Rollback.NO_ROWS
    takes_changes = True

    def writer(self, context: SinkContext) -> Writer:
        return _DiscardingSink()

    def committer(self, context: SinkContext) -> Committer:
        return _DiscardingSink()


class BlackholeConnector(Connector):
    """Tables that store no rows."""

    name = "blackhole"
    summary = "counts its rows and drops them"
    reach = Reach.NOTHING
    sink_type = Blackhole
