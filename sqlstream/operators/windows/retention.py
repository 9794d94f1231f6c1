"""Until when the rows of windows are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from sqlstream.catalog import Column
from sqlstream.duck.sql import names
from sqlstream.operators.windows.assigners import END
from sqlstream.storage.segments import Segment
from sqlstream.units import Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# The stored time: the end of a row's window, and the lateness.
KEPT = Column("_kept_until", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Retention:
    """Rows are kept until the watermark passes the end of their window, or is a `lateness` beyond it.

    With a lateness, also one of 0, the time until which a row is kept is a stored column of its own.
    """

    lateness: Duration | None = None

    def closed(self, watermark: EventTime | None) -> EventTime | None:
        """Return the time up to which windows that have ended are forgotten."""
        return None if watermark is None else EventTime(watermark - (self.lateness or 0))

    def closed_sql(self, watermark: str) -> str:
        return watermark if self.lateness is None else f"({watermark} - {self.lateness})"

    def kept(self, end: EventTime | None) -> EventTime | None:
        """Return the time until which the rows of windows with an end are kept."""
        return None if end is None else EventTime(end + (self.lateness or 0))

    def table(self, table: TableDeclaration) -> TableDeclaration:
        """Return a table of rows of windows as it is kept."""
        if self.lateness is None:
            return table
        merge = f"SELECT *, {self._until} AS {KEPT.name} FROM ({table.merge})" if table.merge else None
        return replace(table, columns=(*table.columns, KEPT), time_column=KEPT.name, merge=merge)

    def made(self, rows: str) -> str:
        """Return the SELECT of rows of such a table, from that of its other columns."""
        return rows if self.lateness is None else f"SELECT *, {self._until} AS {KEPT.name} FROM ({rows})"

    def stored(self, table: TableDeclaration, rows: str) -> str:
        """Return rows that are to be stored in such a table, whose windows may end later by now; they go behind FROM."""
        if self.lateness is None:
            return rows
        own = names(c for c in table.columns if c != KEPT)
        return f"(SELECT {own}, {self._until} AS {KEPT.name} FROM {rows})"

    def segment(self, segment: Segment) -> Segment:
        """Return a segment as it is with the ends of windows for its time."""
        if self.lateness is None or segment.low is None:
            return segment
        return structs.replace(segment, low=EventTime(segment.low - self.lateness))

    @property
    def _until(self) -> str:
        return f"{END} + to_microseconds({self.lateness})"
