"""What batches have changed in the Z-sets of an operator's state, as far as retained versions tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import structs

from sqlstream.duck.sql import names, no_rows
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion, named_manifest
from sqlstream.storage.zsets import VERSION, VERSION_COLUMN, WEIGHT, WEIGHT_COLUMN
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import OperatorRecord
from sqlstream.warehouse.paths import Warehouse


@dataclass(frozen=True, slots=True)
class _Held:
    """The segments of a table in all buckets, named from the directory above the buckets."""

    fs: Filesystem
    data: str
    segments: tuple[Segment, ...]


def oldest_readable(warehouse: Warehouse, job: str, operator: OperatorRecord, newest: JobVersion) -> int:
    """Return the oldest version that the state of an operator can be read at."""
    paths = warehouse.job(job).operator(operator.name)
    found = newest.newest.state_manifests(operator.name).items()
    return max((named_manifest(warehouse.fs, paths, bucket, name).oldest for bucket, name in found), default=0)


def changes_of(
    warehouse: Warehouse, job: str, operator: OperatorRecord, table: TableDeclaration, newest: JobVersion, base: int
) -> str:
    """Return the SELECT of what the versions after `base` have changed in a Z-set: its columns, the weight, the version.

    A segment that a version has summed up from others adds what they hold, which it takes away: the weights of a row in a version
    add up to its change.
    """
    held = _held(warehouse, job, operator, table, newest)
    added = [s for s in held.segments if base < s.first_batch <= newest.version]
    taken = [
        structs.replace(s, first_batch=s.until)
        for s in held.segments
        if s.until is not None and base < s.until <= newest.version
    ]
    check_segments(held.fs, held.data, [*added, *taken], content=False)
    columns = tuple(c for c in table.columns if c != WEIGHT_COLUMN)
    listed = names(columns)
    selects = [
        f"SELECT {listed}, {sign}{WEIGHT} AS {WEIGHT}, {BATCH_COLUMN} AS {VERSION} "
        f"FROM ({scan(held.fs, held.data, table.columns, segments, batch=True)})"
        for sign, segments in (("", added), ("-", taken))
        if segments
    ]
    if not selects:
        return no_rows((*columns, WEIGHT_COLUMN, VERSION_COLUMN))
    by = f"{listed}, {VERSION}"
    return (
        f"SELECT {listed}, CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT}, {VERSION} "
        f"FROM ({' UNION ALL '.join(selects)}) GROUP BY {by} HAVING sum({WEIGHT}) <> 0"
    )


def stored_bytes(
    warehouse: Warehouse, job: str, operator: OperatorRecord, tables: Iterable[TableDeclaration], newest: JobVersion
) -> dict[str, int]:
    """Return the sizes of the files of some tables that the newest version reads, by the table's name."""
    return {
        t.name: sum(s.bytes for s in _held(warehouse, job, operator, t, newest).segments if s.until is None)
        for t in tables
    }


def _held(
    warehouse: Warehouse, job: str, operator: OperatorRecord, table: TableDeclaration, newest: JobVersion
) -> _Held:
    paths, found = warehouse.job(job).operator(operator.name), newest.newest.state_manifests(operator.name)
    segments: list[Segment] = []
    for bucket, name in found.items():
        if table.replicated and bucket != min(found):
            continue
        manifest = named_manifest(warehouse.fs, paths, bucket, name)
        segments += (structs.replace(s, name=f"{bucket}/{s.name}") for s in manifest.tables.get(table.name, ()))
    return _Held(warehouse.fs, f"{paths.root}/data", tuple(segments))
