"""What a job has done so far, for people and programs: `Job.progress`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlstream.runtime.commits import Totals
from sqlstream.runtime.times import FIRST, LAST
from sqlstream.storage.facts import FACTS, OPERATOR_FACTS, SINK_FACTS, SOURCE_FACTS, count_values, counts
from sqlstream.storage.metrics import OperatorMetrics, SourceMetrics
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What a job has read from one source.

    Event times are datetimes without a zone; for TIMESTAMP_LTZ columns they are local times of the zone of the session.
    """

    rows: int
    #: Rows that could not be parsed and were skipped, if the options of the table allow that.
    malformed_rows: int
    #: Rows that were dropped because their event time is NULL.
    null_rows: int
    newest_event_time: datetime | None
    #: The source's own watermark: `datetime.max` at its end, None before its first row and for a source without a watermark.
    watermark: datetime | None
    #: Whether the watermark of the job, or of one of its operators, waits for this source.
    holds_watermark: bool
    #: How long the source may have no rows before the watermark stops waiting for it; None for ever, or without a watermark.
    idle_timeout: timedelta | None
    #: When it became idle, with the zone UTC; None if it is not idle.
    idle_since: datetime | None
    has_watermark: bool = True
    #: Rows that were gone before they were read.
    lost_rows: int = 0
    #: Bytes that were read, None where nothing counts them.
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """The state of one operator."""

    #: Stored rows. A key may have several per window until they are merged; the view of the state shows one.
    state_rows: int
    state_bytes: int
    #: Rows that came too late for their window and were dropped.
    late_rows: int
    #: The watermark at which the next window closes, or the next row expires or is emitted; `datetime.max`: the end of the input.
    next_close: datetime | None
    #: Files of the state.
    segments: int = 0
    #: Pairs of a row that still counted and a window of it that had closed already.
    missed_windows: int = 0
    #: Keys that a time to live has dropped, and keys that came back after that.
    expired_keys: int = 0
    returned_keys: int = 0
    #: Deletions of rows that were not there.
    absent_deletes: int = 0
    #: The counters of a process function, by name.
    counters: Mapping[str, int] = field(default_factory=dict)
    #: Rows (changes) that it has emitted, before filters behind it.
    rows_out: int = 0
    #: Its watermark, the least of the sources that it waits for; None before there is one, and if it reads no time.
    watermark: datetime | None = None
    #: The sources for whose watermarks it waits; none if it reads no time.
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """What a job has written into one table."""

    rows: int
    #: Bytes of Parquet, None where a connector writes another format.
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job has done from its first start to its last batch. It is a snapshot: `Job.progress` returns a new one."""

    #: The number of the last batch, which is a version of the state; None before the first.
    batch: int | None = None
    rows_in: int = 0
    rows_out: int = 0
    #: None before there is one, `datetime.max` after the end of the input.
    watermark: datetime | None = None
    #: The time zone whose local times the watermark is: UTC, or for a TIMESTAMP_LTZ the zone of the session.
    zone: str = "UTC"
    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    operators: Mapping[str, OperatorProgress] = field(default_factory=dict)
    #: By the table.
    sinks: Mapping[str, SinkProgress] = field(default_factory=dict)

    @property
    def newest_event_time(self) -> datetime | None:
        """The newest event time of all sources."""
        return max((t for s in self.sources.values() if (t := s.newest_event_time) is not None), default=None)

    @property
    def lag(self) -> timedelta | None:
        """How far the watermark is behind the newest event time; None until both exist."""
        newest = self.newest_event_time
        return None if newest is None or self.watermark is None else max(newest - self.watermark, timedelta())

    @property
    def malformed_rows(self) -> int:
        return sum(source.malformed_rows for source in self.sources.values())

    @property
    def null_rows(self) -> int:
        return sum(source.null_rows for source in self.sources.values())

    @property
    def late_rows(self) -> int:
        return sum(operator.late_rows for operator in self.operators.values())

    @property
    def lost_rows(self) -> int:
        return sum(source.lost_rows for source in self.sources.values())

    @property
    def totals(self) -> dict[str, int]:
        """The numbers of the whole job by name: sums over its sources, operators and tables, 0 where nothing counts."""
        sums = {
            fact.total: sum(getattr(one, fact.name) or 0 for one in getattr(self, parts).values())
            for parts, facts in FACTS.items()
            for fact in counts(facts)
            if fact.total
        }
        # The sources and tables of an earlier query of the job count, too.
        return sums | {"rows_in": self.rows_in, "rows_out": self.rows_out}

    @property
    def next_close(self) -> datetime | None:
        """The earliest `next_close` of all operators."""
        return min((t for o in self.operators.values() if (t := o.next_close) is not None), default=None)


def progress_of(totals: Totals) -> Progress:
    """Return the metrics of a job as Progress, with datetimes in place of microseconds."""
    return Progress(
        batch=totals.version if totals.version >= 0 else None,
        rows_in=totals.rows_in,
        rows_out=totals.rows_out,
        watermark=event_time(totals.watermark),
        zone=totals.zone,
        sources={name: _source(values) for name, values in totals.sources.items()},
        operators={name: _operator(name, values, totals) for name, values in totals.operators().items()},
        sinks={table: SinkProgress(**count_values(SINK_FACTS, values)) for table, values in totals.sinks.items()},
    )


def _source(metrics: SourceMetrics) -> SourceProgress:
    timeout, since = metrics.idle_timeout, metrics.idle_since
    return SourceProgress(
        **count_values(SOURCE_FACTS, metrics),
        newest_event_time=event_time(metrics.max_event_time),
        watermark=event_time(metrics.watermark),
        holds_watermark=metrics.holds_minimum,
        idle_timeout=timedelta(microseconds=timeout) if timeout else None,
        idle_since=None if since is None else instant(since),
        has_watermark=timeout is not None,
    )


def _operator(name: str, metrics: OperatorMetrics, totals: Totals) -> OperatorProgress:
    waits_for = totals.waits_for.get(name, ())
    return OperatorProgress(
        **count_values(OPERATOR_FACTS, metrics),
        next_close=event_time(metrics.event_timer),
        counters=dict(metrics.counters),
        watermark=event_time(totals.watermarks.get(name, totals.watermark)) if waits_for else None,
        waits_for=waits_for,
    )


def event_time(time: EventTime | None) -> datetime | None:
    """Return an event time in microseconds as a datetime without a zone, the nearest one if the year is not in 1..9999.

    >>> event_time(EventTime(1_000_000)), event_time(None), event_time(END_OF_INPUT) == datetime.max
    (datetime.datetime(1970, 1, 1, 0, 0, 1), None, True)
    """
    if time is None:
        return None
    if time >= END_OF_INPUT:
        return datetime.max
    return _EPOCH + timedelta(microseconds=min(max(time, FIRST), LAST))


def instant(time: ProcessingTime) -> datetime:
    """Return a processing time in microseconds since 1970 as a datetime in UTC."""
    return _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=time)
