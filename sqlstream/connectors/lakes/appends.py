"""Append-only results as files of a lakehouse's table: tasks write them, the driver commits those of a batch.

Nobody sees a file that no commit names. What a process leaves that dies before its commit goes when the job starts again, where
that is on this machine.
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
from sqlstream.warehouse.records import read_sealed, write_sealed

if TYPE_CHECKING:
    import duckdb

# What tasks need to know of the table, beside the records of the sink.
_TARGET = "target.json"


class LakeWriter(Writer):
    """Writes the rows of a task into files of a table.

    `target` is what the committer knows of the table: with what `tag` the names of files begin, the select `items` of the rows as
    they are stored, the columns of `partitions`, and the `folder` on this machine, None where the table is elsewhere.
    """

    # Whether files have the columns of partitions, too.
    with_partitions = False

    def __init__(self, context: SinkContext):
        self.target: Mapping[str, Any] = json.loads(read_sealed(context.fs, f"{context.records}/{_TARGET}"))

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str, batch: int
    ) -> tuple[int, list[Any]]:
        """Write the rows of a SELECT; return their number, and for each file what the committer must know."""
        if self.target["folder"] is not None:
            files = self._copy(con, rows, batch, self.target["folder"])
        else:
            with tempfile.TemporaryDirectory(prefix="sqlstream-lake-") as folder:
                files = self._copy(con, rows, batch, folder)
                self.upload(folder, files)
        return sum(file.rows for file in files), list(map(self.told, files))

    def _copy(self, con: duckdb.DuckDBPyConnection, rows: str, batch: int, folder: str) -> list[WrittenFile]:
        select, known = f"SELECT {self.target['items']} FROM ({rows})", self.target
        return list(
            write_files(
                con,
                select,
                folder,
                tag=known["tag"],
                batch=batch,
                partitions=known["partitions"],
                with_partitions=self.with_partitions,
            )
        )

    @abstractmethod
    def upload(self, folder: str, files: Sequence[WrittenFile]) -> None:
        """Copy files of a local folder to where the table is."""

    @abstractmethod
    def told(self, file: WrittenFile) -> Any:
        """Return what the committer must know of a file, as JSON can hold it."""


class LakeCommitter(Committer):
    """Commits the files of a batch to a table."""

    def __init__(self, commits: LakeCommits, context: SinkContext, target: Mapping[str, Any]):
        self._commits = commits
        target = {"tag": commits.tag, **target}
        write_sealed(context.fs, f"{context.records}/{_TARGET}", json.dumps(target))

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        def write(opened: Any, properties: Any) -> None:
            self.add(opened, written, properties)

        if not self._commits.commit(batch, write) and not self._commits.wrote(batch):
            # A process that died has committed the batch, with files of its own.
            self.remove(written)

    def recover(self) -> None:
        self.remove_left(self._commits.recover())

    @abstractmethod
    def add(self, opened: Any, written: Sequence[Any], properties: Any) -> None:
        """Commit files to the table as it is now."""

    @abstractmethod
    def remove(self, written: Sequence[Any]) -> None:
        """Remove files that nobody will commit."""

    @abstractmethod
    def remove_left(self, last: int) -> None:
        """Remove files of the job's batches behind the last one that is committed, as far as they can be found."""
