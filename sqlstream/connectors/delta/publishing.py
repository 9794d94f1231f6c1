"""Publication of a warehouse table as a Delta table, whose folder has the files."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.delta.appends import statistics_of
from sqlstream.connectors.delta.commits import Transactions
from sqlstream.connectors.delta.location import STORAGE, Location
from sqlstream.connectors.delta.merges import MergeWriter
from sqlstream.connectors.delta.schema import DELTA, arrow_schema, create
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.lakes.columns import stored
from sqlstream.connectors.lakes.files import WrittenFile
from sqlstream.connectors.lakes.published import PublishedTable


class PublishedDelta(PublishedTable):
    """A Delta table in the folder of a published table, with one version per batch.

    `storage` are the library's options for the object store of the folder, empty for a local disk.
    """

    def __init__(self, table: Table, folder: str, context: SinkContext, storage: Mapping[str, str]):
        options = {"connector": "delta", "path": folder, **{f"{STORAGE}{key}": value for key, value in storage.items()}}
        # The folder is the warehouse's own, wherever files of the job's tables may be.
        self._table, self._context = replace(table, options=options, within=()), context
        self._location = Location.of(self._table, context.project)
        create(self._location, self._table, {})
        delta = self._location.open()
        self.folder, self.schema = folder, arrow_schema(delta)
        self.columns = stored(self.schema, self._table, DELTA)
        self.commits = Transactions(self._location, context)
        self._types: Mapping[str, str] = {f.name: str(getattr(f.type, "type", "")) for f in delta.schema().fields}

    def add(self, batch: int, files: Sequence[WrittenFile], *, whole: bool) -> None:
        from deltalake.transaction import AddAction

        now, mode = int(time.time() * 1000), "overwrite" if whole else "append"
        adds = [
            AddAction(f.path, f.size, {}, now, True, statistics_of(f.rows, f.statistics, self._types)) for f in files
        ]

        def write(delta: Any, properties: Any) -> None:
            delta.create_write_transaction(adds, mode, delta.schema(), [], commit_properties=properties)

        self.commits.commit(batch, write)

    def merge(self, batch: Batch) -> None:
        MergeWriter(self._table, self._context).write(batch)
