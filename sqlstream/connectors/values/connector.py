"""The rows of VALUES as a source: one split, which is all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import VALUES, Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.connectors.generated_rows import RowRange
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext, TableSource
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.internal_columns import ROW
from sqlstream.duck.sql import quote_name

if TYPE_CHECKING:
    import duckdb

ALL = RowRange(0, 1)


class ValuesDiscovery(Discovery):
    """Hands out the rows once."""

    bounded = True

    def __init__(self, position: Offsets):
        super().__init__()
        self._position = position

    def poll(self) -> int:
        return self.waiting

    @property
    def waiting(self) -> int:
        return 0 if self._position.get("") else 1

    def next_batch(self) -> list[RowRange] | None:
        """Return what the next batch reads, or None when the rows were handed out."""
        if not self.waiting:
            return None
        self._position.add([ALL])
        return [ALL]


class Values(TableSource):
    """Rows that stand in a query."""

    replay = Replay.DETERMINISTIC
    replay_reason = "the rows are in the query"
    rewinds = True
    slot: str | None = None
    order = (ROW,)
    split_type = RowRange
    bounded = True

    def discovery(self, position: Offsets, context: DiscoveryContext) -> ValuesDiscovery:
        return ValuesDiscovery(position)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[RowRange], context: ReadContext) -> ReadPlan:
        return ReadPlan(values_sql(self.table))

    def place(self, split: RowRange, number: int) -> str:
        return f"row {number} of VALUES"


class ValuesConnector(Connector):
    """What a query that has its rows in it reads; no table can name it."""

    name = VALUES
    summary = "rows that are written in the query"
    reach = Reach.NOTHING
    source_type = Values


def values_sql(table: Table) -> str:
    """Return a SELECT of the rows of VALUES."""
    names = ", ".join(quote_name(c.name) for c in table.columns if c.metadata is None)
    columns = table.physical
    # Of metadata there is the number of the row.
    values = {c.name: quote_name(c.name) if c.metadata is None else "row_number() OVER () - 1" for c in columns}
    items = ", ".join(f"CAST({values[c.name]} AS {c.type}) AS {quote_name(c.name)}" for c in columns) or "1"
    return f"SELECT {items} FROM (VALUES {table.options['rows']}) AS _values({names})"
