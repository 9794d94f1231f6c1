"""Late rows of window operators: stored in a table of their own, emitted as a side output, or both.

Operators receive partial aggregates, which do not contain the rows. So the upstream fragment also sends, as a further part, rows
whose windows the watermark before the batch has passed; the operator stores or emits the ones that it drops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck import time_variables
from sqlstream.duck.sql import TRUE, Condition, Rows, Select, quote_text, quoted, rows_where, subquery, typed
from sqlstream.duck.types import encoded, time_literal
from sqlstream.operators.groups import ComputedColumns, Groups, stored_columns
from sqlstream.operators.late_rows import TIME, WATERMARK
from sqlstream.operators.windows.assigners import WindowAssigner
from sqlstream.operators.windows.window_batch import WindowBatch
from sqlstream.units import NO_TIME, Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# The name of the part, of the table and of the side output.
LATE = "late_rows"
OPERATOR = Column("_operator", "VARCHAR")


@dataclass(frozen=True, slots=True)
class LateRowsPart:
    """Late rows of a window operator: their columns, and `time`, the SQL of their event time over input rows.

    They are stored if `in_table`, a side output if `emitted`, or both. `where` selects input rows: with several grouping sets,
    each row arrives once per set. A window takes rows until the watermark has passed its end by `lateness`.
    """

    columns: tuple[Column, ...]
    time: str
    lateness: Duration = NO_TIME
    where: Condition = TRUE
    in_table: bool = True
    emitted: bool = False

    @property
    def stored(self) -> ComputedColumns:
        """The stored columns, each with its SQL over input rows: c0, c1, .., then the event time."""
        return (*stored_columns(self.columns), (TIME, self.time))

    @property
    def table(self) -> TableDeclaration:
        """The table of late rows: `stored`, and MARK, the watermark that the rows came behind."""
        return TableDeclaration(LATE, (*(c for c, _ in self.stored), WATERMARK))

    def part(self, groups: Groups[WindowAssigner]) -> Select:
        """Return what the upstream fragment computes: rows that may be late, as `arriving`, encoded for storage."""
        items = [*groups.key_items, *(f"{sql} AS {c.name}" for c, sql in groups.windows.value_columns)]
        items += [f"{sql} AS {c.name}" for c, sql in self.stored]
        rows = Select(f"SELECT {', '.join(items)} FROM {groups.source} WHERE {self.where}")
        late = Condition(
            f"{groups.windows.may_be_late} <= {time_variables.WATERMARK_ABOVE} - to_microseconds({self.lateness})"
        )
        return encoded(self.arriving(groups), rows_where(subquery(rows), late))

    def arriving(self, groups: Groups[WindowAssigner]) -> tuple[Column, ...]:
        """Return the columns of rows that may be late: the group, then `stored`."""
        return (*groups.columns, *(c for c, _ in self.stored))

    def dropped(self, groups: Groups[WindowAssigner], rows: Sequence[pa.Table], batch: WindowBatch) -> pa.Table:
        """Return the late rows among arrived `rows`, as the table stores them. Admit the rows that are not late before."""
        assert batch.closed is not None
        batch.con.register("_may_be_late", pa.concat_tables(rows, promote_options="permissive"))
        candidates = subquery(Select(f"SELECT {typed(self.arriving(groups))} FROM _may_be_late"))
        watermark = f"{time_literal(batch.times.watermark or EventTime(0), 'TIMESTAMP')} AS {WATERMARK.name}"
        late = Select(f"SELECT *, {watermark} FROM {groups.windows.late(candidates, groups.key_names, batch.closed)}")
        return batch.con.sql(encoded(self.table.columns, subquery(late))).to_arrow_table()

    def view(self, operator: str) -> Rows:
        """Return the view of the stored late rows: their columns, event time, watermark, and the operator's name."""
        own = [(c.name, c.type, f"c{i}") for i, c in enumerate(self.columns)]
        added = ((TIME, TIME.name), (WATERMARK, WATERMARK.name), (OPERATOR, quote_text(operator)))
        return Rows.selected(quoted(LATE), [*own, *((c.name, c.type, sql) for c, sql in added)])
