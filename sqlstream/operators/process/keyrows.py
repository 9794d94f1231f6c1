"""The state row of each key, with its values and the lengths of its lists: read for the keys of a batch, stored if changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.sql import Items, Select, quote_name, typed
from sqlstream.duck.types import encoded_items
from sqlstream.functions import types
from sqlstream.functions.codecs import Codec, decoded
from sqlstream.functions.process.aggregating import Aggregator
from sqlstream.functions.process.shapes import encoded_values
from sqlstream.operators.process.arrivals import NUMBER, TOUCHED, blocks
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.tables import AT, KEYS, StateTable, StateTables, is_live, listed
from sqlstream.storage.bucket import EXPIRED
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, summed


@cache
def _bigint() -> Codec:
    # Not when the module is imported: DuckDB would start threads in the process from which workers are forked.
    return types.codec("BIGINT")


class KeyRows:
    """The state rows of the keys of a batch, in the table KEYS.

    A row is a tuple with, for each state in it, a value or the length of a list, followed by the time at which it was written
    (microseconds of processing time) if the state has a time to live. `hints` are the Python types of values, by state.
    """

    def __init__(
        self,
        batch: BucketBatch,
        tables: StateTables,
        hints: Mapping[str, tuple[Any, ...]],
        aggregates: Mapping[str, Aggregator],
    ):
        self.batch, self.tables = batch, tables
        # The aggregate functions of the columns that have accumulators.
        self.aggregates = {one.column: aggregates[n] for one in tables.in_row if (n := one.state.name) in aggregates}
        # The columns of a row behind the key, each with its codec, and what errors call it.
        self.parts: list[tuple[Column, Codec, str]] = []
        for one in tables.in_row:
            assert one.column is not None
            is_value = one.state.kind == "value"
            codec = types.codec(one.column.type, hints[one.state.name][0]) if is_value else _bigint()
            self.parts.append((one.column, codec, f'state "{one.state.name}"'))
            if one.write_time:
                self.parts.append((one.write_time, _bigint(), ""))
        self.stored: pa.Table | None = None
        # The numbers of the changed keys, and their new rows.
        self.numbers: list[int] = []
        self.changed: list[Sequence[Any]] = []

    def load(self) -> Iterator[tuple[Any, ...]]:
        """Return the rows of the keys of the batch, in the order of their numbers; None for what is not stored or has expired.

        If there are no such states, or nothing is stored, the iterator has no end.
        """
        own = self.batch.state.amounts(self.batch.con, KEYS, self.tables.key_names, TOUCHED) if self.parts else None
        if own is None:
            return repeat((None,) * len(self.parts))
        columns = (*self.tables.row, WEIGHT_COLUMN)
        seen = ", ".join(self._seen(one) for one in self.tables.in_row)
        own_columns = ", ".join(f"s.{quote_name(c.name)}" for c in columns)
        joined = f"{TOUCHED} t LEFT JOIN (SELECT * FROM {own}) s ON {self.tables.same('t', 's')}"
        sql = f"SELECT {encoded_items(columns)}, {seen} FROM (SELECT t.{NUMBER}, {own_columns} FROM {joined}) ORDER BY {NUMBER}"
        rows = self.batch.con.sql(sql).to_arrow_table()
        indexes = range(rows.num_columns)
        self.stored = rows.select(indexes[: len(columns)])
        return self._tuples(rows.select(indexes[len(columns) :]))

    def _seen(self, one: StateTable) -> Items:
        """Return a state's value, NULL if it has expired, and the time at which it was written."""
        assert one.column is not None
        if not one.write_time:
            return Items(f"{one.column.name} AS v{one.number}")
        live = is_live(one, one.write_time.name, str(self.batch.times.time))
        value = f"CASE WHEN {live} THEN {one.column.name} END AS v{one.number}"
        return Items(f"{value}, {one.write_time.name} AS t{one.number}")

    def _tuples(self, seen: pa.Table) -> Iterator[tuple[Any, ...]]:
        for block in blocks(seen):
            columns = [decoded(c, v) for (_, c, _), v in zip(self.parts, block.columns, strict=True)]
            yield from zip(*columns, strict=True)

    def change(self, number: int, row: Sequence[Any]) -> None:
        """Set the new row of the key with this number, to be stored by `store`; call it at most once per key."""
        self.numbers.append(number)
        self.changed.append(row)

    def store(self) -> None:
        """Replace the stored rows of the changed keys; a row without values is deleted.

        Raises RowMismatch for a value that does not fit the type of its state; `number_of` tells the key.
        """
        if not self.numbers:
            return
        numbers = pa.array(self.numbers, pa.int64())
        if self.stored is not None:
            has_changed = np.zeros(self.stored.num_rows, dtype=bool)
            has_changed[self.numbers] = True
            old = self.stored.filter(pc.and_(pa.array(has_changed), pc.is_valid(self.stored.column(WEIGHT))))
            self.batch.change(KEYS, old.set_column(old.num_columns - 1, WEIGHT, pc.negate(old.column(WEIGHT))))
        columns = {NUMBER: numbers}
        for index, (column, codec, what) in enumerate(self.parts):
            values = [row[index] for row in self.changed]
            if (aggregate := self.aggregates.get(column)) is not None:
                values = aggregate.settled(values)
            columns[column.name] = encoded_values(what, column.type, codec, values)
        self.batch.con.register("_changed_keys", pa.table(columns))
        parts = typed(column for column, _, _ in self.parts)
        new = f"SELECT {listed(self.tables.keys)}, {parts}, {self.batch.times.time}::BIGINT AS {AT.name}"
        new += (
            f", 1::BIGINT AS {WEIGHT} FROM _changed_keys JOIN {TOUCHED} USING ({NUMBER}) WHERE {self.tables.has_values}"
        )
        self.batch.change(KEYS, self.batch.selected((*self.tables.row, WEIGHT_COLUMN), Select(new)))

    def number_of(self, index: int) -> int:
        """Return the number of a key by its index among the changed keys: the `number` of a RowMismatch."""
        return self.numbers[index]

    def sweep(self) -> None:
        """Delete the expired values of the whole bucket, and rows without values; count rows that lose a value as EXPIRED."""
        rows = self.batch.state.relation(KEYS) if any(one.ttl for one in self.tables.in_row) else None
        if rows is None:
            return
        expiring = [one for one in self.tables.in_row if one.write_time]
        past = {one.number: f"w{one.number} <= {self.batch.times.time - one.ttl}" for one in expiring}
        expired_rows = f"SELECT * FROM ({summed(self.tables.row, rows)}) WHERE {' OR '.join(past.values())}"
        # Values that never expire stay as they are.
        remaining = [
            f"CASE WHEN NOT coalesce({past[one.number]}, false) THEN {one.column.name} END AS {one.column.name}"
            for one in expiring
            if one.column
        ]
        names = listed(self.tables.row)
        sql = (
            f"WITH _past AS MATERIALIZED ({expired_rows}) SELECT {names}, -{WEIGHT} AS {WEIGHT} FROM _past UNION ALL "
            f"SELECT {names}, {WEIGHT} FROM (SELECT * REPLACE ({', '.join(remaining)}) FROM _past) WHERE {self.tables.has_values}"
        )
        changes = self.batch.selected((*self.tables.row, WEIGHT_COLUMN), Select(sql))
        gone = pc.sum(pc.less(changes.column(WEIGHT), 0)).as_py() or 0
        self.batch.change(KEYS, changes)
        self.batch.state.count(EXPIRED, gone)
