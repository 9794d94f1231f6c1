"""A batch of a function that is vectorized by bucket: it gets all rows, and the state of their keys, as two Arrow tables.

No values become Python objects, and keys have no numbers: DuckDB joins the keys of the batch with their state, and the state that
the function returns with the stored one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import FILE_ORDER
from sqlstream.duck.sql import Relation, Select, quote_name, typed
from sqlstream.duck.time_variables import NEVER
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.context import Context
from sqlstream.functions.process.instances import Instance
from sqlstream.functions.process.shapes import RowMismatch
from sqlstream.functions.process.vectors import TableShape
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.operators.process.arrivals import TOUCHED, Arrivals
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.emitted import LATE_RESULT
from sqlstream.operators.process.keyrows import KeyRows
from sqlstream.operators.process.tables import AT, KEYS, StateTables, is_live, listed
from sqlstream.operators.process.timers import KeyTimers
from sqlstream.operators.scratch import keep
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN
from sqlstream.units import EventTime

# Temporary tables: the stored state of the keys of the batch, and the state that the function has returned.
STORED, RETURNED = Relation("_stored"), Relation("_returned")


class BucketRun:
    """Runs a function that is vectorized by bucket over one batch of one bucket; `keys` are the key columns of the result."""

    def __init__(
        self, batch: BucketBatch, tables: StateTables, keys: tuple[Column, ...], instance: Instance, arrivals: Arrivals
    ):
        self.batch, self.con, self.tables = batch, batch.con, tables
        self.keys, self.instance, self.arrivals = keys, instance, arrivals
        # The keys of the batch, encoded as stored, if sorting the rows has found them.
        self.touched: pa.Table | None = None
        self.values = tuple(Column(s.name, s.type) for s in instance.function.keyed_states)
        [(self.number, self.input)] = arrivals.keyed
        watermark = batch.times.watermark
        first = arrivals.first_in_time(self.number, watermark)
        # A row that is emitted for an earlier time is late. For rows that are on time the function sees an earlier watermark.
        self.late_before = watermark if first is None else first
        self.watermark = watermark if first is None else EventTime(first - 1)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Call the function if there are rows; yield the rows that it returns, then store the state that it returns.

        Raises JobError for what the function raises, and for tables that do not have the declared columns and types, or state of
        a key that has no rows in the batch.
        """
        rows = self._rows()
        if rows.num_rows:
            emitted, state = self._called(rows)
            yield from self._leaving(emitted)
            if state is not None:
                self._store(state)
        if self.batch.is_sweep_due(self.tables):
            KeyRows(self.batch, self.tables, self.instance.implementation.hints, {}).sweep()

    # -- what the function gets

    def _rows(self) -> pa.Table:
        """Return the rows of the batch: the keys, then the columns of the input, under their names in the query."""
        one = self.input
        names = [*(c.name for c in self.keys), *(c.name for c, _ in one.columns)]
        own = [c for c in one.arriving(self.tables.keys) if c.name.startswith("c")]
        stored = [*zip(self.tables.keys, (c.type for c in self.keys), strict=True), *((c, c.type) for c in own)]
        items = [
            f"CAST({c.name} AS {type}) AS {quote_name(name)}" for (c, type), name in zip(stored, names, strict=True)
        ]
        if not self.instance.function.ordered:
            return self._selected(items, Relation(f"_arrived_{self.number}"))
        if (by_key := self.arrivals.by_key(self.number)) is not None:
            rows, self.touched = by_key
            self.con.register("_sorted", rows)
            return self._selected(items, Relation("_sorted"))
        order = [*(c.name for c in self.tables.keys), *self.arrivals.order(one)]
        order += [c.name for c in own] if one.order != FILE_ORDER else []
        return self._selected(items, Relation(f"_arrived_{self.number}"), f" ORDER BY {', '.join(order)}")

    def _selected(self, items: list[str], rows: Relation, order: str = "") -> pa.Table:
        return self.con.sql(f"SELECT {', '.join(items)} FROM {rows}{order}").to_arrow_table().combine_chunks()

    def _state(self) -> pa.Table:
        """Return the table of states: the keys of the batch, and their values, NULL if expired; make the table STORED."""
        if self.touched is None:
            distinct = f"SELECT DISTINCT {listed(self.tables.keys)} FROM _arrived_{self.number}"
        else:
            self.con.register("_distinct", self.touched)
            distinct = f"SELECT {typed(self.tables.keys)} FROM _distinct"
        keep(self.con, TOUCHED, Select(distinct))
        own = self.batch.state.amounts(self.con, KEYS, self.tables.key_names, TOUCHED)
        none = ", ".join(f"NULL AS {c.name}" for c in (*self.tables.row, WEIGHT_COLUMN))
        keep(self.con, STORED, Select(f"SELECT {none} WHERE false" if own is None else f"SELECT * FROM {own}"))
        items = [
            f"CAST(t.{c.name} AS {key.type}) AS {quote_name(key.name)}"
            for c, key in zip(self.tables.keys, self.keys, strict=True)
        ]
        for one, value in zip(self.tables.in_row, self.values, strict=True):
            assert one.column is not None
            live = is_live(one, f"s.w{one.number}", str(self.batch.times.time))
            seen = f"CASE WHEN {live} THEN CAST(s.{one.column.name} AS {value.type}) END"
            items.append(f"{seen} AS {quote_name(value.name)}")
        joined = Relation(f"{TOUCHED} t LEFT JOIN {STORED} s ON {self.tables.same('t', 's')}")
        by = f" ORDER BY {listed(self.tables.keys, 't')}" if self.instance.function.ordered else ""
        states = self._selected(items, joined, by)
        self.state_keys = states.select(range(len(self.keys)))
        return states

    def _called(self, rows: pa.Table) -> tuple[Any, Any]:
        """Return the rows and the state that the function returns; the state is None for a class without states."""
        state = self._state() if self.values else None
        method = self.instance.methods[self.number]
        try:
            if state is None:
                return method(self._context, rows), None
            result = method(self._context, rows, state)
        except (Exception, SystemExit) as error:
            raise self.instance.raised(error, about=f"rows: {rows.num_rows:,}") from error
        self.instance.check_states()
        if not isinstance(result, tuple) or len(result) != 2:
            what = f"returned a {type(result).__qualname__}, not a pair of rows and state"
            raise self.instance.failed(what, "Write return rows, state: each an Arrow table, or None.")
        return result

    @property
    def _context(self) -> Context:
        timers = KeyTimers(NEVER if self.watermark is None else self.watermark, self.batch.times.time, False, False)
        context = Context(timers, _no_key, self.batch.count, _no_output)
        self.batch.set_times(context, self.watermark)
        return context

    # -- what it gives

    def _fitted(self, table: Any, columns: tuple[Column, ...], what: str) -> pa.Table:
        try:
            return TableShape(columns).fitted([] if table is None else [table], what)
        except RowMismatch as error:
            raise self.instance.failed(error.what) from error

    def _leaving(self, rows: Any) -> Iterator[pa.RecordBatch]:
        timed = self.arrivals.timed
        time = (Column(ROWTIME, "TIMESTAMP"),) if timed else ()
        table = self._fitted(rows, (*self.keys, *self.instance.function.outputs, *time), "returned")
        if timed:
            times = table.column(ROWTIME)
            if times.null_count:
                raise self.instance.failed(f'returned rows without a time: column "{ROWTIME}" is NULL')
            watermark = pa.scalar(NEVER if self.late_before is None else self.late_before, pa.int64())
            table = table.append_column(LATE_RESULT.name, pc.less(times.cast(pa.int64()), watermark))
        yield from table.to_batches()

    def _store(self, table: Any) -> None:
        """Replace the stored state of the keys in the returned table; a key whose values are all NULL has none any more."""
        state = self._fitted(table, (*self.keys, *self.values), "returned as state")
        if not state.num_rows:
            return
        columns = [c for c in self.tables.row if c.name != AT.name and not c.name.startswith("w")]
        self.con.register("_given", state.rename_columns([c.name for c in columns]))
        keep(self.con, RETURNED, Select(f"SELECT {typed(columns)} FROM _given"))
        if not state.select(range(len(self.keys))).equals(self.state_keys):
            self._check_keys()
        retractions = f"{listed(self.tables.row)}, -{WEIGHT} AS {WEIGHT}"
        old = f"SELECT {retractions} FROM {STORED} s SEMI JOIN {RETURNED} r ON {self.tables.same('s', 'r')}"
        now = f"{self.batch.times.time}::BIGINT"
        times = [
            f"CASE WHEN {one.column.name} IS NOT NULL THEN {now} END AS {one.write_time.name}"
            for one in self.tables.in_row
            if one.column and one.write_time
        ]
        items = ", ".join([listed(columns), *times, f"{now} AS {AT.name}", f"1::BIGINT AS {WEIGHT}"])
        new = f"SELECT {items} FROM {RETURNED} WHERE {self.tables.has_values}"
        both = Select(f"{old} UNION ALL BY NAME {new}")
        self.batch.change(KEYS, self.batch.selected((*self.tables.row, WEIGHT_COLUMN), both))

    def _check_keys(self) -> None:
        """Raise JobError if the returned state has a key twice, or one without rows in this batch."""
        keys = listed(self.tables.keys)
        other = f"SELECT {keys} FROM {RETURNED} r ANTI JOIN {TOUCHED} t ON {self.tables.same('r', 't')} LIMIT 1"
        twice = f"SELECT {keys} FROM {RETURNED} GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        for sql, what in ((other, "a key that has no rows in this batch"), (twice, "a key twice")):
            for key in self.con.execute(sql).fetchall():
                named = ", ".join(f"{c.name}={shown(v, 200)}" for c, v in zip(self.keys, key, strict=True))
                raise self.instance.failed(f"returned as state {what}", f"key: {named}")


def _no_output(output: str, row: object) -> NoReturn:
    raise ValueError(f'"{output}" is no side output: a class that is vectorized by bucket has none')


def _no_key() -> NoReturn:
    raise RuntimeError("there is no current key: return its state with NULLs to clear it")
