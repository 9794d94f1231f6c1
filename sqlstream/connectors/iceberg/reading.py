"""Reading files of an Iceberg table on workers, as the library does: columns by their ids, without deleted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Table
from sqlstream.connectors.formats.parquet_types import conversion
from sqlstream.connectors.iceberg.catalogs import Located, errors
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import no_rows, quote_name
from sqlstream.errors import DataError, missing

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class SnapshotSplit:
    """A file that a snapshot appends, or, of a `whole` one, that it has. `number` counts the files of the snapshot."""

    sequence: int
    snapshot: int
    whole: bool
    number: int
    path: str
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        return "", [self.sequence, self.number, self.snapshot]

    def to_list(self) -> list[Any]:
        return [self.sequence, self.snapshot, self.whole, self.number, self.path, self.bytes]


def planned(iceberg: Any, snapshot: int, whole: bool) -> dict[str, Any]:
    """Return how the library reads the files that a snapshot has, or appends, by their paths."""
    if whole:
        scan = iceberg.scan(snapshot_id=snapshot)
    else:
        parent = iceberg.snapshot_by_id(snapshot).parent_snapshot_id
        scan = iceberg.incremental_append_scan(from_snapshot_id_exclusive=parent, to_snapshot_id_inclusive=snapshot)
    return {str(task.file.file_path): task for task in scan.plan_files()}


def read_snapshots(
    con: duckdb.DuckDBPyConnection, splits: Sequence[SnapshotSplit], table: Table, located: Located
) -> ReadPlan:
    """Return how to read some splits; their rows are registered with the connection."""
    if not splits:
        return ReadPlan(no_rows(table.physical))
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    iceberg = located.open()
    tasks = []
    with errors(table, "reading"):
        for snapshot, whole in sorted({(split.snapshot, split.whole) for split in splits}):
            found = planned(iceberg, snapshot, whole)
            tasks += [found[s.path] for s in splits if (s.snapshot, s.whole) == (snapshot, whole)]
        rows = ArrowScan(iceberg.metadata, iceberg.io, iceberg.schema(), AlwaysTrue()).to_table(tasks)
    relation = internal("iceberg_files")
    con.register(relation, rows)
    described = con.execute(f"SELECT * FROM {relation} LIMIT 0").description
    known = {name.lower(): (name, type_) for name, type_, *_ in described or ()}
    items = []
    for column in table.physical:
        if column.name.lower() not in known:
            hint = missing("column", column.name, [name for name, _ in known.values()])
            raise DataError(f'table "{table.name}": the Iceberg table has no column "{column.name}"', hint=hint)
        name, type_ = known[column.name.lower()]
        sql = conversion(quote_name(name), type_, con.sqltype(column.type))
        if sql is None:
            message = f'table "{table.name}": column "{name}" of the Iceberg table is {type_}, which does not fit {column.type}'
            raise DataError(message, hint="Declare the column with the type that the Iceberg table has.")
        items.append(f"{sql} AS {quote_name(column.name)}")
    return ReadPlan(f"SELECT {', '.join(items)} FROM {relation}")
