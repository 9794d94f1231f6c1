"""Append-only results as files of an Iceberg table: tasks write them below the table's location, the driver commits a batch."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.iceberg.catalogs import CatalogTable, errors, local_folder
from sqlstream.connectors.iceberg.commits import BatchProperty
from sqlstream.connectors.iceberg.schema import ICEBERG, arrow_schema, partitions_of
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.lakes.appends import LakeCommitter, LakeWriter
from sqlstream.connectors.lakes.columns import items, stored
from sqlstream.connectors.lakes.files import WrittenFile, is_uncommitted


class DataFileWriter(LakeWriter):
    """Writes the rows of a task into data files of the table, and describes each by its URI."""

    with_partitions = True

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(context)
        self._located = CatalogTable.of(table, context.project)

    def upload(self, folder: str, files: Sequence[WrittenFile]) -> None:
        io = self._located.open().io
        with errors(self._located.table, "writing"):
            for file in files:
                with open(f"{folder}/{file.path}", "rb") as here, io.new_output(self.describe(file)).create() as there:
                    shutil.copyfileobj(here, there, 8 << 20)

    def describe(self, file: WrittenFile) -> Any:
        """Return the URI of a file."""
        return f"{self.target['uri']}/{file.path}"


class DataFileCommitter(LakeCommitter):
    """Commits the files of a batch as a snapshot of the table."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._located = table, CatalogTable.of(table, context.project)
        iceberg = self._located.open()
        self._folder = local_folder(iceberg)
        target = {
            "folder": self._folder,
            "partitions": partitions_of(iceberg),
            "items": items(stored(arrow_schema(iceberg), table, ICEBERG)),
            "uri": f"{iceberg.location()}/data",
        }
        super().__init__(BatchProperty(self._located, context), context, target)

    def add(self, opened: Any, written: Sequence[Any], properties: Any) -> None:
        # Names are unique: to look for them in all manifests would take longer with each batch.
        opened.add_files(list(written), snapshot_properties=properties, check_duplicate_files=False)

    def remove(self, written: Sequence[Any]) -> None:
        io = self._located.open().io
        with errors(self._table, "cleaning"):
            for file in written:
                io.delete(file)

    def remove_uncommitted(self, last: int) -> None:
        """Delete the job's files of batches after `last` if the table is on this machine; a remote table keeps them."""
        for root, _, names in os.walk(self._folder or ""):
            for name in names:
                if is_uncommitted(name, self._commits.tag, last):
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(f"{root}/{name}")
