"""The `datagen` connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import Table
from sqlstream.connectors.datagen.source import DEFAULT_RATE, Generator, read_generated, whole
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.generated_rows import NumberedSource, RowDiscovery, RowRange
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext
from sqlstream.connectors.options import COUNT, TEXT, OptionType, TableOption
from sqlstream.connectors.read_plan import ReadPlan

if TYPE_CHECKING:
    import duckdb


class GeneratedRows(NumberedSource):
    """Rows that are computed from their numbers."""

    replay = Replay.DETERMINISTIC
    replay_reason = "each row is generated again from its number"
    rewinds = True
    slot: str | None = None

    @property
    def bounded(self) -> bool:
        return Generator(self.table).total is not None

    def discovery(self, position: Offsets, context: DiscoveryContext) -> RowDiscovery:
        generator = Generator(self.table)
        return RowDiscovery(position, context, total=generator.total, rate=generator.rate)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[RowRange], context: ReadContext) -> ReadPlan:
        return read_generated(splits, self.table, context.time)


class DatagenConnector(Connector):
    """Tables of random rows."""

    name = "datagen"
    summary = "random rows, with the options of Flink's `datagen`"
    reach = Reach.NOTHING
    options = (
        TableOption("rows-per-second", COUNT, "how many rows are generated in a second", default=str(DEFAULT_RATE)),
        TableOption("number-of-rows", COUNT, "how many rows there are; by default without end"),
        TableOption("seed", OptionType("whole number", whole), "another seed gives other rows", default="0"),
    )
    source_type = GeneratedRows

    def own_options(self, table: Table) -> Sequence[TableOption]:
        return [TableOption(name, TEXT, "") for name in Generator(table).field_options()]

    def validate(self, table: Table) -> None:
        Generator(table).validate()
