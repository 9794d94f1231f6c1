"""Append-only results as data files of a lakehouse table: tasks write the files, the driver commits the files of a batch.

A file is invisible until a commit names it. A job that starts again deletes the files that a dead process wrote and did not
commit, as far as its connector can list them.
"""

from __future__ import annotations

import json
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column
from sqlstream.connectors.interface import Committer, SinkContext, Writer
from sqlstream.connectors.lakes.commits import LakeCommits
from sqlstream.connectors.lakes.files import WrittenFile, write_files
from sqlstream.duck.sql import Select
from sqlstream.warehouse.records import read_sealed, write_sealed

if TYPE_CHECKING:
    import duckdb

# The file, in the folder of the sink's records, that tells tasks how to write the table.
_TARGET = "target.json"


class LakeWriter(Writer):
    """Writes the rows of a task into Parquet files of a table.

    `target` is the JSON that the committer stored for tasks: the `tag` in file names, the `items` (a SELECT list that makes the
    stored columns), the partition columns in `partitions`, and the table's local `folder`, None if the table is remote.
    """

    # Whether files contain the partition columns.
    with_partitions = False

    def __init__(self, context: SinkContext):
        self.target: Mapping[str, Any] = json.loads(read_sealed(context.fs, f"{context.records}/{_TARGET}"))

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, batch: int
    ) -> tuple[int, list[Any]]:
        """Write rows into files. Return the number of rows and, for each file, what `describe` returns."""
        if self.target["folder"] is not None:
            files = self._copy(con, rows, batch, self.target["folder"])
        else:
            with tempfile.TemporaryDirectory(prefix="sqlstream-lake-") as folder:
                files = self._copy(con, rows, batch, folder)
                self.upload(folder, files)
        return sum(file.rows for file in files), list(map(self.describe, files))

    def _copy(self, con: duckdb.DuckDBPyConnection, rows: Select, batch: int, folder: str) -> list[WrittenFile]:
        select, target = Select(f"SELECT {self.target['items']} FROM ({rows})"), self.target
        return list(
            write_files(
                con,
                select,
                folder,
                tag=target["tag"],
                batch=batch,
                partitions=target["partitions"],
                with_partitions=self.with_partitions,
            )
        )

    @abstractmethod
    def upload(self, folder: str, files: Sequence[WrittenFile]) -> None:
        """Copy files from a local folder to a remote table. Raises JobError if that fails."""

    @abstractmethod
    def describe(self, file: WrittenFile) -> Any:
        """Return the description of a file that the committer receives, as a JSON value."""


class LakeCommitter(Committer):
    """Commits the files of a batch to a table."""

    def __init__(self, commits: LakeCommits, context: SinkContext, target: Mapping[str, Any]):
        self._commits = commits
        target = {"tag": commits.tag, **target}
        write_sealed(context.fs, f"{context.records}/{_TARGET}", json.dumps(target))

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        """Commit the files of a batch, unless the table has the batch from a process that died: then delete the files."""

        def write(opened: Any, properties: Any) -> None:
            self.add(opened, written, properties)

        if not self._commits.commit(batch, write) and not self._commits.wrote(batch):
            # A process that died has committed the batch, with other files.
            self.remove(written)

    def recover(self) -> None:
        """Delete the job's uncommitted files. Raises UsageError if the table is more than one batch ahead of the job."""
        self.remove_uncommitted(self._commits.recover())

    @abstractmethod
    def add(self, opened: Any, written: Sequence[Any], properties: Any) -> None:
        """Add files to the table in one commit.

        `opened` and `properties` come from `LakeCommits.attempt`: for Delta the table and its commit properties, for Iceberg a
        transaction and its snapshot properties. `written` has what `describe` returned.
        """

    @abstractmethod
    def remove(self, written: Sequence[Any]) -> None:
        """Delete files that no commit will name; `written` has what `describe` returned. Raises JobError if that fails."""

    @abstractmethod
    def remove_uncommitted(self, last: int) -> None:
        """Delete the job's files of batches after `last`, its last committed batch, as far as they can be listed."""
