"""The receivers of the rows that a job emits: an iterator of changes, a relation of the final rows, or a terminal."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import duckdb

from sqlstream.catalog import Column
from sqlstream.connectors.interface import SessionSink
from sqlstream.connectors.registry import sink_of
from sqlstream.duck.sql import Relation, Select, quote_name, quote_text
from sqlstream.errors import SqlStreamError, plainly
from sqlstream.jobs.changelog import OPERATION, changelog
from sqlstream.jobs.job import Job
from sqlstream.physical.plan import SinkPlan
from sqlstream.session.rendering import is_number, printable
from sqlstream.storage.zsets import WEIGHT_COLUMN, current
from sqlstream.warehouse.process_folders import SPILL, process_folder

# The most changes that wait to be taken; with this many, the job waits.
HELD = 10_000
_CHUNK = 1000
# The most letters of a column on a terminal.
MAX_WIDTH = 40
_POLL_SECONDS = 0.1


class Change(NamedTuple):
    """A change of a result, for `for kind, row in changes`.

    `kind` is `+I` for an inserted row, `-D` for a deleted one, `-U` and `+U` for a row before and after an update. `row` maps
    the columns to values.
    """

    kind: str
    row: Mapping[str, Any]


class Changes:
    """The changes of a result, as they come: what `Session.sql` returns for a bare SELECT over unbounded input.

    Iterating waits for the next change. It ends after LIMIT changes, when the job stops, and with the error that ends the job.
    The job waits while the caller has about 10,000 changes still to take. `close`, and the end of a `with` block, stop the job
    and drop the remaining changes.
    """

    def __init__(self, columns: Sequence[str], job: Job, held: ChangeBuffer):
        self._columns, self._job, self._held = list(columns), job, held
        held.is_ending = lambda: job.is_stopping

    def __repr__(self) -> str:
        return f"Changes({', '.join(self._columns)}; {self._job!r})"

    def __dir__(self) -> list[str]:
        return ["close", "columns", "job"]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    @property
    def job(self) -> Job:
        """The job that computes the result: its progress, its error."""
        return self._job

    def __iter__(self) -> Changes:
        return self

    def __next__(self) -> Change:
        with plainly():
            while True:
                # First, so that no change is missed that comes between this call and the next.
                ended = self._job.wait(0)
                change = self._held.take(0.0 if ended else _POLL_SECONDS)
                if change is not None:
                    return change
                if ended or self._held.is_closed:
                    break
        raise StopIteration

    def take(self, timeout: float) -> list[Change]:
        """Return the changes that are ready; wait for the first one at most `timeout` seconds."""
        first = self._held.take(timeout)
        return [] if first is None else [first, *self._held.take_more()]

    def has_ended(self) -> bool:
        """Return whether the job has ended: then all its changes are ready. Raises the error that ended it."""
        with plainly():
            return self._job.wait(0)

    def leave(self) -> None:
        """Drop the changes and request a stop of the job, without waiting for the running batch."""
        self._held.close()
        self._job.stop()

    def close(self) -> None:
        """Drop the changes, and stop the job after the running batch."""
        self.leave()
        try:
            self._job.wait()
        except SqlStreamError:
            # The caller that took the changes got this error.
            return

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ChangeBuffer:
    """A bounded buffer of changes between the thread of the job, which puts them, and the caller, which takes them."""

    def __init__(self) -> None:
        self.is_closed = False
        # Whether the job is ending: then it must not wait, because the caller may take no more changes.
        self.is_ending: Callable[[], bool] = lambda: False
        self._changes: deque[Change] = deque()
        self._moved = threading.Condition()

    def put(self, changes: Sequence[Change]) -> None:
        """Wait for room, and add changes; after `close` they are dropped."""
        with self._moved:
            while len(self._changes) >= HELD and not self.is_closed and not self.is_ending():
                self._moved.wait(_POLL_SECONDS)
            if not self.is_closed:
                self._changes.extend(changes)
                self._moved.notify_all()

    def take(self, timeout: float) -> Change | None:
        """Remove and return the next change, None if none comes within `timeout` seconds."""
        with self._moved:
            if not self._changes and timeout:
                self._moved.wait(timeout)
            if not self._changes:
                return None
            self._moved.notify_all()
            return self._changes.popleft()

    def take_more(self) -> list[Change]:
        """Remove and return all changes that are there now."""
        with self._moved:
            changes = list(self._changes)
            self._changes.clear()
            self._moved.notify_all()
            return changes

    def close(self) -> None:
        """Drop all changes, now and later."""
        with self._moved:
            self.is_closed = True
            self._changes.clear()
            self._moved.notify_all()


class ChangeReceiver:
    """Buffers the rows that a job emits, as changes. With `as_text` values are texts as DuckDB casts them, None for NULL."""

    is_gone = False

    def __init__(self, sink: SinkPlan, *, as_text: bool = False):
        self.sink, self.limit, self.held = sink, sink.limit, ChangeBuffer()
        self._as_text = as_text
        self.columns = [name for name, _ in sink.columns]
        self._count = 0

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self._count >= self.limit

    def receive(self, files: Sequence[str]) -> None:
        """Add the rows of a batch's Parquet files to the buffer; wait while it is full."""
        names = list(map(quote_name, (OPERATION, *self.columns)))
        columns = ", ".join(f"CAST({name} AS VARCHAR)" for name in names) if self._as_text else ", ".join(names)
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            for file in files:
                result = con.execute(f"SELECT {columns} FROM ({changelog(self.sink, file)})")
                while not self.is_full and (rows := result.fetchmany(_CHUNK)):
                    rows = rows if self.limit is None else rows[: self.limit - self._count]
                    self._count += len(rows)
                    self.held.put([Change(row[0], dict(zip(self.columns, row[1:], strict=True))) for row in rows])


