"""SELECTs over state and warehouse tables at a version, from which the views of a query are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlstream.catalog import Column
from sqlstream.duck import time_variables
from sqlstream.duck.sql import Condition, Select, all_of, names, no_rows, over, quote_name, subquery, union_all
from sqlstream.duck.types import time_literal
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion, VisibleSegments, visible_segments
from sqlstream.storage.zsets import current, upserted, upserts, zset
from sqlstream.units import END_OF_INPUT, Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord, SinkRecord
from sqlstream.warehouse.paths import BucketedPaths, Warehouse

# A query verifies checksums of up to this many bytes of a table, in 50 ms; jobs and `sqlstream check` verify all of them.
CHECKED_BYTES = 64 << 20


def operator_view(
    warehouse: Warehouse, job: str, operator: OperatorRecord, snapshot: JobVersion | None, sql: Select
) -> Select:
    """Return `sql`, over the names of an operator's state tables, as a SELECT over the rows that a version sees.

    It is for a view in a schema with the version's clock: see `times_macro`. Before the first version the tables are empty.
    Raises VersionGone and DamageError.
    """
    if snapshot is not None and operator.name in snapshot.watermarks:
        # The clock of the schema is the job's.
        sql = time_variables.at_watermark(sql, snapshot.watermark_of(operator.name))
    return over(state_tables(warehouse, job, operator, snapshot), sql)


def state_tables(
    warehouse: Warehouse, job: str, operator: OperatorRecord, snapshot: JobVersion | None
) -> dict[str, Select]:
    """Return, by state table of an operator, the rows that a version sees; rows of Z-sets have weights."""
    paths = warehouse.job(job).operator(operator.name)
    snapshot = operator_version(operator, snapshot)
    visible = visible_state(warehouse, job, operator, snapshot)
    return {
        t.name: _rows(warehouse.fs, paths, t, visible.get(t.name), snapshot)
        for t in (table.declaration for table in operator.tables)
    }


def at_operator(operator: OperatorRecord, snapshot: JobVersion) -> JobVersion:
    """Return a version of a job with the watermark of one of its operators in place of the job's."""
    return replace(snapshot, watermark=snapshot.watermark_of(operator.name), watermarks={})


def operator_version(operator: OperatorRecord, snapshot: JobVersion | None) -> JobVersion | None:
    """Return a version of a job with the watermark up to which one of its operators has forgotten rows."""
    if snapshot is None:
        return None
    own = at_operator(operator, snapshot)
    return own if own.watermark is None else replace(own, watermark=behind(own.watermark, operator.delay))


def visible_state(
    warehouse: Warehouse, job: str, operator: OperatorRecord, snapshot: JobVersion | None
) -> Mapping[str, VisibleSegments]:
    """Return the segments of each state table of an operator at a version, which must come from `operator_version`."""
    if snapshot is None:
        return {}
    paths = warehouse.job(job).operator(operator.name)
    named = snapshot.newest.state_manifests(operator.name)
    replicated = frozenset(t.name for t in operator.tables if t.replicated)
    return visible_segments(warehouse.fs, job, paths, named, snapshot, replicated)


def times_macro(schema: str, snapshot: JobVersion | None) -> str:
    """Return the statement that gives views in a schema, named by `schema` as SQL, the clock of a version."""
    return time_variables.macro(schema, snapshot.time if snapshot else None, snapshot.watermark if snapshot else None)


def behind(watermark: EventTime, delay: Duration) -> EventTime:
    """Return the watermark of an operator's state, which is `delay` behind its inputs'; at their end, it is not behind."""
    return watermark if watermark == END_OF_INPUT else EventTime(watermark - delay)


def table_view(warehouse: Warehouse, table: str, versions: Iterable[tuple[JobRecord, JobVersion | None]]) -> Select:
    """Return the rows that jobs have written into a warehouse table, each at a version of its own.

    A job without a version has no rows.
    """
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
            visible = visible_segments(warehouse.fs, record.job, paths, named, snapshot)
        parts: list[VisibleSegments | None] = [*visible.values()] or [None]
        for part in parts:
            rows = _rows(warehouse.fs, paths, declaration, part, snapshot)
            selects.append(_current(columns, sink, rows) if sink.changing else rows)
    return Select(" UNION ALL BY NAME ".join(map(subquery, selects)))


def _current(columns: Sequence[Column], sink: SinkRecord, rows: Select) -> Select:
    """Return the rows that changes add up to; of several rows of a key, the greatest counts."""
    if sink.upserts:
        return upserted(columns, sink.key, subquery(rows), _order(sink))
    select = current(columns, subquery(rows))
    if not sink.key:
        return select
    by = ", ".join(map(quote_name, sink.key))
    order = ", ".join(f"{quote_name(c.name)} DESC" for c in columns)
    return Select(f"SELECT * FROM ({select}) QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY {order}) = 1")


def _order(sink: SinkRecord) -> tuple[Column, ...]:
    return tuple(Column(name, type) for name, type in sink.order)


def _rows(
    fs: Filesystem,
    paths: BucketedPaths,
    table: TableDeclaration,
    visible: VisibleSegments | None,
    snapshot: JobVersion | None,
) -> Select:
    """Return the rows of a table that a version sees, in declared types."""
    if not visible or snapshot is None:
        return no_rows(table.columns)
    data = f"{paths.root}/data"
    _check(fs, data, [*visible.whole, *visible.forgetting, *visible.mixed])
    newer = Condition("")
    if table.time_column is not None and snapshot.watermark is not None:
        newer = Condition(f"{quote_name(table.time_column)} > {time_literal(snapshot.watermark, table.time_type)}")
    up_to_version = f"{BATCH_COLUMN} <= {snapshot.version}"
    selects = []
    if visible.whole:
        selects.append(scan(fs, data, table.columns, visible.whole))
    if visible.forgetting:
        selects.append(Select(f"FROM ({scan(fs, data, table.columns, visible.forgetting)}) WHERE {newer}"))
    if visible.mixed:
        rows = scan(fs, data, table.columns, visible.mixed, batch=True)
        seen = all_of(filter(None, [up_to_version, newer]))
        selects.append(Select(f"SELECT {names(table.columns)} FROM ({rows}) WHERE {seen}"))
    return union_all(selects)


def _check(fs: Filesystem, directory: str, segments: Sequence[Segment]) -> None:
    """Raise DamageError when a file has another size, or, up to a limit of bytes in total, another content."""
    check_segments(fs, directory, segments, content=sum(s.bytes for s in segments) <= CHECKED_BYTES)
