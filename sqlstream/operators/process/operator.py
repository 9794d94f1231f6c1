"""The operator of a process function: it runs the user's code over the rows of each key, and stores changed state once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, ProcessFunction
from sqlstream.duck.key_hash import hashed_type
from sqlstream.duck.sql import Relation, Relations, Rows, Select
from sqlstream.duck.types import stored_type
from sqlstream.functions.process.instances import close_instances, instance_of
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.operators.late_rows import late_outputs
from sqlstream.operators.operator import Holds, Inputs, Operator, SideRows, StepTimes
from sqlstream.operators.process.arrivals import Arrivals
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.broadcast import BroadcastRun
from sqlstream.operators.process.bucket_run import BucketRun
from sqlstream.operators.process.emitted import LATE_RESULT
from sqlstream.operators.process.inputs import InputPlan
from sqlstream.operators.process.keyed_run import KeyedRun
from sqlstream.operators.process.ordered_run import OrderedRun
from sqlstream.operators.process.tables import StateTable, StateTables, key_view, more_views
from sqlstream.operators.process.waiting import WaitingRows, WaitingTables
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.metrics import earliest
from sqlstream.storage.zsets import WEIGHT_COLUMN
from sqlstream.units import Duration
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration


@dataclass(frozen=True)
class ProcessOperator(Operator):
    """Runs a process function: `keys` are the key columns of the result, `arguments` the SQL of the constants of the call.

    `ttls` are the times to live of the function's states (0: for ever), in their order; `time_type` is the type of the result's
    event times (None: it has none). If inputs wait for the watermark, late rows are dropped; with `late_rows`, the name of a
    view, they stay in state for it. `late_inputs` are the inputs whose late rows are side outputs.
    """

    function: ProcessFunction
    keys: tuple[Column, ...]
    inputs: tuple[InputPlan, ...]
    arguments: tuple[str, ...]
    ttls: tuple[Duration, ...]
    time_type: str | None
    late_rows: str | None = None
    late_inputs: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        return self.function.name

    # -- what comes, and what is stored

    @cached_property
    def stored_keys(self) -> tuple[Column, ...]:
        """The key columns in state: k0, k1, .."""
        return tuple(Column(f"k{i}", c.type) for i, c in enumerate(self.keys))

    @cached_property
    def state_tables(self) -> StateTables:
        """The tables of keyed states, timers and, in the mode `upsert`, of the result."""
        states = tuple(one for one in self.keeps if not one.state.broadcast)
        emitted = self.function.outputs if self.function.changelog_mode == "upsert" else ()
        result = tuple(Column(f"r{i}", c.type) for i, c in enumerate(emitted))
        return StateTables(self.stored_keys, states, self.function.has_timers, self.in_order, result)

    @cached_property
    def broadcast_tables(self) -> StateTables:
        """The tables of broadcast states, which all keys share."""
        return StateTables((), tuple(one for one in self.keeps if one.state.broadcast), False)

    @property
    def keeps(self) -> tuple[StateTable, ...]:
        """The states of the function, with their times to live and their positions in the state tables."""
        pairs = zip(self.function.states, self.ttls, strict=True)
        return tuple(StateTable(i, state, ttl) for i, (state, ttl) in enumerate(pairs))

    @cached_property
    def _keyed(self) -> InputPlan:
        """The first input whose rows have keys: all such inputs have the same keys, and wait or do not."""
        return next(one for one in self.inputs if not one.broadcast)

    @property
    def in_order(self) -> bool:
        """Whether the rows of keys wait for the watermark, and come in the order of time."""
        return self._keyed.waits

    @cached_property
    def waiting_tables(self) -> WaitingTables:
        """The tables of rows that wait for the watermark, and of late rows."""
        waiting = tuple(one for one in self.inputs if one.waits)
        emitted = tuple((index, self.inputs[index]) for index in self.late_inputs)
        return WaitingTables(waiting, self.stored_keys, self.late_rows is not None, emitted)

    @cached_property
    def parts(self) -> dict[str, Select]:
        return {one.name: one.select(self.stored_keys) for one in self.inputs}

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        """The keys; without keys all columns of the first input, so that rows are spread over all buckets."""
        return tuple(c.name for c in (self.stored_keys or self._keyed.arriving(())))

    @property
    def hashed(self) -> tuple[Column, ...]:
        columns = self.stored_keys or self._keyed.arriving(())
        return tuple(Column(c.name, hashed_type(c.type)) for c in columns)

    def hashed_of(self, parts: Collection[str]) -> tuple[Column, ...]:
        """Return the columns to hash: the keys or, without keys, the columns that all of these parts begin with."""
        if self.stored_keys:
            return self.hashed
        all_columns = [one.arriving(()) for one in self.inputs if one.name in parts]
        alike = takewhile(lambda columns: len(set(columns)) == 1, zip(*all_columns, strict=False))
        return tuple(Column(c.name, stored_type(c.type)) for c, *_ in alike)

    @cached_property
    def broadcast(self) -> frozenset[str]:
        return frozenset(one.name for one in self.inputs if one.broadcast)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        shared = self.broadcast_tables.declarations
        return (*self.state_tables.declarations, *shared, *self.waiting_tables.declarations)

    @property
    def holds(self) -> Holds:
        """Map each state, by its name, and each column of waiting rows, as `argument.column`, to its state columns by table."""
        state_columns = {one.state.name: one.holds for one in self.keeps}
        for one in self.waiting_tables.inputs:
            own = {f"{one.argument}.{c.name}": {one.name: (f"c{i}",)} for i, (c, _) in enumerate(one.columns)}
            state_columns |= own
        return state_columns

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return self._leaving(self.function.outputs)

    @cached_property
    def side_outputs(self) -> dict[str, tuple[Column, ...]]:
        own = {side.name: self._leaving(side.columns) for side in self.function.side_outputs}
        return own | late_outputs(self.waiting_tables.late_outputs())

    def _leaving(self, emitted: tuple[Column, ...]) -> tuple[Column, ...]:
        time = (Column(ROWTIME, self.time_type), LATE_RESULT) if self.time_type else ()
        if self.function.changelog_mode:
            return (*self.keys, *emitted, WEIGHT_COLUMN)
        return (*self.keys, *self.function.beside((k.name for k in self.keys), emitted), *time)

    @cached_property
    def remembered(self) -> tuple[ExpiringState, ...]:
        return (*self.state_tables.remembered, *self.broadcast_tables.remembered)

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Call the function for the rows of the batch and for due timers; yield what it emits, and late rows as side outputs.

        Raises JobError for what the user's code raises, and for values that do not fit declared types.
        """
        arrivals = Arrivals(
            con,
            self.inputs,
            self.stored_keys,
            gives_times=self.time_type is not None,
            ordered=self.function.vectorized != "bucket" or self.function.ordered,
        )
        batch = BucketBatch(con, state, times)
        waiting = WaitingRows(batch, self.waiting_tables) if self.in_order else None
        arrivals.take(state, waiting.take(inputs) if waiting else inputs, times.watermark)
        if waiting:
            yield from waiting.late_rows()
        with instance_of(self.function, self.arguments) as instance:
            broadcast = None
            if self.broadcast:
                broadcast = BroadcastRun(batch, self.broadcast_tables, self.keys, instance, arrivals)
                yield from broadcast.rows()
            if self.function.vectorized == "bucket":
                yield from BucketRun(batch, self.state_tables, self.keys, instance, arrivals).rows()
            else:
                run = OrderedRun if waiting else KeyedRun
                yield from run(batch, self.state_tables, self.keys, instance, arrivals, broadcast).rows()
        if waiting:
            timer = state.event_timer if self.function.has_timers else None
            state.event_timer = earliest((timer, waiting.wake_at()))

    # -- views

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the view of keys (see `key_view`); the watermark is not used."""
        return key_view(self.state_tables, self.keys, relations).sql

    @cached_property
    def viewed(self) -> tuple[Column, ...]:
        relations = {table.name: Relation(table.name) for table in self.tables}
        return tuple(Column(n, t) for n, t in key_view(self.state_tables, self.keys, relations).columns)

    def more_views(self, relations: Relations) -> Iterator[tuple[str, Rows]]:
        """Yield the views of lists, maps, broadcast states, upserted rows, timers and waiting rows, with their names.

        `relations` read the state tables.
        """
        yield from more_views(self.state_tables, self.keys, self.function.outputs, relations)
        yield from more_views(self.broadcast_tables, (), (), relations)
        yield from self.waiting_tables.waiting_views(relations)

    def late_views(self, operator: str) -> Iterator[tuple[str, Rows]]:
        """Yield the views of late rows in state, with their names; `operator` is the operator's name, a column of the view."""
        if self.late_rows is not None:
            yield from self.waiting_tables.late_views(self.late_rows, operator)

    def release(self) -> None:
        """Close the instances of the function in this process. Raises JobError if `close` of one fails, after closing all."""
        close_instances(self.function.pickled)
