"""Metrics of jobs: numbers per source, per bucket of an operator, per operator and per sink.

The job's log stores them. System tables, `Job.progress`, the display of a running job and the metrics for Prometheus are derived
from them, by the tables of `storage/facts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from sqlstream.storage.facts import OPERATOR_FACTS, counts
from sqlstream.units import Duration, EventTime, ProcessingTime, upgraded_times

Time = TypeVar("Time", EventTime, ProcessingTime)


class PartitionMetrics(msgspec.Struct, omit_defaults=True):
    """What a job has read of a partition of a source whose partitions have watermarks of their own.

    A partition that has `ended` does not hold the watermark back. `found_at` is when the job first saw the partition.
    """

    rows: int = 0
    max_event_time: EventTime | None = None
    watermark: EventTime | None = None
    idle_since: ProcessingTime | None = None
    last_row_at: ProcessingTime | None = None
    found_at: ProcessingTime | None = None
    ended: bool = False


class SourceMetrics(msgspec.Struct, omit_defaults=True):
    """What a job has read of one source.

    `sequence` is the last descriptor that was read; `last` says that none follows. `idle_timeout` is set where rows of the source
    advance the watermark. `lost_rows` were gone before they were read. `said_at` is when a user-defined source last advanced its
    watermark without a row, None if it never does. `bytes` is None where nothing counts them. `latency` is the time from the
    newest event of the last batch with rows of the source until the results of that batch were there.
    """

    rows: int = 0
    null_rows: int = 0
    malformed_rows: int = 0
    max_event_time: EventTime | None = None
    watermark: EventTime | None = None
    holds_minimum: bool = False
    holding_since: ProcessingTime | None = None
    idle_timeout: Duration | None = None
    idle_since: ProcessingTime | None = None
    last_row_at: ProcessingTime | None = None
    sequence: int = -1
    last: bool = False
    lost_rows: int = 0
    said_at: ProcessingTime | None = None
    partitions: dict[str, PartitionMetrics] = {}
    bytes: int | None = None
    latency: Duration | None = None

    def copy(self) -> SourceMetrics:
        """Return a copy, partitions included, that can be changed independently."""
        partitions = {name: msgspec.structs.replace(one) for name, one in self.partitions.items()}
        return msgspec.structs.replace(self, partitions=partitions)


class BucketMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator stores in one bucket, the name of its manifest, and when the operator must run on it next.

    `counters` are the counters of the user's code, by name.
    """

    manifest: str
    state_rows: int = 0
    state_bytes: int = 0
    segments: int = 0
    late_rows: int = 0
    missed_windows: int = 0
    expired_keys: int = 0
    returned_keys: int = 0
    absent_deletes: int = 0
    event_timer: EventTime | None = None
    processing_timer: ProcessingTime | None = None
    counters: Mapping[str, int] = {}


# The numbers that every bucket has; an operator has the sums. A bucket adds the counters up itself, under the same names.
_OF_BUCKETS = [fact for fact in counts(OPERATOR_FACTS) if fact.name in BucketMetrics.__struct_fields__]
COUNTS = tuple(fact.name for fact in _OF_BUCKETS)
COUNTERS = tuple(fact.name for fact in _OF_BUCKETS if not fact.gauge)


# What logs of format 1 had in milliseconds.
_SOURCE_TIMES = ("holding_since", "idle_timeout", "idle_since", "last_row_at")


def in_microseconds(entry: dict[str, Any]) -> dict[str, Any]:
    """Convert a log entry of format 1, as JSON values, from milliseconds to microseconds."""
    entry = upgraded_times(entry, ("committed_at",))
    sources = {name: upgraded_times(source, _SOURCE_TIMES) for name, source in entry.get("sources", {}).items()}
    operators = {name: _upgraded_buckets(operator) for name, operator in entry.get("operators", {}).items()}
    return {**entry, "sources": sources, "operators": operators}


def _upgraded_buckets(operator: dict[str, Any]) -> dict[str, Any]:
    buckets = operator.get("buckets", {})
    return {**operator, "buckets": {n: upgraded_times(b, ("processing_timer",)) for n, b in buckets.items()}}


class OperatorMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sums over an operator's buckets, and the earliest event time at which it must run on one of them.

    `rows_out` counts the rows (changes) emitted since the job began, before filters above the operator.
    """

    state_rows: int = 0
    state_bytes: int = 0
    segments: int = 0
    late_rows: int = 0
    missed_windows: int = 0
    expired_keys: int = 0
    returned_keys: int = 0
    absent_deletes: int = 0
    event_timer: EventTime | None = None
    buckets: Mapping[int, BucketMetrics] = {}
    counters: Mapping[str, int] = {}
    rows_out: int = 0

    @classmethod
    def of(cls, buckets: Mapping[int, BucketMetrics], rows_out: int = 0) -> OperatorMetrics:
        """Return the sums over buckets, whose metrics are by label."""
        sums = {name: sum(getattr(one, name) for one in buckets.values()) for name in COUNTS}
        names = sorted({name for one in buckets.values() for name in one.counters})
        return cls(
            **sums,
            event_timer=earliest(one.event_timer for one in buckets.values()),
            buckets=dict(buckets),
            counters={name: sum(one.counters.get(name, 0) for one in buckets.values()) for name in names},
            rows_out=rows_out,
        )


class SinkMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job has written into a table: rows, and bytes of Parquet, None where a connector writes another format."""

    rows: int = 0
    bytes: int | None = None


class PartitionReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task has read of a partition in one batch."""

    rows: int
    max_event_time: EventTime | None
    watermark: EventTime | None


class ScanReport(msgspec.Struct, frozen=True, omit_defaults=True, tag="scan"):
    """What a task has read of a source in one batch."""

    scan: str
    sequence: int
    last: bool
    rows: int
    null_rows: int
    malformed_rows: int
    max_event_time: EventTime | None
    watermark: EventTime | None
    lost_rows: int = 0
    partitions: Mapping[str, PartitionReport] = {}
    bytes: int | None = None
    # The clock after the batch, if operators go by it beside others that go by event time.
    clock: EventTime | None = None


class BucketReport(msgspec.Struct, frozen=True, omit_defaults=True, tag="bucket"):
    """What an operator stores in a bucket after a batch, and the number of rows (changes) that the batch emitted."""

    operator: str
    bucket: int
    metrics: BucketMetrics
    rows_out: int = 0


Report = ScanReport | BucketReport


def earliest(times: Iterable[Time | None]) -> Time | None:
    """Return the earliest of the times, None if all are None."""
    return min((time for time in times if time is not None), default=None)
