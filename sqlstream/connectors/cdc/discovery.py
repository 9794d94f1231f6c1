"""Receives the changes of a table on the driver: first the rows of a snapshot, then, at each poll, the new changes of the log.

Received changes are written into files of the job, which batches read.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.cdc.changes import ColumnGone, DecodedChanges, IncompleteLog, TableTruncated, merged
from sqlstream.connectors.cdc.files import ChangesFile, file_name, in_files, number_of, write_changes, write_rows
from sqlstream.connectors.cdc.options import Reading
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.errors import DataError, JobError, OutageError, UsageError
from sqlstream.units import Duration
from sqlstream.warehouse.records import read_sealed, write_sealed

# The files before the last committed one that stay: a batch may be repeated with them.
_KEPT = 64
# Changes that are written as one row group.
_CHUNK = 50_000
# Bytes of log without a change of the table after which the position is stored although no batch ends.
WORTH_MOVING = 1 << 20
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0


class LogServer(ABC):
    """The server of a table whose log is read. Its connection is opened at the first use, and again after it was lost."""

    # What to do if the log lacks rows or values that changes need.
    whole_rows: str

    @property
    @abstractmethod
    def lost_errors(self) -> tuple[type[Exception], ...]:
        """The errors of a connection that is lost or cannot be opened."""

    @abstractmethod
    def is_passing(self, error: Exception) -> bool:
        """Whether a retry may succeed after one of `lost_errors`."""

    @abstractmethod
    def unreachable(self, error: Exception) -> UsageError:
        """Return the error for a server that cannot be reached."""

    @abstractmethod
    def plainly(self) -> AbstractContextManager[None]:
        """Turn the server's errors into those for people; `lost_errors` after which a retry may succeed pass unchanged."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; the next use opens another one."""

    @abstractmethod
    def end_of_log(self) -> int:
        """Return the log position after all committed transactions."""


class HasEnd(Protocol):
    """A decoder of changes: `end` is the log position after the last transaction that it has decoded."""

    end: int


ServerT = TypeVar("ServerT", bound=LogServer)


