"""Differences between two versions of a state table: the rows that were written or forgotten in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Condition, Select, all_of, names, quote_name, subquery, union_all
from sqlstream.duck.types import time_literal
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion, VisibleSegments
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, summed
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem

# The columns that say whether a row was added or retracted, and whether a batch did that.
ADDED, BY_BATCH = internal("added"), internal("by_batch")


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """The rows by which an older and a newer version of a table differ, with the table's columns; None: no rows.

    `changes` are rows written in between, followed by ADDED (false: retracted) and BY_BATCH, whether a batch did that (NULL: not
    known). In tables with weights, rows that were added and retracted again are left out. `forgotten` are rows of the older
    version that the watermark of the newer one has passed.
    """

    changes: Select | None
    forgotten: Select | None


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table at a version: the directory above the buckets with its files, and the segments that the version sees."""

    fs: Filesystem
    directory: str
    version: JobVersion
    visible: VisibleSegments

    @property
    def segments(self) -> dict[str, Segment]:
        """The segments that the version sees, by name."""
        return {s.name: s for s in (*self.visible.whole, *self.visible.forgetting, *self.visible.mixed)}


def content_difference(table: TableDeclaration, older: TableVersion, newer: TableVersion) -> VersionDifference:
    """Return the difference between two versions of a table, one of them in a savepoint, by comparing their rows.

    Files of equal names are the same file, so little is read where versions share most of their files. Raises DamageError.
    """
    before, after = older.segments, newer.segments
    selects = [
        *_signed(table, newer, [s for name, s in after.items() if name not in before], "1"),
        *_signed(table, older, [s for name, s in before.items() if name not in after], "-1"),
    ]
    grown = [s for name, s in after.items() if name in before and s.last_batch > older.version.version]
    selects += _signed(table, newer, grown, "1", _batch_after(older.version))
    if back := _passed_again(table, older.version, newer.version):
        # The versions are of two lives of a job, or of two jobs, and the newer one has not come so far.
        both = [s for name, s in after.items() if name in before and s.low is not None]
        selects += _signed(table, newer, both, "1", back)
    forgotten = _forgotten(older.fs, older.directory, table, (older.version, newer.version), before.values())
    if not selects:
        return VersionDifference(None, forgotten)
    columns = tuple(c for c in table.columns if c != WEIGHT_COLUMN)
    listed = names(columns)
    by_batch = f"max({BATCH_COLUMN}) > {older.version.version} AS {BY_BATCH}"
    net = (
        f"SELECT {listed}, CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT}, {by_batch} "
        f"FROM ({union_all(selects)}) GROUP BY {listed} HAVING sum({WEIGHT}) <> 0"
    )
    where, watermark = "", newer.version.watermark
    if table.time_column is not None and watermark is not None:
        passed = f"{quote_name(table.time_column)} <= {time_literal(watermark, table.time_type)}"
        where = f" WHERE NOT ({WEIGHT} < 0 AND {passed})"
    items = f"{names(table.columns)}, {WEIGHT} > 0 AS {ADDED}, {BY_BATCH}"
    return VersionDifference(Select(f"SELECT {items} FROM ({net}){where}"), forgotten)


def _batch_after(version: JobVersion) -> Condition:
    return Condition(f"{BATCH_COLUMN} > {version.version}")


def _passed_again(table: TableDeclaration, older: JobVersion, newer: JobVersion) -> Condition | None:
    """Return the condition that `older` has forgotten a row that it had, and `newer`, whose watermark is earlier, has not.

    A watermark is earlier in a later version if the job went back in between. None: no row is such a row.
    """
    if table.time_column is None or older.watermark is None:
        return None
    if newer.watermark is not None and newer.watermark >= older.watermark:
        return None
    passed = f"{quote_name(table.time_column)} <= {time_literal(older.watermark, table.time_type)}"
    return Condition(f"{passed} AND NOT {_batch_after(older)}")


