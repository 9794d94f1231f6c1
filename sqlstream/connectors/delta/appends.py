"""Append-only results as files of a Delta table: tasks write them into the table's folder, the driver commits a batch.

Nobody sees a file that no version of the table names. What a process leaves that dies before its commit goes when the job starts
again; files of single tasks that failed stay until somebody runs VACUUM.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
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
from sqlstream.connectors.interface import Committer, SinkContext, Writer
from sqlstream.connectors.lakes.columns import items, stored
from sqlstream.connectors.lakes.files import is_left, write_files
from sqlstream.warehouse.records import read_sealed, write_sealed

if TYPE_CHECKING:
    import duckdb

# What tasks need to know of the Delta table, beside the records of the sink.
_TARGET = "delta.json"
_INTEGERS, _FLOATS = ("byte", "short", "integer", "long"), ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz")
# Decimals of more digits are no numbers of JSON.
_DIGITS = 15


class AddWriter(Writer):
    """Writes the rows of a task into files of the table's folder."""

    def __init__(self, table: Table, context: SinkContext):
        self._location = Location.of(table, context.project)
        self._target = json.loads(read_sealed(context.fs, f"{context.records}/{_TARGET}"))

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str, batch: int
    ) -> tuple[int, list[Any]]:
        """Write the rows of a SELECT; return their number, and the `add` actions of their files."""
        if self._location.is_local:
            return self._copy(con, rows, batch, self._location.uri)
        with tempfile.TemporaryDirectory(prefix="sqlstream-delta-") as folder:
            count, adds = self._copy(con, rows, batch, folder)
            for add in adds:
                self._location.upload(f"{folder}/{add['path']}", add["path"])
            return count, adds

    def _copy(self, con: duckdb.DuckDBPyConnection, rows: str, batch: int, folder: str) -> tuple[int, list[Any]]:
        known = self._target
        select = f"SELECT {known['items']} FROM ({rows})"
        files = write_files(con, select, folder, tag=known["tag"], batch=batch, partitions=known["partitions"])
        total, adds = 0, []
        for file in files:
            total += file.rows
            # An empty text is NULL where Delta has the values of partitions.
            partition = {name: value or None for name, value in file.partition.items()}
            stats = statistics_of(file.rows, file.statistics, known["types"])
            adds.append({"path": file.path, "size": file.size, "partition": partition, "stats": stats})
        return total, adds


def statistics_of(count: int, columns: Mapping[str, Mapping[str, str]], types: Mapping[str, str]) -> str:
    """Return the statistics of a file, by which readers skip it, from those that DuckDB returns for its columns."""
    found: dict[str, Any] = {"numRecords": count, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for quoted, values in columns.items():
        if '"."' in quoted or (name := quoted[1:-1].replace('""', '"')) not in types:
            continue
        if "null_count" in values:
            found["nullCount"][name] = int(values["null_count"])
        for bound in ("min", "max"):
            text = values.get(bound)
            if text is None or values.get("has_nan") == "true" or values.get(f"{bound}_is_exact") == "false":
                continue
            if (value := _bound(text, types[name])) is not None:
                found[f"{bound}Values"][name] = value
    return json.dumps(found)


def _bound(text: str, kind: str) -> Any:
    """Return the least or greatest value of a column as JSON has it; None where that would not be exact."""
    if kind in _INTEGERS:
        return int(text)
    if kind in _FLOATS or (kind.startswith("decimal") and sum(c.isdigit() for c in text) <= _DIGITS):
        number = float(text)
        return number if isfinite(number) else None
    if kind in _TIMES:
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(text)
            shown = moment.astimezone(UTC) if moment.tzinfo else moment
            return shown.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if kind == "timestamp" else "")
        return None
    return text if kind in ("string", "date") else None


class AddCommitter(Committer):
    """Commits the files of a batch as a version of the table."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._location = table, Location.of(table, context.project)
        self._transactions = Transactions(self._location, context)
        delta = self._location.open()
        self._partitions = list(delta.metadata().partition_columns)
        self._tag = self._transactions.tag
        kinds = {field.name: str(getattr(field.type, "type", "")) for field in delta.schema().fields}
        target = {
            "tag": self._tag,
            "partitions": self._partitions,
            "items": items(stored(arrow_schema(delta), table, DELTA)),
            "types": {name: kind for name, kind in kinds.items() if name not in self._partitions},
        }
        write_sealed(context.fs, f"{context.records}/{_TARGET}", json.dumps(target))

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        adds = [AddAction(w["path"], w["size"], w["partition"], now, True, w["stats"]) for w in written]

        def write(delta: Any, properties: Any) -> None:
            delta.create_write_transaction(
                adds, "append", delta.schema(), self._partitions, commit_properties=properties
            )

        if not self._transactions.commit(batch, write) and not self._transactions.wrote(batch):
            # A process that died has committed the batch, with files of its own.
            with errors(self._table, "cleaning"):
                files = self._location.filesystem()
                for one in written:
                    files.delete_file(one["path"])

    def recover(self) -> None:
        last = self._transactions.recover()
        with errors(self._table, "cleaning"):
            files = self._location.filesystem()
            for info in files.get_file_info(arrow_fs.FileSelector("", recursive=True)):
                if is_left(info.base_name, self._tag, last):
                    files.delete_file(info.path)