class ReceivedChanges(Discovery, Generic[ServerT]):
    """Receives the changes of a table into files; each file is a split, and a batch.

    The constructor checks the server, and at the first start takes the snapshot. It raises UsageError or BindError if the server
    is not ready for the table, DataError if changes are lost, and OutageError while the server is away. A log position is a
    number, which grows.
    """

    backlog_unit = "bytes"

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext, reading: Reading, server: ServerT):
        super().__init__()
        self._table, self._context, self._reading, self._server = table, context, reading, server
        self.interval: Duration | None = reading.interval
        self.bounded = reading.bounded
        self._fs, self._directory = context.warehouse.fs, context.directory
        self._failures, self._again_at = 0, 0.0
        self._ended = False
        # Whether nothing is received before `committed` was called.
        self._awaits_commit = False
        # The end of the server's log at the last poll; the log position up to which the table has no further change.
        self._log_end: int = 0
        self._caught_up: int = 0
        # The log position after the last file that was handed out, and the number of the next file.
        self._end, self._next = position.get("", [0, 0])
        with self._opening():
            self._check_table()
            first_end, files = self._begun()
        self._pending = [f for f in files if f.number >= self._next]
        self._received = max([self._end, first_end, *(f.end for f in self._pending)])
        self._end = self._end or first_end
        self._next_file = max([self._next, *(f.number + 1 for f in files)])
        self._remove(lambda number: number >= self._next_file)
        with self._opening():
            self._check_log()
            self._target = self._bound()

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            with self._server.plainly():
                yield
        except self._server.lost_errors as error:
            self._server.close()
            wrong = self._server.unreachable(error)
            # `check_input` has reached the server before the first start, so that this is a restart.
            raise OutageError(wrong.message, wrong.span) if self._server.is_passing(error) else wrong from error

    # -- what the log is

    @abstractmethod
    def _check_table(self) -> None:
        """Check that the server is ready, and has the table as it is declared."""

    @abstractmethod
    def _begin(self) -> tuple[int, list[int]]:
        """Take a snapshot, if there is to be one; return its log position, or where to begin, and the sizes of its files."""

    @abstractmethod
    def _check_log(self) -> None:
        """Raise DataError unless the server has all changes after the last batch."""

    @abstractmethod
    def _receive(self) -> None:
        """Receive the changes after `_received` into a file; see `poll`."""

    # -- the beginning

    @property
    def _marker(self) -> str:
        """The name of a file in the source's folder: the log position of a complete snapshot, and the sizes of its files."""
        return "snapshot.json"

    def _begun(self) -> tuple[int, list[ChangesFile]]:
        """Return the log position from which changes are read, and the files of the snapshot before it.

        At the first start, take the snapshot. A process that dies meanwhile has handed out nothing: the next one takes another
        snapshot.
        """
        marker = f"{self._directory}/{self._marker}"
        if self._fs.exists(marker):
            begun = json.loads(read_sealed(self._fs, marker))
            return begun["place"], [self._file(n, begun["place"], size) for n, size in enumerate(begun["sizes"])]
        position, sizes = self._begin()
        write_sealed(self._fs, marker, json.dumps({"place": position, "sizes": sizes}), durable=True)
        return position, [self._file(n, position, size) for n, size in enumerate(sizes)]

    def _write_snapshot(self, rows: Iterator[pa.RecordBatch]) -> Iterator[int]:
        """Write rows of texts into files; yield the size of each in bytes."""
        for number, batches in enumerate(in_files(rows, self._reading.most)):
            path = f"{self._directory}/{file_name(number)}"
            write_rows(self._fs, path, self._table, batches)
            yield self._fs.size(path)

    def _bound(self) -> int | None:
        """Return the log position at which a bounded table ends: the end of the log when the job began. None if unbounded."""
        return int(self._context.remember("end", self._server.end_of_log())) if self.bounded else None

    # -- changes

    def poll(self) -> int:
        """Receive new changes into a file, if no file waits; return how many files wait.

        A lost connection is tried again at later polls, after growing delays. Raises OutageError after the last retry, DataError
        for changes that are lost or cannot be read, BindError if the table no longer fits, UsageError if the server refuses.
        """
        if self._pending or self._awaits_commit or self._ended or self._context.clock() < self._again_at:
            return len(self._pending)
        try:
            with self._server.plainly():
                self._receive()
            self._failures = 0
        except self._server.lost_errors as error:
            self._failed(error)
        except TableTruncated as truncated:
            raise self._fault(
                f"{truncated}, which is no change of rows",
                "Start the job afresh; or go on with the rows as they were: 'scan.on-truncate' = 'ignore'.",
            ) from None
        except ColumnGone as error:
            raise self._fault(
                f'has no column "{error}" any more', "Drop the job, and declare the table as it is now."
            ) from None
        except IncompleteLog as error:
            hint = f"{self._server.whole_rows}, and start the job afresh."
            raise self._fault(f"has changes of which the log does not hold {error}", hint) from None
        return len(self._pending)

    def _store(self, groups: Iterable[DecodedChanges], decoder: HasEnd) -> bool:
        """Write the changes of transactions into the next file; return whether there are any."""
        path = f"{self._directory}/{file_name(self._next_file)}"
        if not write_changes(self._fs, path, self._table, merged(groups, len(self._table.stored), _CHUNK)):
            return False
        self._received = decoder.end
        self._pending.append(self._file(self._next_file, decoder.end, self._fs.size(path)))
        self._next_file += 1
        return True

    def _failed(self, error: Exception) -> None:
        """Schedule a retry after a lost connection. Raises OutageError after the last one, JobError if a retry is of no use."""
        self._server.close()
        passing = self._server.is_passing(error)
        if not passing or self._failures >= self._reading.retries:
            reason = " ".join(str(error).split())
            times = f" {self._failures + 1} times" if self._failures else ""
            message = f'reading table "{self._table.name}" failed{times}: {reason}'
            hint = "No change is lost: the server keeps them for the job. Run it again."
            raise (OutageError if passing else JobError)(message, self._table.span, hint=hint) from error
        self._again_at = self._context.clock() + min(_FIRST_DELAY * 2**self._failures, _LONGEST_DELAY)
        self._failures += 1

    def _fault(self, what: str, hint: str) -> DataError:
        return DataError(f'table "{self._table.name}" {what}', self._table.span, hint=hint)

    @property
    def waiting(self) -> int:
        return len(self._pending)

    @property
    def backlog(self) -> int:
        """The bytes of log, at the last poll, after the last file that was handed out; 0 if they have no change of the table."""
        return max(0, self._log_end - max(int(self._end), self._caught_up))

    @property
    def remaining(self) -> int:
        """The number of files that wait, and 1 more until a bounded table was received to its end."""
        return len(self._pending) + (not self._ended)

    def next_batch(self) -> Sequence[ChangesFile] | None:
        """Return the next file as the only split of a batch; None if none waits."""
        if not self._pending:
            return None
        split = self._pending.pop(0)
        self._end, self._next = split.end, split.number + 1
        return [split]

    def committed(self, position: Offsets) -> None:
        """Delete the files of committed batches but for the last 64."""
        _, number = position.get("", [0, 0])
        self._remove(lambda n: n < number - _KEPT)

    def close(self) -> None:
        self._server.close()

    # -- files

    def _file(self, number: int, end: int, size: int) -> ChangesFile:
        root = self._context.warehouse.root.rstrip("/")
        return ChangesFile(number, end, self._directory.removeprefix(f"{root}/"), size)

    def _remove(self, gone: Callable[[int], bool]) -> None:
        for name in self._fs.list(self._directory):
            number = number_of(name)
            if number is not None and gone(number):
                self._fs.delete(f"{self._directory}/{name}")
