"""Warehouse tables for other engines: after each commit, its rows become a version of a Delta Lake or Iceberg table.

A file of added rows is published unchanged, by a hard link (in an object store, a copy) in the folder of the published table. So
the clean-up of neither table deletes a file of the other one. All can be published again from the warehouse: after a crash, and
if a table that has rows already is published, the missing rows are published as one version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.lakes.columns import columns_of, items
from sqlstream.connectors.lakes.files import WrittenFile, file_name, is_uncommitted, write_files
from sqlstream.connectors.lakes.libraries import LAKEHOUSES, library
from sqlstream.connectors.lakes.published import PublishedTable
from sqlstream.connectors.options import OptionType, TableOption
from sqlstream.connectors.warehouse.source import BatchRange, read_tables
from sqlstream.duck import databases
from sqlstream.duck.sql import Select
from sqlstream.errors import Span, UsageError
from sqlstream.storage.manifests import Manifest
from sqlstream.storage.segments import Segment, scan
from sqlstream.storage.snapshot import JobHistory, JobVersion, named_manifest
from sqlstream.storage.views import table_view
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.stores import StoreFilesystem

DELTA, ICEBERG = "delta", "iceberg"


def _kind(text: str) -> str:
    if text.lower() not in LAKEHOUSES:
        raise ValueError(f'"{text}" is not one of {", ".join(LAKEHOUSES)}')
    return text.lower()


PUBLISH = TableOption(
    "sqlstream.publish",
    OptionType("lakehouse", _kind),
    "`delta` or `iceberg`: other engines read the table as one of these",
    mutable=True,
)


def is_published(table: Table) -> bool:
    """Whether a warehouse table has the option PUBLISH."""
    return table.connector is None and PUBLISH.name in table.options


def check_published(table: Table, span: Span | None) -> None:
    """Raise UsageError if a table is to be published, and the library of its lakehouse is missing."""
    if is_published(table):
        kind = _kind(table.options[PUBLISH.name])
        library(kind, table, span, asks=f"'{PUBLISH.name}' = '{kind}'")


class Publisher:
    """Publishes the rows that one job commits to a warehouse table. A published table has only this writer."""

    def __init__(self, warehouse: Warehouse, job: str, table: Table, context: SinkContext):
        self._kind = _kind(table.options[PUBLISH.name])
        record = JobHistory(warehouse, job).record
        sink = record.sink(table.name) if record is not None else None
        assert record is not None
        assert sink is not None, table.name
        self._warehouse, self._job, self._context = warehouse, job, context
        self._record, self._sink = record, sink
        self._columns = tuple(Column(name, type) for name, type in sink.columns)
        self._table = Table(table.name, self._columns, primary_key=sink.key, span=table.span)
        self._paths, self._folder = warehouse.table(table.name).job(job), warehouse.published(table.name)
        # The segments of a batch that may not be committed yet, with its number.
        self._written: tuple[int, tuple[Segment, ...]] | None = None
        self._is_same: bool | None = None
        self._target = self._open()

    def _open(self) -> PublishedTable:
        if self._kind != find_published(self._warehouse, self._table.name):
            # It may be published as the other kind of table.
            discard_published(self._warehouse, self._table.name)
        if self._kind == DELTA:
            from sqlstream.connectors.delta.publishing import PublishedDelta

            return PublishedDelta(self._table, self._folder, self._context, _storage(self._warehouse.fs))
        from sqlstream.connectors.iceberg.publishing import PublishedIceberg

        return PublishedIceberg(self._table, self._folder, self._context)

    def recover(self) -> None:
        """Publish the committed rows that are not published yet, as one version. Called at each start.

        If the job has gone back behind the published version, the published table is deleted, and all rows are published.
        """
        history = JobHistory(self._warehouse, self._job)
        newest, last = history.newest, self._target.last()
        if last > (-1 if newest is None else newest.version):
            discard_published(self._warehouse, self._table.name)
            self._target, last = self._open(), -1
        self._remove_unpublished(last)
        written = self._manifest(newest)
        if newest is None or written is None or written.batch <= last:
            return
        if self._sink.changing:
            self._write(written.batch, table_view(self._warehouse, self._table.name, [(self._record, newest)]), True)
        else:
            behind = BatchRange(self._job, self._record.created_at, last, newest.version, 0)
            self._write(written.batch, read_tables(self._warehouse, [behind], self._table).sql, False)

    def _manifest(self, version: JobVersion | None) -> Manifest | None:
        """Return the manifest of the job's rows in the table; its batch is the last one that had rows. None without rows."""
        named = version.newest.table_manifests(self._table.name) if version is not None else {}
        return named_manifest(self._warehouse.fs, self._paths, 0, named[0]) if named else None

    def _remove_unpublished(self, last: int) -> None:
        """Delete the files of batches after `last`, which a process has written and not published."""
        fs, folder, tag = self._warehouse.fs, self._target.folder, self._target.commits.tag
        fs.delete_all(f"{folder}/{name}" for name in fs.entries(folder) if is_uncommitted(name, tag, last))

    def wrote(self, batch: int, segments: Sequence[Segment]) -> None:
        """Remember the segments that a batch, not committed yet, adds to the table; `committed` publishes them."""
        self._written = batch, tuple(segments)

    def committed(self, batch: int) -> None:
        """Publish the segments that `wrote` has remembered, unless they are of a batch after `batch`, the last committed one."""
        if self._written is None or self._written[0] > batch:
            return
        (number, segments), self._written = self._written, None
        data = self._paths.data(0)
        if not self._sink.changing:
            if self._fits(f"{data}/{segments[0].name}"):
                self._target.add(number, [self._linked(data, s, number) for s in segments], whole=False)
            else:
                self._write(number, scan(self._warehouse.fs, data, self._columns, segments), False)
        elif self._sink.upserts:
            paths = tuple(self._warehouse.fs.path_for_duckdb(f"{data}/{s.name}") for s in segments)
            order = tuple(Column(name, type) for name, type in self._sink.order)
            self._target.merge(Batch(number, self._columns, paths, True, self._sink.key, order))
        else:
            newest = JobHistory(self._warehouse, self._job).newest
            self._write(number, table_view(self._warehouse, self._table.name, [(self._record, newest)]), True)

    def _fits(self, file: str) -> bool:
        """Whether a file of the warehouse has the types of the published table, so that files can be published unchanged."""
        if self._is_same is None:
            with self._warehouse.fs.open_bytes(file) as opened:
                file_columns, table_columns = columns_of(pq.read_schema(opened)), columns_of(self._target.schema)
            self._is_same = {(c.name, c.type) for c in file_columns} == {(c.name, c.type) for c in table_columns}
        return self._is_same

    def _linked(self, data: str, segment: Segment, batch: int) -> WrittenFile:
        """Link a segment's file into the folder of the published table, or copy it if the store has no links."""
        unique = segment.name.rpartition("-")[2].removesuffix(".parquet")
        name = file_name(self._target.commits.tag, batch, unique)
        self._warehouse.fs.link(f"{data}/{segment.name}", f"{self._target.folder}/{name}")
        return WrittenFile(name, segment.rows, segment.bytes, {}, {})

    def _write(self, batch: int, rows: Select, whole: bool) -> None:
        """Publish rows in new files; with `whole`, they replace all rows of the published table."""
        select, tag = Select(f"SELECT {items(self._target.columns)} FROM ({rows})"), self._target.commits.tag
        fs, target = self._warehouse.fs, self._target.folder
        with databases.passing() as con, TemporaryDirectory() as scratch:
            folder = target if fs.local else scratch
            files = list(write_files(con, select, folder, tag=tag, batch=batch))
            for file in files if not fs.local else ():
                fs.put_file(f"{folder}/{file.path}", f"{target}/{file.path}")
        if files or whole:
            self._target.add(batch, files, whole=whole)

    def notices(self) -> Sequence[str]:
        """Return no notices."""
        return ()


