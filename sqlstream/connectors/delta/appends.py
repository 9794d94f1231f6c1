"""Append-only results as files of a Delta table: tasks write them into the table's folder, the driver commits a batch.

The files of a failed attempt of a task stay until VACUUM removes them, if the batch is committed by a later attempt.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from pyarrow import fs as arrow_fs

from sqlstream.catalog import Column, Table
from sqlstream.connectors.delta.commits import Transactions
from sqlstream.connectors.delta.location import Location, errors
from sqlstream.connectors.delta.schema import DELTA, arrow_schema
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.lakes.appends import LakeCommitter, LakeWriter
from sqlstream.connectors.lakes.columns import items, stored
from sqlstream.connectors.lakes.files import WrittenFile, is_uncommitted
from sqlstream.duck.sql import Select

if TYPE_CHECKING:
    import duckdb

_INTEGERS, _FLOATS = ("byte", "short", "integer", "long"), ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz")
# Decimals of more digits are no numbers of JSON.
_DIGITS = 15


class AddWriter(LakeWriter):
    """Writes the rows of a task into files below the table's folder, and describes them as `add` actions."""

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(context)
        self._location = Location.of(table, context.project)

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, batch: int
    ) -> tuple[int, list[Any]]:
        # A partition may be a link.
        self._location.check_folder()
        return super().write(con, columns, rows, batch)

    def upload(self, folder: str, files: Sequence[WrittenFile]) -> None:
        for file in files:
            self._location.upload(f"{folder}/{file.path}", file.path)

    def describe(self, file: WrittenFile) -> Any:
        """Return the fields of an `add` action: `path` below the table, `size` in bytes, `partition` values, `stats` as JSON."""
        # An empty text is NULL where Delta has the values of partitions.
        partition = {name: value or None for name, value in file.partition.items()}
        stats = statistics_of(file.rows, file.statistics, self.target["types"])
        return {"path": file.path, "size": file.size, "partition": partition, "stats": stats}


def statistics_of(count: int, columns: Mapping[str, Mapping[str, str]], types: Mapping[str, str]) -> str:
    """Return the statistics of a Delta file, by which readers skip it, as JSON text.

    `count` is its number of rows. `columns` are DuckDB's statistics by quoted column name. `types` are Delta's types of the
    columns to include. A bound that is not exact is left out.
    """
    statistics: dict[str, Any] = {"numRecords": count, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for quoted, values in columns.items():
        if '"."' in quoted or (name := quoted[1:-1].replace('""', '"')) not in types:
            continue
        if "null_count" in values:
            statistics["nullCount"][name] = int(values["null_count"])
        for bound in ("min", "max"):
            text = values.get(bound)
            if text is None or values.get("has_nan") == "true" or values.get(f"{bound}_is_exact") == "false":
                continue
            if (value := _bound(text, types[name])) is not None:
                statistics[f"{bound}Values"][name] = value
    return json.dumps(statistics)


def _bound(text: str, kind: str) -> Any:
    """Return the least or greatest value of a column as a JSON value; None if JSON cannot hold it exactly."""
    if kind in _INTEGERS:
        return int(text)
    if kind in _FLOATS or (kind.startswith("decimal") and sum(c.isdigit() for c in text) <= _DIGITS):
        number = float(text)
        return number if isfinite(number) else None
    if kind in _TIMES:
        with contextlib.suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(text)
            shown = moment.astimezone(UTC) if moment.tzinfo else moment
            return shown.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if kind == "timestamp" else "")
        return None
    return text if kind in ("string", "date") else None


class AddCommitter(LakeCommitter):
    """Commits the files of a batch as a version of the table."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._location = table, Location.of(table, context.project)
        delta = self._location.open()
        self._partitions = list(delta.metadata().partition_columns)
        kinds = {field.name: str(getattr(field.type, "type", "")) for field in delta.schema().fields}
        target = {
            "folder": self._location.uri if self._location.is_local else None,
            "partitions": self._partitions,
            "items": items(stored(arrow_schema(delta), table, DELTA)),
            "types": {name: kind for name, kind in kinds.items() if name not in self._partitions},
        }
        super().__init__(Transactions(self._location, context), context, target)

    def add(self, opened: Any, written: Sequence[Any], properties: Any) -> None:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        adds = [AddAction(w["path"], w["size"], w["partition"], now, True, w["stats"]) for w in written]
        opened.create_write_transaction(adds, "append", opened.schema(), self._partitions, commit_properties=properties)

    def remove(self, written: Sequence[Any]) -> None:
        self._location.check_named(one["path"] for one in written)
        with errors(self._table, "cleaning"):
            files = self._location.filesystem()
            for one in written:
                files.delete_file(one["path"])

    def remove_uncommitted(self, last: int) -> None:
        self._location.check_folder()
        with errors(self._table, "cleaning"):
            files = self._location.filesystem()
            for info in files.get_file_info(arrow_fs.FileSelector("", recursive=True)):
                if is_uncommitted(info.base_name, self._commits.tag, last):
                    files.delete_file(info.path)
