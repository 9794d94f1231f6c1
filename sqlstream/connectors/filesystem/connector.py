"""The `filesystem` connector."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from sqlstream.catalog import Column, Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.discovery import DiscoveryContext
from sqlstream.connectors.filesystem.inference import INFERRED, columns_of_files
from sqlstream.connectors.filesystem.lookup import CurrentFilesLookup, files_now, files_snapshot
from sqlstream.connectors.filesystem.overwriting import OverwritingCommitter, waiting
from sqlstream.connectors.filesystem.roots import Root
from sqlstream.connectors.filesystem.sink import FileCommitter, FileSink, check_path, discard
from sqlstream.connectors.filesystem.splits import FileDiscovery, FilePosition, located
from sqlstream.connectors.formats.avro.written_files import check_columns
from sqlstream.connectors.formats.changelogs import validate as validate_changes
from sqlstream.connectors.formats.copies import near
from sqlstream.connectors.formats.file_source import FileRows
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.json_options import check_times
from sqlstream.connectors.formats.malformed import format_of
from sqlstream.connectors.formats.raw_lines import check_raw
from sqlstream.connectors.formats.read_errors import vanished
from sqlstream.connectors.formats.reading import read
from sqlstream.connectors.guarantees import Delivery, Replay, Rollback
from sqlstream.connectors.interface import (
    Committer,
    Connector,
    Reach,
    ReadContext,
    SinkContext,
    Snapshot,
    TableLookup,
    WorkerSink,
    Writer,
)
from sqlstream.connectors.options import COUNT, MAX_BYTES, MONITOR, TEXT, TableOption
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.connectors.uris import is_absolute, is_remote
from sqlstream.duck.internal_columns import FILE_ORDER
from sqlstream.errors import Span

if TYPE_CHECKING:
    import duckdb


class Files(FileRows):
    """The files of a folder, a glob, or one file, each read once."""

    replay = Replay.REPLAYABLE
    replay_reason = "files are read again"
    rewinds = True
    slot: str | None = None
    order = FILE_ORDER

    def check_input(self, project: str) -> None:
        FileDiscovery.of(self.table, project=project, parallelism=1).poll()

    def position(self, project: str, data: bytes | None = None) -> FilePosition:
        root = Root.of(self.table.options["path"], project)
        return FilePosition(root) if data is None else FilePosition.from_bytes(data, root)

    def discovery(self, position: FilePosition, context: DiscoveryContext) -> FileDiscovery:
        return FileDiscovery.of(self.table, project=context.project, parallelism=context.parallelism, seen=position)

    def split(self, values: Sequence[Any]) -> FileSplit:
        return FileSplit.from_list(values)

    def located(self, split: FileSplit, context: ReadContext) -> FileSplit:
        """Return the split with the current path of its file, or the path of a local copy if the file is remote.

        Raises DataError if the file is gone, or outside of the folders that the table is confined to.
        """
        file = located(split, Root.of(self.table.options["path"], context.project)) if split.root else split
        check_files(self.table, [file.path])
        try:
            return near(file)
        except FileNotFoundError as error:
            raise vanished(file.path, self.table.name) from error

    def files(self, splits: Sequence[FileSplit]) -> Sequence[FileSplit]:
        return splits

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[FileSplit], context: ReadContext) -> ReadPlan:
        return read(con, splits, self.table)


class WrittenFiles(WorkerSink):
    """Files that become visible whole, when their batch is committed."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "files get their names once, when the batch is committed"
    rollback = Rollback.ROWS_REMOVED
    overwrites = True

    def check(self, span: Span | None) -> None:
        check_path(self.table)
        check_times(self.table, format_of(self.table))
        if format_of(self.table) == "avro":
            check_columns(self.table)

    def writer(self, context: SinkContext) -> Writer:
        sink = FileSink.of(context.fs, self.table, context.project, context.records)
        return sink if self.table.overwrites is None else waiting(sink)

    def committer(self, context: SinkContext) -> Committer:
        if self.table.overwrites is not None:
            return OverwritingCommitter.open(self.table, context)
        opened = FileSink.open(context.fs, self.table, context.project, context.records, context.committed)
        return FileCommitter(opened, context)

    @classmethod
    def discard(cls, context: SinkContext) -> None:
        discard(context.fs, context.records, context.project)


class FilesLookup(TableLookup):
    """The rows of all files that exist at the time of a lookup."""

    def function(self, *, warehouse: str, project: str) -> CurrentFilesLookup:
        return CurrentFilesLookup(self.table, project)


class FilesystemConnector(Connector):
    """Tables that are files in a folder."""

    name = "filesystem"
    summary = "files in a folder, local or at a URI that pyarrow knows"
    reach = Reach.STORE
    options = (
        TableOption(
            "path", TEXT, "a folder, a file or a glob, relative to the project", required=True, example="data/"
        ),
        replace(MONITOR, mutable=True),
        TableOption("source.max-files-per-batch", COUNT, "the most files that a batch reads", mutable=True),
        MAX_BYTES,
    )
    formats = ("parquet", "avro", "json", "csv", "raw", "debezium-json")
    changelogs = True
    metadata: ClassVar[Mapping[str, str]] = {
        "file.path": "path or URI of the file",
        "file.name": "name of the file, without its folder",
        "file.size": "size of the file in bytes",
        "file.modification-time": "when the file was last modified",
        "row-number": "number of the row in the file, from 0",
    }
    partitioned = True
    infers = "Parquet and Avro files"
    source_type = Files
    sink_type = WrittenFiles
    lookup_type = FilesLookup

    def validate(self, table: Table) -> None:
        if table.has_changes:
            validate_changes(table)
        if format_of(table) == "raw":
            check_raw(table)

    def columns(self, table: Table, project: str) -> Sequence[Column] | None:
        if table.options.get("format", "parquet").lower() not in INFERRED or "path" not in table.options:
            return None
        return columns_of_files(table, project)

    def can_infer(self, table: Table) -> bool:
        return "path" in table.options

    def identifying_options(self, table: Table, left_out: Mapping[str, str]) -> Mapping[str, str]:
        # Files outside of the project may move. A path in the project identifies the files.
        return {k: v for k, v in left_out.items() if k != "path" or not is_absolute(v)}

    def snapshot(self, con: duckdb.DuckDBPyConnection, table: Table, project: str) -> Snapshot:
        splits = files_now(table, project)
        path = table.options["path"]
        paths = tuple(s.path for s in splits) if is_remote(path) else (os.path.join(project, path),)
        return files_snapshot(con, table, splits, paths)
