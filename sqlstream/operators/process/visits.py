"""Visits: the calls of `ctx.for_each_key` in a method of a broadcast table, one for each key that has state or timers.

Every bucket gets the broadcast row, and visits its own keys. A key is visited before its timers and rows of the batch or, in a
call with ORDER BY, between them at the event time of the broadcast row. Only then does the run look whether the key has state. So
with ORDER BY visits, like state, do not depend on how rows were divided into batches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlstream.duck.clock import NEVER
from sqlstream.functions.process.context import NO_EVENT_TIME, event_micros
from sqlstream.functions.process.states import REMOVED, Handle, ListState, MapState, ValueState
from sqlstream.operators.process.tables import RESULT, StateTables, listed
from sqlstream.storage.bucket import Bucket
from sqlstream.units import EventTime

if TYPE_CHECKING:
    from sqlstream.operators.process.runs import BatchRun


@dataclass(frozen=True, slots=True)
class Visit:
    """A call of a method for each key, at the event time `micros` (NEVER: before all else).

    `version` is how many broadcast rows of the batch the broadcast states show then. `ctx.event_time` and `ctx.watermark` are
    `time` and `watermark`, as for the broadcast row; `is_late` says whether emitted rows are late.
    """

    method: Callable[..., Any]
    arguments: tuple[Any, ...]
    version: int
    micros: EventTime
    time: dt.datetime
    watermark: dt.datetime | None
    is_late: bool

    def late_before(self, run: BatchRun) -> EventTime:
        """Return the event time, in microseconds, before which timers are late that the call sets."""
        if self.micros != NEVER:
            return NEVER
        if self.watermark != run.watermark:
            return EventTime(event_micros(self.time))
        return EventTime(run.timers.watermark + run.tables.shift)


def keys_with_state(state: Bucket, tables: StateTables) -> Iterator[str]:
    """Yield SELECTs of the key columns of all keys with state or timers; keys whose state was deleted since can be among them."""
    keys = listed(tables.keys)
    for declaration in tables.declarations:
        if declaration.name != RESULT and (rows := state.relation(declaration.name)) is not None:
            yield f"SELECT {keys} FROM {rows}"


def has_state(handles: Iterable[Handle]) -> bool:
    """Tell whether a state of the current key is not empty; lists and maps are loaded only if all values are empty."""
    return any(map(_holds, sorted(handles, key=lambda handle: not isinstance(handle, ValueState))))


def _holds(handle: Handle) -> bool:
    # Not by the public methods of the handle: a read by the user's code can refresh the time to live, this must not.
    if isinstance(handle, ValueState):
        return handle.current is not None
    if isinstance(handle, ListState):
        if handle.added:
            return True
        if handle.stored is None:
            handle.stored = handle.load()
        return bool(handle.stored)
    assert isinstance(handle, MapState)
    if any(value is not REMOVED for value in handle.changed.values()):
        return True
    if handle.stored is None:
        handle.stored = handle.load()
    return not handle.stored.keys() <= handle.changed.keys()


def visit_key(run: BatchRun, number: int, visit: Visit) -> None:
    """Call the method of a visit for the current key, whose number is `number`, if it has state or timers.

    What the method yields is emitted for the key. Raises JobError for what the method raises.
    """
    if not (run.timers.has_any or has_state(run.instance.handles.values())):
        return
    context, timers, before = run.context, run.timers, len(run.emitted)
    outer = run.fires_late, context.watermark, timers.late_before
    run.fires_late, context.watermark, timers.late_before = visit.is_late, visit.watermark, visit.late_before(run)
    context.event_time = visit.time
    time = context.event_time or run.time_now
    shared = run.instance.shared.values()
    versions = [handle.version for handle in shared]
    for handle in shared:
        handle.version = visit.version
    try:
        result = visit.method(context, *visit.arguments)
        if result is not None:
            run.emitted.extend(result)
    except (Exception, SystemExit) as error:
        raise run.raised(error, visit.method, None) from error
    for handle, version in zip(shared, versions, strict=True):
        handle.version = version
    if len(run.emitted) > before:
        run.output.mark(number, time, late=visit.is_late)
    context.event_time = NO_EVENT_TIME
    run.fires_late, context.watermark, timers.late_before = outer
