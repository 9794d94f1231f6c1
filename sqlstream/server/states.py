"""The states of a job's operators, and the versions in which they can be read."""

from __future__ import annotations

from collections.abc import Iterator

from sqlstream.jobs import ending
from sqlstream.queries.batch_changes import oldest_readable
from sqlstream.queries.system import oldest_queryable
from sqlstream.queries.versions import find_state
from sqlstream.server.batches import time_data
from sqlstream.server.messages import StateSummary, StateWindow, VersionList, VersionSummary
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.metrics import OperatorMetrics
from sqlstream.storage.snapshot import JobHistory
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord
from sqlstream.warehouse.paths import Warehouse


def states_of(record: JobRecord) -> Iterator[StateSummary]:
    """Yield the views of a job's state, operator by operator; the view of an operator's result comes first."""
    for operator in record.operators:
        window = window_of(operator)
        for name in operator.views:
            is_result = name == operator.name
            yield StateSummary(
                name,
                operator.name,
                operator.kind,
                list(operator.key_columns),
                operator.bound,
                window if is_result else None,
            )


def window_of(operator: OperatorRecord) -> StateWindow | None:
    """Return the columns that hold the bounds of windows in an operator's result; None without windows."""
    window = operator.window
    if window is None or window.end is None:
        return None
    return StateWindow(window.start, window.end, window.lateness, operator.delay, window.grow)


def versions_of(warehouse: Warehouse, job: str, state: str | None, first: int) -> VersionList:
    """Return the versions of a job, from `first` on, that can be queried; with `state`, the versions in which it can be read.

    Raises UsageError for a job that does not exist, and QueryError for a state that does not exist.
    """
    ending.existing(warehouse, job)
    history = JobHistory(warehouse, job.lower())
    name = history.record.job if history.record is not None else job
    operator = None
    if state is not None:
        operator = find_state({history.name: history}, f"{name}.{state}", None).operator
        if history.newest is not None:
            first = max(first, oldest_readable(warehouse, history.name, operator, history.newest))
    elif history.newest is not None:
        first = max(first, oldest_queryable(warehouse, history))
    operator_name = operator.name if operator is not None else None
    return VersionList(name, [_summary(entry, operator_name) for entry in history.entries_since(first)])


def _summary(entry: LogEntry, operator: str | None) -> VersionSummary:
    return VersionSummary(
        version=entry.version,
        committed_at=entry.committed_at,
        watermark=time_data(entry.watermark if operator is None else entry.watermark_of(operator)),
        rows_in=entry.rows_in,
        rows_out=entry.rows_out,
        state_rows=None if operator is None else entry.operators.get(operator, OperatorMetrics()).state_rows,
    )
