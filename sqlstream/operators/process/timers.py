"""The timers of process functions: loaded for the keys of a batch, fired when due, and stored if changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.duck.sql import Condition, Select, rows_where
from sqlstream.duck.time_variables import NEVER
from sqlstream.functions.process.advice import no_delay, no_name, no_processing_time, no_time, no_timer_id
from sqlstream.functions.process.context import Timer, Timers, event_datetime, event_micros, instant, instant_micros
from sqlstream.operators.process.arrivals import NUMBER, TOUCHED
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.tables import DUE, EVENT_TIMERS, PROCESSING_TIMERS, TIMER_NAME, StateTables, listed
from sqlstream.storage.manifests import FIRED_AT
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, summed
from sqlstream.units import EventTime, ProcessingTime

# What identifies a timer of a key: whether it goes by event time; its name or, without a name, the time at which it is due.
TimerId = tuple[bool, str | int]
# Later than any time.
FOREVER = 2**63
# How many timers can fire for a key in a batch: with more, they set each other without end.
MOST = 100_000


class TimerTables:
    """The stored timers of a bucket in a batch. Times are microseconds."""

    def __init__(self, batch: BucketBatch, tables: StateTables):
        self.batch, self.con, self.state, self.tables = batch, batch.con, batch.state, tables
        self.watermark, self.now = batch.until, batch.times.time

    def due(self) -> list[Select]:
        """Return queries of the key columns of keys with due timers."""
        keys = listed(self.tables.keys)
        selects = []
        event = self.state.relation(EVENT_TIMERS, up_to=self.watermark)
        if event is not None:
            selects.append(Select(f"SELECT {keys} FROM ({summed(self.tables.timer_columns, event)})"))
        processing = self.state.relation(PROCESSING_TIMERS)
        if processing is not None:
            fired = self.state.counters.get(FIRED_AT, NEVER)
            due = rows_where(processing, Condition(f"{DUE.name} > {fired} AND {DUE.name} <= {self.now}"))
            selects.append(Select(f"SELECT {keys} FROM ({summed(self.tables.timer_columns, due)})"))
        return selects

    def load(self) -> dict[int, dict[TimerId, int]]:
        """Return the timers of the keys in TOUCHED: by a key's number and a timer's identity, the time at which it is due."""
        by_key: dict[int, dict[TimerId, int]] = {}
        for table, is_event in ((EVENT_TIMERS, True), (PROCESSING_TIMERS, False)):
            rows = self.state.candidates(self.con, table, self.tables.key_names, TOUCHED)
            if rows is None:
                continue
            own = f"t.{NUMBER}, s.{TIMER_NAME.name}, s.{DUE.name}"
            joined = f"{rows} s JOIN {TOUCHED} t ON {self.tables.same('s', 't')}"
            sql = f"SELECT {own} FROM {joined} GROUP BY {own} HAVING sum(s.{WEIGHT}) <> 0"
            shift = self.tables.shift if is_event else 0
            for number, name, stored in self.con.execute(sql).fetchall():
                due = stored - shift
                by_key.setdefault(number, {})[is_event, name or due] = due
        return by_key

    def store(self, changes: Mapping[bool, TimerChanges]) -> None:
        """Store the changes of timers of event time (True) and of processing time (False), and set the bucket's timers."""
        for table, is_event in ((EVENT_TIMERS, True), (PROCESSING_TIMERS, False)):
            own = changes[is_event]
            if own.numbers:
                self.con.register("_timers", own.table(self.tables.shift if is_event else 0))
                columns = (*self.tables.timer_columns, WEIGHT_COLUMN)
                rows = self.batch.selected(columns, Select(f"SELECT * FROM _timers JOIN {TOUCHED} USING ({NUMBER})"))
                # Timers of event time expire with the watermark: their weights are not counted.
                if is_event:
                    self.batch.append(table, rows)
                else:
                    self.batch.change(table, rows)
        self.state.counters[FIRED_AT] = max(self.now, self.state.counters.get(FIRED_AT, NEVER))
        # These can be times of timers that were deleted since: then the operator runs once for nothing.
        self.state.event_timer = self.state.forget(self.con, EVENT_TIMERS, self.watermark)
        self.state.processing_timer = self._next_processing()

    def _next_processing(self) -> ProcessingTime | None:
        """Return the time at which the next timer of processing time is due, None without one."""
        rows = self.state.relation(PROCESSING_TIMERS)
        if rows is None:
            return None
        [(due,)] = self.con.execute(f"SELECT min({DUE.name}) FROM {rows} WHERE {DUE.name} > {self.now}").fetchall()
        return None if due is None else ProcessingTime(due)


