"""Reads files and change data feeds of a Delta table on workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs as arrow_fs

from sqlstream.catalog import Column, Table
from sqlstream.connectors.delta.location import Location, errors
from sqlstream.connectors.delta.schema import DELTA, arrow_schema
from sqlstream.connectors.formats.changelogs import OPERATION
from sqlstream.connectors.lakes.columns import columns_by_name, read_item
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.internal_columns import MODIFIED, PATH, ROW, internal
from sqlstream.duck.sql import Relation, Select, no_rows, quote_name, quote_text, union_all
from sqlstream.errors import DataError

if TYPE_CHECKING:
    import duckdb

Partition: TypeAlias = Mapping[str, str | None]
_KINDS = {"insert": "I", "update_preimage": "B", "update_postimage": "U", "delete": "D"}


@dataclass(frozen=True, slots=True)
class DeltaSplit:
    """A data file of a version; with an empty `path`, the change data feed of the whole version.

    `number` counts the splits of the version from 1, and `last` marks the last one. `partition` has the values, as texts, of the
    partition columns, which are not in the file.
    """

    version: int
    number: int
    last: bool
    path: str
    bytes: int
    partition: Partition

    @property
    def reached(self) -> tuple[str, Any]:
        """The table's only partition, "", and the position after this split: [version, number of its splits read so far]."""
        return "", [self.version + 1, 0] if self.last else [self.version, self.number]

    def to_list(self) -> list[Any]:
        return [self.version, self.number, self.last, self.path, self.bytes, dict(self.partition)]


def read_versions(
    con: duckdb.DuckDBPyConnection, splits: Sequence[DeltaSplit], table: Table, location: Location
) -> ReadPlan:
    """Return the plan that reads splits with the table's physical columns; it registers Arrow datasets with the connection.

    Raises DataError for a file that is gone, or outside of where the table's files may be, and for columns that do not fit.
    Raises JobError if the library fails.
    """
    delta, selects = location.open(), []
    files = [split for split in splits if split.path]
    if files:
        location.check_named(split.path for split in files)
        rows = _dataset(files, table, location.filesystem(), arrow_schema(delta))
        for version, dataset in rows.items():
            selects.append(_select(con, f"delta_files_{version}", dataset, table, version))
    for split in splits:
        if not split.path:
            location.check_changes(split.version)
            with errors(table, "reading changes of"):
                changes = pa.table(delta.load_cdf(split.version, split.version))
            selects.append(_select(con, f"delta_changes_{split.version}", changes, table, split.version))
    return ReadPlan(union_all(selects or [no_rows(table.physical)]))


def _dataset(
    splits: Sequence[DeltaSplit], table: Table, files: arrow_fs.FileSystem, schema: pa.Schema
) -> dict[int, ds.Dataset]:
    """Return a dataset of the files of each version. Raises DataError for a file that is gone."""
    kind, fragments = ds.ParquetFileFormat(), dict[int, list[Any]]()
    infos = files.get_file_info([split.path for split in splits])
    for split, info in zip(splits, infos, strict=True):
        if info.type == arrow_fs.FileType.NotFound:
            message = f'table "{table.name}": file "{split.path}" of version {split.version} of the Delta table is gone'
            hint = "VACUUM has removed it before the job had read it: start the job with --fresh."
            raise DataError(message, hint=hint)
        conditions = [_is(schema, name, value) for name, value in split.partition.items()]
        expression = conditions[0] if conditions else None
        for other in conditions[1:]:
            expression = expression & other
        fragment = kind.make_fragment(split.path, filesystem=files, partition_expression=expression)
        fragments.setdefault(split.version, []).append(fragment)
    return {version: ds.FileSystemDataset(some, schema, kind, files) for version, some in fragments.items()}


def _is(schema: pa.Schema, name: str, value: str | None) -> ds.Expression:
    field = ds.field(name)
    # The protocol writes NULL as an empty text, too.
    return field.is_null() if not value else field == pa.scalar(value).cast(schema.field(name).type)


def _select(con: duckdb.DuckDBPyConnection, name: str, rows: Any, table: Table, version: int) -> Select:
    """Return the table's physical columns of Arrow rows, which it registers under an internal name."""
    relation = Relation(internal(name))
    con.register(relation, rows)
    columns = columns_by_name(con, relation)
    changes = "_change_type" in columns
    items = [f"{_item(con, c, columns, table, version, changes)} AS {quote_name(c.name)}" for c in table.physical]
    return Select(f"SELECT {', '.join(items)} FROM {relation}")


def _item(
    con: duckdb.DuckDBPyConnection,
    column: Column,
    columns: Mapping[str, tuple[str, Any]],
    table: Table,
    version: int,
    changes: bool,
) -> str:
    if column == OPERATION:
        cases = " ".join(f"WHEN {quote_text(kind)} THEN '{letter}'" for kind, letter in _KINDS.items())
        return f"CASE _change_type {cases} END" if changes else "'I'"
    # If a version has two changes of a key, the one that adds a row comes later.
    expressions = {
        MODIFIED: f"{version}::BIGINT",
        PATH: "''",
        ROW: "if(_change_type IN ('insert', 'update_postimage'), 1, 0)::BIGINT" if changes else "1::BIGINT",
    }
    if column in expressions:
        return expressions[column]
    return read_item(con, column, columns, table, DELTA)
