"""The system tables `sqlstream.*`, about the jobs of a warehouse."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
from msgspec import structs

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import quote_text
from sqlstream.errors import DamageError, OtherVersionError, SqlStreamError
from sqlstream.storage.facts import OPERATOR_FACTS, SINK_FACTS, SOURCE_FACTS, column_types, count_values
from sqlstream.storage.joblog import fell_idle, held_by, holders
from sqlstream.storage.metrics import OperatorMetrics, SourceMetrics
from sqlstream.storage.snapshot import JobHistory, named_manifest
from sqlstream.storage.views import operator_view, times_macro
from sqlstream.units import END_OF_INPUT, NO_TIME, ProcessingTime, now
from sqlstream.warehouse.checks import MAX_ROWS, checks, read_results
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE
from sqlstream.warehouse.restarts import read_restarts
from sqlstream.warehouse.savepoint_records import FORMAT as SAVEPOINT_FORMAT
from sqlstream.warehouse.savepoint_records import read_savepoint
from sqlstream.warehouse.status import RUNNING, effective_status

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "checks": {
        "job": "VARCHAR",
        "name": "VARCHAR",
        "operator": "VARCHAR",
        "condition": "VARCHAR",
        "every": "BIGINT",
        "action": "VARCHAR",
        "status": "VARCHAR",
        "version": "BIGINT",
        "checked_at": "TIMESTAMPTZ",
        "rows": "BIGINT",
        "detail": "VARCHAR",
    },
    "jobs": {
        "job": "VARCHAR",
        "status": "VARCHAR",
        "version": "BIGINT",
        "watermark": "TIMESTAMP",
        "rows_in": "BIGINT",
        "rows_out": "BIGINT",
        "started_at": "TIMESTAMPTZ",
        "updated_at": "TIMESTAMPTZ",
        "pid": "BIGINT",
        "error": "VARCHAR",
        "sql": "VARCHAR",
        "restarts": "BIGINT",
        "ties": "VARCHAR",
        "semantics": "VARCHAR",
        "engine": "VARCHAR",
    },
    "operators": {
        "job": "VARCHAR",
        "operator": "VARCHAR",
        **column_types(OPERATOR_FACTS),
    },
    "restarts": {
        "job": "VARCHAR",
        "failed_at": "TIMESTAMPTZ",
        "version": "BIGINT",
        "error": "VARCHAR",
        "delay_ms": "DOUBLE",
        "strategy": "VARCHAR",
    },
    "savepoints": {
        "savepoint": "VARCHAR",
        "job": "VARCHAR",
        "version": "BIGINT",
        "taken_at": "TIMESTAMPTZ",
        "committed_at": "TIMESTAMPTZ",
        "watermark": "TIMESTAMP",
        "rows": "BIGINT",
        "bytes": "BIGINT",
        "format": "BIGINT",
        "error": "VARCHAR",
    },
    "sinks": {
        "job": "VARCHAR",
        "sink": "VARCHAR",
        **column_types(SINK_FACTS),
    },
    "snapshots": {
        "job": "VARCHAR",
        "version": "BIGINT",
        "committed_at": "TIMESTAMPTZ",
        "watermark": "TIMESTAMP",
    },
    "watermarks": {
        "job": "VARCHAR",
        "source": "VARCHAR",
        **column_types(SOURCE_FACTS),
    },
}

# A schema for the views that count windows, which is dropped after each count.
_COUNTED = internal("counted")
SYSTEM_TABLES = tuple(_COLUMNS)


def system_columns(name: str) -> Mapping[str, str]:
    """Return the DuckDB types of one of the SYSTEM_TABLES, by column."""
    return _COLUMNS[name]


# Rows have times in microseconds: event times for TIMESTAMP, processing times for TIMESTAMPTZ.
_CONVERSIONS = {
    "TIMESTAMP": f"CASE WHEN {{0}} >= {END_OF_INPUT} THEN 'infinity'::TIMESTAMP ELSE make_timestamp({{0}}) END",
    "TIMESTAMPTZ": "make_timestamptz({0})",
}

Row = Mapping[str, Any]
Connection = duckdb.DuckDBPyConnection


def create_system_table(connection: Connection, name: str, warehouse: Warehouse, jobs: Iterable[JobHistory]) -> None:
    """Create one of the SYSTEM_TABLES in the schema `sqlstream`, over the versions of the jobs that the rest of a query sees."""
    if name == "savepoints":
        rows = [*_savepoints(warehouse)]
    else:
        rows = [row for job in jobs for row in _rows(connection, name, warehouse, job)]
    create_table(connection, f"sqlstream.{name}", _COLUMNS[name], rows)


def create_table(connection: Connection, name: str, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Create a table with rows, whose times are in microseconds; `name` is SQL, `columns` are DuckDB types by name."""
    stored = {column: "BIGINT" if type in _CONVERSIONS else type for column, type in columns.items()}
    items = ", ".join(
        f"{_CONVERSIONS.get(type, '{0}').format(f'r.{column}')} AS {column}" for column, type in columns.items()
    )
    connection.execute(
        f"CREATE OR REPLACE TABLE {name} AS SELECT {items} "
        f"FROM (SELECT unnest(from_json($rows::JSON, {quote_text(json.dumps([stored]))})) AS r)",
        {"rows": json.dumps(rows)},
    )


