"""The outlook of a key's state: when its windows close, what holds the watermark, when the key expires, and late rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlstream.duck.internal_columns import EXPIRES_AT
from sqlstream.duck.time_texts import microseconds_of, time_text
from sqlstream.storage.joblog import LogEntry, holders
from sqlstream.storage.metrics import OperatorMetrics, SourceMetrics
from sqlstream.storage.views import behind
from sqlstream.units import END_OF_INPUT, Duration, EventTime, ProcessingTime, rounded_duration
from sqlstream.warehouse.jobs import THE_CLOCK, OperatorRecord


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of `sqlstream.why`: content of a view as a row, or a sentence (`text`) with the time that it is about."""

    part: str
    name: str | None
    text: str | None
    time: EventTime | ProcessingTime | None = None
    content: Mapping[str, Any] | None = None

    def row(self) -> Mapping[str, Any]:
        """Return the columns of `sqlstream.why`, with the time in microseconds; the end of the input has no time."""
        time = None if self.time is None or self.time >= END_OF_INPUT else self.time
        return {"part": self.part, "name": self.name, "text": self.text, "time": time, "content": self.content}


def event_time(time: EventTime) -> str:
    """Return an event time as text for people, without a zone.

    >>> event_time(EventTime(1_357_034_400_000_000)), event_time(EventTime(1_500_000))
    ('2013-01-01 10:00:00', '1970-01-01 00:00:01.5')
    """
    return "the end of the input" if time >= END_OF_INPUT else time_text(time)


def due_times(
    operator: OperatorRecord, rows: Sequence[Mapping[str, Any]], watermark: EventTime | None
) -> Iterator[Finding]:
    """Yield, for each window of the rows of the operator's main view, when it closes."""
    window = operator.window
    if window is None or window.end is None:
        return
    reached = None if watermark is None else behind(watermark, operator.delay)
    bounds = {(row.get(window.start or ""), row[window.end]) for row in rows if row.get(window.end) is not None}
    by_end = sorted((EventTime(microseconds_of(str(end))), str(start), start, end) for start, end in bounds)
    for end, _, start, shown in by_end:
        kind = "session" if window.grow else "window"
        title = f"{kind} {'' if start is None else f'from {start} '}to {shown}"
        closes = EventTime(end + window.lateness)
        late = f", and can change until it passes {event_time(closes)}" if window.lateness else ""
        if reached is not None and reached >= end:
            text = f"has ended; late rows change it until the watermark passes {event_time(closes)}{_ahead(closes, reached)}"
        else:
            grows = ", later if rows come within its gap" if window.grow else ""
            text = f"closes when the watermark passes {shown}{_ahead(end, reached)}{grows}{late}"
        yield Finding("window", f"{start} {shown}" if start is not None else str(shown), f"{title} {text}", closes)


def _ahead(time: EventTime, watermark: EventTime | None) -> str:
    if watermark is None:
        return ": there is no watermark yet"
    return f" ({rounded_duration(Duration(time - watermark))} ahead)" if time > watermark else ""


def expiries(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Finding]:
    """Yield when rows of each view expire."""
    for name, of in rows.items():
        shown = {str(row[EXPIRES_AT]) for row in of if row.get(EXPIRES_AT) is not None}
        for time in sorted(EventTime(microseconds_of(text)) for text in shown):
            text = f"is forgotten at {event_time(time)} of the clock, unless a row comes for it before"
            yield Finding("expires", name, f"{name} {text}", time)


def sources(operator: OperatorRecord, entry: LogEntry) -> Iterator[Finding]:
    """Yield the operator's watermark, and the progress of each source that it waits for; those that hold it back come first."""
    waits_for = entry.sources if operator.waits_for is None else operator.waits_for
    watermarks = {
        name: s.watermark for name, s in entry.sources.items() if s.idle_timeout is not None and name in waits_for
    }
    watermark = entry.watermark_of(operator.name)
    if operator.waits_for == (THE_CLOCK,) and watermark is not None:
        yield Finding("watermark", None, f"it goes by {THE_CLOCK}, which is at {event_time(watermark)}", watermark)
    if not watermarks:
        return
    if watermark is None:
        yield Finding("watermark", None, "there is no watermark yet")
    else:
        own = behind(watermark, operator.delay)
        late = ""
        if operator.delay and own != END_OF_INPUT:
            late = f", and for this operator at {event_time(own)}: its rows come so much later"
        yield Finding("watermark", None, f"the watermark is at {event_time(watermark)}{late}", own)
    idle = {name for name, s in entry.sources.items() if s.idle_since is not None}
    held = holders(watermarks, idle)
    for name in sorted(watermarks, key=lambda name: (name not in held, name)):
        source = entry.sources[name]
        state = "holds the watermark" if name in held else "is idle" if name in idle else "is further"
        yield Finding("source", name, f"{name} {state}: {_read(source)}", source.watermark)
        if name in held:
            yield from _partitions(name, source)


def _read(source: SourceMetrics) -> str:
    if source.watermark == END_OF_INPUT:
        return "its input has ended"
    if source.max_event_time is None:
        return "no row with a time has come yet"
    watermark = "no watermark" if source.watermark is None else f"its watermark is at {event_time(source.watermark)}"
    return f"its newest row is of {event_time(source.max_event_time)}, {watermark}"


def _partitions(name: str, source: SourceMetrics) -> Iterator[Finding]:
    """Yield the partitions that hold the watermark of a source whose partitions have watermarks of their own."""
    open_ = {n: p for n, p in source.partitions.items() if not p.ended}
    idle = {n for n, p in open_.items() if p.idle_since is not None}
    for partition in sorted(holders({n: p.watermark for n, p in open_.items()}, idle)):
        watermark = open_[partition].watermark
        at = "has no row with a time yet" if watermark is None else f"is at {event_time(watermark)}"
        yield Finding("source", name, f"{name}: partition {partition} holds it back, and {at}", watermark)


def late_rows(operator: OperatorRecord, entry: LogEntry) -> Iterator[Finding]:
    """Yield the numbers of late rows and of expired keys of an operator, over all keys."""
    metrics = entry.operators.get(operator.name, OperatorMetrics())
    if metrics.late_rows:
        text = f"{_rows(metrics.late_rows)} of all keys came too late so far"
        hint = "; LATE_ROWS would keep them" if len(operator.views) == 1 else ""
        yield Finding("late rows", None, f"{text}{hint}")
    if metrics.missed_windows:
        text = f"{metrics.missed_windows} times a row of any key came too late for one of its windows"
        yield Finding("late rows", None, text)
    if metrics.expired_keys:
        text = f"{metrics.expired_keys} keys were forgotten so far, and {metrics.returned_keys} of them came again"
        yield Finding("forgotten", None, text)


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"
