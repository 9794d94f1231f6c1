"""The `faker` connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.faker.source import DEFAULT_RATE, FakeRows, read_fake
from sqlstream.connectors.generated_rows import NumberedSource, RowDiscovery, RowRange
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext
from sqlstream.connectors.options import COUNT, TEXT, OptionType, TableOption
from sqlstream.connectors.read_plan import ReadPlan

if TYPE_CHECKING:
    import duckdb


def _whole(text: str) -> int:
    return int(text)


class FakerSource(NumberedSource):
    """Rows that are made up from their numbers."""

    replay = Replay.DETERMINISTIC
    replay_reason = "each row is made up again from its number"
    rewinds = True
    slot: str | None = None

    @property
    def bounded(self) -> bool:
        return FakeRows(self.table).total is not None

    def discovery(self, position: Offsets, context: DiscoveryContext) -> RowDiscovery:
        rows = FakeRows(self.table)
        return RowDiscovery(position, context, total=rows.total, rate=rows.rate)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[RowRange], context: ReadContext) -> ReadPlan:
        return read_fake(con, splits, self.table, context.time)


class FakerConnector(Connector):
    """Tables of made-up rows that look like real ones."""

    name = "faker"
    summary = "made-up rows, with the options and expressions of Flink's `faker`"
    reach = Reach.NOTHING
    options = (
        TableOption("rows-per-second", COUNT, "how many rows are made up in a second", default=str(DEFAULT_RATE)),
        TableOption("number-of-rows", COUNT, "how many rows there are; by default without end"),
        TableOption("seed", OptionType("whole number", _whole), "another seed gives other rows", default="0"),
    )
    source_type = FakerSource

    def own_options(self, table: Table) -> Sequence[TableOption]:
        return [TableOption(name, TEXT, "") for name in FakeRows(table).field_options()]

    def validate(self, table: Table) -> None:
        FakeRows(table).validate()

    def prepare(self, table: Table) -> Table:
        """Return the table. Raises UsageError without Faker, BindError if the first row does not fit the columns."""
        FakeRows(table).check_sample()
        return table