def _rows(con: Connection, name: str, warehouse: Warehouse, job: JobHistory) -> Iterator[Row]:
    """Yield a table's rows about a job. A job that cannot be read has only a row in `jobs`, with the error."""
    if name != "jobs":
        if record := job.readable_record:
            yield from _ROWS[name](con, warehouse, job, record)
        return
    try:
        if job.record is not None:
            yield from _jobs(con, warehouse, job, job.record)
    except OtherVersionError as error:
        yield _unreadable(job, "INCOMPATIBLE", error)
    except DamageError as error:
        if error.fault == GONE:
            # The job may have been replaced in the meantime: the caller starts over.
            raise
        yield _unreadable(job, "DAMAGED", error)


def _unreadable(job: JobHistory, status: str, error: SqlStreamError) -> Row:
    return {**dict.fromkeys(_COLUMNS["jobs"]), "job": job.name, "status": status, "error": error.render()}


def _jobs(con: Connection, warehouse: Warehouse, job: JobHistory, record: JobRecord) -> Iterator[Row]:
    newest = job.newest_entry
    status = effective_status(warehouse.fs, warehouse.job(job.name))
    yield {
        "job": record.job,
        "status": status.state if status else None,
        "version": newest.version if newest else None,
        "watermark": newest.watermark if newest else None,
        "rows_in": newest.rows_in if newest else 0,
        "rows_out": newest.rows_out if newest else 0,
        "started_at": status.started_at if status else None,
        "updated_at": status.updated_at if status else None,
        "pid": status.pid if status else None,
        "error": status.error if status else None,
        "sql": record.sql,
        "restarts": read_restarts(warehouse.fs, warehouse.job(job.name)).count,
        "ties": record.ties,
        "semantics": record.semantics,
        "engine": (status.engine or None) if status else None,
    }


def _operators(con: Connection, warehouse: Warehouse, job: JobHistory, record: JobRecord) -> Iterator[Row]:
    logged = job.newest_entry.operators if job.newest_entry else {}
    for operator in record.operators:
        metrics = logged.get(operator.name, OperatorMetrics())
        yield {
            "job": record.job,
            "operator": operator.name,
            "kind": operator.kind,
            "key_columns": operator.key_columns,
            "bound": operator.bound,
            **count_values(OPERATOR_FACTS, metrics),
            "open_windows": _open_windows(con, warehouse, job, operator),
            "next_end": metrics.event_timer,
            "counters": dict(metrics.counters),
            "watermark": job.newest_entry.watermark_of(operator.name)
            if job.newest_entry and operator.waits_for != ()
            else None,
            "waits_for": operator.waits_for,
        }


def _open_windows(con: Connection, warehouse: Warehouse, job: JobHistory, operator: OperatorRecord) -> int | None:
    """Return the number of open windows, None if the operator has none. Reading stored bounds is far cheaper than its view."""
    if not operator.count_sql:
        return None
    sql = operator_view(warehouse, job.name, operator, job.newest, operator.count_sql)
    con.execute(f"CREATE OR REPLACE SCHEMA {_COUNTED}; {times_macro(_COUNTED, job.newest)}")
    con.execute(f"CREATE VIEW {_COUNTED}.windows AS {sql}")
    [(count,)] = con.execute(f"FROM {_COUNTED}.windows").fetchall()
    con.execute(f"DROP SCHEMA {_COUNTED} CASCADE")
    return int(count)


def _snapshots(con: Connection, warehouse: Warehouse, job: JobHistory, record: JobRecord) -> Iterator[Row]:
    # The log may reach back further than the state: it is pruned now and then, and not if the process is killed before.
    for entry in job.entries_since(oldest_queryable(warehouse, job)):
        yield {
            "job": record.job,
            "version": entry.version,
            "committed_at": entry.committed_at,
            "watermark": entry.watermark,
        }


def oldest_queryable(warehouse: Warehouse, job: JobHistory) -> int:
    """Return the oldest version for which all state and results of a job are still stored; damaged manifests are ignored."""
    newest = job.newest_entry
    if newest is None:
        return 0
    directories = [(warehouse.job(job.name).operator(name), newest.state_manifests(name)) for name in newest.operators]
    directories += [(warehouse.table(name).job(job.name), newest.table_manifests(name)) for name in newest.results]
    oldest = 0
    for paths, manifests in directories:
        warehouse.fs.fetch(f"{paths.manifests(bucket)}/{name}" for bucket, name in manifests.items())
        for bucket, name in manifests.items():
            with contextlib.suppress(DamageError, OtherVersionError):
                oldest = max(oldest, named_manifest(warehouse.fs, paths, bucket, name).oldest)
    return oldest


