"""The `socket` source: lines from a TCP port, to try things out.

The driver stores the lines that it receives in files of the job, so that a batch can be repeated. Lines that are not stored yet
are lost when the job dies, and so are lines that are sent while it is down.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.connectors.formats.file_split import FileSplit as FileSplit
from sqlstream.connectors.formats.reading import read as read_files
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Select, quote_name, quote_text
from sqlstream.errors import UsageError
from sqlstream.units import MILLISECOND, Duration

# The number of files that are kept behind the last batch, to repeat batches.
_KEPT = 64
_INTERVAL: Final = Duration(100 * MILLISECOND)
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LinesFile:
    """A split: a file of lines that the driver received. `number` counts the files of the source, from 0.

    `path` is relative to the warehouse, until `TableSource.located` makes it absolute.
    """

    number: int
    path: str
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        return "", self.number + 1

    def to_list(self) -> list[Any]:
        return [self.number, self.path, self.bytes]


class SocketDiscovery(Discovery):
    """Receives lines in a thread; `poll` stores the lines that have come since the last call in a file.

    Raises UsageError if nobody listens at the port, or the warehouse is not on a local disk.
    """

    backlog_unit = "files"

    interval: Duration | None = _INTERVAL

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__()
        if not context.warehouse.fs.local:
            hint = "Use a warehouse on a local disk for jobs that read from a socket."
            raise UsageError(
                f'table "{table.name}": what a socket receives is kept on a local disk', table.span, hint=hint
            )
        self._table, self._position, self._directory = table, position, context.directory
        self._warehouse = context.warehouse.root
        self._next = int(position.get("", 0))
        self._received: list[bytes] = []
        self._lock = threading.Lock()
        self._ended = False
        self._pending: list[LinesFile] = self._stored_files()
        self._socket = _connect(table)
        threading.Thread(target=self._receive, name=f"socket-{table.name}", daemon=True).start()

    def _stored_files(self) -> list[LinesFile]:
        """Return the files that an earlier run has stored, but not handed out."""
        os.makedirs(self._directory, exist_ok=True)
        numbers = sorted(
            int(name.removesuffix(".txt")) for name in os.listdir(self._directory) if name.endswith(".txt")
        )
        return [self._split(n, os.path.getsize(self._path(n))) for n in numbers if n >= self._next]

    def _split(self, number: int, size: int) -> LinesFile:
        return LinesFile(number, os.path.relpath(self._path(number), self._warehouse), size)

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:010d}.txt"

    def _receive(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                whole, newline, tail = (rest + data).rpartition(b"\n")
                rest = tail
                if newline:
                    with self._lock:
                        self._received.append(whole + newline)
        with self._lock:
            if rest:
                self._received.append(rest + b"\n")
            self._ended = True

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether the other side has closed the connection."""
        return self._ended

    def poll(self) -> int:
        """Store the lines received since the last call in a file; return how many files wait."""
        with self._lock:
            data, self._received = b"".join(self._received), []
        if data:
            number = self._pending[-1].number + 1 if self._pending else self._next
            with open(f"{self._path(number)}.tmp", "wb") as file:
                file.write(data)
            os.replace(f"{self._path(number)}.tmp", self._path(number))
            self._pending.append(self._split(number, len(data)))
        return len(self._pending)

    @property
    def waiting(self) -> int:
        return len(self._pending)

    @property
    def remaining(self) -> int:
        with self._lock:
            return len(self._pending) + len(self._received)

    def next_batch(self) -> Sequence[LinesFile] | None:
        """Return all files that wait, and delete files that no batch can repeat any more; None if none waits."""
        splits, self._pending = self._pending, []
        if not splits:
            return None
        self._position.add(splits)
        self._next = splits[-1].number + 1
        for name in os.listdir(self._directory):
            if int(name.partition(".")[0]) < self._next - len(splits) - _KEPT:
                os.unlink(f"{self._directory}/{name}")
        return splits

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _connect(table: Table) -> socket.socket:
    host, port = table.options["hostname"], int(table.options["port"])
    try:
        connection = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
    except OSError as error:
        raise UsageError(
            f'table "{table.name}": nobody listens at {host}:{port}',
            detail=error.strerror or str(error),
            hint=f"Start the other side first, such as: nc -lk {port}.",
        ) from error
    connection.settimeout(None)
    return connection


def read_lines(con: duckdb.DuckDBPyConnection, splits: Sequence[LinesFile], table: Table) -> ReadPlan:
    """Return the plan that reads files of lines in the table's format; without one, a line is the value of the only column."""
    if "format" in table.options:
        return read_files(con, files_of(splits), table)
    [column] = table.physical
    paths = ", ".join(quote_text(s.path) for s in splits)
    line = f"CAST(rtrim(line, chr(13)) AS {column.type}) AS {quote_name(column.name)}"
    # Every file ends with a line end.
    lines = f"SELECT unnest(string_split(left(content, -1), chr(10))) AS line FROM read_text([{paths}])"
    return ReadPlan(Select(f"SELECT {line} FROM ({lines})"), keep=True)


def files_of(splits: Sequence[LinesFile]) -> list[FileSplit]:
    """Return a FileSplit of each whole file."""
    return [FileSplit(s.path, s.bytes, 0, s.bytes) for s in splits]
