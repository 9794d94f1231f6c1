"""Rows that an operator drops as late, kept under a name of their own.

Operators are sent partial results, which are no rows any more. So the fragment before them sends, as a further part, the rows
whose windows the watermark before the batch has passed; the operator keeps those that it drops.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.catalog import Column
from sqlstream.duck import clock
from sqlstream.duck.sql import Rows, quote_name, quote_text
from sqlstream.duck.types import encoded
from sqlstream.operators.groups import Groups
from sqlstream.operators.windows.assigners import END, START, ended
from sqlstream.operators.windows.sessions import Sessions, within
from sqlstream.units import NO_TIME, Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# The part, and the table.
LATE = "late_rows"
TIME = Column("_event_time", "TIMESTAMP")
MARK = Column("_watermark", "TIMESTAMP")
OPERATOR = Column("_operator", "VARCHAR")


@dataclass(frozen=True, slots=True)
class LateRows:
    """What is kept of late rows: their columns, and `time`, the SQL of their event time over input rows.

    `where` says which rows of the input count: with several grouping sets each is there once per set. A window takes rows until
    the watermark has passed its end by the `lateness`.
    """

    columns: tuple[Column, ...]
    time: str
    lateness: Duration = NO_TIME
    where: str = "true"

    @property
    def stored(self) -> tuple[tuple[Column, str], ...]:
        """The stored columns of the rows, with the SQL that makes them from input rows."""
        rows = ((Column(f"c{i}", c.type), quote_name(c.name)) for i, c in enumerate(self.columns))
        return (*rows, (TIME, self.time))

    @property
    def table(self) -> TableDeclaration:
        return TableDeclaration(LATE, (*(c for c, _ in self.stored), MARK))

    def part(self, groups: Groups) -> str:
        """Return what the fragment before the exchange sends: rows that may be late, with the columns of their group."""
        items = [f"{sql} AS {name}" for name, (_, sql) in zip(groups.key_names, groups.keys, strict=True)]
        items += [f"{sql} AS {c.name}" for c, sql in groups.windows.value_columns]
        items += [f"{sql} AS {c.name}" for c, sql in self.stored]
        source = groups.windows.source([sql for _, sql in groups.keys])
        rows = f"SELECT {', '.join(items)} FROM {source} WHERE {self.where}"
        # A session takes rows that begin before the watermark as long as it is open.
        bound = START if isinstance(groups.windows, Sessions) else END
        late = f"{bound} <= {clock.WATERMARK} - to_microseconds({self.lateness})"
        return encoded(self.arriving(groups), f"(SELECT * FROM ({rows}) WHERE {late})")

    def arriving(self, groups: Groups) -> tuple[Column, ...]:
        return (*groups.group, *(c for c, _ in self.stored))

    def dropped(self, groups: Groups, rows: str, watermark: EventTime) -> str:
        """Return those of some rows that are late, once sessions that the batch's rows touch are in the table `_sessions`."""
        if isinstance(groups.windows, Sessions):
            return within(rows, "_sessions", groups.key_names, ended(watermark))
        return f"(SELECT * FROM {rows} WHERE {ended(watermark)})"

    def view(self, operator: str) -> Rows:
        """Return the view of the rows."""
        own = [(c.name, c.type, f"c{i}") for i, c in enumerate(self.columns)]
        added = ((TIME, TIME.name), (MARK, MARK.name), (OPERATOR, quote_text(operator)))
        return Rows.selected(quote_name(LATE), [*own, *((c.name, c.type, sql) for c, sql in added)])
