"""The `filesystem` sink: files that appear whole, once, in the folder of a table.

Tasks write into a hidden folder beside the files (`.sqlstream-..`, which readers leave out). The driver writes down which
files are a batch's, then renames them. A batch that is repeated finds that record and renames what is left of it; the files of
its second attempt go. So a reader sees every file complete, and none twice.

The number of the batch is in the name of a file. A folder may have files of batches that the job neither committed nor recorded:
then its warehouse went back in time, because a copy of it was restored or because of damage. The job repeats these batches, maybe
with other rows in each, and so their files go when it starts.
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
from sqlstream.connectors.interface import Committer, SinkContext, Writer
from sqlstream.connectors.uris import is_remote, local_path
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import UnsupportedError
from sqlstream.warehouse.filesystem import STORES, Filesystem, LocalFilesystem, open_filesystem, storage_errors
from sqlstream.warehouse.records import read_sealed, write_sealed

# Not even a reader who looks into hidden folders takes a file of this kind.
_STAGED = "tmp"
# Types that a format cannot hold, and what is written.
_WRITTEN_AS = {"HUGEINT": "DECIMAL(38, 0)", "UHUGEINT": "DECIMAL(38, 0)"}
# As many as batches that can be gone back.
_RECORDS_KEPT = 100
_TARGET = "target.json"


def check_path(table: Table) -> None:
    """Raise UnsupportedError unless the table's path is a folder that can be written into, local or in an object store."""
    path = table.options["path"]
    if is_remote(path) and path.partition("://")[0] not in ("file", *STORES):
        hint = "Write to a local folder, to an object store, or into a table without a connector."
        raise UnsupportedError(f'writing to "{path}"', table.span, hint=hint)
    if any(c in (path.partition("?")[0] if is_remote(path) else path) for c in "*?["):
        raise UnsupportedError(f'writing to the glob "{path}"', table.span, hint="Give the folder as the path.")


@dataclass(frozen=True, slots=True)
class Target:
    """What a job remembers of a folder that it writes into, in the folder of its records, `home`.

    `tag`, in the names of its files, tells the job from every other one. `folder` is relative to the project, if it lies in it.
    """

    folder: str
    tag: str
    home: str
    project: str

    @classmethod
    def read(cls, fs: Filesystem, records: str) -> Target | None:
        """Return what is remembered, None before the first start."""
        try:
            return cls(**json.loads(read_sealed(fs, f"{records}/{_TARGET}")))
        except FileNotFoundError:
            return None

    def write(self, fs: Filesystem) -> None:
        write_sealed(fs, f"{self.home}/{_TARGET}", json.dumps(asdict(self)), durable=True)

    def path(self, project: str) -> str:
        """Return the folder, for a project that is there now."""
        return self.folder if is_remote(self.folder) else os.path.normpath(os.path.join(project, self.folder))

    def is_of_another(self, fs: Filesystem, records: str, project: str) -> bool:
        """Whether these records are a copy, and the original writes the same folder: then its files are not this job's."""
        if self.home == records or self.path(self.project) != self.path(project):
            return False
        original = Target.read(fs, self.home)
        return original is not None and original.tag == self.tag


