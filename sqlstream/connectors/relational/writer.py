"""Exactly-once writes into a database: one transaction has the rows of a batch and its number.

The table `sqlstream_batches` of the database has a row for each sink of a job, by `SinkContext.identity`, with the number of its
last batch. A batch that is repeated, after a crash or because the answer to a COMMIT was lost, finds its number there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import BatchWriter, DriverSink, SinkContext
from sqlstream.connectors.options import BOOLEAN, NUMBER, TableOption
from sqlstream.connectors.relational.check import CREATE, check_columns, check_key, no_table
from sqlstream.connectors.relational.dialect import BATCHES, DatabaseTable, Dialect
from sqlstream.errors import DataError, JobError, OutageError
from sqlstream.units import parse_boolean

RETRIES = "sink.max-retries"
SINK_OPTIONS = (
    TableOption(CREATE, BOOLEAN, "whether a job that writes the table creates it when it does not exist", "false"),
    TableOption(
        RETRIES,
        NUMBER,
        "how often a batch is written again that failed, each time after a longer wait",
        "10",
        mutable=True,
    ),
)
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
T = TypeVar("T")


class Transaction(ABC):
    """An open transaction that writes a batch through the connection `con`. `target` is the quoted name of the table."""

    def __init__(self, writer: DatabaseWriter, con: Any):
        self.table, self.identity, self.con = writer.table, writer.identity, con
        self.target = writer.dialect.qualified(writer.table.options["table"])

    @abstractmethod
    def last_batch(self) -> int | None:
        """Return the number of this sink's last batch, None before the first. It cannot change until the transaction ends."""

    @abstractmethod
    def set_last_batch(self, number: int) -> None:
        """Store the number of this sink's last batch."""

    @abstractmethod
    def insert(self, batch: Batch) -> None:
        """Insert the rows of an append-only batch."""

    @abstractmethod
    def delete(self, batch: Batch, key: Sequence[Column]) -> None:
        """Delete the rows whose keys a batch removes (`Batch.deletes`); `key` are the columns of the PRIMARY KEY."""

    @abstractmethod
    def upsert(self, batch: Batch, key: Sequence[Column]) -> None:
        """Insert the rows of a batch (`Batch.upserts`), or update the rows of the table with the same keys."""

    def replace(self, batch: Batch) -> None:
        """Apply a batch to a table with a PRIMARY KEY: delete the rows whose keys it removes, and upsert its rows."""
        key = [c for c in batch.columns if c.name in self.table.primary_key]
        if batch.is_changing:
            self.delete(batch, key)
        self.upsert(batch, key)


