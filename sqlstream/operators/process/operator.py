"""The operator: rows come sorted by key, the user's code runs over each key, and what it has changed is written once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, ProcessFunction
from sqlstream.duck.sql import Rows, quote_name
from sqlstream.duck.types import encoded, stored_type
from sqlstream.functions.process.instances import close_instances, instance_of
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.operators.operator import Clock, Inputs, Operator, SideRows
from sqlstream.operators.process.arrivals import Arrivals
from sqlstream.operators.process.bucket_tables import BucketTablesRun
from sqlstream.operators.process.changes import ChangesRun
from sqlstream.operators.process.emitted import LATE_RESULT
from sqlstream.operators.process.key_tables import KeyTablesRun
from sqlstream.operators.process.runs import BatchRun
from sqlstream.operators.process.tables import StateTable, StateTables, key_view, more_views
from sqlstream.state.bucket import Bucket
from sqlstream.state.zsets import WEIGHT, WEIGHT_COLUMN, summed
from sqlstream.units import Duration
from sqlstream.warehouse.declarations import TableDeclaration

# The event time of a row in microseconds.
EVENT_TIME = Column("_time", "BIGINT")


@dataclass(frozen=True, slots=True)
class InputPlan:
    """An input: its name, the SQL of its keys, its columns, its event time if any, and columns of the order in which it comes."""

    name: str
    keys: tuple[str, ...]
    columns: tuple[tuple[Column, str], ...]
    time: str | None
    order: tuple[Column, ...]
    # Whether rows are taken away, too: then each has a weight.
    changing: bool = False

    def arriving(self, keys: tuple[Column, ...]) -> tuple[Column, ...]:
        """The columns in which rows arrive."""
        own = tuple(Column(f"c{i}", c.type) for i, (c, _) in enumerate(self.columns))
        order = tuple(Column(f"o{i}", c.type) for i, c in enumerate(self.order))
        weight = (WEIGHT_COLUMN,) if self.changing else ()
        return (*keys, *own, *((EVENT_TIME,) if self.time else ()), *order, *weight)


@dataclass(frozen=True)
class ProcessOperator(Operator):
    """The operator of a process function: `keys` are the key columns of the result, `arguments` the constants, as SQL.

    `ttls` are those of its states, `time_type` is that of the event times of the result, if it has any.
    """

    function: ProcessFunction
    keys: tuple[Column, ...]
    inputs: tuple[InputPlan, ...]
    arguments: tuple[str, ...]
    ttls: tuple[Duration, ...]
    time_type: str | None

    @property
    def kind(self) -> str:
        return self.function.name

    # -- what comes, and what is stored

    @cached_property
    def stored_keys(self) -> tuple[Column, ...]:
        return tuple(Column(f"k{i}", c.type) for i, c in enumerate(self.keys))

    @cached_property
    def state_tables(self) -> StateTables:
        pairs = zip(self.function.states, self.ttls, strict=True)
        states = tuple(StateTable(i, state, ttl) for i, (state, ttl) in enumerate(pairs))
        emitted = self.function.outputs if self.function.changelog_mode == "upsert" else ()
        result = tuple(Column(f"r{i}", c.type) for i, c in enumerate(emitted))
        return StateTables(self.stored_keys, states, self.function.has_timers, result)

    @cached_property
    def parts(self) -> dict[str, str]:
        found = {}
        for one in self.inputs:
            columns = one.arriving(self.stored_keys)
            sqls = [*one.keys, *(sql for _, sql in one.columns)]
            sqls += [f"epoch_us({one.time})"] if one.time else []
            sqls += [c.name for c in one.order]
            sqls += [WEIGHT] if one.changing else []
            items = ", ".join(f"{sql} AS {quote_name(c.name)}" for sql, c in zip(sqls, columns, strict=True))
            rows = f"(SELECT {items} FROM _rows)"
            found[one.name] = encoded(columns, f"({summed(columns[:-1], rows)})" if one.changing else rows)
        return found

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        """The keys; without them rows are spread by all that they have, so that every task gets some."""
        return tuple(c.name for c in (self.stored_keys or self.inputs[0].arriving(())))

    @property
    def hashed(self) -> tuple[Column, ...]:
        columns = self.stored_keys or self.inputs[0].arriving(())
        return tuple(Column(c.name, stored_type(c.type)) for c in columns)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return self.state_tables.declarations

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return self._leaving(self.function.outputs)

    @cached_property
    def side_outputs(self) -> dict[str, tuple[Column, ...]]:
        return {side.name: self._leaving(side.columns) for side in self.function.side_outputs}

    def _leaving(self, emitted: tuple[Column, ...]) -> tuple[Column, ...]:
        time = (Column(ROWTIME, self.time_type), LATE_RESULT) if self.time_type else ()
        if self.function.changelog_mode:
            return (*self.keys, *emitted, WEIGHT_COLUMN)
        return (*self.keys, *emitted, *time)

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        clock: Clock,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Give the rows of a batch, and the timers that are due, to the function; yield what it emits."""
        arrivals = Arrivals(con, self.inputs, self.stored_keys, self.inputs[0].time is not None)
        arrivals.take(state, inputs)
        with instance_of(self.function, self.arguments) as instance:
            run = self._run(con, state, clock, self.state_tables, self.keys, instance, arrivals)
            yield from run.rows()

    @property
    def _run(self) -> type[BatchRun | BucketTablesRun]:
        """What runs a batch: by row, by the table of a key, by the table of a bucket."""
        match self.function.vectorized:
            case "key":
                return KeyTablesRun
            case "bucket":
                return BucketTablesRun
        return ChangesRun if self.function.changelog_mode or any(i.changing for i in self.inputs) else BatchRun

    # -- views

    def current(self, relations: Mapping[str, str], watermark: str) -> str:
        return key_view(self.state_tables, self.keys, relations).sql

    @cached_property
    def viewed(self) -> tuple[Column, ...]:
        relations = {table.name: table.name for table in self.tables}
        return tuple(Column(n, t) for n, t in key_view(self.state_tables, self.keys, relations).columns)

    def more_views(self, relations: Mapping[str, str]) -> Iterator[tuple[str, Rows]]:
        """Yield the views of lists, maps and timers, by their names."""
        yield from more_views(self.state_tables, self.keys, self.function.outputs, relations)

    def release(self) -> None:
        close_instances(self.function.pickled)
