"""INSERT OVERWRITE into files: the rows of a job take the place of the files that a table has, when the job has ended.

The files of each batch are committed into a hidden folder of the table first, as other jobs commit them into the table itself. At
the end of its input the job records which files come and which ones go; then the new ones get their names, and the old ones are
deleted. A job that is killed meanwhile finishes what is recorded when it starts again. So a job that fails or is stopped has
changed nothing, and no row is lost; while files are exchanged, a reader may see old files beside new ones.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.filesystem.sink import FileCommitter, FileSink, Target
from sqlstream.connectors.interface import SinkContext
from sqlstream.errors import UsageError
from sqlstream.warehouse.records import read_sealed, write_sealed

# The ending of the names of files that are to come: other readers do not take them for data.
_WAITING = ".tmp"
# The record of an exchange that has begun, and of the version after which the last one was made.
_EXCHANGE, _EXCHANGED = "exchange.json", "exchanged.json"
# The folder of a partition as its columns, in lower case, and their values.
Partition = tuple[tuple[str, str], ...]


def waiting(sink: FileSink) -> FileSink:
    """Return the sink that writes into the hidden folder, instead of the table's."""
    return replace(sink, folder=f"{sink.folder}/.sqlstream-{sink.tag}-new", suffix=_WAITING)


class OverwritingCommitter(FileCommitter):
    """Commits batches into a hidden folder, and exchanges the files of the table at the end of the job."""

    def __init__(self, sink: FileSink, context: SinkContext):
        super().__init__(waiting(sink), context)
        self._visible = sink
        self._version = context.committed

    @classmethod
    def open(cls, table: Table, context: SinkContext) -> OverwritingCommitter:
        """Return the committer of a run. Raises UsageError if the path has changed: committed files wait in the old folder."""
        before = Target.read(context.fs, context.records)
        sink = FileSink.open(context.fs, table, context.project, context.records, context.committed)
        after = Target.read(context.fs, context.records)
        project = context.project
        if before is not None and after is not None and before.tag == after.tag and before.path(project) != sink.folder:
            before.write(context.fs)
            hint = f'Set the path to "{before.folder}" again, or start the job anew with --fresh.'
            raise UsageError(f'rows that are to overwrite table "{table.name}" wait in another folder', hint=hint)
        return cls(sink, context)

    def recover(self) -> None:
        # Files of an earlier end, after which the job has gone back.
        self._visible.delete_later(self._fs, self._records, self._committed)
        super().recover()
        if self._fs.exists(f"{self._records}/{_EXCHANGE}"):
            self._exchange()

    def committed(self, batch: int) -> None:
        self._version = batch

    def ended(self) -> None:
        if self._exchanged_after() == self._version:
            return
        fs, root = self._sink.destination
        new = [file.removeprefix(f"{root}/") for file in fs.walk(root)]
        new = [file for file in new if not _is_hidden(file)]
        files = {"version": self._version, "new": new, "old": [*self._old(new)]}
        write_sealed(self._fs, f"{self._records}/{_EXCHANGE}", json.dumps(files), durable=True)
        self._exchange()

    def _exchanged_after(self) -> int | None:
        try:
            version: int = json.loads(read_sealed(self._fs, f"{self._records}/{_EXCHANGED}"))["version"]
        except FileNotFoundError:
            return None
        return version

    def _old(self, new: Sequence[str]) -> Iterator[str]:
        """Yield the files of the table whose place the `new` ones take."""
        table = self._visible.table
        fs, folder = self._visible.destination
        partitions = {partition_of(file) for file in new}
        fixed = dict(table.overwrites or ())
        if len(fixed) == len(table.partitioned_by):
            partitions.add(tuple((name.lower(), fixed[name]) for name in table.partitioned_by))
        for path in fs.walk(folder):
            file = path.removeprefix(f"{folder}/")
            if not _is_hidden(file) and (not table.partitioned_by or partition_of(file) in partitions):
                yield file

    def _exchange(self) -> None:
        """Give the new files of the record their names, and delete the old ones."""
        files: Mapping[str, list[str]] = json.loads(read_sealed(self._fs, f"{self._records}/{_EXCHANGE}"))
        fs, folder = self._visible.destination
        _, root = self._sink.destination
        for file in files["new"]:
            target = f"{folder}/{file.removesuffix(_WAITING)}"
            # A partition may be a link.
            check_files(self._visible.table, [target])
            # It has its name already if the process died after this.
            with contextlib.suppress(FileNotFoundError):
                fs.move(f"{root}/{file}", target)
        for file in files["old"]:
            check_files(self._visible.table, [f"{folder}/{file}"])
        fs.delete_all(f"{folder}/{file}" for file in files["old"])
        fs.delete_tree(root)
        version = json.dumps({"version": files["version"]})
        write_sealed(self._fs, f"{self._records}/{_EXCHANGED}", version, durable=True)
        self._fs.delete(f"{self._records}/{_EXCHANGE}")


def partition_of(file: str) -> Partition:
    """Return the partition of a file by its path below the table's folder.

    >>> partition_of("Dt=2026-01-01/shop=a%20b/x.csv"), partition_of("x.csv")
    ((('dt', '2026-01-01'), ('shop', 'a b')), ())
    """
    parts = (part.partition("=") for part in file.split("/")[:-1])
    return tuple((unquote(name).lower(), unquote(value)) for name, _, value in parts)


def _is_hidden(file: str) -> bool:
    return any(part.startswith((".", "_")) for part in file.split("/"))
