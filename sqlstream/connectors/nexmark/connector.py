"""The `nexmark` connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import Column, Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.generated_rows import NumberedSource, RowDiscovery, RowRange
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext
from sqlstream.connectors.nexmark.source import COLUMNS, OPTIONS, Settings, read_nexmark, validate
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.units import now, to_millis

if TYPE_CHECKING:
    import duckdb


class NexmarkEvents(NumberedSource):
    """Nexmark's events, which are computed from their numbers."""

    replay = Replay.DETERMINISTIC
    replay_reason = "each event is generated again from its number"
    rewinds = True
    slot: str | None = None

    @property
    def bounded(self) -> bool:
        return Settings.of(self.table).total is not None

    def discovery(self, position: Offsets, context: DiscoveryContext) -> RowDiscovery:
        events = Settings.of(self.table)
        base = events.base if events.base is not None else context.remember("base", to_millis(now()))
        rate = events.rate if events.limited else None
        return RowDiscovery(position, context, total=events.total, rate=rate, base=base)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[RowRange], context: ReadContext) -> ReadPlan:
        return read_nexmark(con, splits, self.table)


class NexmarkConnector(Connector):
    """Tables of the events of the Nexmark benchmark."""

    name = "nexmark"
    summary = "the events of the Nexmark benchmark: persons, auctions and bids"
    reach = Reach.NOTHING
    options = OPTIONS
    infers = "nexmark"
    source_type = NexmarkEvents

    def validate(self, table: Table) -> None:
        validate(table)

    def columns(self, table: Table, project: str) -> Sequence[Column]:
        return COLUMNS
