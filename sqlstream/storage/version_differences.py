"""What two versions of a state table do not share: the rows that batches wrote in between, and those that were forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlstream.duck.sql import names, quote_name
from sqlstream.duck.types import time_literal
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion, VisibleSegments
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, summed
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """The rows by which an older and a newer version of a table differ, as SELECTs of the table's columns; None: there are none.

    `written` are those that batches wrote in between. If the table has weights, what was written and taken away again is not
    among them, and rows that are not there any more have the opposite weight. `forgotten` are rows of the older version that the
    watermark of the newer one has passed.
    """

    written: str | None
    forgotten: str | None


def version_difference(
    fs: Filesystem,
    directory: str,
    table: TableDeclaration,
    versions: tuple[JobVersion, JobVersion],
    visible: tuple[VisibleSegments, VisibleSegments],
) -> VersionDifference:
    """Return the changes of a table between two versions, the older one first, from the segments that they see.

    Segments of which both see all rows are not read. Raises DamageError.
    """
    older, newer = ({s.name: s for s in (*v.whole, *v.forgetting, *v.mixed)} for v in visible)
    new = [s for name, s in newer.items() if name not in older]
    grown = [s for name, s in newer.items() if name in older and s.last_batch > versions[0].version]
    # What is in the place of these holds the same rows, merged.
    replaced = [s for s in older.values() if s.until is not None and s.until <= versions[1].version]
    check_segments(fs, directory, [*new, *grown, *replaced], content=False)
    written = [*_of_batches(fs, directory, table, new, None, versions[1].version)]
    written += _of_batches(fs, directory, table, grown, versions[0].version, versions[1].version)
    if replaced:
        columns = tuple(c for c in table.columns if c != WEIGHT_COLUMN)
        written.append(
            f"SELECT {names(columns)}, -{WEIGHT} AS {WEIGHT} FROM ({scan(fs, directory, table.columns, replaced)})"
        )
        written = [summed(columns, f"({' UNION ALL '.join(written)})")]
    return VersionDifference(
        " UNION ALL ".join(written) or None, _forgotten(fs, directory, table, versions, older.values())
    )


def _of_batches(
    fs: Filesystem,
    directory: str,
    table: TableDeclaration,
    segments: Sequence[Segment],
    after: int | None,
    to: int,
) -> list[str]:
    """Return the SELECT of the rows of some segments that were added after a batch (None: ever) and up to another."""
    if not segments:
        return []
    rows = scan(fs, directory, table.columns, segments, batch=True)
    later = "" if after is None else f" AND {BATCH_COLUMN} > {after}"
    return [f"SELECT {names(table.columns)} FROM ({rows}) WHERE {BATCH_COLUMN} <= {to}{later}"]


def _forgotten(
    fs: Filesystem,
    directory: str,
    table: TableDeclaration,
    versions: tuple[JobVersion, JobVersion],
    older: Iterable[Segment],
) -> str | None:
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
    return f"SELECT {names(table.columns)} FROM ({rows}) WHERE {' AND '.join(conditions)}"
