"""How long the rows of windows are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select, names
from sqlstream.operators.windows.assigners import END
from sqlstream.storage.segments import Segment
from sqlstream.units import Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# The stored time of a row: the end of its window plus the lateness.
KEPT = Column("_kept_until", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Retention:
    """Rows are stored until the watermark reaches the end of their window plus `lateness`.

    With a lateness, also one of 0, tables store that time in the column KEPT. Without, their time column is END.
    """

    lateness: Duration | None = None

    def closed(self, watermark: EventTime | None) -> EventTime | None:
        """Return the time up to which windows are closed: the watermark minus the lateness."""
        return None if watermark is None else EventTime(watermark - (self.lateness or 0))

    def closed_sql(self, watermark: str) -> str:
        """Return the SQL of `closed`; `watermark` is SQL, in microseconds."""
        return watermark if self.lateness is None else f"({watermark} - {self.lateness})"

    def stored_until(self, end: EventTime | None) -> EventTime | None:
        """Return until when the rows of a window that ends at `end` are stored."""
        return None if end is None else EventTime(end + (self.lateness or 0))

    def table(self, table: TableDeclaration) -> TableDeclaration:
        """Return a table with KEPT added as its time column; unchanged without a lateness."""
        if self.lateness is None:
            return table
        merge = self.with_time(table.merge) if table.merge else None
        return replace(table, columns=(*table.columns, KEPT), time_column=KEPT.name, merge=merge)

    def with_time(self, rows: Select) -> Select:
        """Return rows with KEPT added."""
        return rows if self.lateness is None else Select(f"SELECT *, {self._until} AS {KEPT.name} FROM ({rows})")

    def stored(self, table: TableDeclaration, rows: Relation) -> Relation:
        """Return rows to store in `table`, with KEPT computed from END, which may have changed."""
        if self.lateness is None:
            return rows
        own = names(c for c in table.columns if c != KEPT)
        return Relation(f"(SELECT {own}, {self._until} AS {KEPT.name} FROM {rows})")

    def segment(self, segment: Segment) -> Segment:
        """Return a segment with `low` as the least window end: its statistics include the lateness."""
        if self.lateness is None or segment.low is None:
            return segment
        return structs.replace(segment, low=EventTime(segment.low - self.lateness))

    @property
    def _until(self) -> str:
        return f"{END} + to_microseconds({self.lateness})"