class DatabaseWriter(BatchWriter):
    """Writes the batches of a job into a table of a database."""

    # Errors after which a transaction may be tried again (see `is_passing`), such as a lost connection or a locked file.
    passing_errors: tuple[type[Exception], ...]
    dialect: Dialect

    def __init__(self, table: Table, context: SinkContext):
        self.table = table
        self.context = context
        self.identity = context.identity()
        self._retries = int(table.options.get(RETRIES, "10"))
        self._notices: list[str] = []

    @abstractmethod
    def prepare(self) -> None:
        """Create the table of batch numbers and, with `sink.create-table`, a missing table; check the table.

        Raises BindError or UsageError if the table cannot be written.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction; the end of the block commits it, an error rolls it back."""

    @abstractmethod
    def describe(self, con: Any, name: str) -> DatabaseTable | None:
        """Return the columns and unique indexes of a table in the database, None if it does not exist."""

    @abstractmethod
    def make(self, con: Any, statement: str) -> None:
        """Create a table by a statement that does nothing if it exists."""

    def recover(self) -> None:
        """Prepare the table, and compare its last batch with the job's; both with retries, as `attempt` does.

        Raises DataError if the table without a PRIMARY KEY has batches that the job has not committed, except the next one.
        """
        self.attempt(self.prepare)
        self.attempt(self._compare_last_batch)

    def write(self, batch: Batch) -> None:
        """Write a batch in one transaction, unless the table has it; with retries, as `attempt` does."""
        self.attempt(lambda: self._write(batch))

    def notices(self) -> Sequence[str]:
        return self._notices

    @property
    def creates(self) -> bool:
        """Whether the table is to be created when it does not exist."""
        return bool(parse_boolean(self.table.options.get(CREATE, "false")))

    def is_passing(self, error: Exception) -> bool:
        """Whether a retry may succeed after an error."""
        return isinstance(error, self.passing_errors)

    def reason(self, error: Exception) -> str:
        """Return the message of an error in one line."""
        return " ".join(str(error).split()) or type(error).__qualname__

    def check_table(self, con: Any) -> None:
        """Create the table if it does not exist and the options ask for it. Raises BindError if it is not as declared."""
        name = self.table.options["table"]
        database_table = self.describe(con, name)
        if database_table is None and self.creates:
            target = self.dialect.qualified(name)
            self.make(con, self.dialect.create(target, self.table.writable, self.table.primary_key))
            database_table = self.describe(con, name)
        if database_table is None:
            raise no_table(self.table, name, self.dialect)
        check_columns(self.table, database_table, self.dialect)
        check_key(self.table, database_table, self.dialect)

    def refused(self, error: Exception, *, detail: str | None = None, hint: str | None = None) -> DataError:
        """Return the error for rows that the database refuses."""
        message = f'{self.dialect.name} refuses rows of table "{self.table.name}": {self.reason(error)}'
        return DataError(message, self.table.span, detail=detail, hint=hint)

    def attempt(self, step: Callable[[], T]) -> T:
        """Run a step; run it again after passing errors, up to `sink.max-retries` times, with delays of 0.1 to 10 seconds.

        Raises OutageError after the last retry, and JobError for one of `passing_errors` that `is_passing` does not accept.
        """
        delay = _FIRST_DELAY
        for attempt in range(self._retries + 1):
            try:
                return step()
            except self.passing_errors as error:
                failed = error
            if not self.is_passing(failed):
                break
            if attempt < self._retries:
                time.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
        tried = f" {attempt + 1} times" if attempt else ""
        reason = self.reason(failed)
        hint = "No row is lost: run the job again, and it continues with the same batch."
        message = f'writing table "{self.table.name}" failed{tried}: {reason}'
        kind = OutageError if self.is_passing(failed) else JobError
        raise kind(message, self.table.span, hint=hint) from failed

    def _write(self, batch: Batch) -> None:
        with self.transaction() as transaction:
            last = transaction.last_batch()
            if last is not None and last >= batch.number:
                return
            if self.table.primary_key:
                transaction.replace(batch)
            else:
                transaction.insert(batch)
            transaction.set_last_batch(batch.number)

    def _compare_last_batch(self) -> None:
        """Compare the table's last batch with the job's. The table may be far ahead if the job's warehouse is an old copy."""
        with self.transaction() as transaction:
            last, committed = transaction.last_batch(), self.context.committed
            if last is None or last <= committed + 1:
                return
            where = f'table "{self.table.options["table"]}" has batches up to {last} of the job'
            if not self.table.primary_key:
                raise DataError(
                    f'table "{self.table.name}": {where}, which has committed {committed} only: its warehouse went back',
                    self.table.span,
                    detail="The batches in between may have other rows the next time, and which ones are theirs is not known.",
                    hint=f"Take back what was written since, and set the batch of {self.identity} to {committed} "
                    f"in {BATCHES}; or start the job afresh, into an empty table.",
                )
            transaction.set_last_batch(committed)
        self._notices.append(f"{where}, which has committed {committed} only: the batches in between are written again")


class DatabaseSink(DriverSink):
    """A table of a database that a job writes, with one transaction per batch."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "a transaction has the rows of a batch and its number"
    rollback = Rollback.ROWS_STAY
    takes_changes = True
    replaces = True
    writer_type: ClassVar[type[DatabaseWriter]]

    def open(self, context: SinkContext) -> DatabaseWriter:
        return self.writer_type(self.table, context)
