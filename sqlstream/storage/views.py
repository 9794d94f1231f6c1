"""SELECTs over state and warehouse tables as they were at a version: what the views of a query are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlstream.catalog import Column
from sqlstream.duck import clock
from sqlstream.duck.sql import no_rows, over, quote_name
from sqlstream.duck.types import time_literal
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion, VisibleSegments, visible_segments
from sqlstream.storage.zsets import current, upserted, upserts, zset
from sqlstream.units import END_OF_INPUT, Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord, SinkRecord
from sqlstream.warehouse.paths import BucketedPaths, Warehouse

# A query looks at the checksums of so much of a table, in a twentieth of a second; a job always does, and `sqlstream check`.
CHECKED_BYTES = 64 << 20


def operator_view(
    warehouse: Warehouse, job: str, operator: OperatorRecord, snapshot: JobVersion | None, sql: str
) -> str:
    """Return SQL over the names of an operator's state tables as a SELECT over what a version sees of them.

    It is for a view in a schema that has the version's clock: see `clock_of`. Before the first version the tables are empty.
    """
    return over(state_tables(warehouse, job, operator, snapshot), sql)


def state_tables(
    warehouse: Warehouse, job: str, operator: OperatorRecord, snapshot: JobVersion | None
) -> dict[str, str]:
    """Return for each state table of an operator a SELECT of the rows that a version sees: of Z-sets, rows with weights."""
    paths = warehouse.job(job).operator(operator.name)
    snapshot = operator_version(operator, snapshot)
    visible = visible_state(warehouse, job, operator, snapshot)
    return {
        t.name: _rows(warehouse.fs, paths, t, visible.get(t.name), snapshot)
        for t in (table.declaration for table in operator.tables)
    }


def operator_version(operator: OperatorRecord, snapshot: JobVersion | None) -> JobVersion | None:
    """Return a version of a job as one of its operators knows it, whose watermark may be behind the job's."""
    if snapshot is None or snapshot.watermark is None:
        return snapshot
    return replace(snapshot, watermark=behind(snapshot.watermark, operator.delay))


def visible_state(
    warehouse: Warehouse, job: str, operator: OperatorRecord, snapshot: JobVersion | None
) -> Mapping[str, VisibleSegments]:
    """Return what each state table of an operator holds at a version, as `operator_version` returns it."""
    if snapshot is None:
        return {}
    paths = warehouse.job(job).operator(operator.name)
    named = snapshot.newest.state_manifests(operator.name)
    replicated = frozenset(t.name for t in operator.tables if t.replicated)
    return visible_segments(warehouse.fs, paths, named, snapshot, replicated)


def clock_of(schema: str, snapshot: JobVersion | None) -> str:
    """Return the statement that lets views in a schema, given as SQL, tell the time of a version."""
    return clock.macro(schema, snapshot.time if snapshot else None, snapshot.watermark if snapshot else None)


def behind(watermark: EventTime, delay: Duration) -> EventTime:
    """Return the watermark of an operator whose rows come late; at the end of the input none is to come."""
    return watermark if watermark == END_OF_INPUT else EventTime(watermark - delay)


def table_view(warehouse: Warehouse, table: str, versions: Iterable[tuple[JobRecord, JobVersion | None]]) -> str:
    """Return the SELECT of what some jobs had written into a warehouse table, each at a version of its own."""
    selects = []
    for record, snapshot in versions:
        paths = warehouse.table(table).job(record.job)
        sink = record.sink(table)
        assert sink is not None
        columns = tuple(Column(name, type) for name, type in sink.columns)
        declaration = zset(table, columns) if sink.changing else TableDeclaration(table, columns)
        if sink.upserts:
            declaration = upserts(table, columns, sink.key, _order(sink))
        visible: Mapping[str, VisibleSegments] = {}
        if snapshot is not None:
            named = snapshot.newest.table_manifests(table)
            visible = visible_segments(warehouse.fs, paths, named, snapshot)
        parts: list[VisibleSegments | None] = [*visible.values()] or [None]
        for part in parts:
            rows = _rows(warehouse.fs, paths, declaration, part, snapshot)
            selects.append(_current(columns, sink, rows) if sink.changing else rows)
    return " UNION ALL BY NAME ".join(f"({select})" for select in selects)


def _current(columns: Sequence[Column], sink: SinkRecord, rows: str) -> str:
    """Return the SELECT of what changes add up to; of several rows of a key there is the greatest."""
    if sink.upserts:
        return upserted(columns, sink.key, f"({rows})", _order(sink))
    found = current(columns, f"({rows})")
    if not sink.key:
        return found
    by = ", ".join(map(quote_name, sink.key))
    order = ", ".join(f"{quote_name(c.name)} DESC" for c in columns)
    return f"SELECT * FROM ({found}) QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY {order}) = 1"


def _order(sink: SinkRecord) -> tuple[Column, ...]:
    return tuple(Column(name, type) for name, type in sink.order)


def _rows(
    fs: Filesystem,
    paths: BucketedPaths,
    table: TableDeclaration,
    visible: VisibleSegments | None,
    snapshot: JobVersion | None,
) -> str:
    """Return a SELECT of the rows of a table that a version sees, with the declared names and types."""
    if not visible or snapshot is None:
        return no_rows(table.columns)
    data = f"{paths.root}/data"
    _check(fs, data, [*visible.whole, *visible.forgetting, *visible.mixed])
    names = ", ".join(quote_name(c.name) for c in table.columns)
    newer = ""
    if table.time_column is not None and snapshot.watermark is not None:
        newer = f"{quote_name(table.time_column)} > {time_literal(snapshot.watermark, table.time_type)}"
    known = f"{BATCH_COLUMN} <= {snapshot.version}"
    selects = []
    if visible.whole:
        selects.append(scan(fs, data, table.columns, visible.whole))
    if visible.forgetting:
        selects.append(f"FROM ({scan(fs, data, table.columns, visible.forgetting)}) WHERE {newer}")
    if visible.mixed:
        rows = scan(fs, data, table.columns, visible.mixed, batch=True)
        selects.append(f"SELECT {names} FROM ({rows}) WHERE {' AND '.join(filter(None, [known, newer]))}")
    return " UNION ALL ".join(selects)


def _check(fs: Filesystem, directory: str, segments: Sequence[Segment]) -> None:
    """Raise DamageError when a file has not its size, or its content: up to a limit, since no query should read all of much."""
    check_segments(fs, directory, segments, content=sum(s.bytes for s in segments) <= CHECKED_BYTES)
