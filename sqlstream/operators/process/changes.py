"""The changelog that a function emits: rows that it adds, and rows that it retracts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from sqlstream.duck.sql import Relation, Select, no_rows, subquery, typed
from sqlstream.functions.process.instances import Instance
from sqlstream.operators.operator import SideRows
from sqlstream.operators.process.arrivals import NUMBER, TOUCHED
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.emitted import EmittedRows, Outputs
from sqlstream.operators.process.tables import RESULT, StateTables
from sqlstream.operators.scratch import keep
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, difference, summed


class EmittedChanges(Outputs):
    """The added and retracted rows of a function, with the column WEIGHT; they have no event times.

    A function of mode `upsert` emits whole rows. Its result has at most one row per key, which the state table RESULT stores; a
    batch emits the difference between the new rows and the stored ones.
    """

    def __init__(self, batch: BucketBatch, tables: StateTables, instance: Instance):
        super().__init__(instance, False)
        self.batch, self.tables, self.function = batch, tables, instance.function
        # Retracted rows, in the mode `retract`.
        self.retracted = EmittedRows(instance.implementation.result, False)
        # How many rows had been emitted when a key's row was last deleted, by the key's number, in the mode `upsert`.
        self.deleted: dict[int, int] = {}

    def retract(self, row: Any) -> None:
        """Retract `row` or, in the mode `upsert`, the row of the current key.

        Raises TypeError if `row` is None or, in the mode `upsert`, not None.
        """
        if self.function.changelog_mode == "upsert":
            if row is not None:
                raise TypeError(
                    "ctx.retract() of a class that emits upserts takes the row of the key away: give it none"
                )
            self.deleted[self.number] = len(self.rows)
            return
        if row is None:
            raise TypeError("ctx.retract(row) needs the row that is taken away")
        self.retracted.rows.append(row)
        self.retracted.stamp(self.number, None, late=False)

    def drain(self, keys: Mapping[str, pa.ChunkedArray]) -> list[pa.RecordBatch | SideRows]:
        if not (self.rows or self.retracted.rows or self.deleted):
            return []
        upserts = self.function.changelog_mode == "upsert"
        indexes, numbers = self._last_rows() if upserts else ([], [])
        columns = [*keys, *(c.name for c in self.function.outputs)]
        added, retracted = (one.drain(keys).select(columns) for one in (self.result, self.retracted))
        if upserts:
            changes = self._upserted(added.take(pa.array(indexes, pa.int64())), numbers)
        else:
            changes = pa.concat_tables([_weighted(added, 1), _weighted(retracted, -1)])
        return list(changes.to_batches())

    def _last_rows(self) -> tuple[list[int], list[int]]:
        """Return the indexes among the emitted rows of each key's last row, if it has one, and the numbers of changed keys."""
        last = {number: end - 1 for number, end in zip(self.result.numbers, self.result.ends, strict=True)}
        # If a key's row was deleted before its last row was emitted, the last row replaces it.
        indexes = [index for number, index in last.items() if self.deleted.get(number, 0) <= index]
        numbers = list(last.keys() | self.deleted.keys())
        self.deleted.clear()
        return indexes, numbers

    def _upserted(self, rows: pa.Table, numbers: list[int]) -> pa.Table:
        """Return the changes of the result when keys with these numbers have these rows, or none; store them in RESULT."""
        columns, con = (*self.tables.keys, *self.tables.result), self.batch.con
        con.register("_numbers", pa.table({NUMBER: pa.array(numbers, pa.int64())}))
        of_numbers = Select(f"SELECT * FROM {TOUCHED} SEMI JOIN _numbers USING ({NUMBER})")
        changed = keep(con, "_changed_results", of_numbers)
        con.register("_rows_now", rows.rename_columns([c.name for c in columns]))
        new = Relation(f"(SELECT {typed(columns)}, 1::BIGINT AS {WEIGHT} FROM _rows_now)")
        old = no_rows((*columns, WEIGHT_COLUMN))
        if self._results is not None:
            same = self.tables.same("_result", "c")
            old_rows = Select(f"SELECT * FROM {self._results} _result SEMI JOIN {changed} c ON {same}")
            old = summed(columns, subquery(old_rows))
        changes = self.batch.selected((*columns, WEIGHT_COLUMN), difference(columns, new, subquery(old)))
        self.batch.change(RESULT, changes)
        return changes.rename_columns([*rows.column_names, WEIGHT])

    @cached_property
    def _results(self) -> Relation | None:
        """The rows that keys had before the batch; they stay valid, since a key changes once in a batch."""
        return self.batch.state.rows_of(self.batch.con, RESULT, self.tables.key_names, TOUCHED)


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))
