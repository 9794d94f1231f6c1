"""Reads files of an Iceberg table on workers with the library, which finds columns by their ids and leaves out deleted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Table
from sqlstream.connectors.iceberg.catalogs import CatalogTable, errors
from sqlstream.connectors.iceberg.schema import ICEBERG
from sqlstream.connectors.lakes.columns import columns_by_name, read_item
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, Select, no_rows, quote_name

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class SnapshotSplit:
    """A data file that a snapshot appends or, with `whole`, one that the snapshot has.

    `sequence` is the snapshot's sequence number and `snapshot` its id. `number` counts the files of the snapshot from 1, but the
    last file has the number `snapshots.ALL`.
    """

    sequence: int
    snapshot: int
    whole: bool
    number: int
    path: str
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        """The one partition of the table, "", and the position after this split, a list with the fields of `Reached`."""
        return "", [self.sequence, self.number, self.snapshot]

    def to_list(self) -> list[Any]:
        return [self.sequence, self.snapshot, self.whole, self.number, self.path, self.bytes]


def planned(iceberg: Any, snapshot: int, whole: bool) -> dict[str, Any]:
    """Return the library's read tasks, by path, of the files that a snapshot appends or, with `whole`, of all its files."""
    if whole:
        scan = iceberg.scan(snapshot_id=snapshot)
    else:
        parent = iceberg.snapshot_by_id(snapshot).parent_snapshot_id
        scan = iceberg.incremental_append_scan(from_snapshot_id_exclusive=parent, to_snapshot_id_inclusive=snapshot)
    return {str(task.file.file_path): task for task in scan.plan_files()}


def read_snapshots(
    con: duckdb.DuckDBPyConnection, splits: Sequence[SnapshotSplit], table: Table, located: CatalogTable
) -> ReadPlan:
    """Return the plan that reads splits with the table's physical columns; it loads all rows, and registers them.

    Raises DataError for columns that do not fit, JobError if the library fails.
    """
    if not splits:
        return ReadPlan(no_rows(table.physical))
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    iceberg = located.open()
    tasks = []
    with errors(table, "reading"):
        for snapshot, whole in sorted({(split.snapshot, split.whole) for split in splits}):
            files = planned(iceberg, snapshot, whole)
            tasks += [files[s.path] for s in splits if (s.snapshot, s.whole) == (snapshot, whole)]
        rows = ArrowScan(iceberg.metadata, iceberg.io, iceberg.schema(), AlwaysTrue()).to_table(tasks)
    relation = Relation(internal("iceberg_files"))
    con.register(relation, rows)
    columns = columns_by_name(con, relation)
    items = [f"{read_item(con, c, columns, table, ICEBERG)} AS {quote_name(c.name)}" for c in table.physical]
    return ReadPlan(Select(f"SELECT {', '.join(items)} FROM {relation}"))
