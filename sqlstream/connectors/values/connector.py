"""The rows of VALUES as a source, with one split for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import VALUES, Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.connectors.generated_rows import NumberedSource, RowRange
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import MANY_ROWS, Connector, Reach, ReadContext
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Select, quote_name

if TYPE_CHECKING:
    import duckdb

ALL = RowRange(0, 1)


class ValuesDiscovery(Discovery):
    """Hands out all rows, as one split, once."""

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
        """Return the split of all rows; None if it was handed out."""
        if not self.waiting:
            return None
        self._position.add([ALL])
        return [ALL]


class Values(NumberedSource):
    """The rows of VALUES in a query."""

    replay = Replay.DETERMINISTIC
    replay_reason = "the rows are in the query"
    rewinds = True
    slot: str | None = None
    bounded = True

    def discovery(self, position: Offsets, context: DiscoveryContext) -> ValuesDiscovery:
        return ValuesDiscovery(position)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[RowRange], context: ReadContext) -> ReadPlan:
        return ReadPlan(values_sql(self.table))

    def most_rows(self, split: RowRange) -> int:
        return MANY_ROWS

    def place(self, split: RowRange, number: int) -> str:
        return f"row {number} of VALUES"


class ValuesConnector(Connector):
    """The tables of VALUES in queries. A table's option `connector` cannot name it."""

    name = VALUES
    summary = "rows that are written in the query"
    reach = Reach.NOTHING
    source_type = Values


def values_sql(table: Table) -> Select:
    """Return the rows of VALUES, with the table's physical columns; the SQL of the rows is its option `rows`."""
    names = ", ".join(quote_name(c.name) for c in table.columns if c.metadata is None)
    columns = table.physical
    # The only metadata is the row's number.
    values = {c.name: quote_name(c.name) if c.metadata is None else "row_number() OVER () - 1" for c in columns}
    items = ", ".join(f"CAST({values[c.name]} AS {c.type}) AS {quote_name(c.name)}" for c in columns) or "1"
    return Select(f"SELECT {items} FROM (VALUES {table.options['rows']}) AS _values({names})")
