"""Rows that an operator drops as late: kept under a name of their own, or emitted as a side output.

Operators are sent partial results, which are no rows any more. So the fragment before them sends, as a further part, the rows
whose windows the watermark before the batch has passed; the operator keeps, or emits, those that it drops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck import clock
from sqlstream.duck.sql import Rows, quote_name, quote_text, typed
from sqlstream.duck.types import encoded, time_literal
from sqlstream.operators.groups import Groups, Made, stored_columns
from sqlstream.operators.late_rows import MARK, TIME
from sqlstream.operators.windows.assigners import WindowAssigner
from sqlstream.operators.windows.window_batch import WindowBatch
from sqlstream.units import NO_TIME, Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# The part, the table, and the side output.
LATE = "late_rows"
OPERATOR = Column("_operator", "VARCHAR")


@dataclass(frozen=True, slots=True)
class LateRowsPart:
    """What becomes of late rows: their columns, and `time`, the SQL of their event time over input rows.

    They are `kept`, `emitted`, or both.
    `where` says which rows of the input count: with several grouping sets each is there once per set. A window takes rows until
    the watermark has passed its end by the `lateness`.
    """

    columns: tuple[Column, ...]
    time: str
    lateness: Duration = NO_TIME
    where: str = "true"
    kept: bool = True
    emitted: bool = False

    @property
    def stored(self) -> Made:
        """The stored columns of the rows, with the SQL that makes them from input rows."""
        return (*stored_columns(self.columns), (TIME, self.time))

    @property
    def table(self) -> TableDeclaration:
        return TableDeclaration(LATE, (*(c for c, _ in self.stored), MARK))

    def part(self, groups: Groups[WindowAssigner]) -> str:
        """Return what the fragment before the exchange sends: rows that may be late, with the columns of their group."""
        items = [*groups.made_keys, *(f"{sql} AS {c.name}" for c, sql in groups.windows.value_columns)]
        items += [f"{sql} AS {c.name}" for c, sql in self.stored]
        rows = f"SELECT {', '.join(items)} FROM {groups.source} WHERE {self.where}"
        late = f"{groups.windows.may_be_late} <= {clock.WATERMARK} - to_microseconds({self.lateness})"
        return encoded(self.arriving(groups), f"(SELECT * FROM ({rows}) WHERE {late})")

    def arriving(self, groups: Groups[WindowAssigner]) -> tuple[Column, ...]:
        return (*groups.columns, *(c for c, _ in self.stored))

    def dropped(self, groups: Groups[WindowAssigner], rows: Sequence[pa.Table], batch: WindowBatch) -> pa.Table:
        """Return those of some rows that are late, as they are stored; others have been admitted before."""
        assert batch.closed is not None
        batch.con.register("_may_be_late", pa.concat_tables(rows, promote_options="permissive"))
        given = f"(SELECT {typed(self.arriving(groups))} FROM _may_be_late)"
        mark = f"{time_literal(batch.clock.watermark or EventTime(0), 'TIMESTAMP')} AS {MARK.name}"
        late = f"(SELECT *, {mark} FROM {groups.windows.late(given, groups.key_names, batch.closed)})"
        return batch.con.sql(encoded(self.table.columns, late)).to_arrow_table()

    def view(self, operator: str) -> Rows:
        """Return the view of the rows."""
        own = [(c.name, c.type, f"c{i}") for i, c in enumerate(self.columns)]
        added = ((TIME, TIME.name), (MARK, MARK.name), (OPERATOR, quote_text(operator)))
        return Rows.selected(quote_name(LATE), [*own, *((c.name, c.type, sql) for c, sql in added)])
