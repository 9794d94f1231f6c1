"""Malformed rows of a batch: finds the rows with impossible event times, and stores malformed rows of all kinds.

Readers skip malformed rows and count them. To store them, or to name one in an error, the files are read again. A repeated batch
finds the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from sqlstream.catalog import MAX_AHEAD, Table
from sqlstream.connectors.discovery import Split
from sqlstream.connectors.formats.malformed import COLUMNS, KEPT_CHARACTERS, MalformedRow, skip_hint, skips
from sqlstream.connectors.interface import TableSource
from sqlstream.duck.internal_columns import ROW
from sqlstream.duck.sql import Relation, Select, quote_name, union_all
from sqlstream.duck.types import encoded
from sqlstream.errors import DataError
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.fragments import EARLIEST, LATEST, TimeBounds, astray, over_input, time_bounds
from sqlstream.runtime.scan_rows import source_without_positions
from sqlstream.runtime.worker import JobSpec
from sqlstream.storage.segments import Segment, write_segment
from sqlstream.units import ProcessingTime, to_millis
from sqlstream.warehouse.paths import Warehouse

_ROWS = "rows"
_UNFIT = "A text that the query reads as a number is none"


def drops_astray(table: Table) -> bool:
    """Whether rows with an event time out of bounds are skipped, instead of failing the job."""
    return skips(table) or MAX_AHEAD in table.options


def astray_error(con: duckdb.DuckDBPyConnection, scan: ScanStage, splits: Sequence[Split]) -> DataError:
    """Return the error for the first row of splits with an impossible event time, or one that names no row if none is found."""
    table, source = scan.table, source_without_positions(scan.table)
    hint = f"Set '{MAX_AHEAD}', such as '1 d', to leave out rows that are so far ahead of the clock."
    for split in splits:
        for row in astray_rows(con, scan, source, split, (EARLIEST, LATEST)):
            error = source.malformed(row)
            return DataError(error.message, detail=error.detail, hint=f"{skip_hint(table)} {hint}")
    reason = f'Its event time "{scan.time_column}" is beyond the years that are possible.'
    return DataError(f'a row of table "{table.name}" is malformed', detail=reason, hint=hint)


def astray_rows(
    con: duckdb.DuckDBPyConnection, scan: ScanStage, source: TableSource, split: Split, bounds: TimeBounds
) -> list[MalformedRow]:
    """Return the readable rows of a split whose event time is out of bounds; none if the source does not number its rows."""
    assert scan.time_column is not None
    rows = source.numbered(con, split)
    if rows is None:
        return []
    time = quote_name(scan.time_column)
    outliers = con.execute(
        f"SELECT {ROW.name} + 1, any_value({time}::VARCHAR), bool_or(epoch_us({time}) BETWEEN {EARLIEST} AND {LATEST})"
        f" FROM (WITH _input AS (SELECT * FROM {rows.plan.well_formed}) {scan.numbered})"
        f" WHERE {astray(time, bounds)} GROUP BY 1 ORDER BY 1"
    ).fetchall()
    positions = rows.places([n for n, *_ in outliers])
    rows.plan.forget(con)
    return [replace(positions[n], reason=_reason(scan, at, ahead)) for n, at, ahead in outliers]


def unfit_rows(
    con: duckdb.DuckDBPyConnection, scan: ScanStage, source: TableSource, split: Split, bounds: TimeBounds
) -> list[MalformedRow]:
    """Return the readable rows of a split in which a query reads a text as a number, and it is none."""
    rows = source.numbered(con, split)
    if rows is None:
        return []
    all_rows = Select(f"WITH _input AS (SELECT * FROM {rows.plan.well_formed}) {scan.numbered}")
    if scan.time_column is not None and not scan.by_clock:
        time = quote_name(scan.time_column)
        all_rows = Select(f"SELECT * FROM ({all_rows}) WHERE epoch_us({time}) BETWEEN {bounds[0]} AND {bounds[1]}")
    unfit = f"SELECT DISTINCT {ROW.name} + 1 FROM ({union_all(scan.unfit)}) ORDER BY 1"
    numbers = [n for (n,) in con.execute(over_input(all_rows, Select(unfit))).fetchall()]
    positions = rows.places(numbers)
    rows.plan.forget(con)
    return [replace(positions[n], reason=_UNFIT) for n in numbers]


def _reason(scan: ScanStage, at: str, ahead: bool) -> str:
    what = f'Event time "{scan.time_column}" is {at}'
    limit = scan.table.options.get(MAX_AHEAD)
    return (
        f"{what}, ahead of the clock by more than {limit}" if ahead else f"{what}, beyond the years that are possible"
    )


def keep(
    con: duckdb.DuckDBPyConnection,
    job: JobSpec,
    scan: ScanStage,
    splits: Sequence[Split],
    batch: int,
    time: ProcessingTime,
) -> Segment | None:
    """Write the malformed rows of splits as a segment of the scan's table for errors; return None if there are none.

    `time` is the batch's processing time.
    """
    assert scan.errors is not None
    source = source_without_positions(scan.table)
    malformed_rows = list(source.malformed_rows(splits))
    if scan.time_column is not None and not scan.by_clock:
        bounds = time_bounds(scan.table, time)
        malformed_rows += [row for split in splits for row in astray_rows(con, scan, source, split, bounds)]
    if scan.unfit:
        bounds = time_bounds(scan.table, time)
        malformed_rows += [row for split in splits for row in unfit_rows(con, scan, source, split, bounds)]
    names = [c.name for c in COLUMNS]
    values = [
        (job.name, scan.table.name, r.path, r.number, r.text[:KEPT_CHARACTERS], r.reason, to_millis(time))
        for r in sorted(malformed_rows)
    ]
    columns = list(zip(*values, strict=True)) or [()] * len(names)
    types = [*[pa.string()] * 3, pa.int64(), pa.string(), pa.string(), pa.timestamp("ms", "UTC")]
    rows = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)
    con.register("_malformed", rows)
    warehouse = Warehouse(job.warehouse)
    directory = job.sink_paths(warehouse, scan.errors).data(0)
    reader = con.sql(encoded(COLUMNS, Relation("_malformed"))).to_arrow_reader()
    return write_segment(warehouse.fs, directory, _ROWS, batch, reader)
