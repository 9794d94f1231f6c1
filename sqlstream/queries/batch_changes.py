"""Changes that batches made to Z-sets of a state and to tables of the warehouse, as far as retained versions tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, names, no_rows, quote_name, subquery
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion, named_manifest
from sqlstream.storage.zsets import (
    VERSION,
    VERSION_COLUMN,
    WEIGHT,
    WEIGHT_COLUMN,
    last_of_versions,
    upserted,
    upserts,
    zset,
)
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import OperatorRecord, SinkRecord
from sqlstream.warehouse.paths import Warehouse

# The version that retracted a row.
_GONE = internal("gone")


@dataclass(frozen=True, slots=True)
class _TableSegments:
    """The segments of a table in all buckets, named from the directory above the buckets."""

    fs: Filesystem
    data: str
    segments: tuple[Segment, ...]


def oldest_readable(warehouse: Warehouse, job: str, operator: OperatorRecord, newest: JobVersion) -> int:
    """Return the oldest version at which the state of an operator can be read. Raises DamageError."""
    paths = warehouse.job(job).operator(operator.name)
    manifests = newest.newest.state_manifests(operator.name).items()
    return max((named_manifest(warehouse.fs, paths, bucket, name).oldest for bucket, name in manifests), default=0)


def changes_of(
    warehouse: Warehouse, job: str, operator: OperatorRecord, table: TableDeclaration, newest: JobVersion, base: int
) -> Select:
    """Return the changes to a Z-set by versions after `base`: its columns, the weight, the version.

    Where a version has merged segments, its new segment counts as added rows and the old ones as retracted rows; the weights of a
    row in a version add up to its change. Raises DamageError.
    """
    return _net_changes(_table_segments(warehouse, job, operator, table, newest), table, newest, base)


def changes_of_table(warehouse: Warehouse, job: str, sink: SinkRecord, newest: JobVersion, base: int) -> Select:
    """Return the changes that a job's versions after `base` made to a table: its columns, the weight, the version.

    Versions before the oldest readable one are left out. Raises DamageError, also when a file has been replaced meanwhile.
    """
    columns = tuple(Column(name, type) for name, type in sink.columns)
    named = newest.newest.table_manifests(sink.table)
    if not named:
        return no_rows((*columns, WEIGHT_COLUMN, VERSION_COLUMN))
    paths = warehouse.table(sink.table).job(job)
    manifest = named_manifest(warehouse.fs, paths, 0, named[0])
    base = max(base, manifest.oldest) if manifest.oldest else base
    segments = tuple(s for group in manifest.tables.values() for s in group)
    source = _TableSegments(warehouse.fs, paths.data(0), segments)
    if sink.upserts:
        return _upserted_changes(source, sink, columns, newest, base)
    if sink.changing:
        return _net_changes(source, zset(sink.table, columns), newest, base)
    added = [s for s in segments if s.last_batch > base and s.first_batch <= newest.version]
    if not added:
        return no_rows((*columns, WEIGHT_COLUMN, VERSION_COLUMN))
    check_segments(source.fs, source.data, added, content=False)
    return Select(
        f"SELECT {names(columns)}, 1::BIGINT AS {WEIGHT}, {BATCH_COLUMN} AS {VERSION} "
        f"FROM ({scan(source.fs, source.data, columns, added, batch=True)}) "
        f"WHERE {BATCH_COLUMN} > {base} AND {BATCH_COLUMN} <= {newest.version}"
    )


def _upserted_changes(
    source: _TableSegments, sink: SinkRecord, columns: Sequence[Column], newest: JobVersion, base: int
) -> Select:
    """Return the changes of a table in which the last change of each key counts.

    The row that a change replaces is not always stored with it: an append-only input does not know it, and a version that merges
    segments keeps only the last row of each key. So the next version that changes its key retracts a row.
    """
    order = tuple(Column(name, type) for name, type in sink.order)
    table = upserts(sink.table, columns, sink.key, order)
    listed, by = names(columns), ", ".join(map(quote_name, sink.key))
    added = [s for s in source.segments if base < s.first_batch <= newest.version]
    if not added:
        return no_rows((*columns, WEIGHT_COLUMN, VERSION_COLUMN))
    before = [s for s in source.segments if s.first_batch <= base and (s.until is None or s.until > base)]
    check_segments(source.fs, source.data, [*added, *before], content=False)
    # A merged segment has rows of other versions, too.
    rows = f"SELECT DISTINCT * FROM ({scan(source.fs, source.data, table.columns, added)}) WHERE {VERSION} > {base}"
    last = f"FROM ({rows}) {last_of_versions(sink.key, order)}"
    row_versions = f"SELECT {listed}, {VERSION}, {WEIGHT} {last}"
    if before:
        older = upserted(columns, sink.key, subquery(scan(source.fs, source.data, table.columns, before)), order)
        same = " AND ".join(f"_old_.{quote_name(k)} IS NOT DISTINCT FROM _new_.{quote_name(k)}" for k in sink.key)
        row_versions += (
            f" UNION ALL SELECT {listed}, {base}::BIGINT AS {VERSION}, 1::BIGINT AS {WEIGHT} "
            f"FROM ({older}) _old_ SEMI JOIN ({rows}) _new_ ON {same}"
        )
    gone = f"lead({VERSION}) OVER (PARTITION BY {by} ORDER BY {VERSION})"
    return Select(
        f"WITH _row_versions_ AS MATERIALIZED ({row_versions}) "
        f"SELECT {listed}, {WEIGHT}, {VERSION} FROM _row_versions_ WHERE {WEIGHT} > 0 AND {VERSION} > {base} UNION ALL "
        f"SELECT {listed}, -1::BIGINT AS {WEIGHT}, {_GONE} AS {VERSION} "
        f"FROM (SELECT {listed}, {WEIGHT}, {gone} AS {_GONE} FROM _row_versions_) WHERE {WEIGHT} > 0 AND {_GONE} IS NOT NULL"
    )


def _net_changes(source: _TableSegments, table: TableDeclaration, newest: JobVersion, base: int) -> Select:
    added = [s for s in source.segments if base < s.first_batch <= newest.version]
    retracted = [
        structs.replace(s, first_batch=s.until)
        for s in source.segments
        if s.until is not None and base < s.until <= newest.version
    ]
    check_segments(source.fs, source.data, [*added, *retracted], content=False)
    columns = tuple(c for c in table.columns if c != WEIGHT_COLUMN)
    listed = names(columns)
    selects = [
        f"SELECT {listed}, {sign}{WEIGHT} AS {WEIGHT}, {BATCH_COLUMN} AS {VERSION} "
        f"FROM ({scan(source.fs, source.data, table.columns, segments, batch=True)})"
        for sign, segments in (("", added), ("-", retracted))
        if segments
    ]
    if not selects:
        return no_rows((*columns, WEIGHT_COLUMN, VERSION_COLUMN))
    by = f"{listed}, {VERSION}"
    return Select(
        f"SELECT {listed}, CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT}, {VERSION} "
        f"FROM ({' UNION ALL '.join(selects)}) GROUP BY {by} HAVING sum({WEIGHT}) <> 0"
    )


def stored_bytes(
    warehouse: Warehouse, job: str, operator: OperatorRecord, tables: Iterable[TableDeclaration], newest: JobVersion
) -> dict[str, int]:
    """Return the bytes of the files that the newest version reads, by table. Raises DamageError."""
    return {
        t.name: sum(s.bytes for s in _table_segments(warehouse, job, operator, t, newest).segments if s.until is None)
        for t in tables
    }


def _table_segments(
    warehouse: Warehouse, job: str, operator: OperatorRecord, table: TableDeclaration, newest: JobVersion
) -> _TableSegments:
    paths, manifests = warehouse.job(job).operator(operator.name), newest.newest.state_manifests(operator.name)
    segments: list[Segment] = []
    for bucket, name in manifests.items():
        if table.replicated and bucket != min(manifests):
            continue
        manifest = named_manifest(warehouse.fs, paths, bucket, name)
        segments += (structs.replace(s, name=f"{bucket}/{s.name}") for s in manifest.tables.get(table.name, ()))
    return _TableSegments(warehouse.fs, f"{paths.root}/data", tuple(segments))