def _signed(
    table: TableDeclaration,
    side: TableVersion,
    segments: Sequence[Segment],
    sign: str,
    where: Condition | None = None,
) -> list[Select]:
    """Return what a version sees of some segments, where a condition holds, with a weight of that sign."""
    if not segments:
        return []
    check_segments(side.fs, side.directory, segments, content=False)
    rows = scan(side.fs, side.directory, table.columns, segments, batch=True)
    columns = tuple(c for c in table.columns if c != WEIGHT_COLUMN)
    weight = f"{sign} * {WEIGHT}" if len(columns) < len(table.columns) else sign
    conditions = [f"{BATCH_COLUMN} <= {side.version.version}"]
    if where is not None:
        conditions.append(where)
    if table.time_column is not None and side.version.watermark is not None:
        seen = time_literal(side.version.watermark, table.time_type)
        conditions.append(f"{quote_name(table.time_column)} > {seen}")
    batch = BATCH_COLUMN if sign == "1" else "NULL"
    items = f"{names(columns)}, {weight} AS {WEIGHT}, {batch} AS {BATCH_COLUMN}"
    return [Select(f"SELECT {items} FROM ({rows}) WHERE {all_of(conditions)}")]


def version_difference(table: TableDeclaration, before: TableVersion, after: TableVersion) -> VersionDifference:
    """Return the difference between two retained versions of a job's table, from the segments that they see.

    Segments of which both versions see all rows are not read. Raises DamageError.
    """
    fs, directory = after.fs, after.directory
    versions, older, newer = (before.version, after.version), before.segments, after.segments
    new = [s for name, s in newer.items() if name not in older]
    grown = [s for name, s in newer.items() if name in older and s.last_batch > versions[0].version]
    # What is in the place of these holds the same rows, merged.
    replaced = [s for s in older.values() if s.until is not None and s.until <= versions[1].version]
    check_segments(fs, directory, [*new, *grown, *replaced], content=False)
    changes = [*_of_batches(fs, directory, table, new, None, versions[1].version)]
    changes += _of_batches(fs, directory, table, grown, versions[0].version, versions[1].version)
    if replaced:
        columns = tuple(c for c in table.columns if c != WEIGHT_COLUMN)
        items = f"{names(columns)}, -{WEIGHT} AS {WEIGHT}"
        changes.append(Select(f"SELECT {items} FROM ({scan(fs, directory, table.columns, replaced)})"))
        changes = [summed(columns, subquery(union_all(changes)))]
    forgotten = _forgotten(fs, directory, table, versions, older.values())
    if not changes:
        return VersionDifference(None, forgotten)
    adds = f"{WEIGHT} > 0" if WEIGHT_COLUMN in table.columns else "true"
    items = f"*, {adds} AS {ADDED}, true AS {BY_BATCH}"
    return VersionDifference(Select(f"SELECT {items} FROM ({union_all(changes)})"), forgotten)


def _of_batches(
    fs: Filesystem,
    directory: str,
    table: TableDeclaration,
    segments: Sequence[Segment],
    after: int | None,
    to: int,
) -> list[Select]:
    """Return the rows of some segments that were added after batch `after` (None: ever), up to batch `to`."""
    if not segments:
        return []
    rows = scan(fs, directory, table.columns, segments, batch=True)
    later = "" if after is None else f" AND {BATCH_COLUMN} > {after}"
    return [Select(f"SELECT {names(table.columns)} FROM ({rows}) WHERE {BATCH_COLUMN} <= {to}{later}")]


def _forgotten(
    fs: Filesystem,
    directory: str,
    table: TableDeclaration,
    versions: tuple[JobVersion, JobVersion],
    older: Iterable[Segment],
) -> Select | None:
    before, after = (v.watermark for v in versions)
    if table.time_column is None or after is None:
        return None
    segments = [s for s in older if s.low is not None and s.low <= after]
    if not segments:
        return None
    check_segments(fs, directory, segments, content=False)
    time = quote_name(table.time_column)
    conditions = [f"{BATCH_COLUMN} <= {versions[0].version}", f"{time} <= {time_literal(after, table.time_type)}"]
    if before is not None:
        conditions.append(f"{time} > {time_literal(before, table.time_type)}")
    rows = scan(fs, directory, table.columns, segments, batch=True)
    return Select(f"SELECT {names(table.columns)} FROM ({rows}) WHERE {all_of(conditions)}")