def check_targets(warehouse: Warehouse, tables: Iterable[Table]) -> None:
    """Raise UsageError for a table that cannot be published in the warehouse's object store.

    Delta Lake is supported on s3:// only, and Iceberg, whose catalog is a file, on local disks only.
    """
    for table in () if warehouse.fs.local else filter(is_published, tables):
        _check_store(warehouse, table, _kind(table.options[PUBLISH.name]))


def _check_store(warehouse: Warehouse, table: Table, kind: str) -> None:
    named, folder, span = f'table "{table.name}"', warehouse.published(table.name), table.option_span(PUBLISH.name)
    hint = f'Write into a table with the connector "{kind}" instead.'
    if kind == ICEBERG or not folder.startswith("s3://"):
        where = "on a local disk" if kind == ICEBERG else "on a local disk or on s3://"
        raise UsageError(f"{named}: '{PUBLISH.name}' = '{kind}' needs a warehouse {where}", span, hint=hint)
    if any(character in folder for character in " %#"):
        # Delta's library decodes some of its paths twice, and takes a "#" for the end of the path.
        message = f'{named} cannot be published as "{folder}": in a store there can be no space, no "%" and no "#"'
        raise UsageError(message, span, hint=f"Choose another name. {hint}")


def _storage(fs: Filesystem) -> Mapping[str, str]:
    """Return the options with which Delta's library opens the warehouse's store; credentials are in the environment."""
    if not isinstance(fs, StoreFilesystem):
        return {}
    options = {"AWS_REGION": fs.options["region"], "AWS_CONDITIONAL_PUT": "etag"}
    if endpoint := fs.options.get("endpoint"):
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower()}
    return options


def find_published(warehouse: Warehouse, table: str) -> str | None:
    """Return how a warehouse table is published now: DELTA, ICEBERG, or None if it is not."""
    folder = warehouse.published(table)
    entries = warehouse.fs.entries(folder)
    if "_delta_log" in entries:
        return DELTA
    return ICEBERG if "metadata" in entries else None


def discard_published(warehouse: Warehouse, table: str) -> None:
    """Delete the published form of a warehouse table, even one that a process has deleted in part; its rows stay."""
    kind, folder = find_published(warehouse, table), warehouse.published(table)
    if kind == ICEBERG:
        from sqlstream.connectors.iceberg.publishing import forget

        # Without the library the catalog cannot be written. An entry without a table is noticed later.
        with contextlib.suppress(UsageError):
            forget(folder)
    # A store deletes a log first, so there may be files without a log.
    warehouse.fs.delete_tree(folder)
