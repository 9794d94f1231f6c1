"""A batch of broadcast tables: their rows come before the rows of keys, and write the broadcast states, which all keys share.

Every bucket gets all rows of a broadcast table, and has a full copy of the broadcast states. All of them run the methods; only
the first one emits what the methods emit.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from types import FunctionType, MethodType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select, no_rows
from sqlstream.duck.time_variables import NEVER
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.context import NO_EVENT_TIME, BroadcastContext, event_datetime
from sqlstream.functions.process.instances import Instance
from sqlstream.functions.process.shapes import RowMismatch
from sqlstream.functions.process.yielded import classes_of, routing
from sqlstream.operators.operator import SideRows
from sqlstream.operators.process.arrivals import LATE, NUMBER, Arrivals, blocks
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.emitted import Outputs
from sqlstream.operators.process.inputs import EVENT_TIME
from sqlstream.operators.process.key_states import KeyStates
from sqlstream.operators.process.rows import check_times, row_reader, values_of
from sqlstream.operators.process.tables import StateTables
from sqlstream.operators.process.visits import Visit
from sqlstream.operators.scratch import keep
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import EventTime

# A temporary table like TOUCHED, with the number 0 of the only, empty key that broadcast states have.
EVERYONE = Relation("_everyone")
# The event time of a row (NEVER: it comes before all others), the method that gets it, the row, whether it is a retraction, and
# whether it is late (None: its time tells).
_Row = tuple[EventTime, Callable[..., Any], Any, bool, bool | None]


class BroadcastRun:
    """Runs the methods of broadcast tables over one batch in one bucket.

    `tables` are the state tables of the broadcast states, `keys` the key columns of the result. After `rows`, `visits` has the
    calls that methods asked for with `ctx.for_each_key`; the run over the keys makes them. `times` then has the event times of
    the rows (microseconds), sorted, if the call orders rows by time.
    """

    def __init__(
        self, batch: BucketBatch, tables: StateTables, keys: tuple[Column, ...], instance: Instance, arrivals: Arrivals
    ):
        self.batch, self.keys, self.instance, self.arrivals = batch, keys, instance, arrivals
        self.states = KeyStates(batch, tables, instance, EVERYONE)
        self.handles = list(instance.shared.values())
        # The event times of the rows in their order, if the call orders rows by time.
        self.times: list[EventTime] = []
        # What methods emit (in the first bucket), and the calls for each key that they request (in all buckets).
        self.outputs = Outputs(instance, arrivals.gives_times, is_keyless=True)
        self.visits: list[Visit] = []
        self.side_classes = classes_of(instance.implementation.sides)
        self.context = BroadcastContext(self._count, self._emit, self._visit)
        batch.set_times(self.context, batch.times.watermark)
        # The event time of the current row, and its number in the batch, from 1.
        self.micros, self.row = EventTime(NEVER), 0

    def rows(self) -> Iterator[pa.RecordBatch | SideRows]:
        """Call the methods with their rows, store the changed states, and sweep expired ones; yield what the methods emit.

        Raises JobError for what the methods raise, and for values that do not fit declared types.
        """
        keep(self.batch.con, EVERYONE, Select(f"SELECT 0 AS {NUMBER}"))
        for name, handle in self.instance.shared.items():
            collection = self.states.collections[name]
            handle.begin(name, partial(collection.stored, 0), partial(collection.entry, 0))
        if self.instance.function.vectorized:
            self._call_with_tables()
        else:
            self._call_by_row()
        self._store()
        self.states.sweep("broadcast")
        if self.batch.state.is_first and (self.outputs.rows or self.outputs.side_rows):
            yield from self._emitted()

    def move_to(self, time: EventTime) -> None:
        """Make the broadcast states show what they hold at an event time: after all broadcast rows up to it, inclusive."""
        version = bisect_right(self.times, time)
        for handle in self.handles:
            handle.version = version

    # -- the user's code

    def _call_by_row(self) -> None:
        rows = self._rows()
        if not rows:
            return
        context = self.context
        watermark = context.watermark
        in_order = any(one.waits for _, one in self.arrivals.broadcast)
        is_late: bool | None = None
        if watermark is not None and not in_order:
            context._is_late = lambda: (
                (context.event_time is not None and context.event_time < watermark) if is_late is None else is_late
            )
        with self.instance.without_key():
            for number, (micros, method, row, is_retraction, is_late) in enumerate(rows, 1):
                for handle in self.handles:
                    handle.row = number
                context.event_time = NO_EVENT_TIME if micros == NEVER else event_datetime(micros)
                context.watermark = context.event_time if in_order and micros != NEVER else watermark
                if is_late is False and watermark is not None and context.event_time <= watermark:
                    context.watermark = context.event_time - dt.timedelta(microseconds=1)
                context.is_retraction = is_retraction
                self.micros, self.row = micros if in_order else NEVER, number
                self._call(method, row)
        if in_order:
            self.times = [micros for micros, *_ in rows]

    def _rows(self) -> list[_Row]:
        """Return the rows of all broadcast tables: in the order of time if the call has one, else table by table."""
        rows: list[_Row] = []
        for number, one in self.arrivals.broadcast:
            table = self.arrivals.rows(number)
            if not table.num_rows:
                continue
            check_times(self.instance, table)
            values = chain.from_iterable(map(row_reader(self.instance, number, one), blocks(values_of(table))))
            times = table.column(EVENT_TIME.name).to_pylist() if one.time else repeat(NEVER)
            signs = pc.less(table.column(WEIGHT), 0).to_pylist() if one.changing else repeat(False)
            late = table.column(LATE.name).to_pylist() if LATE.name in table.column_names else repeat(None)
            rows += zip(times, repeat(self.instance.methods[number]), values, signs, late, strict=False)
        if any(one.waits for _, one in self.arrivals.broadcast):
            rows.sort(key=itemgetter(0))
        return rows

    def _call_with_tables(self) -> None:
        """Call the method of each table with its rows as one Arrow table."""
        for number, one in self.arrivals.broadcast:
            rows = self.arrivals.rows(number)
            if rows.num_rows:
                own = values_of(rows).combine_chunks()
                with self.instance.without_key():
                    for handle in self.handles:
                        handle.row += 1
                    named = own.rename_columns([c.name for c, _ in one.columns])
                    self._call(self.instance.methods[number], named)

    def _call(self, method: Callable[..., Any], row: Any) -> None:
        try:
            result = method(self.context, row)
            # Also in buckets that do not emit the rows: the generator that yields them writes states.
            rows = list(result) if isinstance(result, Iterable) and not self._is_silent else []
        except (Exception, SystemExit) as error:
            raise self.instance.raised(error, about=_about(row), row=row) from error
        if result is not None and (self._is_silent or not isinstance(result, Iterable)):
            what = f'method "{method.__name__}" returned what is no rows: yield them, or return a list'
            if self._is_silent:
                what = f'method "{method.__name__}" returned rows, but those of a broadcast table emit none in such a class'
            raise self.instance.failed(what, _about(row))
        if rows and self.batch.state.is_first:
            self.outputs.rows += rows
            self.outputs.result.stamp(0, self._time, late=self.context.is_late)

    @property
    def _is_silent(self) -> bool:
        """Whether methods cannot emit rows: the class is vectorized, or emits changes."""
        return self.instance.function.vectorized is not None or self.instance.function.changelog_mode is not None

    @property
    def _time(self) -> Any:
        """The event time of the rows that are emitted now: the row's, or else the watermark, or else the processing time."""
        context = self.context
        return context.event_time or context.watermark or context.processing_time.replace(tzinfo=None)

    def _emit(self, output: str, row: Any) -> None:
        # Each bucket checks the row, and one emits it.
        self.outputs.add(output, row, self._time, late=self.context.is_late)

    def _visit(self, method: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        function = self.instance.function
        if function.vectorized:
            raise RuntimeError(
                "a vectorized class does not visit its keys: ctx.for_each_key(..) is for one that gets rows"
            )
        if not (function.keyed_states or function.has_timers):
            raise RuntimeError(
                "ctx.for_each_key(..) visits keys that have state or timers: this class has no state of keys"
            )
        if not isinstance(method, MethodType | FunctionType):
            raise TypeError(f"ctx.for_each_key(..) takes a method, such as self.renew, not {shown(method, 100)}")
        call = routing(method, self.side_classes) if self.side_classes else method
        time, watermark, is_late = self.context.event_time, self.context.watermark, self.context.is_late
        self.visits.append(Visit(call, arguments, self.row, self.micros, time, watermark, is_late))

    def _emitted(self) -> list[pa.RecordBatch | SideRows]:
        """Return the rows and side outputs that the methods have emitted.

        Key columns of the result are NULL if the methods emit no columns of these names.
        """
        none = self.batch.con.sql(no_rows(self.arrivals.keys)).to_arrow_table() if self.keys else pa.table({})
        keys = {c.name: pa.chunked_array([pa.nulls(1, f.type)]) for c, f in zip(self.keys, none.schema, strict=True)}
        try:
            return self.outputs.drain(keys)
        except RowMismatch as error:
            raise self.instance.failed(error.what) from error

    def _count(self, name: str, number: int) -> None:
        # All buckets see the row: one of them counts it.
        if self.batch.state.is_first:
            self.batch.count(name, number)

    # -- what stays

    def _store(self) -> None:
        for name, handle in self.instance.shared.items():
            collection = self.states.collections[name]
            is_cleared, items = handle.changes
            if is_cleared:
                collection.cleared.append(0)
            for item_key, item in items:
                collection.put(0, [item_key], [item])
        try:
            self.states.store()
        except RowMismatch as error:
            raise self.instance.failed(error.what) from error


def _about(row: Any) -> str:
    """Return the line of an error's detail that shows the row, or counts the rows of the table, that a method got."""
    return f"rows: {row.num_rows:,}" if isinstance(row, pa.Table) else f"row: {shown(row, 400)}"
