"""Append-only results as files of an Iceberg table: tasks write them below the table's location, the driver commits a batch.

Nobody sees a file that no snapshot names.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column, Table
from sqlstream.connectors.iceberg.catalogs import Located, errors, local_folder
from sqlstream.connectors.iceberg.commits import BatchProperty
from sqlstream.connectors.iceberg.schema import ICEBERG, arrow_schema, partitions_of
from sqlstream.connectors.interface import Committer, SinkContext, Writer
from sqlstream.connectors.lakes.columns import items, stored
from sqlstream.connectors.lakes.files import is_left, write_files
from sqlstream.warehouse.records import read_sealed, write_sealed

if TYPE_CHECKING:
    import duckdb

# What tasks need to know of the Iceberg table, beside the records of the sink.
_TARGET = "iceberg.json"


class DataFileWriter(Writer):
    """Writes the rows of a task into files of the table."""

    def __init__(self, table: Table, context: SinkContext):
        self._located = Located.of(table, context.project)
        self._target = json.loads(read_sealed(context.fs, f"{context.records}/{_TARGET}"))

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str, batch: int
    ) -> tuple[int, list[Any]]:
        """Write the rows of a SELECT; return their number, and the URIs of their files."""
        folder = self._target["folder"]
        if folder is not None:
            return self._copy(con, rows, batch, folder)
        with tempfile.TemporaryDirectory(prefix="sqlstream-iceberg-") as folder:
            count, files = self._copy(con, rows, batch, folder)
            io = self._located.open().io
            with errors(self._located.table, "writing"):
                for file in files:
                    path = file.removeprefix(self._target["uri"])
                    with open(folder + path, "rb") as here, io.new_output(file).create() as there:
                        shutil.copyfileobj(here, there, 8 << 20)
            return count, files

    def _copy(self, con: duckdb.DuckDBPyConnection, rows: str, batch: int, folder: str) -> tuple[int, list[Any]]:
        known = self._target
        select = f"SELECT {known['items']} FROM ({rows})"
        files = list(
            write_files(
                con,
                select,
                folder,
                tag=known["tag"],
                batch=batch,
                partitions=known["partitions"],
                with_partitions=True,
            )
        )
        return sum(file.rows for file in files), [f"{known['uri']}/{file.path}" for file in files]


class DataFileCommitter(Committer):
    """Commits the files of a batch as a snapshot of the table."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._located = table, Located.of(table, context.project)
        self._commits = BatchProperty(self._located, context)
        iceberg = self._located.open()
        self._folder = local_folder(iceberg)
        target = {
            "tag": self._commits.tag,
            "partitions": partitions_of(iceberg),
            "items": items(stored(arrow_schema(iceberg), table, ICEBERG)),
            "folder": self._folder,
            "uri": f"{iceberg.location()}/data",
        }
        write_sealed(context.fs, f"{context.records}/{_TARGET}", json.dumps(target))

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        def write(transaction: Any, summary: Any) -> None:
            # Names are unique: to look for them in all manifests would take longer with each batch.
            transaction.add_files(list(written), snapshot_properties=summary, check_duplicate_files=False)

        if not self._commits.commit(batch, write) and not self._commits.wrote(batch):
            # A process that died has committed the batch, with files of its own.
            io = self._located.open().io
            with errors(self._table, "cleaning"):
                for file in written:
                    io.delete(file)

    def recover(self) -> None:
        last = self._commits.recover()
        if self._folder is None:
            return
        for root, _, names in os.walk(self._folder):
            for name in names:
                if is_left(name, self._commits.tag, last):
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(f"{root}/{name}")