def _watermarks(con: Connection, warehouse: Warehouse, job: JobHistory, record: JobRecord) -> Iterator[Row]:
    logged = job.newest_entry.sources if job.newest_entry else {}
    idle = _idle(warehouse, job, logged)
    watermarks = {name: source.watermark for name, source in logged.items() if source.idle_timeout is not None}
    holding = held_by(watermarks, idle, record.watermark_groups(watermarks))
    for name, source in logged.items():
        waiting = [
            one.name
            for one in record.operators
            if name in holding and name in held_by(watermarks, idle, [one.scans_of(watermarks)])
        ]
        yield {
            "job": record.job,
            "source": name,
            "holds_minimum": name in holding,
            "holding_since": source.holding_since if name in holding else None,
            "idle_since": idle.get(name),
            "max_event_time": source.max_event_time,
            "watermark": source.watermark,
            "partition": None,
            **count_values(SOURCE_FACTS, source),
            "operators": waiting,
        }
        yield from _partitions(record.job, name, source)


def _partitions(job: str, name: str, source: SourceMetrics) -> Iterator[Row]:
    """Yield a row for each partition of a source whose partitions have watermarks of their own, at the last batch."""
    open_ = {n: p for n, p in source.partitions.items() if not p.ended}
    holding = holders(
        {n: p.watermark for n, p in open_.items()}, {n for n, p in open_.items() if p.idle_since is not None}
    )
    for partition, read in sorted(source.partitions.items()):
        yield {
            **dict.fromkeys(_COLUMNS["watermarks"]),
            "job": job,
            "source": name,
            "partition": partition,
            "max_event_time": read.max_event_time,
            "watermark": read.watermark,
            "holds_minimum": partition in holding,
            "idle_since": read.idle_since,
            "rows": read.rows,
        }


def _sinks(con: Connection, warehouse: Warehouse, job: JobHistory, record: JobRecord) -> Iterator[Row]:
    sinks = job.newest_entry.sinks if job.newest_entry else {}
    for table, metrics in sinks.items():
        yield {"job": record.job, "sink": table, **count_values(SINK_FACTS, metrics)}


def _restarts(con: Connection, warehouse: Warehouse, job: JobHistory, record: JobRecord) -> Iterator[Row]:
    for restart in read_restarts(warehouse.fs, warehouse.job(job.name)).last:
        yield {
            "job": record.job,
            "failed_at": restart.failed_at,
            "version": restart.version if restart.version >= 0 else None,
            "error": restart.error,
            "delay_ms": restart.delay / 1000,
            "strategy": restart.strategy,
        }


def _savepoints(warehouse: Warehouse) -> Iterator[Row]:
    """Yield a row for each savepoint; a savepoint that cannot be read has only its name and the error."""
    for name in warehouse.savepoints():
        row: dict[str, Any] = {**dict.fromkeys(_COLUMNS["savepoints"]), "savepoint": name}
        try:
            record = read_savepoint(warehouse.savepoint(name), name).record
        except FileNotFoundError:
            # It has just been dropped.
            continue
        except SqlStreamError as error:
            yield {**row, "error": error.render()}
            continue
        values = {column: getattr(record, column) for column in row if hasattr(record, column)}
        yield {**row, **values, "savepoint": record.name, "format": SAVEPOINT_FORMAT}


def _idle(warehouse: Warehouse, job: JobHistory, logged: Mapping[str, SourceMetrics]) -> dict[str, ProcessingTime]:
    """Return since when sources are idle: for a running job by the current time, else at its last batch.

    A source that reports its progress without rows may have done so since the last batch, so its state at the last batch counts.
    When an idle source of that kind holds another source up, the job runs a batch at once.
    """
    status = effective_status(warehouse.fs, warehouse.job(job.name))
    idle_since = {name: source.idle_since for name, source in logged.items()}
    if status is not None and status.state == RUNNING:
        time = now()
        for name, source in logged.items():
            if source.said_at is not None:
                continue
            active_at = max(status.started_at, source.last_row_at or status.started_at)
            ended = source.watermark == END_OF_INPUT
            idle_since[name] = None if ended else fell_idle(active_at, source.idle_timeout or NO_TIME, time)
    return {name: since for name, since in idle_since.items() if since is not None}


def _checks(con: Connection, warehouse: Warehouse, job: JobHistory, record: JobRecord) -> Iterator[Row]:
    outcomes = read_results(warehouse.fs, warehouse.job(job.name))
    by_name = {check.name: check for check in checks(warehouse, record.job)}
    results = {(r.name, r.operator): r for r in outcomes if r.name == MAX_ROWS or r.name in by_name}
    waiting = [check for check in by_name.values() if (check.name, check.operator) not in results]
    for check in waiting:
        yield {
            **dict.fromkeys(_COLUMNS["checks"]),
            "job": record.job,
            "name": check.name,
            "operator": check.operator,
            "condition": check.sql,
            "every": check.every,
            "action": check.action,
        }
    for result in results.values():
        yield {"job": record.job, **structs.asdict(result)}


_ROWS: Mapping[str, Callable[[Connection, Warehouse, JobHistory, JobRecord], Iterator[Row]]] = {
    "jobs": _jobs,
    "operators": _operators,
    "sinks": _sinks,
    "snapshots": _snapshots,
    "watermarks": _watermarks,
    "restarts": _restarts,
    "checks": _checks,
}
