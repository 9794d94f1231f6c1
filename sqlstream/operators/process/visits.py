"""Visits: the calls of `ctx.for_each_key` in a method of a broadcast table, one for each key that has state or timers.

Every bucket gets the broadcast row, and visits its own keys. A key is visited before its timers and rows of the batch or, in a
call with ORDER BY, between them at the event time of the broadcast row. Only then does the run look whether the key has state. So
with ORDER BY visits, like state, do not depend on how rows were divided into batches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlstream.duck.sql import Select
from sqlstream.duck.time_variables import NEVER
from sqlstream.functions.process.context import event_micros
from sqlstream.functions.process.states import REMOVED, Handle, ListState, MapState, ValueState
from sqlstream.operators.process.tables import RESULT, StateTables, listed
from sqlstream.storage.bucket import Bucket
from sqlstream.units import EventTime


@dataclass(frozen=True, slots=True)
class Visit:
    """A call of a method for each key, at the event time `micros` (NEVER: before all else).

    During the call, broadcast states show their values after the first `version` broadcast rows of the batch. `ctx.event_time`
    and `ctx.watermark` are `time` and `watermark`, as for the broadcast row; `is_late` says whether emitted rows are late.
    """

    method: Callable[..., Any]
    arguments: tuple[Any, ...]
    version: int
    micros: EventTime
    time: dt.datetime
    watermark: dt.datetime | None
    is_late: bool

    def late_before(self, watermark: dt.datetime | None, until: EventTime) -> EventTime:
        """Return the event time, in microseconds, before which timers that the call sets are late.

        `watermark` is the watermark of the batch as the user's code sees it, `until` the same in microseconds.
        """
        if self.micros != NEVER:
            return NEVER
        return until if self.watermark == watermark else EventTime(event_micros(self.time))


def keys_with_state(state: Bucket, tables: StateTables) -> Iterator[Select]:
    """Yield the key columns of all keys with state or timers; keys whose state was deleted since can be among them."""
    keys = listed(tables.keys)
    for declaration in tables.declarations:
        if declaration.name != RESULT and (rows := state.relation(declaration.name)) is not None:
            yield Select(f"SELECT {keys} FROM {rows}")


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
