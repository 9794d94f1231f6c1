"""The batches in a job's log, as JSON data for the server's answers and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlstream.errors import UsageError
from sqlstream.jobs import ending
from sqlstream.server.messages import Batches
from sqlstream.storage.facts import OPERATOR_FACTS, SINK_FACTS, SOURCE_FACTS, count_values
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.units import END_OF_INPUT, EventTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse

_DEFAULT = 100
_MOST = 1_000


def batches(warehouse: Warehouse, name: str, last: str | None) -> Batches:
    """Return the last batches that the log of a job has, oldest first: as many as the text `last` says (default: 100).

    Raises UsageError for a job that does not exist, and if `last` is no number from 1 to 1,000.
    """
    count = _DEFAULT if last is None else int(last) if last.isascii() and last.isdigit() and len(last) < 9 else 0
    if not 1 <= count <= _MOST:
        raise UsageError(f'the parameter "last" is a number from 1 to {_MOST:,}, not "{last}"')
    paths = ending.existing(warehouse, name)
    newest = last_committed(warehouse.fs, paths)
    if newest is None:
        return Batches(name, [])
    # The batch before the first is needed for the first one's duration.
    entries = JobLog(warehouse.fs, paths.log).entries(newest, max(newest - count, 0), faults=[])
    pairs = with_before(entries)
    return Batches(name, [batch_data(entry, before) for entry, before in pairs][-count:])


def with_before(entries: list[LogEntry]) -> list[tuple[LogEntry, LogEntry | None]]:
    """Pair each entry with the entry of the version before it; with None if that is not in the list."""
    by_version = {entry.version: entry for entry in entries}
    return [(entry, by_version.get(entry.version - 1)) for entry in entries]


def batch_data(entry: LogEntry, before: LogEntry | None) -> dict[str, Any]:
    """Return an entry as JSON data: rows since the job began, the size of the state, and the batch's duration by phase.

    Times and durations are microseconds. The duration is the difference to `before`, the entry of the version before; without
    that it is unknown, except for version 0.
    """
    has_duration = before is not None or entry.version == 0
    earlier = before.spent if before is not None else {}
    return {
        "version": entry.version,
        "committed_at": entry.committed_at,
        "watermark": time_data(entry.watermark),
        "rows_in": entry.rows_in,
        "rows_out": entry.rows_out,
        "took": _took(entry.spent, earlier) if has_duration else None,
        "sources": {
            name: {
                **count_values(SOURCE_FACTS, source),
                "watermark": time_data(source.watermark),
                "newest": source.max_event_time,
                "idle": source.idle_since,
            }
            for name, source in entry.sources.items()
        },
        "operators": {
            name: {
                **count_values(OPERATOR_FACTS, operator),
                "next_end": operator.event_timer,
                "watermark": time_data(entry.watermark_of(name)),
            }
            for name, operator in entry.operators.items()
        },
        "sinks": {table: count_values(SINK_FACTS, sink) for table, sink in entry.sinks.items()},
    }


def _took(spent: Mapping[str, int], earlier: Mapping[str, int]) -> dict[str, int]:
    # After a job went back to a savepoint, or began anew, its counters may be smaller.
    return {phase: max(time - earlier.get(phase, 0), 0) for phase, time in spent.items()}


def time_data(time: EventTime | None) -> EventTime | str | None:
    """Return an event time for JSON: microseconds since 1970, or "end of input"."""
    return "end of input" if time is not None and time >= END_OF_INPUT else time
