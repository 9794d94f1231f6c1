"""What a Python source or sink is: the classes that a project's own derive from."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# What a method returns that need not return anything; it may be a coroutine.
Done = Awaitable[None] | None


@dataclass(frozen=True, slots=True)
class OwnTable:
    """The table that a source or sink is, as it was declared; `columns` are their types by their names."""

    name: str
    columns: Mapping[str, str]
    primary_key: tuple[str, ...] = ()


class Source:
    """Where rows come from: one or several partitions, each with positions.

    A position is anything that JSON can hold, such as a number of rows or the state of a cursor. The constructor gets the
    table's other options as keyword arguments of the same name (`-` and `.` become `_`), all of them text, and the table, a
    `OwnTable`, if it has a parameter `table`. The driver asks for positions, workers read. The same two positions must
    always give the same rows: a batch may be read again.
    """

    # False: what was read is gone, and a batch that is repeated loses rows.
    replayable: bool = True

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions; new ones may appear, none may go."""
        return ("",)

    def first_position(self, partition: str) -> Any:
        """Return the position before the first row."""
        return 0

    def latest_position(self, partition: str) -> Any:
        """Return the position after the last row that is there now; None: nothing is known of the partition yet."""
        raise NotImplementedError

    def batch_end(self, partition: str, start: Any, latest: Any) -> Any:
        """Return the position at which the next batch ends that begins at `start`; `start` itself is a pause."""
        return latest

    def read(self, partition: str, start: Any, end: Any) -> pa.Table:
        """Return the rows from one position to another, with columns of the declared names."""
        raise NotImplementedError

    def watermark(self, partition: str) -> datetime | None:
        """Return the time before which no further row of the partition will come; None: nothing can be said yet.

        Called on the driver, before `latest_position`: rows that are there already may be earlier. It is a time of the time
        attribute; with a zone it is an instant.
        """
        return None

    def on_commit(self, positions: Mapping[str, Any]) -> None:
        """Learn up to which positions, by partition, committed batches have read: nothing before them is read again.

        Called on the driver after commits, and when a job starts. One call may stand for several batches.
        """


class AnySink:
    """What all kinds of sinks have; derive from one of them.

    The constructor gets the table's options as a source does. Methods may be coroutines (`async def`).
    """

    # Whether rows of a batch that are written again change nothing: then every row counts once.
    idempotent: bool = False
    # Whether results may change; tables have the column `WEIGHT` then: 1 for a row that is added, -1 for one that is taken away.
    takes_changes: bool = False
    # A name that the job has for good in the table, and no other job has. It is set before the first call.
    identity: str = ""

    def on_commit(self, version: int) -> Done:
        """Learn on the driver that the job has committed a batch, and all before it: none of them comes again.

        Called after commits, and when a job starts. One call may stand for several batches.
        """
        return None


class Sink(AnySink):
    """Where rows go, a batch at a time, on the driver.

    After a crash the last batch comes again, under the same number and with the same rows: a sink that knows which number it
    wrote last writes every row exactly once.
    """

    def write(self, batch: int, table: pa.Table) -> Done:
        """Write the rows of a batch. Numbers grow; a batch without rows is left out."""
        raise NotImplementedError


class UpsertSink(AnySink):
    """Where rows with a key go, a batch at a time, on the driver: a row takes the place of the one that has its key.

    The table needs a PRIMARY KEY. Results may change.
    """

    takes_changes = True
    idempotent = True

    def write(self, batch: int, rows: pa.Table, deleted: pa.Table) -> Done:
        """Write the new rows of keys, and delete the rows of other keys; no key is in both, and none twice."""
        raise NotImplementedError


class WriteAheadSink(AnySink):
    """Where rows go, a batch at a time, on the driver, once their batch is committed.

    Until then the job keeps them. After a crash the last batch may be sent again, whole and with the same number.
    """

    def send(self, batch: int, table: pa.Table) -> Done:
        """Send the rows of a committed batch. Numbers grow; a batch without rows is left out."""
        raise NotImplementedError


class TwoPhaseSink(AnySink):
    """Where rows go in parallel: workers write in transactions of the other system, the driver commits them.

    A transaction is whatever `begin` returns, and stays in its process. A token, which JSON can hold, is what another process
    can commit or abort it by once it is prepared; it must survive until then, also when the job is down meanwhile.
    """

    # -- on workers

    def begin(self, batch: int, task: str) -> Any:
        """Begin a transaction. `task` is a name that no other one has; it begins with `identity`."""
        raise NotImplementedError

    def write(self, transaction: Any, table: pa.Table) -> Done:
        """Write some rows. It is called several times in a transaction that has many."""
        raise NotImplementedError

    def prepare(self, transaction: Any) -> Any:
        """Make ready to commit, whatever happens to this process, and return the token."""
        raise NotImplementedError

    def rollback(self, transaction: Any) -> Done:
        """Undo a transaction that was not prepared, because something has failed."""
        return None

    # -- on the driver

    def commit(self, token: Any) -> Done:
        """Commit a prepared transaction. It may have been committed already, before a crash: then do nothing."""
        raise NotImplementedError

    def abort(self, token: Any) -> Done:
        """Abort a prepared transaction, whose batch comes again. It may have been aborted already."""
        raise NotImplementedError

    def recover(self, tokens: Sequence[Any]) -> Done:
        """Abort what processes that died have left under `identity`, but for the transactions of these tokens.

        Called when a job starts, before `commit` is called for each of them.
        """
        return None
