"""A batch of a process function: calls the user's code for the keys of a bucket, one after the other.

The rows of a key come as they arrive; in the OrderedRun of a call with ORDER BY, in the order of time. The module `rows`
converts the rows, KeyStates holds the state of the keys, and Outputs collects what methods emit: none depends on the others.
"""

from __future__ import annotations

import datetime as dt
import dis
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.time_variables import NEVER
from sqlstream.functions import types
from sqlstream.functions.codecs import decoded
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.context import NO_EVENT_TIME, Context, Timer, event_micros
from sqlstream.functions.process.instances import Instance
from sqlstream.functions.process.shapes import RowMismatch
from sqlstream.operators.operator import SideRows
from sqlstream.operators.process.arrivals import NUMBER, TOUCHED, Arrivals, blocks
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.broadcast import BroadcastRun
from sqlstream.operators.process.changes import EmittedChanges
from sqlstream.operators.process.emitted import EmittedTables, Outputs
from sqlstream.operators.process.key_states import KeyStates
from sqlstream.operators.process.rows import Calls, KeyedRows, keyed_rows
from sqlstream.operators.process.tables import StateTables
from sqlstream.operators.process.timers import MOST, KeyTimers, TimerChanges, TimerTables
from sqlstream.operators.process.visits import Visit, has_state, keys_with_state
from sqlstream.units import EventTime

_MICROSECOND = dt.timedelta(microseconds=1)
_FOLDER = os.path.dirname(__file__)


