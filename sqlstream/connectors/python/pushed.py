"""Push sources: their rows arrive by themselves and cannot be read again, so they are stored before they are acknowledged."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import IO, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.connectors.python.classes import OwnTable, Source
from sqlstream.duck import databases
from sqlstream.duck.sql import quote_name

_SUFFIX = ".parquet"
# How long a job waits for `receive` when it ends.
_STOP_SECONDS = 10.0


class PushSource(Source):
    """A source of rows that another system pushes, such as calls of a server, or a feed without positions.

    `receive` runs on the driver, in its own thread. It passes rows to `push`, which returns once they are stored in `folder`:
    then they can be acknowledged. Batches read the files in the folder, so workers must see it, too. Only one job at a time can
    read such a table.
    """

    # How long rows are kept after a committed batch has read them, for jobs that go back to savepoints; None: for ever.
    retention: timedelta | None = timedelta(days=7)

    def __init__(self, folder: str, table: OwnTable):
        self.folder, self.table = folder, table
        # An event that is set when the job ends.
        self.stopping = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._owner: IO[bytes] | None = None
        # The number of the next file.
        self._next = 0

    def receive(self) -> None:
        """Receive rows, and pass them to `push`, until `stopping` is set. An error fails the job."""
        raise NotImplementedError

    def push(self, rows: pa.Table | Sequence[Mapping[str, Any]]) -> None:
        """Store rows durably, before it returns. Several threads may call it.

        A column that a row lacks is NULL. Raises ValueError for rows that do not fit the table's columns, and RuntimeError if the
        job does not run.
        """
        table = self._fitting(rows if isinstance(rows, pa.Table) else self._columns(rows))
        if not table.num_rows:
            return
        with self._lock:
            if self._owner is None:
                raise RuntimeError("the job does not run: rows cannot be stored")
            path = self._path(self._next)
            with open(f"{path}.tmp", "wb") as file:
                pq.write_table(table, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.tmp", path)
            _sync(self.folder)
            self._next += 1

    def _fitting(self, rows: pa.Table) -> pa.Table:
        """Return rows with the table's columns, in their order, and with their types."""
        names = self._names(rows.column_names)
        items = [
            f"CAST({quote_name(names[name]) if name in names else 'NULL'} AS {type}) AS {quote_name(name)}"
            for name, type in self.table.columns.items()
        ]
        with databases.passing() as con:
            con.register("_pushed", rows)
            try:
                return con.sql(f"SELECT {', '.join(items)} FROM _pushed").to_arrow_table()
            except duckdb.Error as error:
                raise ValueError(f'rows do not fit table "{self.table.name}": {error}') from error

    def _columns(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return rows as an Arrow table with the table's columns; missing values are NULL."""
        values: dict[str, list[Any]] = {name: [None] * len(rows) for name in self.table.columns}
        for index, row in enumerate(rows):
            for name, key in self._names(row).items():
                values[name][index] = row[key]
        try:
            return pa.table({name: pa.array(column) for name, column in values.items()})
        except pa.ArrowException as error:
            raise ValueError(f'rows do not fit table "{self.table.name}": {error}') from error

    def _names(self, keys: Iterable[str]) -> dict[str, str]:
        """Map columns of the table to the keys of a row, which match whatever their case. Raises ValueError for other keys."""
        columns = {name.lower(): name for name in self.table.columns}
        if unknown := [name for name in keys if name.lower() not in columns]:
            hint = f"it has {', '.join(self.table.columns)}"
            raise ValueError(f'table "{self.table.name}" has no column "{unknown[0]}": {hint}')
        return {columns[name.lower()]: name for name in keys}

    # -- called by the driver and by workers

    def latest_position(self, partition: str) -> int:
        """Return the number of the next file. The first call starts `receive`; an error of `receive` is raised here."""
        if self._error is not None:
            raise self._error
        if self._thread is None:
            self._start()
        return self._next

    def _start(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        owner = open(f"{self.folder}/.lock", "wb")  # noqa: SIM115
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner.close()
            raise RuntimeError(f"another job reads from {self.folder}: each needs a folder of its own") from None
        self._next = max(self._numbers(), default=-1) + 1
        self._owner = owner
        self.stopping.clear()
        self._thread = Thread(target=self._run, name=f"push-{self.table.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.receive()
        except BaseException as error:
            self._error = error

    def read(self, partition: str, start: int, end: int) -> pa.Table:
        """Return the rows of the files with numbers from `start` to before `end`."""
        return pa.concat_tables(pq.read_table(self._path(number)) for number in range(start, end))

    def on_commit(self, positions: Mapping[str, Any]) -> None:
        """Delete files that committed batches have read, if they are older than `retention`."""
        # The newest file is kept: its number tells the next one.
        done = min(positions.get("", 0), self._next - 1)
        if self.retention is None:
            return
        oldest = time.time() - self.retention.total_seconds()
        for number in self._numbers():
            path = self._path(number)
            if number < done and os.path.getmtime(path) < oldest:
                os.unlink(path)

    def stop(self) -> None:
        """Set `stopping`, and wait for `receive`, for some seconds. Called when the job ends."""
        if self._thread is None:
            return
        self.stopping.set()
        self._thread.join(_STOP_SECONDS)
        with self._lock:
            owner, self._owner, self._thread, self._error = self._owner, None, None, None
        if owner is not None:
            owner.close()

    def _numbers(self) -> Iterator[int]:
        with suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                if name.endswith(_SUFFIX):
                    yield int(name.removesuffix(_SUFFIX))

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:012d}{_SUFFIX}"


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
