"""The operator of results that change: state and output are Z-sets, and a batch reads only the keys that it touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Select, names, no_rows, quote_name, subquery, typed
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
        arrived = self._arrived(state, inputs)
        if not any(arrived.values()):
            return
        keyed = self.of.state
        delta = {part: _decoded(con, part, columns, arrived[part]) for part, columns in keyed.deltas.items()}
        old = self._state.live_rows(con, state, self._touched(con, delta), times)
        for counter, sql in keyed.counters(old, delta).items():
            [(number,)] = con.execute(sql).fetchall()
            state.count(counter, number)
        new: dict[str, Relation] = {}
        for part in keyed.stored:
            advanced = self._state.in_order(part, self._advanced(part, old, delta, new, times))
            new[part] = keep(con, f"_new_{part}", advanced)
            self._state.store(con, state, part, new[part], times, replaces=keyed.counts_rows)
        changes = difference(self.of.columns, _once(self.of.result(new)), _once(self.of.emitted(old)))
        yield from leaving(con, self.outputs, changes)
        self._state.sweep(con, state, times)

    def _arrived(self, state: Bucket, inputs: Inputs) -> dict[str, list[pa.Table]]:
        """Return the rows that arrived, by part."""
        arrived: dict[str, list[pa.Table]] = {part: [] for part in self.of.state.deltas}
        for port, rows in inputs:
            arrived[port.part].append(state.read(rows) if isinstance(rows, Segment) else rows)
        return arrived

    def _touched(self, con: duckdb.DuckDBPyConnection, delta: Relations) -> Relation:
        """Return the keys of the rows that arrived."""
        keys = ", ".join(self.keys.names)
        if not keys:
            return TOUCHED
        selects = [f"SELECT {keys} FROM {rows}" for rows in delta.values()]
        # Rows of one part are distinct already, or almost: the fragment before the exchange has aggregated them.
        return Relation(f"({selects[0]})") if len(selects) == 1 else keep(con, TOUCHED, Select(" UNION ".join(selects)))

    def _advanced(self, part: str, old: Relations, delta: Relations, new: Relations, times: StepTimes) -> Select:
        """Return a part's new state; `new` has that of the parts before it."""
        state = self.of.state
        if part in state.deltas:
            rows = state.advance(part, old[part], delta[part])
        else:
            keys = ", ".join(self.keys.names) or "true"
            others = " UNION ".join(f"SELECT {keys} FROM {new[p]}" for p in state.deltas)
            if self.keys.lasting:
                # Keys that never expire: they have a row since the first batch, or from this one on.
                there = [old[part], *(delta[p] for p in state.deltas)]
                others += "".join(f" UNION SELECT {keys} FROM {rows} WHERE {self.keys.lasts}" for rows in there)
            rows = Select(f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({others})")
        if part != self._last_row_times:
            return rows
        listed = ", ".join([*(quote_name(c.name) for c in state.stored[part][:-1]), WEIGHT])
        return Select(f"SELECT {listed}, CAST({to_millis(times.time)} AS BIGINT) AS {AT.name} FROM ({rows})")


def _once(rows: Select) -> Relation:
    """Return rows with the weight 1."""
    return Relation(f"(SELECT *, 1 AS {WEIGHT} FROM ({rows}))")


def _decoded(
    con: duckdb.DuckDBPyConnection, part: str, columns: Sequence[Column], rows: Sequence[pa.Table]
) -> Relation:
    """Return the rows that arrived, in an order that does not depend on the order of arrival."""
    if not rows:
        return subquery(no_rows(columns))
    con.register(f"_arrived_{part}", pa.concat_tables(rows, promote_options="permissive"))
    decoded = f"SELECT {typed(columns)} FROM _arrived_{part}"
    if len(rows) == 1:
        return Relation(f"({decoded})")
    # Sums of floating-point numbers depend on their order.
    return keep(con, f"_delta_{part}", Select(f"{decoded} ORDER BY {names(columns)}"))