class RowReceiver:
    """Stores the rows of a bounded job; `relation` returns the result at its end."""

    is_gone = False

    def __init__(self, sink: SinkPlan):
        self.sink = sink
        # The first rows of a changelog may be retracted.
        self.limit = None if sink.changing else sink.limit
        self._columns = tuple(Column(name, type) for name, type in sink.columns)
        self._stored = (*self._columns, WEIGHT_COLUMN) if sink.changing else self._columns
        self._count = 0
        spill = quote_text(process_folder(SPILL))
        self._con = duckdb.connect()
        self._con.execute(f"SET TimeZone = 'UTC'; SET temp_directory = {spill}")
        self._con.execute(f"CREATE TABLE rows ({', '.join(f'{quote_name(c.name)} {c.type}' for c in self._stored)})")

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self._count >= self.limit

    def receive(self, files: Sequence[str]) -> None:
        """Store the rows of a batch's Parquet files."""
        casts = ", ".join(f"CAST({quote_name(c.name)} AS {c.type})" for c in self._stored)
        for file in files:
            [(count,)] = self._con.execute(
                f"INSERT INTO rows SELECT {casts} FROM read_parquet({quote_text(file)})"
            ).fetchall()
            self._count += count

    def relation(self) -> duckdb.DuckDBPyRelation:
        """Return the rows of the result: without retracted ones, and at most LIMIT."""
        rows = current(self._columns, Relation("rows")) if self.sink.changing else Select("FROM rows")
        limit = "" if self.sink.limit is None else f" LIMIT {self.sink.limit}"
        return self._con.sql(f"SELECT * FROM ({rows}){limit}")


class TextStream(Protocol):
    """A stream of text, such as a file."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class RowPrinter:
    """Prints the rows of a `print` table or a bare SELECT, at most `limit` of them.

    `is_gone` becomes true when the reader of the stream has closed it, as in `sqlstream run .. | head`.
    """

    def __init__(self, stream: TextStream, sink: SinkPlan, *, title: str = ""):
        self.stream, self.sink, self.title, self.limit = stream, sink, title, sink.limit
        self.columns = sink.columns
        identifier = sink.table.options.get("print-identifier", "")
        self._prefix = f"{identifier}> " if identifier else ""
        self.count = 0
        self.is_gone = False
        self._widths: list[int] | None = None

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.count >= self.limit

    def receive(self, files: Sequence[str]) -> None:
        """Print the rows of the Parquet files of one batch."""
        try:
            self._print_files(files)
        except BrokenPipeError:
            self.is_gone = True

    def _print_files(self, files: Sequence[str]) -> None:
        names = ", ".join(f"CAST({quote_name(name)} AS VARCHAR)" for name in (OPERATION, *dict(self.columns)))
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            for file in files:
                result = con.execute(f"SELECT {names} FROM ({changelog(self.sink, file)})")
                while rows := result.fetchmany(1000):
                    self.write(rows)

    def write(self, rows: Iterable[Sequence[str | None]]) -> None:
        """Print changes: each row has the kind of change, then the values, all as texts. None is printed as NULL."""
        shown = [["NULL" if v is None else printable(v) for v in row] for row in rows]
        if self.limit is not None:
            shown = shown[: self.limit - self.count]
        if not shown:
            return
        if self._widths is None:
            self._header([row[1:] for row in shown])
        for row in shown:
            self._line(row, self._prefix)
        self.count += len(shown)
        self.stream.flush()

    def _header(self, rows: list[list[str]]) -> None:
        cells = zip(*([name for name, _ in self.columns], *rows), strict=True)
        self._widths = [2, *(min(MAX_WIDTH, max(map(len, column))) for column in cells)]
        if self.title:
            self.stream.write(f"-- {self.title}\n")
        blank = " " * len(self._prefix)
        self._line(["", *(name for name, _ in self.columns)], blank)
        self.stream.write(blank + "-+-".join("-" * width for width in self._widths) + "\n")

    def _line(self, cells: Sequence[str], prefix: str) -> None:
        assert self._widths is not None
        types = ["", *(t for _, t in self.columns)]
        padded = [
            c.rjust(w) if is_number(t) else c.ljust(w) for c, w, t in zip(cells, self._widths, types, strict=True)
        ]
        self.stream.write((prefix + " | ".join(padded)).rstrip() + "\n")


def printers(sinks: Sequence[SinkPlan], stream: TextStream, *, titled: bool) -> dict[int, RowPrinter]:
    """Return printers for the sinks that a session prints, by their indexes in the plan.

    With `titled`, the name of the table is above the rows, unless it has a LIMIT.
    """
    shown = {number: sink for number, sink in enumerate(sinks) if isinstance(sink_of(sink.table), SessionSink)}
    titles = {number: sink.table.name if titled and sink.limit is None else "" for number, sink in shown.items()}
    return {number: RowPrinter(stream, sink, title=titles[number]) for number, sink in shown.items()}