@dataclass(frozen=True)
class FileSink(Writer):
    """The folder of a table, as one job writes into it; `tag` is the job's, in the names of its files."""

    table: Table
    folder: str
    tag: str

    @classmethod
    def open(cls, fs: Filesystem, table: Table, project: str, records: str, committed: int = -1) -> FileSink:
        """Return the sink of a job that starts, or goes on after its last committed batch.

        Remembers it in the job's folder of records.
        """
        folder = _folder(table, project)
        known = Target.read(fs, records)
        if known is not None and known.is_of_another(fs, records, project):
            # What it was about to publish, the original publishes.
            fs.delete_tree(records)
            known = None
        tag = known.tag if known else uuid4().hex[:8]
        if known is not None and known.path(project) != folder:
            # The table has another path now; what was begun in the old folder is finished there.
            cls(table, known.path(project), tag).recover(fs, records, committed)
        Target(remembered(folder, project), tag, records, project).write(fs)
        return cls(table, folder, tag)

    @classmethod
    def of(cls, fs: Filesystem, table: Table, project: str, records: str) -> FileSink:
        """Return the sink that a running job has opened."""
        known = Target.read(fs, records)
        assert known is not None
        return cls(table, _folder(table, project), known.tag)

    @property
    def place(self) -> tuple[Filesystem, str]:
        """The file system of the folder, and its path there."""
        return open_filesystem(self.folder)

    @property
    def staging(self) -> str:
        return f"{self.place[1]}/.sqlstream-{self.tag}"

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str, batch: int
    ) -> tuple[int, list[str]]:
        """Write the rows of a SELECT into hidden files; return their number, and the files below `staging`."""
        attempt = f"{batch:010d}-{uuid4().hex[:12]}"
        fs, _ = self.place
        if fs.local:
            return self._copy(con, columns, rows, f"{self.staging}/{attempt}", attempt)
        with tempfile.TemporaryDirectory() as near:
            count, files = self._copy(con, columns, rows, f"{near}/{attempt}", attempt)
            for file in files:
                fs.put_file(f"{near}/{file}", f"{self.staging}/{file}")
        return count, files

    def _copy(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str, folder: str, attempt: str
    ) -> tuple[int, list[str]]:
        """Write the rows of a SELECT into files in a local folder; return their number, and the files from `attempt` on."""
        format_ = self.table.options["format"].lower()
        avro = format_ == "avro"
        with storage_errors(folder):
            os.makedirs(folder)
        options = [
            f"FORMAT {'parquet' if avro else format_}",
            *(csv_write_options(self.table.options) if format_ == "csv" else []),
        ]
        target = f"{folder}/data_0.{_STAGED}"
        if self.table.partitioned_by:
            options.append(f"PARTITION_BY ({', '.join(map(quote_name, self.table.partitioned_by))})")
            options.append(f"FILE_EXTENSION '{_STAGED}', OVERWRITE_OR_IGNORE")
            target = folder
        typed = [f"CAST({quote_name(c.name)} AS {_written(c)}) AS {quote_name(c.name)}" for c in columns]
        items = (
            [*fitted_columns(self.table, columns).items, *map(quote_name, self.table.partitioned_by)] if avro else typed
        )
        copied = con.execute(
            f"COPY (SELECT {', '.join(items)} FROM ({rows})) TO {quote_text(target)} ({', '.join(options)})"
        )
        [(count,)] = copied.fetchall()
        if not count:
            shutil.rmtree(folder, ignore_errors=True)
            return 0, []
        files = list(LocalFilesystem().walk(folder))
        for file in files if avro else ():
            with storage_errors(file):
                to_avro(file, self.table, columns)
        return int(count), [f"{attempt}/{os.path.relpath(file, folder)}" for file in files]

    # -- on the driver

    def publish(self, fs: Filesystem, records: str, batch: int, files: Sequence[str]) -> None:
        """Give the files of a batch their names; `records` is the job's folder of what it published."""
        record = f"{records}/{batch:010d}.json"
        if not fs.exists(record):
            write_sealed(fs, record, json.dumps(list(files)))
        self._rename(json.loads(read_sealed(fs, record)))
        # What is still there was written by attempts that did not end, or end too late.
        self.place[0].delete_tree(self.staging)
        for name in [n for n in fs.list(records) if n[:-5].isdigit()][:-_RECORDS_KEPT]:
            fs.delete(f"{records}/{name}")

    def recover(self, fs: Filesystem, records: str, committed: int) -> int:
        """Finish what a process that died was publishing, and remove what nobody will publish.

        Files of batches that the job is going to repeat, because it knows neither of their commit nor of their publishing, are
        removed, too. Returns how many.
        """
        published = [name for name in fs.list(records) if name[:-5].isdigit()]
        for name in published:
            self._rename(json.loads(read_sealed(fs, f"{records}/{name}")))
        files, folder = self.place
        files.delete_tree(self.staging)
        last = max(committed, *(int(name[:-5]) for name in published), -1)
        later = [file for file in files.walk(folder) if (batch := self._batch_of(file)) is not None and batch > last]
        files.delete_all(later)
        return len(later)

    def _batch_of(self, file: str) -> int | None:
        """Return the batch that a file of the folder is of, None where another job or program wrote it."""
        name = os.path.basename(file)
        if not name.startswith(f"part-{self.tag}-"):
            return None
        number = name.split("-")[2]
        return int(number) if number.isdigit() else None

    def _rename(self, files: Sequence[str]) -> None:
        fs, root = self.place
        for file in files:
            attempt, *below, name = file.split("/")
            folder = "/".join([root, *below])
            batch, _, unique = attempt.partition("-")
            part = name.removeprefix("data_").removesuffix(f".{_STAGED}")
            extension = self.table.options["format"].lower()
            target = f"{folder}/part-{self.tag}-{int(batch):06d}-{unique}-{part}.{extension}"
            # It has its name already when the process died after this.
            with contextlib.suppress(FileNotFoundError):
                fs.move(f"{self.staging}/{file}", target)


class FileCommitter(Committer):
    """Gives files their names."""

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
    """Delete the files that a job published, as the records say where."""
    target = Target.read(fs, records)
    if target is None or target.is_of_another(fs, records, project):
        return
    files, folder = open_filesystem(target.path(project))
    files.delete_tree(f"{folder}/.sqlstream-{target.tag}")
    files.delete_all(f for f in files.walk(folder) if os.path.basename(f).startswith(f"part-{target.tag}-"))


def _folder(table: Table, project: str) -> str:
    path = table.options["path"]
    if path.partition("://")[0] in STORES:
        return path
    folder = local_path(path, project)
    check_files(table, [folder])
    return folder


def _written(column: Column) -> str:
    return _WRITTEN_AS.get(column.type, column.type)
