"""Rows of calls with ORDER BY: they wait in state until the watermark has passed them; late rows are dropped.

The time column of a waiting row is a microsecond after its event time: the watermark has passed the row when it reaches that. So
a batch reads only segments with due rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Rows, Select, no_rows, quote_text, quoted, typed
from sqlstream.duck.types import time_literal
from sqlstream.operators.late_rows import TIME, WATERMARK, LateOutput
from sqlstream.operators.operator import Inputs, SideRows
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.inputs import UNTIL, InputPlan
from sqlstream.operators.scratch import keep
from sqlstream.operators.windows.late_rows import LATE, OPERATOR
from sqlstream.storage.metrics import earliest
from sqlstream.storage.segments import Segment
from sqlstream.units import EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# The SQL of the event time of a waiting row, a TIMESTAMP.
_TIME = f"make_timestamp({UNTIL.name} - 1)"


@dataclass(frozen=True)
class WaitingTables:
    """The state tables of waiting rows, one for each of the `inputs`, and of late rows, if the state `keeps_late` rows.

    `keys` are the key columns in state. `late_inputs` are the inputs whose late rows are side outputs, with their indexes among
    the inputs of the operator.
    """

    inputs: tuple[InputPlan, ...]
    keys: tuple[Column, ...]
    keeps_late: bool
    late_inputs: tuple[tuple[int, InputPlan], ...] = ()

    @property
    def declarations(self) -> tuple[TableDeclaration, ...]:
        """The declarations of all tables. Waiting rows expire when the watermark reaches UNTIL; late rows never expire."""
        waiting = [
            TableDeclaration(one.name, one.arriving(self.keys), UNTIL.name, replicated=one.broadcast)
            for one in self.inputs
        ]
        return (*waiting, *(self.late(i) for i in range(len(self.inputs)) if self.keeps_late))

    def late(self, number: int) -> TableDeclaration:
        """Return the declaration of the table of late rows of the input with this number among `inputs`."""
        return TableDeclaration(f"{LATE}_{number}", (*self.inputs[number].arriving(self.keys), WATERMARK))

    def late_outputs(self) -> Iterator[LateOutput]:
        """Yield the side outputs of late rows; their columns are the keys and the columns that the function gets."""
        for index, one in self.late_inputs:
            columns = tuple((Column(name, type), sql) for name, type, sql in self._columns(one))
            yield LateOutput(index, columns, _TIME)

    def waiting_views(self, relations: Relations) -> Iterator[tuple[str, Rows]]:
        """Yield the views of waiting rows, with their names: `waiting` or, of several inputs, `waiting_<argument>`.

        `relations` read the state tables.
        """
        for name, one in zip(self._named("waiting"), self.inputs, strict=True):
            yield name, Rows.selected(relations[one.name], self._shown(one))

    def late_views(self, name: str, operator: str) -> Iterator[tuple[str, Rows]]:
        """Yield the views of late rows in state, called `name` or, of several inputs, `<name>_<argument>`.

        Two more columns have the watermark that each row came behind, and the operator's name, `operator`.
        """
        for number, (own, one) in enumerate(zip(self._named(name), self.inputs, strict=True)):
            more = [
                (WATERMARK.name, WATERMARK.type, WATERMARK.name),
                (OPERATOR.name, OPERATOR.type, quote_text(operator)),
            ]
            yield own, Rows.selected(quoted(self.late(number).name), [*self._shown(one), *more])

    def _named(self, name: str) -> list[str]:
        return [name if len(self.inputs) == 1 else f"{name}_{one.argument}" for one in self.inputs]

    def _shown(self, one: InputPlan) -> list[tuple[str, str, str]]:
        """Return the columns of a view, each with type and SQL: the keys, the function's columns, and the event time."""
        own = [item for item in self._columns(one) if item[0].lower() != TIME.name]
        return [*own, (TIME.name, TIME.type, _TIME)]

    def _columns(self, one: InputPlan) -> list[tuple[str, str, str]]:
        """Return the keys, then the columns that the function gets, each with its type and the state column that stores it."""
        keys = () if one.broadcast else self.keys
        items = [(n, k.type, k.name) for n, k in zip(one.key_names, keys, strict=True)]
        key_names = {n.lower() for n in one.key_names}
        own = [(c.name, c.type, f"c{i}") for i, (c, _) in enumerate(one.columns)]
        return [*items, *(item for item in own if item[0].lower() not in key_names)]


