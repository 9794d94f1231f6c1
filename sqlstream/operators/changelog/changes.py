"""What all operators whose result changes share: state and changes are Z-sets, and only the keys of a batch are looked at."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import names, no_rows, quote_name, typed
from sqlstream.operators.keyed_state import AT, TOUCHED, KeyedState
from sqlstream.operators.operator import Clock, Inputs, Operator
from sqlstream.operators.scratch import keep, leaving
from sqlstream.state.bucket import Bucket
from sqlstream.state.segments import Segment
from sqlstream.state.zsets import WEIGHT, WEIGHT_COLUMN, difference, zset
from sqlstream.units import Duration, to_millis
from sqlstream.warehouse.declarations import TableDeclaration


class ChangelogOperator(Operator):
    """An operator that emits, for the keys that a batch touches, the difference of the results after and before it.

    `keys` are columns with the SQL that makes them from input rows. Of each part, `deltas` are the columns in which a batch's
    rows arrive, and `stored` those of the state: both begin with the keys. One part has one row for each key, with AT as its
    last column; where that is KEYS, no rows arrive for it. `advance` says what a part's state becomes, `result` what follows
    from the state of some keys; both are the same whatever other keys there are. A `ttl` of 0 is for ever.
    """

    keys: tuple[tuple[Column, str], ...]
    ttl: Duration
    # Keys that are there whatever rows are, each as the SQL of its values.
    lasting: tuple[tuple[str, ...], ...] = ()

    @property
    def ordered(self) -> frozenset[str]:
        """The parts whose rows must always be in the same order, for else the same rows may give another result.

        A sum of floating-point numbers depends on the order of adding; one that differs in the last digit from what was emitted
        would not take that back.
        """
        return frozenset()

    @property
    @abstractmethod
    def deltas(self) -> Mapping[str, tuple[Column, ...]]: ...

    @property
    @abstractmethod
    def stored(self) -> Mapping[str, tuple[Column, ...]]: ...

    @property
    @abstractmethod
    def columns_out(self) -> tuple[Column, ...]: ...

    @property
    @abstractmethod
    def result_keys(self) -> tuple[str, ...]:
        """The SQL of the keys over a row of the result."""

    @abstractmethod
    def advance(self, part: str, old: str, delta: str) -> str:
        """Return the SELECT of a part's new state, with weights, from FROM-able SQL of the old one and of what has arrived."""

    @abstractmethod
    def result(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result, without weights, over FROM-able SQL of the parts of the state, a row each."""

    def counters(self, old: Mapping[str, str], delta: Mapping[str, str]) -> Mapping[str, str]:
        """Return SELECTs of numbers to add to counters, over FROM-able SQL of the parts before a batch and of what arrived."""
        return {}

    @cached_property
    def lasts(self) -> str:
        """The condition, over stored keys, that a key is one of those that are always there."""
        same = (zip(self.key_names, values, strict=True) for values in self.lasting)
        found = (" AND ".join(f"{k} IS NOT DISTINCT FROM {value}" for k, value in pairs) or "true" for pairs in same)
        return " OR ".join(f"({condition})" for condition in found) or "false"

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(f"{INTERNAL}k{i}" for i in range(len(self.keys)))

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, c.type) for name, (c, _) in zip(self.key_names, self.keys, strict=True))

    @property
    def hash_columns(self) -> tuple[str, ...]:
        return self.key_names

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return tuple(zset(name, columns) for name, columns in self.stored.items())

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return (*self.columns_out, WEIGHT_COLUMN)

    @cached_property
    def _state(self) -> KeyedState:
        return KeyedState(self.key_names, self.stored, self.clocked, self.ttl, self.ordered, lasts=self.lasts)

    @cached_property
    def clocked(self) -> str:
        """The part that has a row for each key, with the time of its last row."""
        return next(part for part, columns in self.stored.items() if columns[-1] == AT)

    def current(self, relations: Mapping[str, str], watermark: str) -> str:
        """Return the SELECT of the current result over the state tables, with the time of each key's last row."""
        tables = self._state.current(relations)
        return self._state.timed(self.result(tables), self.result_keys, self.columns_out, tables, all=False)

    @property
    def key_times(self) -> tuple[Column, ...]:
        """The columns of `current` beside those of the result."""
        return self._state.times(self.columns_out)

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch, and emit what changes."""
        arrived: dict[str, list[pa.Table]] = {part: [] for part in self.deltas}
        for port, rows in inputs:
            arrived[port.part].append(state.read(rows) if isinstance(rows, Segment) else rows)
        if not any(arrived.values()):
            return
        for part, columns in self.deltas.items():
            keep(con, f"_delta_{part}", _decoded(con, part, columns, arrived[part]))
        if self.keys:
            touched = " UNION ".join(f"SELECT {', '.join(self.key_names)} FROM _delta_{p}" for p in self.deltas)
            keep(con, TOUCHED, touched)
        self._state.load(con, state, clock)
        for counter, sql in self.counters(
            *({p: f"_{age}_{p}" for p in self.stored} for age in ("old", "delta"))
        ).items():
            [(number,)] = con.execute(sql).fetchall()
            state.count(counter, number)
        for part in self.stored:
            keep(con, f"_new_{part}", self._state.in_order(part, self._advanced(part, clock)))
            self._state.store(con, state, part, f"_new_{part}", clock)
        [new, old] = [f"({self.result({p: f'_{age}_{p}' for p in self.stored})})" for age in ("new", "old")]
        weighted = [f"(SELECT *, 1 AS {WEIGHT} FROM {rows})" for rows in (new, old)]
        changes = difference(self.columns_out, *weighted)
        yield from leaving(con, self.outputs, changes)
        self._state.sweep(con, state, clock)

    def _advanced(self, part: str, clock: Clock) -> str:
        if part in self.deltas:
            new = self.advance(part, f"_old_{part}", f"_delta_{part}")
        else:
            keys = ", ".join(self.key_names) or "true"
            others = " UNION ".join(f"SELECT {keys} FROM _new_{p}" for p in self.deltas)
            if self.lasting:
                # Those that are always there: since the first batch, or from now on.
                there = [f"_old_{part}", *(f"_delta_{p}" for p in self.deltas)]
                others += "".join(f" UNION SELECT {keys} FROM {rows} WHERE {self.lasts}" for rows in there)
            new = f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({others})"
        if part != self.clocked:
            return new
        listed = ", ".join([*(quote_name(c.name) for c in self.stored[part][:-1]), WEIGHT])
        return f"SELECT {listed}, CAST({to_millis(clock.time)} AS BIGINT) AS {AT.name} FROM ({new})"


def _decoded(con: duckdb.DuckDBPyConnection, part: str, columns: Sequence[Column], rows: Sequence[pa.Table]) -> str:
    """Return the SELECT of rows that have arrived, in an order that does not depend on that of their arrival."""
    items = typed(columns)
    if not rows:
        return no_rows(columns)
    con.register(f"_arrived_{part}", pa.concat_tables(rows, promote_options="permissive"))
    # Sums of floating-point numbers depend on their order.
    order = f" ORDER BY {names(columns)}" if len(rows) > 1 else ""
    return f"SELECT {items} FROM _arrived_{part}{order}"
