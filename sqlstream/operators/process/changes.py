"""A batch of a function whose input or output is a changelog: rows are added and retracted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.duck.sql import no_rows, typed
from sqlstream.duck.types import encoded
from sqlstream.operators.operator import SideRows
from sqlstream.operators.process.arrivals import NUMBER, TOUCHED
from sqlstream.operators.process.emitted import EmittedRows
from sqlstream.operators.process.runs import BatchRun, KeyedInput, row_reader
from sqlstream.operators.process.tables import RESULT
from sqlstream.operators.scratch import keep
from sqlstream.storage.bucket import WEIGHTS
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, difference, summed

# The temporary table of the keys whose upserted rows change.
_CHANGED = "_changed_results"


class ChangesRun(BatchRun):
    """Runs a function that takes or emits changes; it yields the rows to add and to retract, with the column WEIGHT.

    A function of mode `upsert` emits whole rows: the result has at most one row per key, which the state table RESULT keeps, and
    the changes are the difference to it. Changes have no event times.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        result = self.instance.implementation.result
        if self.function.changelog_mode:
            # Changes have no event times.
            self.output = EmittedRows(result, False)
            self.emitted = self.output.rows
        # Retracted rows, in the mode `retract`.
        self.retracted = EmittedRows(result, False)
        # How many rows had been emitted when a key's row was last deleted, by the key's number, in the mode `upsert`.
        self.deleted: dict[int, int] = {}
        if self.function.changelog_mode:
            self.context._retract = self._retract

    # -- changes in

    def _inputs(self) -> list[KeyedInput]:
        found: list[KeyedInput] = []
        for number, one in self.arrivals.keyed:
            rows = self.arrivals.rows(number)
            signs = pc.less(rows.column(WEIGHT), 0).to_pylist() if one.changing else None
            own = rows.drop_columns([WEIGHT]) if one.changing else rows
            found.append(_ChangingInput(own, row_reader(self.instance, number, one), self.count, self.timed, signs))
        return found

    def _call(self, method: Any, rows: KeyedInput, size: int, number: int) -> None:
        assert isinstance(rows, _ChangingInput)
        if rows.retractions is None:
            super()._call(method, rows, size, number)
            return
        for self.context.is_retraction in islice(rows.retractions, size):
            super()._call(method, rows, 1, number)
        self.context.is_retraction = False

    # -- changes out

    def _retract(self, row: Any) -> None:
        if self.function.changelog_mode == "upsert":
            if row is not None:
                raise TypeError(
                    "ctx.retract() of a class that emits upserts takes the row of the key away: give it none"
                )
            self.deleted[self.number] = len(self.emitted)
            return
        if row is None:
            raise TypeError("ctx.retract(row) needs the row that is taken away")
        self.retracted.rows.append(row)
        self.retracted.mark(self.number, None, late=False)

    def _flushed(self) -> Iterator[pa.RecordBatch | SideRows]:
        if not self.function.changelog_mode:
            yield from super()._flushed()
            return
        if not (self.emitted or self.retracted.rows or self.deleted):
            return
        keys = {c.name: self.touched.column(f"k{i}") for i, c in enumerate(self.keys)}
        upserts = self.function.changelog_mode == "upsert"
        places, numbers = self._last_rows() if upserts else ([], [])
        columns = [*keys, *(c.name for c in self.function.outputs)]
        with self._placed(lambda number: number):
            added, retracted = (one.taken(keys).select(columns) for one in (self.output, self.retracted))
        if upserts:
            changes = self._upserted(added.take(pa.array(places, pa.int64())), numbers)
        else:
            changes = pa.concat_tables([_weighted(added, 1), _weighted(retracted, -1)])
        yield from changes.to_batches()

    def _last_rows(self) -> tuple[list[int], list[int]]:
        """Return the places, among the emitted rows, of the rows that keys have now, and the numbers of the changed keys."""
        last = {number: end - 1 for number, end in zip(self.output.numbers, self.output.ends, strict=True)}
        # A row that was deleted before the last one was emitted has been replaced by that.
        places = [place for number, place in last.items() if self.deleted.get(number, 0) <= place]
        numbers = list(last.keys() | self.deleted.keys())
        self.deleted.clear()
        return places, numbers

    def _upserted(self, rows: pa.Table, numbers: list[int]) -> pa.Table:
        """Return the changes of the result when keys with these numbers have these rows, or none; store them in RESULT."""
        columns = (*self.tables.keys, *self.tables.result)
        self.con.register("_numbers", pa.table({NUMBER: pa.array(numbers, pa.int64())}))
        keep(self.con, _CHANGED, f"SELECT * FROM {TOUCHED} SEMI JOIN _numbers USING ({NUMBER})")
        self.con.register("_rows_now", rows.rename_columns([c.name for c in columns]))
        new = f"(SELECT {typed(columns)}, 1::BIGINT AS {WEIGHT} FROM _rows_now)"
        old = f"({no_rows((*columns, WEIGHT_COLUMN))})"
        if self._results is not None:
            same = self.tables.same("_result", "c")
            old = f"({summed(columns, f'(SELECT * FROM {self._results} _result SEMI JOIN {_CHANGED} c ON {same})')})"
        sql = encoded((*columns, WEIGHT_COLUMN), f"({difference(columns, new, old)})")
        changes = self.con.sql(sql).to_arrow_table()
        self.state.append(RESULT, changes, self.clock.batch)
        self.state.count(WEIGHTS, pc.sum(changes.column(WEIGHT)).as_py() or 0)
        return changes.rename_columns([*(c.name for c in (*self.keys, *self.function.outputs)), WEIGHT])

    @cached_property
    def _results(self) -> str | None:
        """The relation of the rows that keys had before the batch; it stays valid, since a key changes once in a batch."""
        return self.state.rows_of(self.con, RESULT, self.tables.key_names, TOUCHED)


class _ChangingInput(KeyedInput):
    """The rows of an input and, if it is a changelog, whether each is a retraction."""

    def __init__(self, table: pa.Table, reader: Any, count: int, timed: bool, signs: list[bool] | None):
        super().__init__(table, reader, count, timed)
        self.retractions: Iterator[bool] | None = None if signs is None else iter(signs)


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))
