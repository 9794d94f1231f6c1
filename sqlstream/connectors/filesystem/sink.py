"""The `filesystem` sink: files that become visible whole, once, in the folder of a table.

Tasks write into a hidden folder beside the files (`.sqlstream-..`, which readers leave out). The driver records the files of a
batch, then renames them. If the batch is repeated, the driver reads that record and renames the files that are left; the files of
the second attempt are deleted. So a reader sees every file complete, and no row twice.

A file's name contains the number of its batch. A folder may have files of batches that the job has neither committed nor
recorded: then its warehouse has gone back in time, as a copy was restored or files were damaged. The job repeats these batches,
maybe with other rows in each, so it deletes their files when it starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import uuid4

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.filesystem.roots import remembered
from sqlstream.connectors.formats.avro.written_files import fitted_columns, to_avro
from sqlstream.connectors.formats.csv_rows import csv_write_options
from sqlstream.connectors.formats.json_options import iso_time, writes_iso
from sqlstream.connectors.formats.raw_written import encoded_item, to_raw
from sqlstream.connectors.interface import Committer, SinkContext, Writer
from sqlstream.connectors.uris import is_remote, local_path
from sqlstream.duck.sql import Select, quote_name, quote_text
from sqlstream.errors import UnsupportedError
from sqlstream.storage_errors import storage_errors
from sqlstream.warehouse.filesystem import STORES, Filesystem, LocalFilesystem, open_filesystem
from sqlstream.warehouse.records import read_sealed, write_sealed
from sqlstream.warehouse.uris import split_options

# The extension of hidden files: other readers, even ones that list hidden folders, do not take them for data.
_STAGED = "tmp"
# Types that a format cannot hold, and the types that are written instead.
_WRITTEN_AS = {"HUGEINT": "DECIMAL(38, 0)", "UHUGEINT": "DECIMAL(38, 0)"}
# The number of batches by which a job can go back.
_RECORDS_KEPT = 100
_TARGET = "target.json"


def check_path(table: Table) -> None:
    """Raise UnsupportedError unless the table's path is a folder that can be written into, local or in an object store."""
    path = table.options["path"]
    if is_remote(path) and path.partition("://")[0] not in ("file", *STORES):
        hint = "Write to a local folder, to an object store, or into a table without a connector."
        raise UnsupportedError(f'writing to "{path}"', table.span, hint=hint)
    if any(c in (split_options(path)[0] if is_remote(path) else path) for c in "*?["):
        raise UnsupportedError(f'writing to the glob "{path}"', table.span, hint="Give the folder as the path.")


@dataclass(frozen=True, slots=True)
class Target:
    """The record of a folder into which a job writes.

    `folder` is relative to the project, if it is inside. `tag` is unique to the job, and in the names of its files. `home` is the
    folder of the sink's records, and `project` the path of the project, when the record was written.
    """

    folder: str
    tag: str
    home: str
    project: str

    @classmethod
    def read(cls, fs: Filesystem, records: str) -> Target | None:
        """Return the record in the sink's folder of records; None before the first start."""
        try:
            return cls(**json.loads(read_sealed(fs, f"{records}/{_TARGET}")))
        except FileNotFoundError:
            return None

    def write(self, fs: Filesystem) -> None:
        """Write the record into `home`, durably."""
        write_sealed(fs, f"{self.home}/{_TARGET}", json.dumps(asdict(self)), durable=True)

    def path(self, project: str) -> str:
        """Return the absolute path, or the URI, of the folder, with the project's current path."""
        return self.folder if is_remote(self.folder) else os.path.normpath(os.path.join(project, self.folder))

    def is_of_another(self, fs: Filesystem, records: str, project: str) -> bool:
        """Whether this record, now in `records`, is a copy, and the original's job still writes into the same folder.

        Then the files in the folder belong to the original's job.
        """
        if self.home == records or self.path(self.project) != self.path(project):
            return False
        original = Target.read(fs, self.home)
        return original is not None and original.tag == self.tag


