"""A batch of a call with ORDER BY: the order of a key's rows and timers does not depend on how rows were divided into batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import islice, repeat
from operator import itemgetter
from typing import Any

from sqlstream.duck.time_variables import NEVER
from sqlstream.functions.process.context import NO_EVENT_TIME, event_micros
from sqlstream.operators.process.keyed_run import KeyedRun
from sqlstream.operators.process.rows import Calls
from sqlstream.units import END_OF_INPUT, EventTime

# The event time of a row, in microseconds and as the user's code sees it; the method that gets it; the row. Of a visit: None in
# the place of the method, and the Visit in the place of the row.
_Row = tuple[EventTime, dt.datetime, Any, Any]


class OrderedRun(KeyedRun):
    """Calls methods for a key's rows that the watermark has passed, in the order of time, and for event-time timers between them.

    `ctx.watermark` is the event time of the row or timer. Timers of processing time, which fire last, and late timers see the
    watermark of the batch. Broadcast states whose rows have an order, too, show what they hold at this time.
    """

    def _visit(self, number: int, calls: Calls) -> None:
        context, timers, emitted = self.context, self.timers, self.emitted
        ended, context.input_ended, move_to = context.input_ended, False, self.move_to
        # No timer is late, except one that a visit for a broadcast row without an order sets behind the watermark.
        self.fired, self.fires_late, timers.late_before = 0, False, NEVER
        # The event time of the key's last row or timer.
        self.reached: dt.datetime | None = None
        for micros, time, method, row in self._rows(number, calls):
            if timers.soonest < micros:
                self._fire_before(number, micros)
            if method is None:
                # Rows of broadcast tables without an order come before all others.
                if micros != NEVER:
                    self.reached = time
                self._call_visit(number, row)
                continue
            self.reached = context.event_time = context.watermark = time
            if move_to is not None:
                move_to(micros)
            before = len(emitted)
            try:
                result = method(context, row)
                if result is not None:
                    emitted.extend(result)
            except (Exception, SystemExit) as error:
                raise self.raised(error, method, row) from error
            if len(emitted) > before:
                self.output.stamp(number, time, late=False)
        context.input_ended = ended
        if self.instance.on_timer is not None:
            self._fire_all(number)

    def _rows(self, number: int, calls: Calls) -> Iterator[_Row]:
        """Return the visits and rows of a key in the order of time; at one time visits come first, then inputs in their order."""
        streams: list[Iterator[_Row]] = []
        if self.visits:
            streams.append(iter([(one.micros, one.time, None, one) for one in self.visits]))
        streams += [
            zip(islice(one.micros, size), one.times or (), repeat(method), one.rows, strict=False)
            for method, one in calls
            if (size := one.sizes[number])
        ]
        if len(streams) == 1:
            return streams[0]
        return iter(sorted((row for rows in streams for row in rows), key=itemgetter(0)))

    def _fire_before(self, number: int, micros: EventTime) -> None:
        """Call `on_timer` for the timers of event time that are due before a time, exclusive."""
        context = self.context
        for timer, is_late in self.timers.due_before(micros):
            # A timer for a time before the row that set it fires right after the row.
            time = timer.time if self.reached is None else max(timer.time, self.reached)
            context.event_time, context.watermark = time, self.watermark if is_late else time
            if not is_late:
                self.reached = time
            if self.move_to is not None:
                self.move_to(EventTime(event_micros(time)))
            self.timers.late_before = self.timers.watermark if is_late else NEVER
            self._call_timer(number, timer, self.fired, late=is_late)
            self.fired += 1
        self.timers.late_before, self.fires_late = NEVER, False

    def _fire_all(self, number: int) -> None:
        """Call `on_timer` for the due event-time timers that are left, then for the due timers of processing time."""
        self._fire_before(number, self.until)
        self.reached = self.context.watermark = self.watermark
        for timer in self.timers.due_by_clock():
            if self.move_to is not None:
                self.move_to(END_OF_INPUT)
            self.context.event_time = NO_EVENT_TIME
            self._call_timer(number, timer, self.fired)
            self.fired += 1
            self._fire_before(number, self.until)