class KeyedRun:
    """Runs a function over the keys of a batch, whose columns in the result are `keys`; `broadcast` has run before."""

    def __init__(
        self,
        batch: BucketBatch,
        tables: StateTables,
        keys: tuple[Column, ...],
        instance: Instance,
        arrivals: Arrivals,
        broadcast: BroadcastRun | None = None,
    ):
        self.batch, self.tables, self.keys = batch, tables, keys
        self.instance, self.arrivals, self.until = instance, arrivals, batch.until
        # The calls that broadcast rows of the batch ask for, for each key that has state or timers.
        self.visits: Sequence[Visit] = broadcast.visits if broadcast else ()
        # Makes broadcast states show what they hold at an event time (None: they are constant).
        self.move_to = broadcast.move_to if broadcast and broadcast.times else None
        self.states = KeyStates(batch, tables, instance)
        self.timer_tables = TimerTables(batch, tables) if tables.has_timers else None
        self.timers = KeyTimers(
            EventTime(self.until - tables.shift), batch.times.time, arrivals.timed, tables.has_timers
        )
        # The changes of timers of event time (True), and of processing time (False).
        self.timer_changes = {True: TimerChanges(), False: TimerChanges()}
        self.outputs = self._outputs()
        # The rows of the result; those that methods have yielded.
        self.output, self.emitted = self.outputs.result, self.outputs.rows
        self.output.late_before = self.until
        self.context = Context(self.timers, self._clear, batch.count, self._emit)
        self.context._is_late = self._is_late
        if isinstance(self.outputs, EmittedChanges):
            self.context._retract = self.outputs.retract
        batch.set_times(self.context, batch.times.watermark)
        # The watermark of the batch, as the user's code sees it.
        self.watermark = self.context.watermark
        # Whether rows that are emitted now are late (None: the event time of the row tells).
        self.fires_late: bool | None = None

    def _outputs(self) -> Outputs:
        function = self.instance.function
        if function.changelog_mode:
            return EmittedChanges(self.batch, self.tables, self.instance)
        tables = (
            EmittedTables(self.instance.implementation.result, self.arrivals.timed) if function.vectorized else None
        )
        return Outputs(self.instance, self.arrivals.gives_times, result=tables)

    # -- the whole

    def rows(self) -> Iterator[pa.RecordBatch | SideRows]:
        """Call the user's code for all keys; yield what it emits, then store changed state and timers, and sweep.

        Raises JobError for what the user's code raises, and for values that do not fit declared types.
        """
        due = self.timer_tables.due() if self.timer_tables else []
        if self.visits:
            due += keys_with_state(self.batch.state, self.tables)
        self.count = self.arrivals.touch(due)
        if self.count:
            self.touched = self.batch.con.sql(f"SELECT * FROM {TOUCHED} ORDER BY {NUMBER}").to_arrow_table()
            yield from self._over_keys()
            yield from self._flushed()
            self.instance.check_states()
            with self._with_errors():
                self.states.store()
        self.states.sweep()
        if self.timer_tables:
            self.timer_tables.store(self.timer_changes)

    def _over_keys(self) -> Iterator[pa.RecordBatch | SideRows]:
        calls = keyed_rows(self.instance, self.arrivals, self.count)
        stored_timers = self.timer_tables.load() if self.timer_tables else {}
        none_set: dict[Any, int] = {}
        on_timer, outputs = self.instance.on_timer, self.outputs
        for number, key in zip(self.states.in_turn(self.count), self._keys(), strict=False):
            self.context._key, outputs.number = key, number
            if on_timer is not None:
                self.timers.enter(stored_timers.get(number, none_set))
            self._visit(number, calls)
            if on_timer is not None:
                self.timers.leave(number, self.timer_changes)
            if len(self.emitted) + outputs.side_rows >= self.output.most:
                yield from self._flushed()
        self.context._key = None

    def _keys(self) -> Iterator[Any]:
        """Yield the keys as Python values."""
        if not self.keys:
            yield None
            return
        codecs = [types.codec(c.type) for c in self.keys]
        for block in blocks(self.touched.drop_columns([NUMBER])):
            columns = [decoded(c, v) for c, v in zip(codecs, block.columns, strict=True)]
            yield from columns[0] if len(columns) == 1 else zip(*columns, strict=True)

    def _flushed(self) -> Iterator[pa.RecordBatch | SideRows]:
        """Yield the rows of the result that were emitted since the last call, then the rows of side outputs."""
        with self._with_errors():
            leaving = self.outputs.drain({c.name: self.touched.column(f"k{i}") for i, c in enumerate(self.keys)})
        yield from leaving

    @contextmanager
    def _with_errors(self) -> Iterator[None]:
        """Turn a RowMismatch, with the number of a key, into an error of the function that shows the key."""
        try:
            yield
        except RowMismatch as error:
            about = ""
            if self.keys:
                [key] = islice(self._keys(), error.number, error.number + 1)
                about = f"key: {shown(key, 200)}"
            raise self.instance.failed(error.what, about) from error

    # -- the user's code

    def _visit(self, number: int, calls: Calls) -> None:
        """Make the calls for a key: visits for broadcast rows, due timers, rows, and timers that these have set for the past."""
        for visit in self.visits:
            self._call_visit(number, visit)
        if self.timers.stored and self.timers.is_any_due():
            self._fire(number)
        for method, rows in calls:
            if size := rows.sizes[number]:
                if rows.retractions is None:
                    self._call(method, rows, size, number)
                else:
                    self._call_changes(method, rows, size, number)
        if self.timers.is_behind:
            self._fire(number)

    def _call(self, method: Any, rows: KeyedRows, size: int, number: int) -> None:
        """Call a method for the next `size` rows of an input: the rows of the key."""
        if rows.in_time is not None:
            self._call_marked(method, rows, size, number)
            return
        context, emitted, extend = self.context, self.emitted, self.emitted.extend
        before = len(emitted)
        late = context.watermark
        row: Any = None
        try:
            if rows.timed is None:
                for row in islice(rows.rows, size):
                    result = method(context, row)
                    if result is not None:
                        extend(result)
            else:
                for row, context.event_time in islice(rows.timed, size):
                    result = method(context, row)
                    if result is not None:
                        extend(result)
                        if len(emitted) > before:
                            time = context.event_time
                            before = self.output.stamp(number, time, late=late is not None and time < late)
        except (Exception, SystemExit) as error:
            raise self.raised(error, method, row) from error
        if rows.timed is None and len(emitted) > before:
            self.output.stamp(number, None, late=False)

    def _call_changes(self, method: Any, rows: KeyedRows, size: int, number: int) -> None:
        """Call a method for the next `size` rows of an input that is a changelog."""
        assert rows.retractions is not None
        for self.context.is_retraction in islice(rows.retractions, size):
            self._call(method, rows, 1, number)
        self.context.is_retraction = False

    def _call_marked(self, method: Any, rows: KeyedRows, size: int, number: int) -> None:
        """Call a method for the next `size` rows of an input with marked rows, some of which are on time behind the watermark.

        For such a row `ctx.watermark` is a microsecond before its event time.
        """
        assert rows.timed is not None
        assert rows.in_time is not None
        context, emitted = self.context, self.emitted
        before, row = len(emitted), None
        try:
            for (row, context.event_time), time in islice(zip(rows.timed, rows.in_time, strict=False), size):
                self.fires_late = time is None
                self._see(time)
                result = method(context, row)
                if result is not None:
                    emitted.extend(result)
                    if len(emitted) > before:
                        before = self.output.stamp(number, context.event_time, late=time is None)
        except (Exception, SystemExit) as error:
            raise self.raised(error, method, row) from error
        self.fires_late = None
        self._see(None)

    def _see(self, time: dt.datetime | None) -> None:
        """Set `ctx.watermark` for a row on time; None stands for the watermark of the batch.

        It is the batch's watermark or, if the row's `time` is not after that, a microsecond before `time`.
        """
        context, timers = self.context, self.timers
        if time is None or self.watermark is None or time > self.watermark:
            context.watermark, timers.late_before = self.watermark, timers.watermark
        else:
            context.watermark = time - _MICROSECOND
            timers.late_before = EventTime(event_micros(time))
        self.output.late_before = timers.late_before

    def _fire(self, number: int) -> None:
        """Call `on_timer` for all due timers, including those that it sets for the past.

        What a timer emits is late if a row, or a late timer, has set it behind the watermark.
        """
        context, timers = self.context, self.timers
        for fired, (timer, is_late) in enumerate(timers.due()):
            context.event_time = timer.time if timer.is_event_time else NO_EVENT_TIME
            timers.late_before = timers.watermark if is_late else NEVER
            self._call_timer(number, timer, fired, late=is_late)
        timers.is_behind, timers.late_before, self.fires_late = False, timers.watermark, None

    def _call_timer(self, number: int, timer: Timer, fired: int, *, late: bool = False) -> None:
        """Call `on_timer`; `fired` counts the calls for this key before. Raises JobError after MOST calls, or for its errors."""
        context, on_timer = self.context, self.instance.on_timer
        assert on_timer is not None
        context.timer, self.fires_late = timer, late
        time = context.event_time or self.time_now
        before = len(self.emitted)
        try:
            result = on_timer(context)
            if result is not None:
                self.emitted.extend(result)
        except (Exception, SystemExit) as error:
            raise self.raised(error, on_timer, timer) from error
        if len(self.emitted) > before:
            self.output.stamp(number, time, late=late)
        if fired >= MOST:
            what = f"has set timers that are due at once more than {MOST:,} times"
            about = f"key: {shown(context.key, 200)}\ntimer: {timer}"
            raise self.instance.failed(
                what, about + "\nAt the end of the input ctx.input_ended is true: set none then."
            )

    def _call_visit(self, number: int, visit: Visit) -> None:
        """Call the method of a visit for the current key if it has state or timers; what it yields is emitted for the key.

        Raises JobError for what the method raises.
        """
        if not (self.timers.has_any or has_state(self.instance.handles.values())):
            return
        context, timers, before = self.context, self.timers, len(self.emitted)
        outer = self.fires_late, context.watermark, timers.late_before
        self.fires_late, context.watermark = visit.is_late, visit.watermark
        timers.late_before = visit.late_before(self.watermark, self.until)
        context.event_time = visit.time
        time = context.event_time or self.time_now
        shared = self.instance.shared.values()
        versions = [handle.version for handle in shared]
        for handle in shared:
            handle.version = visit.version
        try:
            result = visit.method(context, *visit.arguments)
            if result is not None:
                self.emitted.extend(result)
        except (Exception, SystemExit) as error:
            raise self.raised(error, visit.method, None) from error
        for handle, version in zip(shared, versions, strict=True):
            handle.version = version
        if len(self.emitted) > before:
            self.output.stamp(number, time, late=visit.is_late)
        context.event_time = NO_EVENT_TIME
        self.fires_late, context.watermark, timers.late_before = outer

    @property
    def time_now(self) -> Any:
        """The event time of rows that a timer of processing time emits: the watermark or, before there is one, the clock."""
        return self.context.watermark or self.context.processing_time.replace(tzinfo=None)

    def _emit(self, output: str, row: Any) -> None:
        """Add a row to a side output, with the event time of the current row or timer."""
        time: Any = self.context.event_time
        if time is None and self.fires_late is not None:
            time = self.time_now
        self.outputs.add(output, row, time, late=self._is_late())

    def _is_late(self) -> bool:
        """Tell whether rows that are emitted for the current row or timer are late."""
        if self.fires_late is not None:
            return self.fires_late
        time, watermark = self.context.event_time, self.context.watermark
        return time is not None and watermark is not None and time < watermark

    def _clear(self) -> None:
        """Clear all states and timers of the current key."""
        for handle in self.instance.handles.values():
            handle.clear()
        self.timers.clear()

    def raised(self, error: BaseException, method: Any, row: Any) -> Exception:
        """Return the JobError for an error of a method, with the key, and the row or timer unless it is None, in its detail."""
        if isinstance(row, pa.Table):
            # It is too long to be shown.
            row = None
        about = [f"key: {shown(self.context.key, 200)}"] if self.keys else []
        about += (
            [f"{'timer' if method == self.instance.on_timer else 'row'}: {shown(row, 400)}"] if row is not None else []
        )
        if isinstance(error, TypeError) and "object is not iterable" in str(error) and _is_ours(error):
            what = f'method "{method.__name__}" returned what is no rows: yield them, or return a list ({error})'
            return self.instance.failed(what, "\n".join(about))
        return self.instance.raised(error, about="\n".join(about), hint=self._hint(error), row=row)

    def _hint(self, error: BaseException) -> str | None:
        """Return a hint if a method has failed because it computes with `ctx.event_time`, and the call has no event time."""
        is_none = isinstance(error, (TypeError, AttributeError)) and "NoneType" in str(error)
        if not is_none or self.context.event_time is not None:
            return None
        used = (
            instruction.argval == "event_time" and (at := instruction.positions) is not None and at.lineno == line
            for frame, line in traceback.walk_tb(error.__traceback__)
            for instruction in dis.get_instructions(frame.f_code)
        )
        if not any(used):
            return None
        return "ctx.event_time is None: give the call the event time, as in on_time => DESCRIPTOR(ts)."


def _is_ours(error: BaseException) -> bool:
    """Tell whether an error was raised by the code here that handles results, not by the user's code."""
    trace = error.__traceback__
    with suppress(AttributeError):
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        return trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _FOLDER
    return False