@dataclass(frozen=True)
class FileSink(Writer):
    """Writes the files of one job into the folder of a table; `tag` is unique to the job, and in the names of its files.

    The names end with `suffix`.
    """

    table: Table
    folder: str
    tag: str
    suffix: str = ""

    @classmethod
    def open(cls, fs: Filesystem, table: Table, project: str, records: str, committed: int = -1) -> FileSink:
        """Return the sink at the start of a job, whose last committed batch is `committed`, and record its Target.

        If the table's path has changed, interrupted commits are first finished in the old folder.
        """
        folder = _folder(table, project)
        target = Target.read(fs, records)
        if target is not None and target.is_of_another(fs, records, project):
            # The original's job finishes its commits.
            fs.delete_tree(records)
            target = None
        tag = target.tag if target else uuid4().hex[:8]
        if target is not None and target.path(project) != folder:
            # The table's path has changed: interrupted commits are finished in the old folder.
            cls(table, target.path(project), tag).recover(fs, records, committed)
        Target(remembered(folder, project), tag, records, project).write(fs)
        return cls(table, folder, tag)

    @classmethod
    def of(cls, fs: Filesystem, table: Table, project: str, records: str) -> FileSink:
        """Return the sink that the driver of a running job has opened."""
        target = Target.read(fs, records)
        assert target is not None
        return cls(table, _folder(table, project), target.tag)

    @property
    def destination(self) -> tuple[Filesystem, str]:
        """The file system of the folder, and its path there."""
        return open_filesystem(self.folder)

    @property
    def staging(self) -> str:
        """The path of the hidden folder into which tasks write, in the file system of `destination`."""
        return f"{self.destination[1]}/.sqlstream-{self.tag}"

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, batch: int
    ) -> tuple[int, list[str]]:
        """Write rows into hidden files; return their number, and the paths of the files below `staging`."""
        attempt = f"{batch:010d}-{uuid4().hex[:12]}"
        fs, _ = self.destination
        if fs.local:
            check_files(self.table, [f"{self.staging}/{attempt}"])
            return self._copy(con, columns, rows, f"{self.staging}/{attempt}", attempt)
        with tempfile.TemporaryDirectory() as near:
            count, files = self._copy(con, columns, rows, f"{near}/{attempt}", attempt)
            for file in files:
                fs.put_file(f"{near}/{file}", f"{self.staging}/{file}")
        return count, files

    def _copy(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, folder: str, attempt: str
    ) -> tuple[int, list[str]]:
        """Write rows into files in a local folder; return their number, and paths that begin with `attempt`."""
        format_ = self.table.options["format"].lower()
        converted = format_ in ("avro", "raw")
        with storage_errors(folder, writes=True):
            os.makedirs(folder)
        options = [
            f"FORMAT {'parquet' if converted else format_}",
            *(csv_write_options(self.table.options) if format_ == "csv" else []),
        ]
        target = f"{folder}/data_0.{_STAGED}"
        if self.table.partitioned_by:
            options.append(f"PARTITION_BY ({', '.join(map(quote_name, self.table.partitioned_by))})")
            options.append(f"FILE_EXTENSION '{_STAGED}', OVERWRITE_OR_IGNORE")
            target = folder
        items = [f"{self._value(c)} AS {quote_name(c.name)}" for c in columns]
        if converted:
            inside = (
                fitted_columns(self.table, columns).items if format_ == "avro" else [encoded_item(self.table, columns)]
            )
            items = [*inside, *map(quote_name, self.table.partitioned_by)]
        copied = con.execute(
            f"COPY (SELECT {', '.join(items)} FROM ({rows})) TO {quote_text(target)} ({', '.join(options)})"
        )
        [(count,)] = copied.fetchall()
        if not count:
            shutil.rmtree(folder, ignore_errors=True)
            return 0, []
        files = list(LocalFilesystem().walk(folder))
        for file in files if converted else ():
            with storage_errors(file, writes=True):
                if format_ == "avro":
                    to_avro(file, self.table, columns)
                else:
                    to_raw(file, self.table)
        return int(count), [f"{attempt}/{os.path.relpath(file, folder)}" for file in files]

    def _value(self, column: Column) -> str:
        """Return the SQL of a column as it is written, in formats that DuckDB writes."""
        if self.table.options["format"].lower() == "json" and writes_iso(self.table.options, "json"):
            partition = column.name in self.table.partitioned_by
            if not partition and (time := iso_time(column)) is not None:
                return time
        return f"CAST({quote_name(column.name)} AS {_written(column)})"

    # -- on the driver

    def publish(self, fs: Filesystem, records: str, batch: int, files: Sequence[str]) -> None:
        """Record the files of a batch in `records`, and rename them, so that they become visible.

        If the batch is recorded already, the recorded files are renamed, and `files` are deleted with `staging`.
        """
        record = f"{records}/{batch:010d}.json"
        if not fs.exists(record):
            write_sealed(fs, record, json.dumps(list(files)))
        self._rename(json.loads(read_sealed(fs, record)))
        # The files that are left were written by attempts that failed, or that ended too late.
        self.destination[0].delete_tree(self.staging)
        for name in [n for n in fs.list(records) if n[:-5].isdigit()][:-_RECORDS_KEPT]:
            fs.delete(f"{records}/{name}")

    def recover(self, fs: Filesystem, records: str, committed: int) -> int:
        """Finish interrupted commits, and delete files that no batch will commit.

        Deletes also visible files of batches that the job will repeat, as they are neither committed nor recorded. Returns the
        number of these.
        """
        for name in _published(fs, records):
            self._rename(json.loads(read_sealed(fs, f"{records}/{name}")))
        self.destination[0].delete_tree(self.staging)
        return self.delete_later(fs, records, committed)

    def delete_later(self, fs: Filesystem, records: str, committed: int) -> int:
        """Delete visible files of batches that are neither committed nor recorded; return their number."""
        files, folder = self.destination
        last = max(committed, *(int(name[:-5]) for name in _published(fs, records)), -1)
        later = [file for file in files.walk(folder) if (batch := self._batch_of(file)) is not None and batch > last]
        files.delete_all(later)
        return len(later)

    def _batch_of(self, file: str) -> int | None:
        """Return the batch of a file in the folder; None if another job or program wrote it."""
        name = os.path.basename(file)
        if not name.startswith(f"part-{self.tag}-"):
            return None
        number = name.split("-")[2]
        return int(number) if number.isdigit() else None

    def _rename(self, files: Sequence[str]) -> None:
        fs, root = self.destination
        for file in files:
            attempt, *below, name = file.split("/")
            folder = "/".join([root, *below])
            batch, _, unique = attempt.partition("-")
            part = name.removeprefix("data_").removesuffix(f".{_STAGED}")
            extension = self.table.options["format"].lower()
            target = f"{folder}/part-{self.tag}-{int(batch):06d}-{unique}-{part}.{extension}{self.suffix}"
            # A partition may be a link.
            check_files(self.table, [target])
            # It is renamed already if the process died after this.
            with contextlib.suppress(FileNotFoundError):
                fs.move(f"{self.staging}/{file}", target)