class TimerChanges:
    """Changes of a table of timers, as lists of equal length: the keys' numbers, the timers' names, their times, weights."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.names: list[str] = []
        self.dues: list[int] = []
        self.weights: list[int] = []

    def add(self, number: int, name: str | int, due: int, weight: int) -> None:
        """Add a change: weight 1 for a new timer, -1 for a deleted one; a `name` that is a time means that it has no name."""
        self.numbers.append(number)
        self.names.append(name if isinstance(name, str) else "")
        self.dues.append(due)
        self.weights.append(weight)

    def table(self, shift: int) -> pa.Table:
        """Return the changes as a table of NUMBER, TIMER_NAME, DUE and WEIGHT, with times `shift` microseconds later."""
        columns = {
            NUMBER: pa.array(self.numbers, pa.int64()),
            TIMER_NAME.name: pa.array(self.names, pa.string()),
            DUE.name: pc.add(pa.array(self.dues, pa.int64()), shift),
            WEIGHT: pa.array(self.weights, pa.int64()),
        }
        return pa.table(columns)


class KeyTimers(Timers):
    """The timers of the current key, as the user's code sees them.

    `watermark` and `now` are the times, in microseconds, up to which timers of event time and of processing time are due.
    """

    def __init__(self, watermark: EventTime, now: ProcessingTime, has_event_time: bool, has_timers: bool):
        self.watermark, self.now = watermark, now
        self.has_event_time, self.has_timers = has_event_time, has_timers
        self.stored: Mapping[TimerId, int] = {}
        # The timers of the key as they are now, None as long as none has changed.
        self.changed: dict[TimerId, int] | None = None
        # Whether a timer was set that is due at once, since timers last fired.
        self.is_behind = False
        # Timers of event time that are set now for an earlier time are late; the late timers of the key.
        self.late_before = watermark
        self.late: set[TimerId] = set()
        # A lower bound of the times of event-time timers, so that `due_before` need not look at them for each row.
        self.soonest = FOREVER

    def enter(self, stored: Mapping[TimerId, int]) -> None:
        """Start with the next key, whose stored timers are `stored`."""
        self.stored, self.changed, self.is_behind = stored, None, False
        if self.late:
            self.late = set()
        self.soonest = NEVER if stored else FOREVER

    def leave(self, number: int, changes: Mapping[bool, TimerChanges]) -> None:
        """Add the changed timers of the key with this number to `changes`, of event time (True) and processing time (False)."""
        stored, changed = self.stored, self.changed
        if changed is None:
            return
        for timer_id, due in stored.items():
            # Timers up to the watermark expire without a retraction.
            if changed.get(timer_id) != due and not (timer_id[0] and due <= self.watermark):
                changes[timer_id[0]].add(number, timer_id[1], due, -1)
        for timer_id, due in changed.items():
            if stored.get(timer_id) != due:
                changes[timer_id[0]].add(number, timer_id[1], due, 1)

    @property
    def has_any(self) -> bool:
        """Whether the key has a timer now."""
        return bool(self._current)

    def is_any_due(self) -> bool:
        """Tell whether a stored timer of the key is due; timers that were set since do not count."""
        # Not any(..): for each key, a generator takes longer than this.
        for (is_event, _), due in self.stored.items():  # noqa: SIM110
            if due <= (self.watermark if is_event else self.now):
                return True
        return False

    def due(self) -> Iterator[tuple[Timer, bool]]:
        """Delete and yield due timers one by one, also those that are set meanwhile; each comes with whether it is late.

        Timers of event time come first; each kind comes in the order of time.
        """
        while first := self._first():
            timer_id, due = first
            del self._own[timer_id]
            yield self._shown(timer_id, due), timer_id in self.late

    def due_before(self, time: EventTime) -> Iterator[tuple[Timer, bool]]:
        """Delete and yield the timers of event time due before `time` (exclusive), in order, each with whether it is late."""
        while self.soonest < time:
            first = min(((due, str(i[1]), i) for i, due in self._current.items() if i[0]), default=None)
            self.soonest = FOREVER if first is None else first[0]
            if first is not None and first[0] < time:
                del self._own[first[2]]
                yield self._shown(first[2], first[0]), first[2] in self.late

    def due_by_clock(self) -> Iterator[Timer]:
        """Delete and yield the due timers of processing time one by one, in the order of time."""
        while first := min(
            ((due, str(i[1]), i) for i, due in self._current.items() if not i[0] and due <= self.now), default=None
        ):
            del self._own[first[2]]
            yield self._shown(first[2], first[0])

    def _first(self) -> tuple[TimerId, int] | None:
        current = self._current
        ready = [
            (not timer_id[0], due, str(timer_id[1]), timer_id)
            for timer_id, due in current.items()
            if due <= (self.watermark if timer_id[0] else self.now)
        ]
        if not ready:
            return None
        _, due, _, timer_id = min(ready)
        return timer_id, due

    @property
    def _current(self) -> Mapping[TimerId, int]:
        return self.stored if self.changed is None else self.changed

    @property
    def _own(self) -> dict[TimerId, int]:
        if self.changed is None:
            self.changed = dict(self.stored)
        return self.changed

    def _shown(self, timer_id: TimerId, due: int) -> Timer:
        name = timer_id[1] if isinstance(timer_id[1], str) else ""
        return Timer(name, event_datetime(due) if timer_id[0] else instant(due), timer_id[0])

    def _set(self, is_event: bool, due: int, name: str) -> None:
        if not isinstance(name, str | None):
            raise no_name(name)
        if not self.has_timers:
            raise RuntimeError("a timer needs a method: def on_timer(self, ctx): ...")
        self._own[is_event, name or due] = due
        self.is_behind = self.is_behind or due <= (self.watermark if is_event else self.now)
        if is_event and due < self.late_before:
            self.late.add((True, name or due))
        elif self.late:
            self.late.discard((is_event, name or due))
        if is_event and due < self.soonest:
            self.soonest = due

    # -- what the user's code calls

    def at(self, time: dt.datetime, name: str = "") -> None:
        """Set a timer of event time.

        Raises RuntimeError if the call has no event time or the class no `on_timer`, TypeError for arguments of other types.
        """
        if not self.has_event_time:
            raise RuntimeError("a timer of event time needs on_time => DESCRIPTOR(ts) in the call")
        if not isinstance(time, dt.datetime):
            raise no_time(time)
        self._set(True, event_micros(time), name)

    def at_processing_time(self, time: dt.datetime, name: str = "") -> None:
        """Set a timer of processing time. Raises RuntimeError if the class has no `on_timer`, TypeError for other types."""
        if not isinstance(time, dt.datetime):
            raise no_processing_time(time)
        self._set(False, instant_micros(time), name)

    def after(self, delay: dt.timedelta, name: str = "") -> None:
        """Set a timer of processing time, `delay` after the time of the batch. Raises the errors of `at_processing_time`."""
        if not isinstance(delay, dt.timedelta):
            raise no_delay(delay)
        self._set(False, self.now + delay // dt.timedelta(microseconds=1), name)

    def delete(self, timer: str | dt.datetime) -> None:
        """Delete the timers of a name, by either clock, or the one without a name that is due at a time.

        A time without a zone is an event time, one with a zone a processing time. Raises TypeError for other types.
        """
        if isinstance(timer, str):
            timer_ids: list[TimerId] = [(True, timer), (False, timer)]
        elif not isinstance(timer, dt.datetime):
            raise no_timer_id(timer)
        else:
            timer_ids = [(True, event_micros(timer))] if timer.tzinfo is None else [(False, instant_micros(timer))]
        for timer_id in timer_ids:
            self._own.pop(timer_id, None)

    def clear(self) -> None:
        if self.stored or self.changed:
            self.changed = {}

    def list(self) -> list[Timer]:
        """Return the timers of the key: event-time timers first, each kind in the order of time, then of names."""
        return sorted(
            (self._shown(i, due) for i, due in self._current.items()),
            key=lambda t: (not t.is_event_time, t.time, t.name),
        )
