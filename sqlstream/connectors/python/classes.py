"""The base classes of a project's own sources and sinks, for the connector `python`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# The result of a method that returns nothing, or a coroutine.
Done = Awaitable[None] | None


@dataclass(frozen=True, slots=True)
class OwnTable:
    """The declared table of a source or sink. `columns` maps the names of its columns to their DuckDB types."""

    name: str
    columns: Mapping[str, str]
    primary_key: tuple[str, ...] = ()


class Source:
    """A source of rows in one or several partitions, each with positions.

    A position is anything that JSON can hold, such as a number of rows or the state of a cursor. The constructor gets the table's
    other options as keyword arguments of the same name (`-` and `.` become `_`), all of them text, and the table, an `OwnTable`,
    if it has a parameter `table`. The driver asks for positions, workers read. `read` must always return the same rows for the
    same two positions, as a batch may be read again.
    """

    # False: rows can be read once only, and a repeated batch loses them.
    replayable: bool = True

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions. New ones may be added later; none may be removed."""
        return ("",)

    def first_position(self, partition: str) -> Any:
        """Return the position before the first row."""
        return 0

    def latest_position(self, partition: str) -> Any:
        """Return the position after the last row that exists now; None if the partition is still unknown."""
        raise NotImplementedError

    def batch_end(self, partition: str, start: Any, latest: Any) -> Any:
        """Return the position, at most `latest`, where a batch that begins at `start` ends. `start` itself reads nothing now."""
        return latest

    def read(self, partition: str, start: Any, end: Any) -> pa.Table:
        """Return the rows from position `start` to before `end`, with columns of the declared names."""
        raise NotImplementedError

    def watermark(self, partition: str) -> datetime | None:
        """Return the partition's watermark: no further row will have an earlier event time; None if it is still unknown.

        Called on the driver, before `latest_position`. The watermark holds for rows after that position only. For a time
        attribute with a time zone the datetime must be aware, an instant; otherwise it must be naive.
        """
        return None

    def on_commit(self, positions: Mapping[str, Any]) -> None:
        """Override this to learn of commits: no row before `positions`, by partition, will be read again.

        Called on the driver after commits, and when a job starts. One call may stand for several batches.
        """


class AnySink:
    """The base of all kinds of sinks. Derive from one of the kinds.

    The constructor gets the table's options in the same way as a Source. Methods may be coroutines (`async def`).
    """

    # Whether writing a batch again changes nothing, so that every row counts once.
    idempotent: bool = False
    # Whether results may change. Then tables have the column `WEIGHT`: how often a row is added, negative for removed rows.
    takes_changes: bool = False
    # The job's unique, permanent name in the table. It is set before the first call of a method.
    identity: str = ""

    def on_commit(self, version: int) -> Done:
        """Override this to learn of commits: the job will write neither batch `version` nor an earlier one again.

        Called on the driver after commits, and when a job starts. One call may stand for several batches.
        """
        return None


class Sink(AnySink):
    """A sink that the driver writes, a batch at a time.

    After a crash the last batch comes again, with the same number and the same rows. A sink that stores the number of its last
    batch can skip it, and so write every row exactly once.
    """

    def write(self, batch: int, table: pa.Table) -> Done:
        """Write the rows of a batch, in the table's columns. Numbers increase; batches without rows are left out."""
        raise NotImplementedError


class UpsertSink(AnySink):
    """A sink that the driver upserts, a batch at a time: a row replaces the one with the same key.

    The table needs a PRIMARY KEY. Results may change.
    """

    takes_changes = True
    idempotent = True

    def write(self, batch: int, rows: pa.Table, deleted: pa.Table) -> Done:
        """Upsert `rows`, and delete the rows with the keys in `deleted`, which has the key's columns.

        No key is in both, and none is in one of them twice.
        """
        raise NotImplementedError


class WriteAheadSink(AnySink):
    """A sink to which the driver sends a batch at a time, after its commit.

    Until then the job stores the rows. After a crash the last batches may be sent again, whole and with the same numbers.
    """

    def send(self, batch: int, table: pa.Table) -> Done:
        """Send the rows of a committed batch, in the table's columns. Numbers increase; batches without rows are left out."""
        raise NotImplementedError


class TwoPhaseSink(AnySink):
    """A sink with two-phase commits: workers write in parallel, in transactions of the other system, and the driver commits them.

    `begin` returns a transaction, any object, which stays in its process. `prepare` returns its token, a JSON value, by which
    another process can commit or abort it. A prepared transaction must survive until then, even while the job is down.
    """

    # -- on workers

    def begin(self, batch: int, task: str) -> Any:
        """Begin a transaction and return it. `task` is a unique name for it, which begins with `identity`."""
        raise NotImplementedError

    def write(self, transaction: Any, table: pa.Table) -> Done:
        """Write some rows, in the table's columns. It is called several times per transaction, if there are many rows."""
        raise NotImplementedError

    def prepare(self, transaction: Any) -> Any:
        """Prepare a transaction, so that it can be committed even if this process dies, and return its token."""
        raise NotImplementedError

    def rollback(self, transaction: Any) -> Done:
        """Roll back a transaction that is not prepared, as its task has failed."""
        return None

    # -- on the driver

    def commit(self, token: Any) -> Done:
        """Commit a prepared transaction. If it was committed before a crash, do nothing."""
        raise NotImplementedError

    def abort(self, token: Any) -> Done:
        """Abort a prepared transaction, whose batch is written again. It may have been aborted already."""
        raise NotImplementedError

    def recover(self, tokens: Sequence[Any]) -> Done:
        """Abort all transactions of `identity` that earlier processes left open, except those with these tokens.

        Called when a job starts, before `commit` is called for each of these tokens.
        """
        return None