class FileCommitter(Committer):
    """Makes the files of a batch visible, by renaming them."""

    def __init__(self, sink: FileSink, context: SinkContext):
        self._sink, self._fs, self._records = sink, context.fs, context.records
        self._committed = context.committed
        self._removed = 0

    def commit(self, batch: int, written: Sequence[str]) -> None:
        self._sink.publish(self._fs, self._records, batch, written)

    def recover(self) -> None:
        self._removed = self._sink.recover(self._fs, self._records, self._committed)

    def notices(self) -> Sequence[str]:
        if not self._removed:
            return ()
        files = "1 file" if self._removed == 1 else f"{self._removed:,} files"
        return [
            f'table "{self._sink.table.name}": removed {files} from "{self._sink.folder}", of batches that the job now repeats:'
            " its warehouse is older than these files"
        ]


def discard(fs: Filesystem, records: str, project: str) -> None:
    """Delete the files that a dropped job has written, in the folder that its records name."""
    target = Target.read(fs, records)
    if target is None or target.is_of_another(fs, records, project):
        return
    files, folder = open_filesystem(target.path(project))
    for hidden in (f"{folder}/.sqlstream-{target.tag}", f"{folder}/.sqlstream-{target.tag}-new"):
        files.delete_tree(hidden)
    files.delete_all(f for f in files.walk(folder) if os.path.basename(f).startswith(f"part-{target.tag}-"))


def _published(fs: Filesystem, records: str) -> list[str]:
    """Return the names of the records of batches."""
    return [name for name in fs.list(records) if name[:-5].isdigit()]


def _folder(table: Table, project: str) -> str:
    path = table.options["path"]
    if path.partition("://")[0] in STORES:
        return path
    folder = local_path(path, project)
    check_files(table, [folder])
    return folder


def _written(column: Column) -> str:
    return _WRITTEN_AS.get(column.type, column.type)
