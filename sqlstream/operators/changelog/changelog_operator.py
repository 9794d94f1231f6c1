"""The operator of results that change: state and output are Z-sets, and a batch reads only the keys that it touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Select, names, no_rows, quote_name, typed
from sqlstream.operators.changelog.results import ChangingResult
from sqlstream.operators.keyed_state import AT, TOUCHED, KeyedState
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Holds, Inputs, Operator, StepTimes
from sqlstream.operators.scratch import keep, leaving
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, difference, zset
from sqlstream.units import to_millis
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration


@dataclass(frozen=True)
class ChangelogOperator(Operator):
    """Emits the difference of the results after and before a batch, for the keys that the batch touches.

    `name` is the operator's `kind`; `of` declares the state and computes the result.
    """

    name: str
    keys: Keys
    of: ChangingResult

    @property
    def kind(self) -> str:
        return self.name

    @property
    def parts(self) -> Mapping[str, Select]:
        return self.of.state.parts

    @property
    def opening(self) -> Mapping[str, Select]:
        return self.of.opening

    @property
    def hash_columns(self) -> tuple[str, ...]:
        return self.keys.names

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return tuple(zset(name, columns) for name, columns in self.of.state.stored.items())

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return (*self.of.columns, WEIGHT_COLUMN)

    @cached_property
    def _state(self) -> KeyedState:
        keys, stored = self.keys, self.of.state.stored
        return KeyedState(keys.names, stored, self._last_row_times, keys.ttl, self.of.ordered, lasts=keys.lasts)

    @cached_property
    def _last_row_times(self) -> str:
        """The part that has a row for each key, with the time of its last row."""
        return next(part for part, columns in self.of.state.stored.items() if columns[-1] == AT)

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the current result, then `accumulators` and `key_times`."""
        tables, of = self._state.current(relations), self.of
        columns = (*of.columns, *of.accumulators)
        return self._state.timed(of.shown(tables), of.keys_of_rows, columns, tables, all=False)

    @property
    def accumulators(self) -> tuple[Column, ...]:
        return self.of.accumulators

    @property
    def manner(self) -> str:
        return self.of.manner

    @property
    def key_times(self) -> tuple[Column, ...]:
        return self._state.times(self.of.columns)

    @property
    def holds(self) -> Holds:
        return self.of.state.holds

    @property
    def remembered(self) -> tuple[ExpiringState, ...]:
        return (self._state.remembered,)

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch]:
        """Take a batch and yield its changes: rows of the result with a weight, positive if added, negative if retracted."""
        if not self._arrive(con, state, inputs):
            return
        self._state.load(con, state, times)
        parts = tuple(self.of.state.stored)
        old, delta = ({p: Relation(f"_{age}_{p}") for p in parts} for age in ("old", "delta"))
        for counter, sql in self.of.state.counters(old, delta).items():
            [(number,)] = con.execute(sql).fetchall()
            state.count(counter, number)
        new = {}
        for part in parts:
            new[part] = keep(con, f"_new_{part}", self._state.in_order(part, self._advanced(part, times)))
            self._state.store(con, state, part, new[part], times)
        changes = difference(self.of.columns, _once(self.of.result(new)), _once(self.of.emitted(old)))
        yield from leaving(con, self.outputs, changes)
        self._state.sweep(con, state, times)

    def _arrive(self, con: duckdb.DuckDBPyConnection, state: Bucket, inputs: Inputs) -> bool:
        """Create `_delta_<part>` from the rows that arrived, and a table of their keys; return whether anything arrived."""
        deltas = self.of.state.deltas
        arrived: dict[str, list[pa.Table]] = {part: [] for part in deltas}
        for port, rows in inputs:
            arrived[port.part].append(state.read(rows) if isinstance(rows, Segment) else rows)
        if not any(arrived.values()):
            return False
        for part, columns in deltas.items():
            keep(con, f"_delta_{part}", _decoded(con, part, columns, arrived[part]))
        if self.keys.names:
            keys = ", ".join(self.keys.names)
            keep(con, TOUCHED, Select(" UNION ".join(f"SELECT {keys} FROM _delta_{p}" for p in deltas)))
        return True

    def _advanced(self, part: str, times: StepTimes) -> Select:
        """Return a part's new state."""
        state = self.of.state
        if part in state.deltas:
            new = state.advance(part, Relation(f"_old_{part}"), Relation(f"_delta_{part}"))
        else:
            keys = ", ".join(self.keys.names) or "true"
            others = " UNION ".join(f"SELECT {keys} FROM _new_{p}" for p in state.deltas)
            if self.keys.lasting:
                # Keys that never expire: they have a row since the first batch, or from this one on.
                there = [f"_old_{part}", *(f"_delta_{p}" for p in state.deltas)]
                others += "".join(f" UNION SELECT {keys} FROM {rows} WHERE {self.keys.lasts}" for rows in there)
            new = Select(f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({others})")
        if part != self._last_row_times:
            return new
        listed = ", ".join([*(quote_name(c.name) for c in state.stored[part][:-1]), WEIGHT])
        return Select(f"SELECT {listed}, CAST({to_millis(times.time)} AS BIGINT) AS {AT.name} FROM ({new})")


def _once(rows: Select) -> Relation:
    """Return rows with the weight 1."""
    return Relation(f"(SELECT *, 1 AS {WEIGHT} FROM ({rows}))")


def _decoded(con: duckdb.DuckDBPyConnection, part: str, columns: Sequence[Column], rows: Sequence[pa.Table]) -> Select:
    """Return the rows that arrived, in an order that does not depend on the order of arrival."""
    items = typed(columns)
    if not rows:
        return no_rows(columns)
    con.register(f"_arrived_{part}", pa.concat_tables(rows, promote_options="permissive"))
    # Sums of floating-point numbers depend on their order.
    order = f" ORDER BY {names(columns)}" if len(rows) > 1 else ""
    return Select(f"SELECT {items} FROM _arrived_{part}{order}")
