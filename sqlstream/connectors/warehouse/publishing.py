"""Warehouse tables that other engines read: behind each commit its rows become a version of a table of Delta Lake, or of Iceberg.

A file of added rows is published as it is: it gets a second name (a hard link, in a store a copy) in the folder of the
published table. So the clean-up of neither table takes away a file that the other one has. Everything can be done again from
what the warehouse has: after a crash, and where a table is published that has rows already, the rows that are missing are
published as one version.
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
from sqlstream.connectors.lakes.files import WrittenFile, file_name, is_left, write_files
from sqlstream.connectors.lakes.libraries import LAKEHOUSES, library
from sqlstream.connectors.lakes.published import PublishedTable
from sqlstream.connectors.options import OptionType, TableOption
from sqlstream.connectors.warehouse.source import BatchRange, read_tables
from sqlstream.duck import databases
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
        raise ValueError(f'"{text}" is none of {", ".join(LAKEHOUSES)}')
    return text.lower()


PUBLISH = TableOption(
    "sqlstream.publish",
    OptionType("lakehouse", _kind),
    "`delta` or `iceberg`: other engines read the table as one of these",
    mutable=True,
)


def is_published(table: Table) -> bool:
    return table.connector is None and PUBLISH.name in table.options


def check_published(table: Table, span: Span | None) -> None:
    """Raise UsageError where the library is missing that a published table needs."""
    if is_published(table):
        kind = _kind(table.options[PUBLISH.name])
        library(kind, table, span, asks=f"'{PUBLISH.name}' = '{kind}'")


class Publisher:
    """Publishes what one job, the only one that does, writes into a warehouse table."""

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
        # What a batch wrote that may not be committed yet.
        self._written: tuple[int, tuple[Segment, ...]] | None = None
        self._is_same: bool | None = None
        self._target = self._open()

    def _open(self) -> PublishedTable:
        if self._kind != find_published(self._warehouse, self._table.name):
            # It may be published as the other kind.
            discard_published(self._warehouse, self._table.name)
        if self._kind == DELTA:
            from sqlstream.connectors.delta.publishing import PublishedDelta

            return PublishedDelta(self._table, self._folder, self._context, _storage(self._warehouse.fs))
        from sqlstream.connectors.iceberg.publishing import PublishedIceberg

        return PublishedIceberg(self._table, self._folder, self._context)

    def recover(self) -> None:
        """Publish what was committed and is not published; all anew where the job has gone back behind that."""
        history = JobHistory(self._warehouse, self._job)
        newest, last = history.newest, self._target.last()
        if last > (-1 if newest is None else newest.version):
            discard_published(self._warehouse, self._table.name)
            self._target, last = self._open(), -1
        self._remove_left(last)
        written = self._manifest(newest)
        if newest is None or written is None or written.batch <= last:
            return
        if self._sink.changing:
            self._write(written.batch, table_view(self._warehouse, self._table.name, [(self._record, newest)]), True)
        else:
            behind = BatchRange(self._job, self._record.created_at, last, newest.version, 0)
            self._write(written.batch, read_tables(self._warehouse, [behind], self._table).sql, False)

    def _manifest(self, version: JobVersion | None) -> Manifest | None:
        """Return the manifest of what the job has written; its batch is the last one that had rows."""
        named = version.newest.table_manifests(self._table.name) if version is not None else {}
        return named_manifest(self._warehouse.fs, self._paths, 0, named[0]) if named else None

    def _remove_left(self, last: int) -> None:
        """Remove the files of batches that a process did not come to publish."""
        fs, folder, tag = self._warehouse.fs, self._target.folder, self._target.commits.tag
        fs.delete_all(f"{folder}/{name}" for name in fs.entries(folder) if is_left(name, tag, last))

    def wrote(self, batch: int, segments: Sequence[Segment]) -> None:
        """Learn what a batch has added to the table, before it is committed."""
        self._written = batch, tuple(segments)

    def committed(self, batch: int) -> None:
        """Publish what the last batch has written, which is committed."""
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
        """Whether the lakehouse has the types that files of the warehouse have: then these are published as they are."""
        if self._is_same is None:
            with self._warehouse.fs.open_bytes(file) as opened:
                found, wanted = columns_of(pq.read_schema(opened)), columns_of(self._target.schema)
            self._is_same = {(c.name, c.type) for c in found} == {(c.name, c.type) for c in wanted}
        return self._is_same

    def _linked(self, data: str, segment: Segment, batch: int) -> WrittenFile:
        """Give a file its second name; where there are none, copy it."""
        unique = segment.name.rpartition("-")[2].removesuffix(".parquet")
        name = file_name(self._target.commits.tag, batch, unique)
        self._warehouse.fs.link(f"{data}/{segment.name}", f"{self._target.folder}/{name}")
        return WrittenFile(name, segment.rows, segment.bytes, {}, {})

    def _write(self, batch: int, rows: str, whole: bool) -> None:
        """Publish the rows of a SELECT, in files of their own."""
        select, tag = f"SELECT {items(self._target.columns)} FROM ({rows})", self._target.commits.tag
        fs, target = self._warehouse.fs, self._target.folder
        with databases.passing() as con, TemporaryDirectory() as scratch:
            folder = target if fs.local else scratch
            files = list(write_files(con, select, folder, tag=tag, batch=batch))
            for file in files if not fs.local else ():
                fs.put_file(f"{folder}/{file.path}", f"{target}/{file.path}")
        if files or whole:
            self._target.add(batch, files, whole=whole)

    def notices(self) -> Sequence[str]:
        """There is nothing that users must know."""
        return ()


def check_places(warehouse: Warehouse, tables: Iterable[Table]) -> None:
    """Raise UsageError where tables cannot be published: in stores that were not tried, where Iceberg's catalog cannot be."""
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
    """Return how Delta's library finds the store of a warehouse; credentials are in the environment for both."""
    if not isinstance(fs, StoreFilesystem):
        return {}
    found = {"AWS_REGION": fs.options["region"], "AWS_CONDITIONAL_PUT": "etag"}
    if endpoint := fs.options.get("endpoint"):
        found |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower()}
    return found


def find_published(warehouse: Warehouse, table: str) -> str | None:
    """Return as what a warehouse table is published by now, None where it is not."""
    folder = warehouse.published(table)
    found = warehouse.fs.entries(folder)
    if "_delta_log" in found:
        return DELTA
    return ICEBERG if "metadata" in found else None


def discard_published(warehouse: Warehouse, table: str) -> None:
    """Delete what is published of a warehouse table, if it is, also what a process has left that died while it did."""
    kind, folder = find_published(warehouse, table), warehouse.published(table)
    if kind == ICEBERG:
        from sqlstream.connectors.iceberg.publishing import forget

        # Without the library nobody can write the catalog; later it is seen that there is no table to its entry.
        with contextlib.suppress(UsageError):
            forget(folder)
    # A store deletes a log first: files without one are left, too.
    warehouse.fs.delete_tree(folder)