def due_rows(one: InputPlan) -> Relation:
    """Return the temporary table with an input's due rows: those that the watermark has passed."""
    return Relation(f"_due_{one.name}")


class WaitingRows:
    """The waiting rows of a bucket in a batch. Call `take`, then `late_rows` and, at the end of the batch, `wake_at`."""

    def __init__(self, batch: BucketBatch, tables: WaitingTables):
        self.batch, self.con, self.state, self.times, self.tables = batch, batch.con, batch.state, batch.times, tables
        self._dropped: dict[str, list[pa.Table]] = {one.name: [] for one in tables.inputs}

    def take(self, inputs: Inputs) -> Inputs:
        """Yield the rows of inputs that do not wait. Store the rows of the other inputs, if they are not late.

        At its end the iterator makes the temporary tables of due rows (see `due_rows`).
        """
        waiting = {one.name for one in self.tables.inputs}
        for port, rows in inputs:
            if port.part in waiting:
                self._arrive(port.part, rows, never_late=port.never_late)
            else:
                yield port, rows
        for one in self.tables.inputs:
            columns = one.arriving(self.tables.keys)
            due = None
            if self.times.watermark is not None:
                due = self.state.relation(one.name, up_to=self.times.watermark)
            rows_due = no_rows(columns) if due is None else Select(f"SELECT {typed(columns)} FROM {due}")
            keep(self.con, due_rows(one), rows_due)

    def _arrive(self, part: str, rows: pa.Table | Segment, *, never_late: bool) -> None:
        passed = None if never_late else self.times.watermark
        if isinstance(rows, Segment):
            if passed is None or (rows.low is not None and rows.low > passed):
                self.state.adopt(part, [rows])
                return
            rows = self.state.read(rows)
        # A table without rows can be without columns, too.
        if passed is not None and rows.num_columns:
            late = pc.less_equal(rows.column(UNTIL.name), passed)
            self._drop(part, rows.filter(late), passed)
            rows = rows.filter(pc.invert(late))
        self.batch.append(part, rows)

    def _drop(self, part: str, rows: pa.Table, watermark: EventTime) -> None:
        """Count late rows, and store or emit them if the query reads them."""
        one = next(one for one in self.tables.inputs if one.name == part)
        if one.broadcast and not self.state.is_first:
            # All buckets get these rows: one of them counts and stores them.
            return
        self.state.count("late_rows", rows.num_rows)
        self._dropped[part].append(rows)
        if not self.tables.keeps_late or not rows.num_rows:
            return
        number = [one.name for one in self.tables.inputs].index(part)
        table = self.tables.late(number)
        self.con.register("_late", rows)
        marked = Select(f"SELECT *, {time_literal(watermark, WATERMARK.type)} AS {WATERMARK.name} FROM _late")
        self.batch.append(table.name, self.batch.selected(table.columns, marked))

    def late_rows(self) -> Iterator[SideRows]:
        """Yield the late rows of the batch for side outputs."""
        if self.times.watermark is None:
            return
        for output, (_, one) in zip(self.tables.late_outputs(), self.tables.late_inputs, strict=True):
            yield from output.rows(self.con, self._dropped[one.name], self.times.watermark)

    def wake_at(self) -> EventTime | None:
        """Delete the due rows, and return the watermark at which the next row is due, None if no row waits."""
        return earliest(self.state.forget(self.con, one.name, self.batch.until) for one in self.tables.inputs)
