"""Tables of databases as sources: a job copies the rows once, when it first starts, and reads the copy.

A query over the table gives other rows each time; a batch that is repeated after a crash must give the same ones. So the driver
writes the rows of one query into Parquet files beside the job's positions, and records them when all are there.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import ReadContext, TableSource
from sqlstream.connectors.options import MAX_BYTES
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Select, quote_text, typed
from sqlstream.errors import DataError
from sqlstream.units import parse_bytes
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import read_sealed, write_sealed

if TYPE_CHECKING:
    import duckdb

# The most rows of a file, and of what a database is asked for at a time.
CHUNK = 100_000
# The most bytes that a batch reads, as of files.
BATCH_BYTES = parse_bytes(MAX_BYTES.default or "128 MB")
# The record of a copy that is whole: the sizes of its files.
_COPIED = "copied.json"


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy, the `number`th of `count` from 0 on, in a folder below the warehouse. `bytes` are those of its values."""

    number: int
    count: int
    folder: str
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        """The one partition of the table, "", and the position after this file: [number of the next file, number of all]."""
        return "", [self.number + 1, self.count]

    def to_list(self) -> list[Any]:
        return [self.number, self.count, self.folder, self.bytes]


class CopiedRows(TableSource):
    """The rows that a table of a database has when the job first starts."""

    replay = Replay.REPLAYABLE
    replay_reason = "the rows of one query are copied, and read from the copy"
    # A savepoint does not have the copy.
    rewinds = False
    slot: str | None = None
    split_type = CopiedFile

    @property
    def bounded(self) -> bool:
        return True

    @abstractmethod
    def tables(self, project: str) -> Iterator[pa.Table]:
        """Yield the rows of the table, of one moment, with the declared types; tables of at most `CHUNK` rows."""

    def discovery(self, position: Offsets, context: DiscoveryContext) -> CopyDiscovery:
        return CopyDiscovery(self, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[CopiedFile], context: ReadContext) -> ReadPlan:
        warehouse = Warehouse(context.warehouse)
        root = warehouse.root.rstrip("/")
        paths = (f"{root}/{split.folder}/{_file_name(split.number)}" for split in splits)
        files = ", ".join(quote_text(warehouse.fs.path_for_duckdb(path)) for path in paths)
        return ReadPlan(Select(f"SELECT {typed(self.table.physical)} FROM read_parquet([{files}])"))


class CopyDiscovery(Discovery):
    """Copies the rows of a table, and hands out the files of the copy."""

    backlog_unit: ClassVar[str] = "files"
    bounded = True

    def __init__(self, source: CopiedRows, position: Offsets, context: DiscoveryContext):
        super().__init__()
        self._source, self._position, self._context = source, position, context
        self._fs, self._folder = context.warehouse.fs, context.directory
        self._pending = deque[CopiedFile]()

    def poll(self) -> int:
        """Copy the rows, unless that was done, and queue the files; return their number. Raises the errors of the database."""
        done, count = self._position.get("", [0, None])
        if count is not None and done >= count:
            return 0
        record = f"{self._folder}/{_COPIED}"
        if not self._fs.exists(record):
            if count is not None:
                table = self._source.table
                hint = "Start the job anew, with --fresh: it then reads the table from its beginning."
                raise DataError(f'the copy of table "{table.name}" is not with the job', table.span, hint=hint)
            write_sealed(self._fs, record, json.dumps(list(self._copied())), durable=True)
        sizes: list[int] = json.loads(read_sealed(self._fs, record))
        folder = self._folder.removeprefix(f"{self._context.warehouse.root.rstrip('/')}/")
        files = (CopiedFile(number, len(sizes), folder, size) for number, size in enumerate(sizes))
        self._pending = deque(file for file in files if file.number >= done)
        return self.waiting

    def _copied(self) -> Iterator[int]:
        """Write the files of the copy; yield the bytes of each one's values."""
        for number, rows in enumerate(self._source.tables(self._context.project)):
            with self._fs.create(f"{self._folder}/{_file_name(number)}", durable=True) as file:
                pq.write_table(rows, file)
            yield max(rows.nbytes, 1)

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def next_batch(self) -> Sequence[CopiedFile] | None:
        """Return the next files, up to as many bytes as a batch of files reads, but at least one; None if none waits."""
        splits = list[CopiedFile]()
        room = BATCH_BYTES
        while self._pending and (not splits or self._pending[0].bytes <= room):
            splits.append(self._pending.popleft())
            room -= splits[-1].bytes
        self._position.add(splits)
        return splits or None


def _file_name(number: int) -> str:
    return f"{number:06d}.parquet"
